package main

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/internal/doctor"
	"github.com/sema-agent/device-executor/service"
)

// answers are what the commands print with --json.
var answers = map[string]any{
	"list": listedDevice{}, "enroll": enrolledDevice{}, "unenroll": unenrolledDevice{}, "key move": movedKey{}, "status": deviceStatus{},
	"doctor": doctor.Report{}, "activity": activity.Entry{}, "version": versionInfo{}, "refserver": event{},
	"service install": installedService{}, "service uninstall": removedService{},
	"service start": serviceDevice{}, "service stop": serviceDevice{}, "service status": serviceStatus{},
}

// members are the names that a value has in JSON, with a * where they may be
// left out.
func members(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, members(f.Type)...)
		case name != "":
			if strings.HasPrefix(options, "omit") {
				name += "*"
			}
			names = append(names, name)
		}
	}
	return names
}

func TestTheTopicOnJSONNamesEveryMember(t *testing.T) {
	m := newMachine(t)
	page := m.run("help", "json").stdout
	for command, answer := range answers {
		_, rest, found := strings.Cut(page, "\n  "+command+"  ")
		if !found {
			t.Errorf("nothing of %s in\n%s", command, page)
			continue
		}
		// Up to the next command: a line with two blanks and no more before it.
		end := len(rest)
		for at, line := range lines(rest) {
			if at > 0 && !strings.HasPrefix(line, "   ") {
				end = at
				break
			}
		}
		told := strings.FieldsFunc(rest[:end], func(r rune) bool { return strings.ContainsRune(" ,;:\n", r) })
		for _, name := range members(reflect.TypeOf(answer)) {
			if !slices.Contains(told, name) {
				t.Errorf("%s --json has %s, and the topic says %q", command, name, told)
			}
		}
	}
}

// lines gives each line of a text with where it begins.
func lines(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		at := 0
		for line := range strings.Lines(text) {
			if !yield(at, line) {
				return
			}
			at += len(line)
		}
	}
}

// Commands without an answer of their own: they run until a signal, pass on what
// others print, or write files.
var withoutJSON = []string{"device serve", "device try", "device service logs", "man"}

func TestEveryCommandThatAnswersTakesJSON(t *testing.T) {
	everyCommand(newRoot(&app{getenv: func(string) string { return "" }}), func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "sema ")
		asJSON := c.Flags().Lookup("json") != nil
		_, known := answers[strings.TrimPrefix(path, "device ")]
		switch {
		case c.HasSubCommands() || !c.Runnable() || strings.HasPrefix(path, "completion"), path == "device conformance":
		case slices.Contains(withoutJSON, path) == asJSON:
			t.Errorf("%s: --json is %t", path, asJSON)
		case known != asJSON:
			t.Errorf("%s has an answer that is not known here", path)
		}
	})
}

func TestCommandsThatChangeSomethingSayItInJSON(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	k := &keeper{state: service.State{Installed: true}}
	m.services = serviceHost{
		manager: func() (service.Manager, error) { return k, nil },
		program: func() (string, []string, error) { return "/opt/bin/sema", nil, nil },
	}
	for _, c := range []struct {
		line string
		want map[string]any
	}{
		{"service install", map[string]any{"deviceId": id, "file": "/units/x.service", "change": "created", "started": true, "restarted": false}},
		{"service start", map[string]any{"deviceId": id, "running": true}},
		{"service stop", map[string]any{"deviceId": id, "running": false}},
		{"service uninstall", map[string]any{"deviceId": id, "file": "/units/x.service"}},
		{"key move file", map[string]any{"deviceId": id, "keyStore": "file", "from": "file",
			"unsure": "there is no D-Bus session here, so no keychain can be reached"}},
		{"unenroll --yes", map[string]any{"deviceId": id, "server": m.url, "serviceInstalled": true}},
	} {
		s := m.run(append(append([]string{"device"}, strings.Fields(c.line)...), "--json")...)
		var got map[string]any
		if err := json.Unmarshal([]byte(s.stdout), &got); err != nil || s.code != 0 || strings.Count(s.stdout, "\n") != 1 {
			t.Errorf("%s: %v, %+v", c.line, err, s)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.line, got, c.want)
		}
	}
}

func TestMovingAKeyThatIsThereAlreadyClaimsNoMoreThanIsKnown(t *testing.T) {
	m := newMachine(t) // whose keychain cannot be reached
	m.enroll("")
	s := m.run("device", "key", "move", "file")
	text := strings.Join(strings.Fields(s.stderr), " ")
	if s.code != 0 || strings.Contains(text, "no other store") || !strings.Contains(text, "already") || !strings.Contains(text, "cannot be told") {
		t.Errorf("%+v", s)
	}
	fits(t, "key move", s.stderr)
}
