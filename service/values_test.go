package service

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOnlyWhatReachesTheServerIsCarriedAndNoPassword(t *testing.T) {
	environment := map[string]string{
		"HTTPS_PROXY":        "http://proxy.example.com:3128",
		"http_proxy":         "http://ada:geheim@proxy.example.com:3128",
		"HTTP_PROXY":         "ada:geheim@proxy:3128",
		"NO_PROXY":           "localhost,@odd",
		"SSL_CERT_FILE":      "/etc/ca.pem",
		"SEMA_CREDENTIAL":    "geheim",
		"SEMA_ENROLL_TOKEN":  "geheim",
		"PATH":               "/bin",
		"UNRELATED":          "geheim",
		"https_proxy":        "",
		"SSL_CERT_DIR_OTHER": "geheim",
	}
	pairs, notes := CarriedEnvironment(func(name string) string { return environment[name] })
	want := []string{"HTTPS_PROXY=http://proxy.example.com:3128", "NO_PROXY=localhost,@odd", "SSL_CERT_FILE=/etc/ca.pem"}
	if !slices.Equal(pairs, want) {
		t.Errorf("carried %q", pairs)
	}
	all := strings.Join(notes, "\n")
	if strings.Contains(all, "geheim") || !strings.Contains(all, "http_proxy") || !strings.Contains(all, "HTTP_PROXY") || len(notes) != 2 {
		t.Errorf("notes %q", notes)
	}
}

// A service starts in another folder than the one it was installed from.
func TestCertificatesAreCarriedByTheirFullPath(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	environment := map[string]string{"SSL_CERT_FILE": "ca.pem", "SSL_CERT_DIR": "certs:/etc/ssl/certs"}
	pairs, _ := CarriedEnvironment(func(name string) string { return environment[name] })
	want := []string{"SSL_CERT_FILE=" + filepath.Join(here, "ca.pem"), "SSL_CERT_DIR=" + filepath.Join(here, "certs") + ":/etc/ssl/certs"}
	if !slices.Equal(pairs, want) {
		t.Errorf("carried %q, want %q", pairs, want)
	}
}

func TestProxyPasswordsAreSeen(t *testing.T) {
	for address, want := range map[string]bool{
		"http://proxy:3128": false, "proxy:3128": false, "proxy": false, "socks5://h:1": false,
		"http://u:p@proxy:3128": true, "u:p@proxy:3128": true, "u@proxy": true, "http://u:p%zz@proxy": true, "socks5://u:p@h:1": true,
	} {
		if got := hasPassword(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

// The name a program is called by outlives an upgrade; what it links to does not.
func TestTheBinaryIsNamedAsItWasCalled(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(base, "none"))
	versioned := filepath.Join(base, "cellar", "1.2", "sema")
	makeFile(t, versioned)
	link := filepath.Join(base, "bin", "sema")
	if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(versioned, link); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(base, "other", "sema")
	makeFile(t, other)
	t.Setenv("PATH", filepath.Dir(link))
	for typed, want := range map[string]string{
		"sema":       link,      // found on PATH
		link:         link,      // typed in full
		versioned:    versioned, // typed behind the link
		other:        versioned, // argv[0] lies
		"unheard-of": versioned,
		"":           versioned,
	} {
		path, warnings, err := StableBinary(typed, versioned)
		if err != nil || path != want || len(warnings) > 0 {
			t.Errorf("typed %q: %s, %q, %v; want %s", typed, path, warnings, err, want)
		}
	}
	t.Chdir(filepath.Dir(link))
	if path, _, err := StableBinary("./sema", versioned); err != nil || path != link {
		t.Errorf("typed relative: %s, %v", path, err)
	}
}

func TestABinaryThatMayNotLastIsSaid(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(base, "tmp"))
	checkout := filepath.Join(base, "source")
	makeFile(t, filepath.Join(checkout, "go.mod"))
	for _, c := range []struct{ path, warning string }{
		{filepath.Join(checkout, "bin", "sema"), "inside the source folder " + checkout},
		{filepath.Join(base, "tmp", "sema"), "temporary files"},
	} {
		_, warnings, err := StableBinary(c.path, c.path)
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], c.warning) {
			t.Errorf("%s: %q, %v", c.path, warnings, err)
		}
	}
	var value *ValueError
	if _, _, err := StableBinary("x", filepath.Join(base, "go-build123456", "b001", "exe", "sema")); !errors.As(err, &value) {
		t.Errorf("go run: %v", err)
	}
}
