package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
)

// Whatever the shell takes for a line brings the executor to the server, and signals
// reach the executor and not a shell before it.
func TestTheTwoCommandLinesAreLinesOfTheShell(t *testing.T) {
	t.Parallel()
	minimal := quote(build(t, "./testdata/minimal"))
	for about, form := range map[string]string{
		"leading assignments": "A=1 B='2 3' {}", "behind and": "cd / && {}", "exec": "exec {}", "two commands": "true; {}",
		"a shell that stays": "{}; code=$?; exit $code", "a subshell of one that stays": "(cd / && {}); exit", "a condition": "if true; then {}; fi; true",
		"several lines": "# the executor\n{}\n", "a function": "serve() { {}; }; serve; true",
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Parallel: 4, Only: []string{"R15-goodbye", "R3-new-epoch", "R15-in-flight", "enroll-403"},
				Enroll: strings.ReplaceAll(form, "{}", minimal+" enroll {server} {home} {workspace} {credential}"),
				Serve:  strings.ReplaceAll(form, "{}", minimal+" serve {home}")}
			if about == "a condition" || about == "a function" { // whose code is not the enrolling command's
				cfg.Only = cfg.Only[:3]
			}
			for _, r := range judged(t, cfg) {
				if r.Verdict != Pass {
					t.Errorf("%s: %s, %v", r.Row.ID, r.Verdict, r.Findings)
				}
			}
		})
	}
}

// What an executor keeps in the user's home is to be found in the row's folder, and
// nothing leads it to the home, the bus or the keychain of whoever runs the suite.
func TestARowHasAHomeOfItsOwn(t *testing.T) {
	for _, name := range withheld {
		t.Setenv(name, "/of/the/user")
	}
	t.Setenv("CONFORMANCE_OTHER", "kept")
	p := place{server: "http://x", home: "/row/home", workspace: "/row/workspace", temp: "/row/tmp", user: "/row/user", credential: "c"}
	env := p.environ(false)
	for _, v := range env {
		if strings.Contains(v, "/of/the/user") {
			t.Errorf("%s reaches the executor", v)
		}
	}
	for _, want := range []string{"HOME=/row/user", "TMPDIR=/row/tmp", "SEMA_HOME=/row/home", "CONFORMANCE_OTHER=kept"} {
		if !slices.Contains(env, want) {
			t.Errorf("without %s: %q", want, env)
		}
	}
}

// How an executor leaves is for one row to judge, and at once: an end without a
// goodbye is not waited for as if one could still come.
func TestALostGoodbyeFailsNoOtherRow(t *testing.T) {
	t.Parallel()
	silent := variant{edits: []edit{{"link.go", `		go a.leave()
`, `		os.Exit(0)
`}}}
	program := quote(buildOverlaid(t, silent.texts(t)))
	cfg := Config{Parallel: 6, Only: []string{"R15-goodbye", "R15-straggler", "S2-key-wire", "S8-shellenv", "S9-content"},
		Enroll: program + " enroll {server} {home} {workspace} {credential}", Serve: program + " serve {home}"}
	results, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		switch findings := strings.Join(r.Findings, "\n"); {
		case r.Row.ID != "R15-goodbye":
			if r.Verdict == Fail {
				t.Errorf("%s: %s", r.Row.ID, findings)
			}
		case r.Verdict != Fail || !strings.Contains(findings, "ended without sending a goodbye") || r.Took > patience/2:
			t.Errorf("after %v: %s, %s", r.Took, r.Verdict, findings)
		}
	}
}

// An executor that ends is not waited for as if it could still answer or speak.
func TestNothingIsExpectedOfAnExecutorThatHasEnded(t *testing.T) {
	t.Parallel()
	cfg := minimalConfig(t)
	base := realDir(t, t.TempDir())
	for about, row := range map[string]struct {
		run  func(*Case)
		want string
	}{
		"an answer": {func(c *Case) {
			c.begin(refserver.Config{})
			c.do(run("kill -9 $(ps -o ppid= -p $PPID)")) // the keeper's parent
		}, "was not answered: the executor ended"},
		"a frame": {func(c *Case) {
			c.begin(refserver.Config{})
			c.exec.kill()
			c.seen("a heartbeat", fromDevice("goodbye"))
		}, "without sending a heartbeat"},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			r := runRow(t.Context(), &cfg, Row{ID: strings.ReplaceAll(about, " ", "-"), run: row.run}, base)
			if findings := strings.Join(r.Findings, "\n"); r.Verdict != Fail || !strings.Contains(findings, row.want) || r.Took > 15*time.Second {
				t.Errorf("%s after %v: %s", r.Verdict, r.Took, findings)
			}
		})
	}
}

func TestSignalsReachWhatAShellThatStaysHasStarted(t *testing.T) {
	x, err := launch(place{server: "s", temp: os.TempDir()}, "sleep 300 & sleep 300; true", realDir(t, t.TempDir()), false)
	if err != nil {
		t.Fatal(err)
	}
	defer x.out.close()
	deadline := time.Now().Add(10 * time.Second)
	for len(x.runs()) < 2 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	pids := x.runs()
	if len(pids) != 2 || slices.Contains(pids, x.pid()) {
		t.Fatalf("the shell %d runs %v", x.pid(), pids)
	}
	x.kill()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
}
