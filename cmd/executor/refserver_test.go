package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
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
	r.events.Buffer(nil, 1<<20) // a line of output is longer than a chunk
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
	s.say("", "  \t\r") // which count, and are nothing
	for i, c := range []struct{ line, want string }{
		{`{"kind":"exec"`, "ends before its closing brace"},
		{`{"kind":nothing}`, "not JSON from byte 10 on"},
		{`{"kind":"exec"} {}`, "follows the closing brace"},
		{`{"kidn":"exec"}`, `there is no member "kidn"`},
		{`{}`, `one of "kind", "cancel" and "server"`},
		{`{"kind":"exec","cancel":"i"}`, `one of "kind", "cancel" and "server"`},
		{`{"kind":"stat"}`, `no kind "stat"; it has exec, `},
		{`{"kind":"exec","args":["a"]}`, `"args" is an object`},
		{`{"kind":"exec","args":null}`, `"args" is an object`},
		{`{"kind":"exec","timeoutMs":0}`, `"timeoutMs" cannot be 0`},
		{`{"kind":"exec","timeoutMs":1.5}`, `"timeoutMs" takes a whole number, not a JSON number 1.5`},
		{`{"kind":"exec","shellEnv":{"A":1}}`, `takes a string, not a JSON number`},
		{`{"kind":"writeFile","content":"a","contentBase64":"YQ=="}`, `one of "content" and "contentBase64"`},
		{`{"kind":"writeFile","contentBase64":"YQ"}`, `"contentBase64" is not base64`},
		{`{"kind":"fileInfo","content":"a"}`, "fileInfo takes no content"},
		{`{"cancel":"i"}`, `no instruction "i" is under way`},
		{`{"cancel":"i","args":{}}`, `beside "cancel" or "server"`},
		{`{"server":"explode","deviceId":"d"}`, `not "explode"`},
		{`{"server":"drop","deviceId":"dev_none"}`, `no device "dev_none" is enrolled`},
		{`{"server":"drain","deviceId":"dev_none"}`, `"drain" is about no device`},
		{`{"kind":"exec","deviceId":"dev_none"}`, `no device "dev_none" is enrolled`},
		{"echo \xff", "not valid UTF-8"},
	} {
		s.say(c.line)
		if e := s.until("refused"); !strings.Contains(e.Message, c.want) || e.Line != i+3 || strings.Contains(e.Message, "Go ") {
			t.Errorf("%s: %+v", c.line, e)
		}
	}
	s.ends(exitUnexpected)
}

func TestALineThatIsTooLongIsOneLine(t *testing.T) {
	in := bufio.NewReaderSize(strings.NewReader("short\r\n"+strings.Repeat("long", 30)+"\nlast"), 16)
	for _, want := range []struct {
		text string
		long bool
		err  error
	}{{"short", false, nil}, {"", true, nil}, {"last", false, io.EOF}} {
		if text, long, err := readLine(in, 100); string(text) != want.text || long != want.long || err != want.err {
			t.Errorf("%q, %t, %v, want %+v", text, long, err, want)
		}
	}
}

func TestTheLinesOfTheReferenceServersHelpAreRequests(t *testing.T) {
	n := 0
	for line := range strings.Lines(newRefserver(&app{}).Long) {
		if !strings.HasPrefix(line, "  {") {
			continue
		}
		n++
		if _, err := parseRequest(bytes.TrimSpace([]byte(line))); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if n < 4 {
		t.Errorf("only %d", n)
	}
}

func TestDevicesComeAndGoAtTheReferenceServer(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := m.referenceServer()
	s.say("echo first")
	if e := s.until("waiting"); e.Line != 1 {
		t.Errorf("%+v", e)
	}
	first := m.serve(m.enroll(""))
	if e := s.until("sent"); e.Line != 1 || e.DeviceID != first.device {
		t.Errorf("%+v", e)
	}
	first.send(os.Kill)
	if e := s.until("disconnected"); e.DeviceID != first.device || e.Gen != "1" {
		t.Errorf("%+v", e)
	}
	s.say(`{"server":"drop","deviceId":"` + first.device + `"}`)
	if e := s.until("refused"); !strings.Contains(e.Message, "is not connected") {
		t.Errorf("%+v", e)
	}
	<-first.ended
	first = m.serve(first.device)
	if e := s.until("connected"); e.DeviceID != first.device {
		t.Errorf("%+v", e)
	}

	second := m.serve(m.enroll(""))
	s.until("connected")
	s.say("echo whose")
	if e := s.until("refused"); !strings.Contains(e.Message, first.device) || !strings.Contains(e.Message, second.device) {
		t.Errorf("%+v", e)
	}
	s.say(`{"server":"revoke","deviceId":"` + first.device + `"}`)
	s.until("disconnected")
	first.ends(exitRevoked)
	s.say("echo the one that is there", `{"deviceId":"`+first.device+`","kind":"exec"}`)
	if e := s.until("sent"); e.DeviceID != second.device {
		t.Errorf("%+v", e)
	}
	if e := s.until("refused"); !strings.Contains(e.Message, "is revoked") {
		t.Errorf("%+v", e)
	}

	s.say(`{"server":"drain"}`)
	s.until("disconnected")
	s.say("echo never")
	if e := s.until("refused"); !strings.Contains(e.Message, "draining") {
		t.Errorf("%+v", e)
	}
	s.say(`{"server":"restart"}`, "echo again")
	s.until("connected")
	if e := s.until("settled"); e.By != "result" {
		t.Errorf("%+v", e)
	}
	s.ends(exitUnexpected)
}

func TestTheReferenceServerEndsThoughNobodyReadsIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := m.referenceServer()
	m.serve(m.enroll(""))
	s.say("yes")
	s.until("output") // and no more is read
	interrupt(t, s.cmd)
}

