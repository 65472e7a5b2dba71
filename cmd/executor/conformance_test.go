package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/conformance"
)

func TestConformanceJudgesThisProgram(t *testing.T) {
	t.Setenv(asMain, "1") // the two command lines are this test binary
	m := newMachine(t)
	junit := filepath.Join(t.TempDir(), "junit.xml")
	s := m.run("device", "conformance", "--only", "exec-output", "--only", "R11-killed", "--junit", junit)
	if s.code != 0 || strings.Count(s.stdout, "pass  ") != 2 || !strings.Contains(s.stdout, "2 passed, 0 failed") {
		t.Errorf("exit %d\n%s%s", s.code, s.stdout, s.stderr)
	}
	b, err := os.ReadFile(junit)
	if err != nil || !strings.Contains(string(b), `tests="2"`) {
		t.Errorf("the JUnit report: %v\n%s", err, b)
	}
}

func TestConformanceSaysWhatAnotherExecutorDoesWrong(t *testing.T) {
	t.Setenv(asMain, "1")
	m := newMachine(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	enroll, serve := conformance.Ours(self)
	s := m.run("device", "conformance", "--only", "enroll-body", "--json", "--executor", serve,
		"--enroll", strings.Replace(enroll, "{workspace}", "/tmp", 1))
	var report struct {
		Failed int
		Rows   []struct {
			ID       string
			Findings []string
		}
	}
	if err := json.Unmarshal([]byte(s.stdout), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, s.stdout, s.stderr)
	}
	if s.code != exitUnexpected || report.Failed != 1 || len(report.Rows) != 1 || len(report.Rows[0].Findings) == 0 ||
		!strings.Contains(report.Rows[0].Findings[0], `workspaceRoot is "/tmp"`) {
		t.Errorf("exit %d: %+v", s.code, report)
	}
}

func TestConformanceJudgesNothingWithoutAnExecutor(t *testing.T) {
	m := newMachine(t)
	junit := filepath.Join(t.TempDir(), "no", "such", "folder")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"0 devices registered", []string{"--enroll", "true", "--executor", "true"}},
		{"whole path", []string{"--enroll", "./not-in-the-folder-of-a-row", "--executor", "true"}},
		{"JUnit", []string{"--junit", junit}},
	} {
		s := m.run(append([]string{"device", "conformance", "--only", "enroll-403"}, c.args...)...)
		if s.code != exitUnexpected || s.stdout != "" || !strings.Contains(s.stderr, c.want) {
			t.Errorf("%v: exit %d\n%s%s", c.args, s.code, s.stdout, s.stderr)
		}
	}
}

func TestConformanceListsItsRows(t *testing.T) {
	m := newMachine(t)
	s := m.run("device", "conformance", "--list", "--only", "R6-*")
	if s.code != 0 || !strings.HasPrefix(s.stdout, "ROW") || !strings.Contains(s.stdout, "R6-device-seq") {
		t.Errorf("exit %d\n%s%s", s.code, s.stdout, s.stderr)
	}
	s = m.run("device", "conformance", "--list", "--json")
	var rows []listedRow
	if err := json.Unmarshal([]byte(s.stdout), &rows); err != nil || len(rows) < 100 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// On a terminal rows are folded, and below them whatever is told of a failed one;
// a pipe gets each row in a line, for scripts to look for.
func TestConformanceRowsFitATerminalAndAreLinesInAPipe(t *testing.T) {
	m := newMachine(t)
	_, env := freshMachine(t)
	onLines := m.run("device", "conformance", "--list").stdout
	rows := conformance.Rows()
	if n := strings.Count(onLines, "\n"); n != len(rows)+1 {
		t.Errorf("%d lines in a pipe, of %d rows", n, len(rows))
	}
	listed, _ := onTerminal(t, env, "device", "conformance", "--list")
	fits(t, "--list", listed)
	for _, r := range rows {
		if !strings.Contains(onLines, r.ID) || !strings.Contains(onLines, "  "+r.Promise+"\n") {
			t.Errorf("not whole in a pipe: %s", r.ID)
		}
		if words := strings.Join([]string{r.ID, r.Section, r.Promise}, " "); !strings.Contains(unfolded(listed), words) {
			t.Errorf("a terminal does not show %q", words)
		}
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	enroll, serve := conformance.Ours(self)
	args := []string{"device", "conformance", "--only", "enroll-body,hello-root,exec-output", "--executor", serve,
		"--enroll", strings.Replace(enroll, "{workspace}", "/tmp", 1)} // which is not as asked
	judged, code := onTerminal(t, env, args...)
	fits(t, "judged", judged)
	for _, want := range []string{"FAIL enroll-body", "pass exec-output", `workspaceRoot is "/tmp"`, "frames (→ from the device", "printed by the executor"} {
		if !strings.Contains(unfolded(judged), want) {
			t.Errorf("exit %d, without %q:\n%s", code, want, judged)
		}
	}
	t.Setenv(asMain, "1")
	s := m.run(args...)
	for _, r := range rows {
		if (r.ID == "hello-root" || r.ID == "exec-output") && !strings.Contains(s.stdout, " "+r.Promise+"\n") {
			t.Errorf("not whole in a pipe:\n%s", s.stdout)
		}
	}
}

// unfolded is a text with one blank between its words.
func unfolded(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestConformanceRefusesHalfAnOrder(t *testing.T) {
	m := newMachine(t)
	for _, args := range [][]string{{"--only", "no-such-row"}, {"--executor", "x"}, {"--enroll", "x"}, {"--parallel", "0"}} {
		if s := m.run(append([]string{"device", "conformance"}, args...)...); s.code != exitUsage {
			t.Errorf("%v: exit %d\n%s", args, s.code, s.stderr)
		}
	}
}

func TestAReportIsWrittenAlsoWhereNothingCouldBeJudged(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	junit := filepath.Join(t.TempDir(), "junit.xml")
	s := m.run("device", "conformance", "--only", "exec-output", "--junit", junit, "--enroll", "sh -c 'exit 7'", "--executor", "true")
	if s.code != exitUnexpected || !strings.Contains(s.stderr, "nothing was judged") {
		t.Errorf("exit %d\n%s", s.code, s.stderr)
	}
	b, err := os.ReadFile(junit)
	if err != nil || !strings.Contains(string(b), `failures="1"`) || !strings.Contains(string(b), "code 7") {
		t.Errorf("the JUnit report: %v\n%s", err, b)
	}
}
