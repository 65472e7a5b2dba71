package conformance

import (
	"os"
	"slices"
	"strings"
)

// place is what a command line is told of its row; temp is its TMPDIR, and user its
// HOME.
type place struct {
	server, home, workspace, temp, user, credential string
}

// fill puts the row's words into a command line.
func (p place) fill(line string) string {
	return strings.NewReplacer(
		"{server}", quote(p.server),
		"{home}", quote(p.home),
		"{workspace}", quote(p.workspace),
		"{credential}", quote(p.credential),
	).Replace(line)
}

// quote makes one word of the shell of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// withheld are the variables that would lead to a server, a home or a keychain other
// than the row's. Of XDG's folders all but the runtime one are below HOME when unset;
// the bus is where a Secret Service is.
var withheld = []string{"SEMA_SERVER", "SEMA_HOME", "SEMA_WORKSPACE", "SEMA_CREDENTIAL", "SEMA_ENROLL_TOKEN", "TMPDIR", "HOME", markName,
	"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"}

// environ is the environment of a command line: this process's own, less what is
// withheld, and with folders of the row's in its place.
func (p place) environ(enrolling bool) []string {
	var env []string
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains(withheld, name) {
			env = append(env, v)
		}
	}
	env = append(env, "SEMA_SERVER="+p.server, "SEMA_HOME="+p.home, "SEMA_WORKSPACE="+p.workspace, "TMPDIR="+p.temp, "HOME="+p.user)
	if enrolling {
		env = append(env, "SEMA_CREDENTIAL="+p.credential)
	}
	return env
}

// Ours returns the two command lines of the `sema` binary at path.
func Ours(path string) (enroll, serve string) {
	self := quote(path)
	return self + " device enroll --server {server} --workspace {workspace} --key-store file --name conformance --json",
		self + " device serve --env inherit"
}
