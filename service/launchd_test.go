package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"howett.net/plist"
)

// screen is a launchd with one agent at most.
type screen struct {
	t         *testing.T
	loggedIn  bool
	loaded    bool
	pid       int
	lastExit  string
	lingering int // how often the agent is still seen after it was told to go
	busy      int // how often it is not taken back
	ran       []string
}

func (s *screen) Run(_ context.Context, c Command, stdout io.Writer) error {
	line := strings.Join(c.Argv, " ")
	verb := c.Argv[1]
	if verb != "print" {
		s.ran = append(s.ran, line)
	}
	if c.Argv[0] != "launchctl" {
		return nil
	}
	noJob := failing(noSuchJob, "Could not find service in domain for user gui: 501")
	switch {
	case verb == "print" && c.Argv[2] == "gui/501":
		if !s.loggedIn {
			return failing(noSuchDomain, "Could not find domain for user gui: 501")
		}
	case verb == "print":
		if s.lingering > 0 {
			if s.lingering--; s.lingering == 0 {
				s.pid = 0
				s.loaded = !slices.ContainsFunc(s.ran, func(l string) bool { return strings.HasPrefix(l, "launchctl bootout") })
			}
		}
		if !s.loaded {
			return noJob
		}
		s.print(stdout, c.Argv[2])
	case verb == "bootstrap":
		if s.loaded {
			return failing(37, "Bootstrap failed: 37: Operation already in progress")
		}
		if s.busy > 0 {
			s.busy--
			return failing(5, "Bootstrap failed: 5: Input/output error")
		}
		s.loaded, s.pid = true, 4711
	case verb == "bootout":
		if !s.loaded {
			return failing(notLoaded, "Boot-out failed: 3: No such process")
		}
		s.lingering = 3
	case verb == "kickstart":
		if !s.loaded {
			return noJob
		}
		if s.pid != 0 {
			return failing(37, "Could not kickstart service: 37: Operation already in progress")
		}
		s.pid = 4711
	case verb == "kill":
		s.lingering = 3
	}
	return nil
}

// print writes what launchctl prints, cut down to what has a form of its own.
func (s *screen) print(w io.Writer, target string) {
	fmt.Fprintf(w, "%s = {\n\tactive count = 1\n\tpath = /Users/ada/Library/LaunchAgents/x.plist\n", target)
	state := "not running"
	if s.pid != 0 {
		state = "running"
	}
	fmt.Fprintf(w, "\tstate = %s\n\tenvironment = {\n\t\tstate = wrong\n\t\tpid = 1\n\t}\n\truns = 3\n", state)
	if s.pid != 0 {
		fmt.Fprintf(w, "\tpid = %d\n", s.pid)
	}
	if s.lastExit != "" {
		fmt.Fprintf(w, "\t%s\n", s.lastExit)
	}
	fmt.Fprint(w, "}\n")
}

func aLaunchd(t *testing.T) (*Launchd, *screen) {
	t.Helper()
	s := &screen{t: t, loggedIn: true}
	c := world(t, s, nil)
	c.UID = 501
	return NewLaunchd(c), s
}

const agentTarget = "gui/501/io.github.sema-agent.device.dev_01"

// property list keys that launchd is given, and nothing beside them.
type agentKeys struct {
	Label                string
	ProgramArguments     []string
	EnvironmentVariables map[string]string
	RunAtLoad            bool
	KeepAlive            map[string]bool
	ThrottleInterval     int
	ExitTimeOut          int
	ProcessType          string
	SoftResourceLimits   map[string]int
}

func TestTheAgentHasTheseKeysAndNoOthers(t *testing.T) {
	s := aSpec()
	s.Home = `/Users/ada/Library/Application Support/<sema> & "co"`
	s.Environment = []string{"NO_PROXY=a=b,c"}
	text := agent(s, "/Users/ada/Library/Logs/sema/dev_01.log")

	var got agentKeys
	format, err := plist.Unmarshal(text, &got)
	if err != nil || format != plist.XMLFormat {
		t.Fatalf("%v, format %d\n%s", err, format, text)
	}
	want := agentKeys{
		Label: "io.github.sema-agent.device.dev_01",
		ProgramArguments: []string{"/opt/sema/bin/sema", "device", "serve", "--device", "dev_01", "--env", "auto",
			"--exit-zero-when-final", "--log-file", "/Users/ada/Library/Logs/sema/dev_01.log"},
		EnvironmentVariables: map[string]string{"SEMA_HOME": s.Home, "NO_PROXY": "a=b,c"},
		RunAtLoad:            true,
		KeepAlive:            map[string]bool{"SuccessfulExit": false},
		ThrottleInterval:     10,
		ExitTimeOut:          40,
		ProcessType:          "Interactive",
		SoftResourceLimits:   map[string]int{"NumberOfFiles": 24576},
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("agent\n got %+v\nwant %+v", got, want)
	}
	var all map[string]any
	if _, err := plist.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 9 {
		t.Errorf("%d keys: %v", len(all), all)
	}
	if inspect(text) != intact {
		t.Error("the agent does not know its own digest")
	}
}