func TestOutputThatIsLostIsAFailure(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no device that is always full here")
	}
	defer full.Close()
	m := newMachine(t)
	cmd := m.command("device", "refserver", "--json")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	if _, err := cmd.StdinPipe(); err != nil { // which stays open
		t.Fatal(err)
	}
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitUnexpected || !strings.Contains(stderr.String(), "no space left on device") {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
}

func TestTheReferenceServerSaysWhyItCannotListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	m := newMachine(t)
	for address, want := range map[string]struct {
		code int
		says string
	}{
		"8080":                {exitUsage, "HOST:PORT"},
		"127.0.0.1":           {exitUsage, "HOST:PORT"},
		"http://127.0.0.1:0":  {exitUsage, "HOST:PORT"},
		"127.0.0.1:99999":     {exitUsage, `"99999" is not a port`},
		"127.0.0.1:web-site":  {exitUsage, `"web-site" is not a port`},
		"192.0.2.1:0":         {exitUnexpected, "does not have the address 192.0.2.1"},
		taken.Addr().String(): {exitUnexpected, "port, or 0 for a free one"},
		"no such host:0":      {exitUnexpected, `the host "no such host" is not known`}, // which no resolver is asked for
	} {
		s := m.run("device", "refserver", "--listen", address)
		if s.code != want.code || !strings.Contains(strings.ReplaceAll(s.stderr, "\n", " "), want.says) || s.stdout != "" {
			t.Errorf("%s: %+v", address, s)
		}
		fits(t, address, s.stderr)
		inPlainWords(t, address, s.stderr)
	}
}

func TestTheReferenceServerNamesAnAddressThatCanBeEnrolledWith(t *testing.T) {
	for at, want := range map[string]struct {
		url string
		reach
	}{
		"127.0.0.1:80":   {"http://127.0.0.1:80", hereAlone},
		"[::1]:80":       {"http://[::1]:80", hereAlone},
		"[::]:80":        {"http://127.0.0.1:80", everywhere},
		"0.0.0.0:80":     {"http://127.0.0.1:80", everywhere},
		"192.0.2.1:8080": {"http://192.0.2.1:8080", byAddress},
	} {
		addr, err := net.ResolveTCPAddr("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if url, from := addressOf(addr); url != want.url || from != want.reach {
			t.Errorf("%s: %s, %d", at, url, from)
		}
		var told bytes.Buffer
		out := newOutlet(t.Context(), nil, func() {})
		(&reporter{app: &app{stderr: &told}, out: out}).listening(addr)
		if err := out.end(); err != nil {
			t.Error(err)
		}
		if insecure := strings.Contains(told.String(), "--allow-insecure"); insecure != (want.reach != hereAlone) {
			t.Errorf("%s: %s", at, told.String())
		}
		fits(t, at, told.String())
	}
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
	if e := s.until("violation"); e.Reason != refserver.NotJSON || !strings.HasPrefix(e.Message, "not_json") ||
		!strings.Contains(e.Message, "(a frame of 8 bytes on connection 1)") {
		t.Errorf("%+v", e)
	}
	s.say(`{"server":"restart"}`) // a line, so that the end of lines is the end
	for _, e := range s.ends(exitUnexpected) {
		if e.Event == "violation" {
			t.Errorf("told again: %+v", e)
		}
	}
	if s.stderr.Len() > 0 {
		t.Errorf("%s", s.stderr.String())
	}
}
