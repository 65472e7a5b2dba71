package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/wire"
)

// noProcess is a process that is none, in a sentence or a command.
var noProcess = regexp.MustCompile(`(?i)\b(pid|process|kill)[ :"]+(-\d+|0)\b`)

// A lock that was taken on a full disk, or emptied since, says of nobody that he
// holds it. `kill 0` would end the shell of whoever pastes it.
func TestAHolderWithoutANumberIsNeverCalledProcessZero(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	m.keepsRecord(id, false, func(r *activity.Recorder) { // who else would be said to have died
		began(r, "ins_1", m.now(), wire.KindExec)
	})
	path := filepath.Join(m.record(id).Dir(), "lock")
	lock, err := fence.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	m.services.program = func() (string, []string, error) { return "/opt/bin/sema", nil, nil }
	for line, want := range map[string]string{
		"unenroll --yes":  "is being served by a process that left no number",
		"status":          "running: a process that left no number",
		"status --json":   `"running":true`,
		"list":            " running ",
		"list --json":     `"running":true`,
		"doctor":          "a process that left no number holds this device",
		"serve":           "is already being served on this machine by a process that left no number",
		"service install": "is being served by a process that left no number",
		"activity":        "cannot be told",
	} {
		s := m.run(append([]string{"device"}, strings.Fields(line)...)...)
		text := s.stdout + s.stderr
		if said := strings.Join(strings.Fields(text), " "); !strings.Contains(said, want) {
			t.Errorf("%s: no %q in\n%s", line, want, text)
		}
		if found := noProcess.FindString(text); found != "" {
			t.Errorf("%s names %q:\n%s", line, found, text)
		}
		if strings.Contains(line, "json") {
			continue
		}
		if line != "serve" { // whose log is as wide as it is
			fits(t, line, text)
		}
		if words := strings.Fields(line); words[0] != "list" && words[0] != "activity" && !strings.Contains(text, filepath.Base(filepath.Dir(path))+"/lock") {
			t.Errorf("%s does not say how to find the process:\n%s", line, text)
		}
	}
	if _, err := m.home().Record(id); err != nil {
		t.Error(err)
	}
}

// What a revocation left of a key is said by all who are asked about the device,
// with what deletes it; what is deleted is said to be no more than that.
func TestTheKeyOfARevokedDeviceIsNotCalledDeletedWhileItIsLeft(t *testing.T) {
	looks := []string{"doctor", "status", "list", "service install", "service start"}
	for name, c := range map[string]struct {
		store, says string
	}{
		"still there":          {enroll.StoreFile, "its key is still there, in the device's key file"},
		"in an unknown state":  {enroll.StoreKeychain, "it cannot be told whether its key is still in the session's keychain: there is no D-Bus session here"},
		"deleted, as it is to": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			id := m.enroll("")
			if c.store == "" {
				if err := m.home().Revoke(t.Context(), m.record(id), m.stores(), m.now()); err != nil {
					t.Fatal(err)
				}
			} else if err := m.home().Update(m.record(id), func(r *enroll.Record) { r.RevokedAt, r.KeyStore = m.now(), c.store }); err != nil {
				t.Fatal(err)
			}
			for _, line := range looks {
				s := m.service(&keeper{}, "status") // so that the manager is set
				if s = m.run(append([]string{"device"}, strings.Fields(line)...)...); s.code == 0 && strings.HasPrefix(line, "service") {
					t.Errorf("%s: %+v", line, s)
				}
				text := s.stdout + s.stderr
				fits(t, line, text)
				said := strings.Join(strings.Fields(text), " ")
				if left := strings.Contains(said, "unenroll"); left != (c.store != "") || !strings.Contains(said, c.says) {
					t.Errorf("%s:\n%s", line, text)
				}
				if deleted := strings.Contains(said, "has been deleted"); deleted && c.store != "" {
					t.Errorf("%s calls it deleted:\n%s", line, text)
				}
			}
			for _, line := range []string{"status", "list"} {
				s := m.run("device", line, "--json")
				if strings.Contains(s.stdout, `"keyLeft":true`) != (c.store == enroll.StoreFile) || strings.Contains(s.stdout, `"keyUnsure":`) != (c.store == enroll.StoreKeychain) {
					t.Errorf("%s: %s", line, s.stdout)
				}
			}
			if c.store != enroll.StoreFile {
				return
			}
			for _, want := range []string{"its key was left, and has been deleted now", "its key has been deleted"} {
				s := m.run("device", "serve")
				if said := strings.Join(strings.Fields(s.stderr), " "); s.code != exitRevoked || !strings.Contains(said, "; "+want) || strings.Contains(said, "unenroll") {
					t.Errorf("serve: %+v", s)
				}
			}
			if _, err := os.Lstat(filepath.Join(m.record(id).Dir(), "key")); !os.IsNotExist(err) {
				t.Errorf("the key: %v", err)
			}
		})
	}
}

func TestMessagesNameWhatIsWrong(t *testing.T) {
	m := newMachine(t)
	s := m.run("device", "enroll", "--server", m.url, "--workspace", t.TempDir(), "--key-store", "file", "--name", "bad\xff")
	if s.code != exitUsage || !strings.Contains(s.stderr, `"bad\xff" is not text in UTF-8`) || strings.Contains(s.stderr, "255") {
		t.Errorf("a name that is no text: %+v", s)
	}
	id := m.enroll("")
	record := filepath.Join(m.record(id).Dir(), "device.json")
	if err := os.WriteFile(record, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = m.run("device", "serve", "--device", id)
	if s.code != exitNoDevice || !strings.Contains(strings.Join(strings.Fields(s.stderr), " "), `member "server" is missing`) || strings.Contains(s.stderr, "--server") {
		t.Errorf("an empty record: %+v", s)
	}
}

func began(r *activity.Recorder, id string, at time.Time, kind wire.Kind) {
	r.Started(workOf(id, at, kind), at)
}
