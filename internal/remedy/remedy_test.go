package remedy

import (
	"os/exec"
	"strings"
	"testing"
)

func TestACommandIsAboutTheDeviceThatIsNamed(t *testing.T) {
	words := make([]string, 2, 8)
	copy(words, []string{"service", "logs"})
	for id, want := range map[string]string{
		"":      "sema device service logs",
		"dev_1": "sema device service logs --device dev_1",
		"a b":   "sema device service logs --device 'a b'",
	} {
		if got := For(id, words...); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
	if got, want := Step("Look", Command("list")), "Look:\n  sema device list"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOnlyWordsThatNeedQuotesGetThem(t *testing.T) {
	for in, want := range map[string]string{
		"/plain/path-1.x": "/plain/path-1.x", "https://host:8443/p": "https://host:8443/p",
		"": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "naïve": "'naïve'", "~": "'~'",
		"a=b": "a=b", "=ls": "'=ls'", // which zsh would take for /bin/ls
	} {
		if got := Quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// A real shell takes what is quoted for the word it was.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "/a/b.c", "it's", "a b", "$HOME", "`x`", "\\", "new\nline", "*", "-x", "http://h:1/?a=b&c", "ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			t.Skip("no word of a command has a NUL")
		}
		// Between two others, so that one which vanishes or becomes two is seen.
		out, err := exec.Command("/bin/sh", "-c", "printf '%s|' before "+Quote(s)+" after").Output()
		if err != nil || string(out) != "before|"+s+"|after|" {
			t.Errorf("%q becomes %q, %v", s, out, err)
		}
	})
}
