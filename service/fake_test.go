package service

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// script is a Runner that answers from a table and writes down what it is asked.
type script struct {
	t       *testing.T
	answers map[string]answer // by the beginning of the command line; the longest counts
	ran     []string
	env     [][]string
}

type answer struct {
	text string
	err  error
}

func (s *script) Run(_ context.Context, c Command, stdout io.Writer) error {
	line := strings.Join(c.Argv, " ")
	s.ran = append(s.ran, line)
	s.env = append(s.env, c.Env)
	best, found := answer{}, -1
	for prefix, a := range s.answers {
		if strings.HasPrefix(line, prefix) && len(prefix) > found {
			best, found = a, len(prefix)
		}
	}
	if best.text != "" {
		if _, err := io.WriteString(stdout, best.text); err != nil {
			s.t.Error(err)
		}
	}
	return best.err
}

// changes are the commands that do not only ask.
func (s *script) changes() []string {
	return slices.DeleteFunc(slices.Clone(s.ran), func(line string) bool {
		return strings.Contains(line, " show") || strings.Contains(line, " print")
	})
}

func failing(code int, complaint string) error {
	return &CommandError{Argv: []string{"program"}, Code: code, Complaint: complaint}
}

// world is a Config with a home of its own.
func world(t *testing.T, r Runner, variables map[string]string) Config {
	t.Helper()
	root := t.TempDir()
	return Config{Runner: r, Getenv: func(name string) string { return variables[name] }, UID: 1000, User: "ada",
		HomeDir: filepath.Join(root, "home"), Root: root}
}

func makeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
