package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
)

// build makes a program of this module, once per test binary.
func build(t *testing.T, pkg string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.paths[pkg]; path != "" {
		return path
	}
	path := filepath.Join(built.dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", path, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	built.paths[pkg] = path
	return path
}

var built = struct {
	sync.Mutex
	dir   string
	paths map[string]string
}{paths: map[string]string{}}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "conformance-build-")
	if err != nil {
		panic(err)
	}
	built.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func oursConfig(t *testing.T) Config {
	enroll, serve := Ours(build(t, "../cmd/executor"))
	return Config{Enroll: enroll, Serve: serve, Parallel: 8}
}

func minimalConfig(t *testing.T) Config {
	path := quote(build(t, "./testdata/minimal"))
	return Config{Parallel: 8,
		Enroll: path + " enroll {server} {home} {workspace} {credential}", Serve: path + " serve {home}"}
}

// judged runs the suite and fails the test with each failed row.
func judged(t *testing.T, cfg Config) []Result {
	t.Helper()
	start := time.Now()
	results, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		var b bytes.Buffer
		if r.Verdict == Fail || len(r.Crowded) > 0 {
			_ = NewPrinter(&b).Row(r)
		}
		if r.Verdict == Fail {
			t.Error(b.String())
		} else if b.Len() > 0 {
			t.Log(b.String())
		}
	}
	n := Count(results)
	t.Logf("%d passed, %d failed, %d not applicable, in %v", n[Pass], n[Fail], n[NotApplicable], time.Since(start))
	return results
}

func TestThisExecutorKeepsEveryPromise(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	for _, r := range judged(t, oursConfig(t)) {
		if r.Verdict == NotApplicable && canLook {
			t.Errorf("%s is not applicable to an executor that declares everything: %v", r.Row.ID, r.Findings)
		}
	}
}

func TestAMinimalExecutorIsJudgedByWhatItDeclares(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	for _, r := range judged(t, minimalConfig(t)) {
		if (r.Verdict == NotApplicable) != (len(r.Row.Needs) > 0) && canLook {
			t.Errorf("%s: %s, though it needs %v: %v", r.Row.ID, r.Verdict, r.Row.Needs, r.Findings)
		}
	}
}

func TestAnExecutorThatNeverConnectsIsNotJudged(t *testing.T) {
	t.Parallel()
	cfg := oursConfig(t)
	cfg.Serve = "sh -c 'echo broken executor >&2; exit 7'"
	_, err := Run(t.Context(), cfg)
	var unusable *UnusableError
	if !errors.As(err, &unusable) || !strings.Contains(unusable.Finding, "code 7") {
		t.Fatalf("%v", err)
	}
	if !slices.Contains(unusable.Output, "broken executor") {
		t.Errorf("what it printed is not told: %v", unusable.Output)
	}
}

