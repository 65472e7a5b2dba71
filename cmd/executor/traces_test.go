package main

import (
	"bytes"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// What passes through an executor in a full run, each with a mark of its own.
const (
	markedValue   = "shellenv-61c0d9f2e7"
	markedContent = "content-90ab44d1c3"
	markedOutput  = "output-3e57aa80b2"
	markedCommand = "command-c2f1860d4b"
)

// whereabouts lists the files below dir that hold any of the marks.
func whereabouts(t *testing.T, dir string, marks map[string][]byte) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for name, mark := range marks {
			if bytes.Contains(b, mark) {
				found[name] = append(found[name], path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNothingThatPassesThroughIsKept(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
	m := newMachine(t)
	workspace := t.TempDir()
	id := m.enroll(workspace)
	keyFile := filepath.Join(m.record(id).Dir(), "key")
	key, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	private, err := m.stores().Load(t.Context(), m.record(id))
	if err != nil {
		t.Fatal(err)
	}
	seed := private.ExportSeed()

	f := m.serve(id, "--log-level", "debug").active()
	// A neighbour that runs all the while: nothing of the others is in its environment.
	neighbour := f.begin("echo there; sleep 600")
	file := filepath.Join(workspace, "file")
	if o, _ := f.do(refserver.Dispatch{Kind: wire.KindWriteFile, Args: wire.WriteArgs{Path: file}, Content: []byte(markedContent)}); !isWrite(o) {
		t.Fatalf("write: %+v", o)
	}
	if o, got := f.do(refserver.Dispatch{Kind: wire.KindReadTextFile, Args: wire.PathArgs{Path: file}}); got != markedContent {
		t.Fatalf("read: %+v, %q", o, got)
	}
	o, said := f.do(refserver.Dispatch{
		Kind:     wire.KindExec,
		Args:     wire.ExecArgs{Command: ": " + markedCommand + "; printenv MARKED; echo " + markedOutput + "; grep -l MARKED= /proc/*/environ 2>/dev/null | wc -l"},
		ShellEnv: map[string]string{"MARKED": markedValue},
	})
	if _, ok := o.(wire.ExecOutcome); !ok || !strings.HasPrefix(said, markedValue+"\n"+markedOutput+"\n") {
		t.Fatalf("%+v after %q", o, said)
	}
	if rest := strings.Fields(said)[2]; rest == "0" {
		t.Error("the command does not see its own environment: the search finds nothing")
	}
	// The command is over, so nobody may have its environment any more.
	if _, said := f.run("grep -l MARKED=" + " /proc/*/environ 2>/dev/null; true"); said != "" {
		t.Errorf("the environment of a command that ended lives on in %s", said)
	}
	if _, said := f.run("grep -c . /dev/null; tr '\\0' '\\n' < /proc/" + "self/environ"); strings.Contains(said, markedValue) {
		t.Error("one command's shellEnv reaches another")
	}
	neighbour.Cancel()
	if _, err := neighbour.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.send(syscall.SIGTERM)
	f.ends(exitOK)

	marks := map[string][]byte{
		"credential": []byte(theCredential), "shellEnv value": []byte(markedValue), "file content": []byte(markedContent),
		"output": []byte(markedOutput), "command text": []byte(markedCommand),
	}
	for name, places := range whereabouts(t, m.env["SEMA_HOME"], marks) {
		t.Errorf("the %s is kept in %v", name, places)
	}
	for name, mark := range marks {
		if bytes.Contains(f.log.Bytes(), mark) {
			t.Errorf("the %s is in the log", name)
		}
	}
	keyMarks := map[string][]byte{
		"stored form": bytes.TrimSpace(key), "seed": seed, "seed in hex": []byte(hex.EncodeToString(seed)),
	}
	for name, places := range whereabouts(t, m.env["SEMA_HOME"], keyMarks) {
		if len(places) != 1 || places[0] != keyFile || name != "stored form" {
			t.Errorf("the private key (%s) is in %v", name, places)
		}
	}
	for name, mark := range keyMarks {
		if bytes.Contains(f.log.Bytes(), mark) {
			t.Errorf("the private key (%s) is in the log", name)
		}
	}
	m.blameless()
}

func isWrite(o wire.Outcome) bool {
	_, ok := o.(wire.WriteOutcome)
	return ok
}
