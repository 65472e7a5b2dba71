package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sema-agent/device-executor/enroll"
)

// Every failure a person may meet on the way says what is wrong in lines that
// fit, in plain words, and what to do about it.
func TestEveryFailureHasItsRemedy(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>Sign in</title>"))
	}))
	t.Cleanup(page.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it hears of those who turn away
	secure.StartTLS()
	t.Cleanup(secure.Close)

	// Nobody can make a file there, not even root.
	unwritable := "/proc/self"
	if runtime.GOOS == "darwin" {
		unwritable = "/System"
	}

	for name, c := range map[string]struct {
		prepare func(t *testing.T, m *machine)
		line    string // SERVER, PAGE, SECURE and DEVICE stand for addresses and an id
		code    int
		remedy  string
	}{
		"no server named":                   {nil, "device enroll", exitUsage, "--server URL"},
		"not an address":                    {nil, "device enroll --server sema.example.com", exitUsage, "looks like https://"},
		"not encrypted":                     {nil, "device enroll --server http://sema.example.com", exitUsage, "use https://"},
		"no credential":                     {without("SEMA_CREDENTIAL"), "device enroll --server SERVER", exitUsage, "set SEMA_CREDENTIAL"},
		"a credential with blanks":          {with("SEMA_CREDENTIAL", "a b"), "device enroll --server SERVER", exitUsage, ""},
		"nothing listens":                   {nil, "device enroll --server http://127.0.0.1:1", exitUnexpected, "Check that the address and port"},
		"a page answers":                    {nil, "device enroll --server PAGE", exitUnexpected, "Check --server"},
		"a stranger's certificate":          {nil, "device enroll --server SECURE", exitUnexpected, "SSL_CERT_FILE"},
		"no file of certificates":           {with("SSL_CERT_FILE", "/no/such/ca.pem"), "device enroll --server SERVER", exitUsage, "or unset SSL_CERT_FILE"},
		"a file without certificates":       {with("SSL_CERT_FILE", os.DevNull), "device enroll --server SERVER", exitUsage, "or unset SSL_CERT_FILE"},
		"an unknown token":                  {with("SEMA_ENROLL_TOKEN", theToken), "device enroll --server SERVER --key-store file", exitRefused, "Get a new enrollment token"},
		"a workspace that is missing":       {nil, "device enroll --server SERVER --workspace /no/such/folder", exitUsage, "Name one that is there"},
		"a workspace without room for work": {nil, "device enroll --server SERVER --workspace UNWRITABLE", exitUsage, "choose another with --workspace"},
		"a keychain that is missing":        {nil, "device enroll --server SERVER --key-store keychain", exitKeyUnusable, "--key-store file"},
		"a key store unheard of":            {nil, "device enroll --server SERVER --key-store cloud", exitUsage, "keychain, file"},
		"nothing enrolled":                  {nil, "device serve", exitNoDevice, "sema device enroll"},
		"no such device":                    {nil, "device status --device dev_01J8ZQ4T9X0000000000000000", exitNoDevice, "sema device list"},
		"several devices": {func(_ *testing.T, m *machine) { m.enroll(""); m.enroll("") },
			"device serve", exitUsage, "--device ID"},
		"a key others can read": {func(t *testing.T, m *machine) {
			if err := os.Chmod(filepath.Join(m.record(m.enroll("")).Dir(), "key"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "device serve", exitKeyUnusable, "chmod go="},
		"a broken record": {func(t *testing.T, m *machine) {
			if err := os.WriteFile(filepath.Join(m.record(m.enroll("")).Dir(), "device.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "device serve", exitNoDevice, "Mend the file"},
		"a garbled record": {func(t *testing.T, m *machine) {
			path := filepath.Join(m.record(m.enroll("")).Dir(), "device.json")
			if err := os.WriteFile(path, []byte(`{"deviceId": 7, "enrolledAt": "x", }`), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "device status", exitNoDevice, "it is not JSON from byte"},
		"a log file nobody can make":             {nil, "device serve --log-file UNWRITABLE/log/x", exitUsage, "or make it first"},
		"a log file that is a folder":            {nil, "device serve --log-file /", exitUsage, "name a file"},
		"a log file below a file":                {nil, "device serve --log-file /dev/null/x", exitUsage, "name another place"},
		"a credential file that is missing":      {nil, "device enroll --server SERVER --credential-file /no/such/file", exitUsage, "Name one that is there"},
		"a home nobody can read":                 {with("SEMA_HOME", "/dev/null"), "device list", exitUnexpected, "A part of that path is a file"},
		"a home nobody can make":                 {with("SEMA_HOME", "/proc/self/x"), "device enroll --server SERVER", exitUnexpected, "Name another place"},
		"a file to put that is missing":          {nil, "device try --put /no/such/file:/tmp/x", exitUnexpected, "Name one that is there"},
		"a workspace to try that is missing":     {nil, "device try --workspace /no/such/folder -- true", exitUsage, "name a folder that is"},
		"a folder for manual pages below a file": {nil, "man /dev/null/x", exitUnexpected, "A part of that path is a file"},
		"a shell that is missing":                {func(_ *testing.T, m *machine) { m.enroll("") }, "device serve --shell /no/such/sh --env inherit", exitUsage, "Name one that is there"},
		"a drain below zero":                     {nil, "device serve --drain-timeout -1s", exitUsage, "negative"},
		"lines below zero":                       {func(_ *testing.T, m *machine) { m.enroll("") }, "device service logs --lines=-1", exitUsage, "a number of lines"},
		"a row that is not there":                {nil, "device conformance --only nothing-*", exitUsage, "--list"},
		"no keychain to move to": {func(_ *testing.T, m *machine) { m.enroll("") },
			"device key move keychain", exitKeyUnusable, "DBUS_SESSION_BUS_ADDRESS"},
		"nowhere to move to":        {nil, "device key move", exitUsage, "sema device key move file"},
		"nobody to confirm":         {func(_ *testing.T, m *machine) { m.enroll("") }, "device unenroll", exitUsage, "--yes"},
		"no such command":           {nil, "device statsu", exitUsage, `Did you mean "status"?`},
		"no flag at all":            {nil, "device enroll https://sema.example.com", exitUsage, "'sema device enroll' takes flags alone"},
		"no such flag":              {nil, "device list --jsn", exitUsage, "sema device list --help"},
		"a time nobody understands": {nil, "device activity --since yesterday", exitUsage, "90m or 2h"},
		"a kind nobody knows":       {nil, "device activity --kind shell", exitUsage, "The kinds are exec"},
		"an outcome nobody knows":   {nil, "device activity --outcome good", exitUsage, "The outcomes are ok"},
		"a limit that is no number": {nil, "device activity -n ten", exitUsage, "-n, --limit takes a whole number, not \"ten\""},
		"a drain without a unit":    {nil, "device serve --drain-timeout 10", exitUsage, "--drain-timeout takes a time like 90s, 5m or 2h, not \"10\""},
		"neither yes nor no":        {nil, "device list --json=perhaps", exitUsage, "--json takes true or false, not \"perhaps\""},
		"a limit below zero":        {nil, "device activity --limit=-1", exitUsage, "0 for all"},
		"nothing to try":            {nil, "device try", exitUsage, "for example"},
		"no environment like that":  {nil, "device serve --env shell", exitUsage, "inherit, login or auto"},
		"no log level like that":    {nil, "device serve --log-level loud", exitUsage, "debug, info, warn, error"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			t.Chdir(t.TempDir()) // the default workspace
			if c.prepare != nil {
				c.prepare(t, m)
			}
			line := strings.NewReplacer("SERVER", m.url, "PAGE", page.URL, "SECURE", secure.URL, "UNWRITABLE", unwritable).Replace(c.line)
			s := m.run(strings.Fields(line)...)
			if s.code != c.code {
				t.Errorf("exit %d, want %d", s.code, c.code)
			}
			if s.stdout != "" {
				t.Errorf("a failure on stdout: %q", s.stdout)
			}
			oneLine := strings.Join(strings.Fields(s.stderr), " ")
			if !strings.Contains(s.stderr, "sema: ") || !strings.Contains(oneLine, c.remedy) {
				t.Errorf("no remedy %q in\n%s", c.remedy, s.stderr)
			}
			fits(t, line, s.stderr)
			inPlainWords(t, line, s.stderr)
		})
	}
}

func with(name, value string) func(*testing.T, *machine) {
	return func(_ *testing.T, m *machine) { m.env[name] = value }
}

func without(name string) func(*testing.T, *machine) { return with(name, "") }

// everyCommand visits the commands a person can run.
func everyCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			everyCommand(sub, visit)
		}
	}
}

func TestWordsThatMeanNothingAreRefused(t *testing.T) {
	m := newMachine(t)
	for _, line := range []string{"nosuch", "help nosuch", "help device nosuch", "completion nosh", "completion bash more", "device key nosuch", "device list more", "version more"} {
		if s := m.run(strings.Fields(line)...); s.code != exitUsage || s.stdout != "" || s.stderr == "" {
			t.Errorf("sema %s: %+v", line, s)
		}
	}
	for _, line := range []string{"completion tcsh", "x"} {
		if s := m.run(strings.Fields(line)...); strings.Contains(s.stderr, "Did you mean") {
			t.Errorf("sema %s: %s", line, s.stderr)
		}
	}
	if s := m.run(""); s.code != exitUsage || strings.Contains(s.stderr, "Did you mean") {
		t.Errorf("an empty word: %+v", s)
	}
	for _, line := range []string{"help", "help device serve", "completion", "completion bash"} {
		if s := m.run(strings.Fields(line)...); s.code != exitOK || s.stdout == "" || s.stderr != "" {
			t.Errorf("sema %s: exit %d, %s", line, s.code, s.stderr)
		}
	}
}

func TestAnEmptyValueIsNotTakenForAFlagThatWasNotGiven(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	n := 0
	everyCommand(newRoot(&app{getenv: func(string) string { return "" }}), func(c *cobra.Command) {
		if c.HasSubCommands() || strings.HasPrefix(c.CommandPath(), "sema completion") {
			return
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch f.Value.Type() {
			case "bool", "int", "duration":
				return
			}
			n++
			words := append(strings.Fields(c.CommandPath())[1:], "--"+f.Name, "")
			if c.Name() == "move" {
				words = append(words, enroll.StoreFile)
			}
			s := m.run(words...)
			if s.code != exitUsage || s.stdout != "" || !strings.Contains(s.stderr, "--"+f.Name+" is empty: give it its ") {
				t.Errorf("%q: %+v", words, s)
			}
			fits(t, strings.Join(words, " "), s.stderr)
		})
	})
	if n < 20 {
		t.Errorf("only %d flags were tried", n)
	}
	if s := m.run("device", "unenroll", "--yes", "--device", ""); s.code != exitUsage {
		t.Errorf("%+v", s)
	}
	m.record(id)
}

func TestTheVersionIsAskedForAsEverywhere(t *testing.T) {
	m := newMachine(t)
	want := m.run("version")
	if got := m.run("--version"); got != want || got.code != 0 || !strings.HasPrefix(got.stdout, "sema ") {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestEveryCommandsHelpFitsAndHasAnExample(t *testing.T) {
	m := newMachine(t)
	everyCommand(newRoot(&app{getenv: func(string) string { return "" }}), func(c *cobra.Command) {
		words := append(strings.Fields(c.CommandPath())[1:], "--help")
		s := m.run(words...)
		if s.code != 0 || s.stderr != "" {
			t.Errorf("%s: %+v", c.CommandPath(), s)
		}
		fits(t, c.CommandPath()+" --help", s.stdout)
		builtIn := slices.Contains([]string{"help", "completion"}, strings.Fields(c.CommandPath() + " x")[1])
		if c.Runnable() && !c.HasSubCommands() && !builtIn && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
	})
}