// An executor may print without end, ignore every request to end, and start what
// outlives it. The suite's machine survives all of it.
func TestNothingOfAWildExecutorIsLeft(t *testing.T) {
	t.Parallel()
	cfg := minimalConfig(t)
	base := realDir(t, t.TempDir())
	pids := filepath.Join(base, "pids")
	cfg.Serve = "sh -c 'trap \"\" TERM; (setsid sleep 1000 & echo $! >" + pids + "; " +
		"sleep 1000 & echo $! >>" + pids + "); printf \"\\033[31m\\007wild\\n\"; exec yes 0123456789012345678901234567890123456789'"
	row := Row{ID: "x", run: func(c *Case) {
		c.open(refserver.Config{})
		c.enroll()
		c.serve()
		c.eventually(patience, func() bool { return c.marks(pids) == 2 })
		c.rest(500 * time.Millisecond)
		c.fail("to see what it printed")
	}}
	r := runRow(t.Context(), &cfg, row, base)
	b, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		if canLook && alive(pid) {
			t.Errorf("process %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	logs, err := filepath.Glob(filepath.Join(base, "x", "printed-*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal("nothing printed was kept", err)
	}
	for _, l := range logs {
		if info, err := os.Stat(l); err != nil || info.Size() > mostPrinted {
			t.Errorf("%s: %v, %v", l, info.Size(), err)
		}
	}
	text := strings.Join(r.Output, "\n")
	if len(text) > 2000 || strings.ContainsAny(text, "\033\007") || !strings.Contains(text, "0123456789") {
		t.Errorf("shown of what it printed: %q", text)
	}
}

func TestRowsThatFailBesideOthersAreJudgedAgainAlone(t *testing.T) {
	failing := func(findings ...string) func(*Case) {
		var mu sync.Mutex
		return func(c *Case) {
			mu.Lock()
			defer mu.Unlock()
			if len(findings) > 0 {
				c.fail("%s", findings[0])
				findings = findings[1:]
			}
			if err := os.WriteFile(filepath.Join(c.dir, "seen"), nil, 0o600); err != nil {
				c.fail("%v", err)
			}
		}
	}
	fine := func(*Case) {}
	for _, c := range []struct {
		about           string
		parallel        int
		rows            []func(*Case)
		passed, crowded int
		findings        string // of the first
	}{
		{"it passes alone", 2, []func(*Case){failing("too slow"), fine}, 2, 1, ""},
		{"it fails alone, too", 2, []func(*Case){failing("too slow", "broken"), fine}, 1, 0, "broken"},
		{"as many as run side by side", 2, []func(*Case){failing("too slow"), failing("too slow"), fine}, 3, 2, ""},
		{"one more", 2, []func(*Case){failing("broken"), failing("broken"), failing("broken"), fine}, 1, 0, "broken"},
		{"nothing beside it", 2, []func(*Case){failing("broken")}, 0, 0, "broken"},
		{"one after the other", 1, []func(*Case){failing("broken"), fine}, 1, 0, "broken"},
	} {
		told := map[string]int{}
		base := t.TempDir()
		cfg := &Config{Parallel: c.parallel, Done: func(r Result) { told[r.Row.ID]++ }}
		var rows []Row
		for i, run := range c.rows {
			rows = append(rows, Row{ID: fmt.Sprint("row-", i), run: run})
		}
		results := judge(t.Context(), cfg, rows, base)
		crowded := 0
		for i, r := range results {
			if told[r.Row.ID] != 1 || r.Row.ID != rows[i].ID {
				t.Errorf("%s: %s was told %d times", c.about, r.Row.ID, told[r.Row.ID])
			}
			if len(r.Crowded) > 0 {
				crowded++
			}
			_, err := os.Stat(filepath.Join(base, r.Row.ID, "seen"))
			if kept := err == nil; kept != (r.Verdict == Fail) {
				t.Errorf("%s: %s is %s, its folder is kept: %t", c.about, r.Row.ID, r.Verdict, kept)
			}
		}
		if n := Count(results); n[Pass] != c.passed || n[Fail] != len(rows)-c.passed || crowded != c.crowded || strings.Join(results[0].Findings, " ") != c.findings {
			t.Errorf("%s: %v, %d crowded, %v", c.about, n, crowded, results[0].Findings)
		}
		if left, err := filepath.Glob(filepath.Join(base, "*.crowded")); err != nil || len(left) > 0 {
			t.Errorf("%s: left are %v, %v", c.about, left, err)
		}
	}
}

func TestFailuresOfOneKindAreToldOnce(t *testing.T) {
	var b strings.Builder
	p := NewPrinter(&b)
	for _, id := range []string{"first", "second", "third"} {
		r := Result{Row: Row{ID: id}, Verdict: Fail, Findings: []string{"it is broken"}, Frames: []string{"a frame"}, Output: []string{"a word"}}
		if id == "third" {
			r.Findings = []string{"otherwise"}
		}
		if err := p.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Row(Result{Row: Row{ID: "fourth"}, Verdict: NotJudged}); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if strings.Count(got, "a frame") != 2 || strings.Count(got, "it is broken") != 2 || !strings.Contains(got, "as first") || strings.Contains(got, "fourth") {
		t.Errorf("%s", got)
	}
}

func TestALongExchangeIsShownByItsEnds(t *testing.T) {
	tr := newTrace()
	see := func(typ string, n int) {
		for i := range n {
			tr.see(refserver.FromServer, refserver.Frame{Type: typ, Seq: int64(i)}, nil)
		}
	}
	see("resultAck", 3)
	see("chunkAck", 30_000)
	lines := tr.lines()
	if len(lines) != 7 || !strings.Contains(lines[4], "19995 more chunkAck") || !strings.Contains(lines[6], "10003 frames that were not kept") {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for i := range 200 {
		see(fmt.Sprint("type-", i%2), 1)
	}
	if n := len(tr.lines()); n > shown+2 {
		t.Errorf("%d lines of a long exchange", n)
	}
}

func TestAFailedRowShowsTheFramesAndNoContent(t *testing.T) {
	t.Parallel()
	cfg := minimalConfig(t)
	base := t.TempDir()
	row := Row{ID: "x", Section: "§0", Promise: "cannot be kept", run: func(c *Case) {
		c.begin(refserver.Config{})
		c.exited(c.do(run("echo secret-content; exit 3")), 4)
	}}
	r := runRow(t.Context(), &cfg, row, realDir(t, base))
	var b bytes.Buffer
	if err := NewPrinter(&b).Row(r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAIL", "§0", "expected exit code 4", "hello", "generationAck", "chunk", "result", "resultAck", "seq=0", "gen=1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &b)
		}
	}
	if strings.Contains(strings.Join(r.Frames, "\n"), "secret-content") {
		t.Errorf("the frames show content:\n%s", &b)
	}
	if _, err := os.Stat(filepath.Join(base, "x", "workspace")); err != nil {
		t.Errorf("the folder of a failed row is gone: %v", err)
	}
}

func realDir(t *testing.T, dir string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

func TestARowThatPanicsFailsAlone(t *testing.T) {
	t.Parallel()
	cfg := minimalConfig(t)
	row := Row{ID: "x", run: func(*Case) { panic("a mistake in the row") }}
	if r := runRow(t.Context(), &cfg, row, realDir(t, t.TempDir())); r.Verdict != Fail {
		t.Errorf("%s: %v", r.Verdict, r.Findings)
	}
}

func TestRowsAreNamedOnceAndPlacedInTheGuide(t *testing.T) {
	seen := map[string]bool{}
	all := ""
	for _, r := range Rows() {
		if r.ID == "" || seen[r.ID] || r.Promise == "" || r.run == nil {
			t.Errorf("row %q: no id, one used before, no promise or nothing to run", r.ID)
		}
		if !regexp.MustCompile(`^(§|R\d|intro)`).MatchString(r.Section) {
			t.Errorf("%s: section %q is none of the guide", r.ID, r.Section)
		}
		seen[r.ID] = true
		all += " " + r.Section + ","
	}
	for _, rule := range []string{"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
		"§1.1", "§1.2", "§1.3", "§1.4", "§1.5", "§1.6", "§2.1", "§2.2", "§2.4", "§3.1", "§3.2", "§3.3", "§3.4", "§3.5", "§3.6",
		"§4", "§5.0", "§5.3", "§5.4", "§6.1", "§6.2", "§6.3", "§6.4", "§6.5", "§6.6", "§6.7", "§6.8", "§6.9", "§6.10", "§7", "§8"} {
		if !strings.Contains(all, " "+rule+",") {
			t.Errorf("no row judges %s", rule)
		}
	}
}

// What an earlier run has kept must not pass for what happens now, and what is not
// of the suite's making is nobody's to remove.
func TestARowFindsNothingOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	cfg := minimalConfig(t)
	base := realDir(t, t.TempDir())
	row := Row{ID: "x", run: func(c *Case) {
		c.expect(!exists(c.path("pid")), "a file of the earlier run is there")
		c.write(c.path("pid"), "1\n")
		c.fail("to be kept")
	}}
	for range 2 {
		if r := runRow(t.Context(), &cfg, row, base); len(r.Findings) != 1 || r.Findings[0] != "to be kept" {
			t.Fatalf("%v", r.Findings)
		}
	}
	theirs := filepath.Join(base, "y", "thesis.txt")
	if err := errors.Join(os.Mkdir(filepath.Dir(theirs), 0o700), os.WriteFile(theirs, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r := runRow(t.Context(), &cfg, Row{ID: "y", run: func(*Case) {}}, base)
	if _, err := os.Stat(theirs); err != nil || r.Verdict != Fail {
		t.Errorf("%s: %v, %v", r.Verdict, r.Findings, err)
	}
}

func TestAKeyIsFoundInEveryForm(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	seed := private.Seed()
	v1, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	v2 := slices.Concat([]byte("\x30\x51\x02\x01\x01\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20"), seed, []byte("\x81\x21\x00"), public)
	armoured := string(pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: append(make([]byte, 77), private...)}))
	inJSON, err := json.Marshal(map[string]string{"key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: v1}))})
	if err != nil {
		t.Fatal(err)
	}
	var numbers []string
	for _, b := range private {
		numbers = append(numbers, strconv.Itoa(int(b)))
	}
	for form, text := range map[string]string{
		"raw": string(seed), "with its public half": string(private), "in a database": strings.Repeat("\x00page", 100) + string(seed) + "\xff",
		"hex": "key: " + hex.EncodeToString(seed), "base64": `{"seed":"` + base64.StdEncoding.EncodeToString(seed) + `"}`,
		"JWK": `{"d":"` + base64.RawURLEncoding.EncodeToString(seed) + `"}`, "PKCS #8": string(v1), "PKCS #8 with the public key": base64.StdEncoding.EncodeToString(v2),
		"OpenSSH": armoured, "PEM in JSON": string(inJSON), "numbers": "[ " + strings.Join(numbers, ",\n") + "]",
	} {
		if got := seedIn([]byte(text), public); !bytes.Equal(got, seed) {
			t.Errorf("%s: not found", form)
		}
	}
	for _, none := range []string{"", base64.StdEncoding.EncodeToString(public), armoured[:60]} {
		if seedIn([]byte(none), public) != nil {
			t.Errorf("a private key is seen in %q", none)
		}
	}
}

func TestSelectTakesIDsAndPrefixes(t *testing.T) {
	rows, err := Select([]string{"R11-*", "exec-cwd"})
	if err != nil || len(rows) < 5 || rows[0].ID != "exec-cwd" {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if _, err := Select([]string{"R11-*", "nothing"}); !errors.Is(err, ErrNoSuchRow) {
		t.Errorf("an unknown row: %v", err)
	}
	if rows, err := Select(nil); err != nil || len(rows) != len(Rows()) {
		t.Errorf("without a choice: %d rows, %v", len(rows), err)
	}
}

func TestReportsCanBeReadByMachines(t *testing.T) {
	results := []Result{
		{Row: Row{ID: "a", Section: "§1", Promise: "p <&>"}, Verdict: Pass, Took: time.Second},
		{Row: Row{ID: "b", Section: "§2", Promise: "q"}, Verdict: Fail, Findings: []string{"wrong \x1b[31m"}, Frames: []string{"→ hello"}, Output: []string{"panic"}},
		{Row: Row{ID: "c", Section: "§3", Promise: "r"}, Verdict: NotApplicable, Findings: []string{"not declared"}},
		{Row: Row{ID: "d", Section: "§4", Promise: "s"}, Verdict: NotJudged},
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, results); err != nil {
		t.Fatal(err)
	}
	var j struct {
		Passed, Failed, NotApplicable, NotJudged int
		Rows                                     []struct{ ID, Section, Promise, Verdict string }
	}
	if err := json.Unmarshal(b.Bytes(), &j); err != nil || j.Passed != 1 || j.Failed != 1 || j.NotApplicable != 1 || j.NotJudged != 1 || j.Rows[2].Verdict != "not applicable" {
		t.Errorf("%+v, %v", j, err)
	}
	b.Reset()
	if err := WriteJUnit(&b, results, time.Second); err != nil {
		t.Fatal(err)
	}
	var x struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
			Out     string    `xml:"system-out"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(b.Bytes(), &x); err != nil || x.Tests != 4 || x.Failures != 1 || x.Skipped != 2 ||
		x.Cases[0].Failure != nil || x.Cases[1].Failure == nil || x.Cases[2].Skipped == nil || x.Cases[0].Name != "a: p <&>" || x.Cases[1].Out != "panic" {
		t.Errorf("%+v, %v\n%s", x, err, &b)
	}
}

// variants reads the list of broken executors: fault → row, or "package NAME".
func variants(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open("testdata/variants.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if line := s.Text(); line != "" && !strings.HasPrefix(line, "#") {
			fault, row, ok := strings.Cut(line, " | ")
			if !ok || list[fault] != "" {
				t.Errorf("%q is no variant, or one that was there before", line)
			}
			list[fault] = row
		}
	}
	return list
}

func TestEveryFaultIsCaughtSomewhereByName(t *testing.T) {
	list := variants(t)
	asked := map[string]bool{}
	literal := regexp.MustCompile(`fault\.On\("([^"]+)"\)`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range literal.FindAllStringSubmatch(string(b), -1) {
			asked[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	byRows := 0
	for fault := range asked {
		row := list[fault]
		if pkg, ok := strings.CutPrefix(row, "package "); ok {
			tests, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(tests, func(path string) bool {
				b, err := os.ReadFile(path)
				return err == nil && strings.Contains(string(b), `"`+fault+`"`)
			}) {
				t.Errorf("no test of %s puts %q in force", pkg, fault)
			}
			continue
		}
		byRows++
		if _, err := Select([]string{row}); err != nil || row == "" {
			t.Errorf("fault %q: row %q: %v", fault, row, err)
		}
	}
	for fault := range list {
		if !asked[fault] {
			t.Errorf("nothing asks for the fault %q", fault)
		}
	}
	if byRows < 40 {
		t.Errorf("only %d broken executors are caught by rows", byRows)
	}
}

// A suite that is told to stop does so, and leaves no process behind.
func TestAnEndedContextEndsTheSuite(t *testing.T) {
	t.Parallel()
	cfg := minimalConfig(t)
	cfg.Only = []string{"backoff"}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	start := time.Now()
	results, err := Run(ctx, cfg)
	if err != nil || results[0].Verdict != NotJudged || time.Since(start) > 15*time.Second {
		t.Errorf("%v after %v, %v", results, time.Since(start), err)
	}
}
