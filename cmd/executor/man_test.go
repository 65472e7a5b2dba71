package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestEveryCommandAndTopicHasItsManualPage(t *testing.T) {
	m := newMachine(t)
	if s := m.run("man", ""); s.code != exitUsage { // which is no folder, nor the current one
		t.Errorf("%+v", s)
	}
	dir := filepath.Join(t.TempDir(), "not", "yet")
	if s := m.run("man", dir); s.code != 0 || s.stdout+s.stderr != "" {
		t.Fatalf("%+v", s)
	}
	everyCommand(newRoot(&app{getenv: func(string) string { return "" }}), func(c *cobra.Command) {
		if c.Name() == "help" {
			return
		}
		text, err := os.ReadFile(filepath.Join(dir, manName(c)+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(string(text), roff("--"+f.Name)) {
				t.Errorf("%s: nothing of --%s", manName(c), f.Name)
			}
		})
	})
}

func TestManualPagesAreSoundRoff(t *testing.T) {
	if _, err := exec.LookPath("groff"); err != nil {
		if os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
			t.Fatal("groff is not installed; scripts/packages installs it")
		}
		t.Skip("groff is not installed; scripts/packages installs it")
	}
	for name, text := range manPages(newRoot(&app{getenv: func(string) string { return "" }})) {
		cmd := exec.Command("groff", "-man", "-Tutf8", "-ww", "-rLL=78n")
		cmd.Stdin = strings.NewReader(text)
		var complaints strings.Builder
		cmd.Stderr = &complaints
		page, err := cmd.Output()
		if err != nil || complaints.Len() > 0 {
			t.Errorf("%s: %v\n%s", name, err, complaints.String())
		}
		if name == "sema-exit-codes.1" && !strings.Contains(string(page), "  0    done; of serve: stopped by a signal") {
			t.Errorf("the table is out of shape:\n%s", page)
		}
	}
}

func TestHelpTopicsAreFound(t *testing.T) {
	m := newMachine(t)
	if s := m.run("--help"); !strings.Contains(s.stdout, "exit-codes") || strings.Contains(s.stdout, "Write the manual pages") {
		t.Errorf("%+v", s)
	}
	for topic, want := range map[string]string{"exit-codes": "superseded", "environment": "SEMA_HOME", "files": "activity.jsonl"} {
		s := m.run("help", topic)
		if s.code != 0 || !strings.Contains(s.stdout, want) {
			t.Errorf("%s: %+v", topic, s)
		}
		fits(t, topic, s.stdout)
	}
}
