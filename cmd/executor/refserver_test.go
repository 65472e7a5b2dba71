package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// referenceServer is `refserver --json` in a process of its own.
type referenceServer struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events *bufio.Scanner
	stderr bytes.Buffer // after ends
}

// referenceServer starts one and makes it the machine's server.
func (m *machine) referenceServer() *referenceServer {
	m.t.Helper()
	r := &referenceServer{t: m.t, cmd: m.command("device", "refserver", "--json")}
	r.cmd.Stderr = &r.stderr
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	r.events = bufio.NewScanner(stdout)
	if err := r.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.url = r.until("listening").Server
	return r
}

// say writes lines.
func (r *referenceServer) say(lines ...string) {
	r.t.Helper()
	if _, err := io.WriteString(r.stdin, strings.Join(lines, "\n")+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

// until reads events up to one of this kind.
func (r *referenceServer) until(kind string) event {
	r.t.Helper()
	for r.events.Scan() {
		var e event
		if err := json.Unmarshal(r.events.Bytes(), &e); err != nil {
			r.t.Fatalf("%s: %v", r.events.Bytes(), err)
		}
		if e.Event == kind {
			return e
		}
	}
	_ = r.cmd.Wait()
	r.t.Fatalf("no event %q, %v\n%s", kind, r.events.Err(), r.stderr.String())
	return event{}
}

// ends closes the input and wants this exit code.
func (r *referenceServer) ends(code int) (rest []event) {
	r.t.Helper()
	r.stdin.Close()
	for r.events.Scan() {
		var e event
		if err := json.Unmarshal(r.events.Bytes(), &e); err != nil {
			r.t.Errorf("%s: %v", r.events.Bytes(), err)
		}
		rest = append(rest, e)
	}
	_ = r.cmd.Wait()
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("exit code %d, want %d\n%s", got, code, r.stderr.String())
	}
	return rest
}

func TestTheReferenceServerSendsWhatItIsTold(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := m.referenceServer()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := m.serve(m.enroll(root))
	s.say("echo this far", "printf '\\377'; echo wrong >&2; exit 7")
	if e := s.until("sent"); e.Kind != "exec" || e.InstructionID == "" || e.DeviceID != f.device {
		t.Errorf("%+v", e)
	}
	outcomes := map[string]bool{}
	for range 2 {
		e := s.until("settled")
		outcomes[string(e.Outcome)] = true
		if e.By != "result" {
			t.Errorf("%+v", e)
		}
	}
	for _, want := range []string{`{"ok":true,"kind":"exec","exitCode":0}`, `{"ok":true,"kind":"exec","exitCode":7}`} {
		if !outcomes[want] {
			t.Errorf("no outcome %s: %v", want, outcomes)
		}
	}

	s.say(`{"kind":"writeFile","args":{"path":"` + root + `/new"},"content":"what is written"}`)
	if e := s.until("settled"); !bytes.Contains(e.Outcome, []byte(`"canonicalPath":"`+root+`/new"`)) {
		t.Errorf("%s", e.Outcome)
	}
	if b, err := os.ReadFile(root + "/new"); err != nil || string(b) != "what is written" {
		t.Errorf("%q, %v", b, err)
	}
	s.say(`{"kind":"readTextFile","args":{"path":"` + root + `/new"}}`)
	if e := s.until("output"); e.Text != "what is written" || e.Chunk != "data" {
		t.Errorf("%+v", e)
	}

	s.say(`{"kind":"exec","args":{"command":"printf '\\377'; sleep 1000"},"timeoutMs":600000}`)
	e := s.until("output")
	if !slices.Equal(e.Base64, []byte{0xff}) || e.Text != "" {
		t.Errorf("%+v", e)
	}
	s.say(`{"server":"drop"}`)
	s.until("connected")
	s.say(`{"cancel":"` + e.InstructionID + `"}`)
	if got := s.until("settled"); string(got.Outcome) != `{"ok":true,"kind":"cancelled","state":"killed"}` || got.InstructionID != e.InstructionID {
		t.Errorf("%+v", got)
	}

	s.say(`{"kind":"exec","args":{"command":7}}`)
	if e := s.until("settled"); !bytes.Contains(e.Outcome, []byte(`"invalid"`)) {
		t.Errorf("%s", e.Outcome)
	}
	f.send(os.Interrupt)
	if e := s.until("goodbye"); e.Reason != "user_stop" {
		t.Errorf("%+v", e)
	}
	f.ends(exitOK)
	s.ends(exitOK)
}

func TestTheReferenceServerSaysWhatIsWrongWithALineAndGoesOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := m.referenceServer()
	for _, c := range []struct{ line, want string }{
		{`{"kind":"exec"`, "is no request"},
		{`{"kind":"exec"} {}`, "follows the closing brace"},
		{`{"kidn":"exec"}`, `unknown field "kidn"`},
		{`{}`, `one of "kind", "cancel" and "server"`},
		{`{"kind":"exec","cancel":"i"}`, `one of "kind", "cancel" and "server"`},
		{`{"kind":"writeFile","content":"a","contentBase64":"YQ=="}`, `one of "content" and "contentBase64"`},
		{`{"kind":"stat","content":"a"}`, "stat takes no content"},
		{`{"cancel":"i"}`, `no instruction "i" is under way`},
		{`{"server":"explode","deviceId":"d"}`, `not "explode"`},
		{`{"kind":"exec","deviceId":"dev_none"}`, `no device "dev_none" is enrolled`},
		{"echo \xff", "not valid UTF-8"},
	} {
		s.say(c.line)
		if e := s.until("refused"); !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %+v", c.line, e)
		}
	}
	s.ends(exitUnexpected)
}

func TestTheReferenceServerObjectsToWhatIsWrong(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := m.referenceServer()
	conn, answer, err := websocket.Dial(t.Context(), m.url+wire.WSPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("no frame")); err != nil {
		t.Fatal(err)
	}
	for { // until the server hangs up
		if _, _, err := conn.Read(t.Context()); err != nil {
			break
		}
	}
	s.say(`{"server":"restart"}`) // a line, so that the end of lines is the end
	rest := s.ends(exitUnexpected)
	if len(rest) == 0 || rest[0].Event != "violation" || rest[0].Reason != refserver.NotJSON {
		t.Errorf("%+v", rest)
	}
	if !strings.Contains(s.stderr.String(), string(refserver.NotJSON)) {
		t.Errorf("not logged:\n%s", s.stderr.String())
	}
}
