package main

import (
	"slices"
	"strings"
	"testing"
)

func TestShellsAreToldWhatFlagsTake(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	for line, want := range map[string]string{
		"device serve --device ":            id,
		"device service logs --device dev_": id,
		"device enroll --key-store ":        "keychain",
		"device service install --env ":     "login",
		"device activity --kind w":          "writeFile",
		"device activity --outcome fa":      "failed",
		"device key move ":                  "keychain",
		"device ser":                        "serve",
	} {
		words := strings.Split(line, " ") // the last one, which may be empty, is to be completed
		s := m.run(append([]string{"__complete"}, words...)...)
		var offered []string
		for l := range strings.Lines(s.stdout) {
			word, _, _ := strings.Cut(strings.TrimSpace(l), "\t")
			offered = append(offered, word)
		}
		if s.code != 0 || !slices.Contains(offered, want) {
			t.Errorf("%q: %q", line, offered)
		}
	}
}