func TestInstallLoadsAnAgentAndAgainChangesNothing(t *testing.T) {
	m, s := aLaunchd(t)
	done, err := m.Install(t.Context(), aSpec(), false)
	if err != nil {
		t.Fatal(err)
	}
	if done.Change != Created || !done.Started {
		t.Errorf("%+v", done)
	}
	want := []string{
		"launchctl enable " + agentTarget,
		"launchctl bootstrap gui/501 " + done.File,
		"launchctl kickstart " + agentTarget,
	}
	if !slices.Equal(s.ran, want) {
		t.Errorf("ran %q", s.ran)
	}
	s.ran = nil
	again, err := m.Install(t.Context(), aSpec(), false)
	if err != nil || again.Change != Unchanged || again.Started || again.Restarted || len(s.ran) > 0 {
		t.Errorf("again: %+v, %v, ran %q", again, err, s.ran)
	}
	state, err := m.State(t.Context(), "dev_01")
	if err != nil || !state.Running || state.PID != 4711 || !state.Enabled || state.Phase != "running" || state.Restarts != 2 {
		t.Errorf("state %+v, %v", state, err)
	}
}

func TestAChangedAgentIsLoadedOnceTheOldOneIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := aLaunchd(t)
		if _, err := m.Install(t.Context(), aSpec(), false); err != nil {
			t.Fatal(err)
		}
		s.ran = nil
		spec := aSpec()
		spec.Options = []string{"--log-commands"}
		done, err := m.Install(t.Context(), spec, false)
		if err != nil || done.Change != Replaced || !done.Restarted || done.Started {
			t.Errorf("%+v, %v", done, err)
		}
		if len(s.ran) != 4 || s.ran[0] != "launchctl bootout "+agentTarget || !strings.HasPrefix(s.ran[2], "launchctl bootstrap") {
			t.Errorf("ran %q", s.ran)
		}
	})
}

func TestABusyLaunchdIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		refusals int
		up       bool
	}{"for a moment": {3, true}, "for good": {1000, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, s := aLaunchd(t)
				s.busy = c.refusals
				began := time.Now()
				_, err := m.Install(t.Context(), aSpec(), false)
				var failed *StartError
				if c.up && (err != nil || s.pid == 0) || !c.up && !errors.As(err, &failed) {
					t.Errorf("%v, pid %d", err, s.pid)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

func TestAStopWaitsForTheDrainAndLeavesTheAgentLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := aLaunchd(t)
		if _, err := m.Install(t.Context(), aSpec(), false); err != nil {
			t.Fatal(err)
		}
		s.ran = nil
		began := time.Now()
		if err := m.Stop(t.Context(), "dev_01"); err != nil {
			t.Fatal(err)
		}
		if s.pid != 0 || !s.loaded || time.Since(began) == 0 {
			t.Errorf("after the stop: %+v", s)
		}
		if want := []string{"launchctl kill SIGTERM " + agentTarget}; !slices.Equal(s.ran, want) {
			t.Errorf("ran %q", s.ran)
		}
		s.ran = nil
		if err := m.Stop(t.Context(), "dev_01"); err != nil || len(s.ran) > 0 {
			t.Errorf("stopping again: %v, ran %q", err, s.ran)
		}
		if err := m.Start(t.Context(), "dev_01"); err != nil || s.pid == 0 {
			t.Errorf("start: %v", err)
		}
	})
}

func TestUninstallRemovesTheAgentAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := aLaunchd(t)
		done, err := m.Install(t.Context(), aSpec(), false)
		if err != nil {
			t.Fatal(err)
		}
		makeFile(t, m.logFile("dev_01"))
		removed, err := m.Uninstall(t.Context(), "dev_01", false)
		if err != nil || s.loaded || exists(done.File) || !exists(m.logFile("dev_01")) {
			t.Errorf("%v, loaded %t", err, s.loaded)
		}
		if !strings.Contains(strings.Join(removed.Notes, "\n"), m.logFile("dev_01")) {
			t.Errorf("notes %q", removed.Notes)
		}
		var none *NotInstalledError
		if _, err := m.Uninstall(t.Context(), "dev_01", false); !errors.As(err, &none) {
			t.Errorf("again: %v", err)
		}
	})
}

