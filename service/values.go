package service

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/internal/remedy"
)

// check refuses values that no manager's file can hold.
func (s Spec) check() error {
	if err := checkID(s.DeviceID); err != nil {
		return err
	}
	for what, path := range map[string]string{"the program's path": s.Binary, "SEMA_HOME": s.Home} {
		if !filepath.IsAbs(path) {
			return &ValueError{What: what, Value: path, Why: "it must be absolute"}
		}
	}
	values := map[string][]string{
		"the program's path": {s.Binary},
		"an argument":        s.arguments(),
		"a variable":         s.environment(),
	}
	for what, all := range values {
		for _, v := range all {
			if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
				return &ValueError{What: what, Value: v, Why: "a service's file cannot hold control characters or bytes that are not UTF-8",
					Remedy: "Rename it, or give it a second name with a link."}
			}
		}
	}
	return nil
}

// checkID refuses what is no device id: it becomes part of a file's name.
func checkID(deviceID string) error {
	if !idForm.MatchString(deviceID) {
		return &ValueError{What: "the device", Value: deviceID, Why: "it is not a device id", Remedy: remedy.Step("See which there are", remedy.Command("list"))}
	}
	return nil
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// carried are the variables that decide how the server is reached. A session
// that has them needs them; a service manager would start without.
var carried = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// CarriedEnvironment picks from the present environment what the service needs
// in its own to reach the server, NAME=value each. A proxy with a password in its
// address is left out, since the service's file is no place for one; a note says
// where to put it.
func CarriedEnvironment(getenv func(string) string) (pairs, notes []string) {
	for _, name := range carried {
		value := getenv(name)
		if value == "" {
			continue
		}
		if lower := strings.ToLower(name); strings.HasSuffix(lower, "_proxy") && lower != "no_proxy" && hasPassword(value) {
			notes = append(notes, name+" holds a password, so it is not written to the service's file. "+
				"If the service needs it, put it into the environment of your service manager.")
			continue
		}
		if strings.HasPrefix(name, "SSL_CERT_") {
			value = fromAnywhere(value)
		}
		pairs = append(pairs, name+"="+value)
	}
	return pairs, notes
}

// fromAnywhere makes the paths of a list absolute: a service starts in another
// folder than this one.
func fromAnywhere(list string) string {
	paths := filepath.SplitList(list)
	for i, p := range paths {
		if absolute, err := filepath.Abs(p); err == nil && p != "" {
			paths[i] = absolute
		}
	}
	return strings.Join(paths, string(filepath.ListSeparator))
}

// hasPassword reports whether a proxy's address carries credentials. Without a
// scheme it is still an address: user:pass@host:port.
func hasPassword(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		u, err = url.Parse("http://" + address)
	}
	if err != nil {
		return strings.Contains(address, "@") // unreadable: take no chance
	}
	return u.User != nil
}
