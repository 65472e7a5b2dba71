package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLinesAreFoldedAtBlanksThenAtSeparators(t *testing.T) {
	for text, want := range map[string][]string{
		"":                         {""},
		"fits  as it is":           {"fits  as it is"},
		"one two three four five":  {"one two three", "four five"},
		"/usr/local/sbin:/usr/bin": {"/usr/local/", "sbin:/usr/bin"},
		"/usr/bin:/usr/sbin":       {"/usr/bin:", "/usr/sbin"},
		"abcdefghijklmnopqrstu":    {"abcdefghijklmn", "opqrstu"},
		"ééééééé éééééééé":         {"ééééééé", "éééééééé"},
		"a /usr/local/sbin:/bin b": {"a", "/usr/local/", "sbin:/bin b"},
	} {
		if got := fold(text, 14); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestACommandIsFoldedSoThatItCanBePasted(t *testing.T) {
	const width = 24
	for command, want := range map[string]string{
		"chmod go= /a/b":                        "chmod go= /a/b",
		"sema device enroll --server https://x": "sema device enroll \\\n  --server https://x",
		"mkdir -p '/with many blanks in   it'":  "mkdir -p \\\n  '/with many blanks in   it'",
		`rm '/it'\''s here' '/and   there'`:     "rm '/it'\\''s here' \\\n  '/and   there'",
		`echo "a   b" c d e f g h i j k`:        `echo "a   b" c d e f g h i j k`,
		`echo 'never closed a b c d e`:          `echo 'never closed a b c d e`,
		"rm /" + strings.Repeat("long/", 9):     "rm \\\n  /" + strings.Repeat("long/", 9),
	} {
		if got := foldCommand(command, "  ", width); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStrangersWordsDoNotReachTheTerminalRaw(t *testing.T) {
	for text, want := range map[string]string{
		"plain é": "plain é", "a\nb\tc": `a\nb\tc`, "\x1b[2J": `\x1b[2J`, "\u202ereversed": `\u202ereversed`, "\u009b": `\u009b`, "bad \xff": "bad \ufffd",
	} {
		if got := shown(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestListTellsDevicesApart(t *testing.T) {
	m := newMachine(t)
	workspace := filepath.Join(t.TempDir(), strings.Repeat("long-name-", 12))
	if err := os.Mkdir(workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	m.enroll(workspace)
	if s := m.run("device", "enroll", "--server", m.url, "--workspace", t.TempDir(), "--key-store", "file", "--name", strings.Repeat("Ada's ", 30)); s.code != 0 {
		t.Fatalf("%+v", s)
	}
	s := m.run("device", "list")
	fits(t, "list", s.stdout)
	text := strings.Join(strings.Fields(s.stdout), "")
	for _, r := range m.records() {
		for _, want := range []string{r.DeviceID, r.WorkspaceRoot, r.Server.String(), "key: file"} {
			if !strings.Contains(text, strings.Join(strings.Fields(want), "")) {
				t.Errorf("without %q:\n%s", want, s.stdout)
			}
		}
	}
}