func TestWithoutASessionAtTheScreenThereIsARemedy(t *testing.T) {
	m, s := aLaunchd(t)
	s.loggedIn = false
	for verb, do := range everyVerb(t, m) {
		var none *NoManagerError
		if err := do(); !errors.As(err, &none) || !strings.Contains(none.Advice(), "sema device serve") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if exists(m.file("dev_01")) {
		t.Error("an agent was written that nobody runs")
	}
}

func TestAnAgentThatDoesNotComeUpIsAFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := aLaunchd(t)
		r := &dying{screen: s}
		m.c.Runner = r
		_, err := m.Install(t.Context(), aSpec(), false)
		var failed *StartError
		if !errors.As(err, &failed) || failed.Exit == nil || failed.Exit.Code != 9 {
			t.Errorf("install: %v", err)
		}
	})
}

// dying is a launchd whose agent ends at once, each time.
type dying struct{ *screen }

func (d *dying) Run(ctx context.Context, c Command, stdout io.Writer) error {
	err := d.screen.Run(ctx, c, stdout)
	d.pid, d.lastExit = 0, "last exit code = 9"
	return err
}

func TestTheWaysAnAgentEndedAreRead(t *testing.T) {
	for line, want := range map[string]*Exit{
		"last exit code = (never exited)":         nil,
		"last exit code = 1":                      {Code: 1},
		"last exit code = 78: EX_CONFIG":          {Code: 78},
		"last terminating signal = Killed: 9":     {Signal: "Killed: 9"},
		"last exit code = 18446744073709551615":   nil,
		"another line = 5":                        nil,
		"last terminating signal = Terminated: 1": {Signal: "Terminated: 1"},
	} {
		m, s := aLaunchd(t)
		s.loaded, s.lastExit = true, line
		j, err := m.look(t.Context(), "dev_01")
		if err != nil || fmt.Sprint(j.state.LastExit) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v", line, j.state.LastExit, err)
		}
	}
}

func TestTheLogOfAnAgentIsItsFile(t *testing.T) {
	m, s := aLaunchd(t)
	if _, err := m.Install(t.Context(), aSpec(), false); err != nil {
		t.Fatal(err)
	}
	var nothing *NoLogError
	if err := m.Logs(t.Context(), "dev_01", LogQuery{Lines: 5}, &bytes.Buffer{}); !errors.As(err, &nothing) {
		t.Errorf("before the first start: %v", err)
	}
	makeFile(t, m.logFile("dev_01"))
	if err := m.Logs(t.Context(), "dev_01", LogQuery{Lines: 5, Follow: true}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.ran[len(s.ran)-1], "tail -n 5 -F "+m.logFile("dev_01"); got != want {
		t.Errorf("ran %q, want %q", got, want)
	}
}

func TestAnAgentOfSomebodyElseIsLeftAlone(t *testing.T) {
	m, s := aLaunchd(t)
	makeFile(t, m.file("dev_01"))
	var foreign *ForeignFileError
	if _, err := m.Install(t.Context(), aSpec(), false); !errors.As(err, &foreign) || foreign.Ours {
		t.Errorf("install: %v", err)
	}
	if _, err := m.Uninstall(t.Context(), "dev_01", false); !errors.As(err, &foreign) || foreign.Ours {
		t.Errorf("uninstall: %v", err)
	}
	if content, err := os.ReadFile(m.file("dev_01")); err != nil || len(content) > 0 || len(s.ran) > 0 {
		t.Errorf("it is %q, %v; ran %q", content, err, s.ran)
	}
}

func TestAnAgentWhoseFileIsGoneCanBeStoppedAndUninstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := aLaunchd(t)
		if _, err := m.Install(t.Context(), aSpec(), false); err != nil {
			t.Fatal(err)
		}
		removeAll(t, m.file("dev_01"))
		if state, err := m.State(t.Context(), "dev_01"); err != nil || !state.Orphaned || state.Installed || !state.Running || state.Enabled {
			t.Errorf("%+v, %v", state, err)
		}
		if err := m.Stop(t.Context(), "dev_01"); err != nil || s.pid != 0 {
			t.Errorf("stop: %v", err)
		}
		if done, err := m.Uninstall(t.Context(), "dev_01", false); err != nil || s.loaded || len(done.Notes) != 1 {
			t.Errorf("uninstall: %+v, %v", done, err)
		}
		if state, err := m.State(t.Context(), "dev_01"); err != nil || state.Orphaned {
			t.Errorf("%+v, %v", state, err)
		}
		var absent *NotInstalledError
		if _, err := m.Uninstall(t.Context(), "dev_01", false); !errors.As(err, &absent) {
			t.Errorf("again: %v", err)
		}
		if err := m.Stop(t.Context(), "dev_01"); !errors.As(err, &absent) {
			t.Errorf("stop again: %v", err)
		}
	})
}
