package conformance

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// broken are executors of a third party's hand with one fault each: the minimal
// one with one text in its source replaced. row is the one that names the broken
// promise.
var broken = []struct{ fault, row, file, old, new string }{
	{"a result is sent twice", "R1-every-answered", "work.go",
		`			w.sent = true
			w.sends++
			return frame{`,
		`			w.sent = true
			w.sends++
			a.queue = append(a.queue, frame{"t": "result", "gen": gen, "instructionId": id, "deviceSeq": w.seq, "outcome": w.result})
			return frame{`},
	{"a reconnect forgets which ids have run", "R1-once", "link.go",
		`	a.gen = ack.Gen
`,
		`	a.gen = ack.Gen
	a.seen = map[string]bool{}
`},
	{"what is not listed runs on", "R2-unlisted", "link.go",
		`			ending = append(ending, w)
			delete(a.works, id)`,
		`			_ = ending`},
	{"what is not listed is ended, and its output still sent", "R2-unlisted", "link.go",
		`			ending = append(ending, w)
			delete(a.works, id)`,
		`			ending = append(ending, w)`},
	{"the epoch is the same in every process", "R3-new-epoch", "work.go",
		`a.epoch, a.epochRaw = newEpoch()`,
		`a.epoch, a.epochRaw = "01J8ZQ4T9X7M3K5N6P8R0S2V4W", [16]byte{0x01,0x92,0x3f,0x72,0x69,0x3d,0x3d,0x07,0x32,0xd4,0xd6,0x46,0x01,0x91,0x6c,0x9c}`},
	{"a command that waits for acknowledgements cannot be cancelled", "M-outbox-bounded", "work.go",
		`for w.held > mostUnacked && !isClosed(w.ended) {`,
		`for w.held > mostUnacked {`},
	{"a cancelled command is said to have failed", "R11-killed", "work.go",
		`return frame{"ok": true, "kind": "cancelled", "state": "killed"}`,
		`return failure("aborted", "cancelled")`},
	{"a write waits for its content without end", "R12-content", "files.go",
		`		case <-w.ended:
			return w.stopped(false)
		}`,
		`		}`},
	{"a read waits on the system without end", "R12-stuck", "files.go",
		`syscall.O_NONBLOCK`,
		`0`},
	{"bye draining ends the process", "R13-draining", "link.go",
		`			case "revoked":
				return errRevoked`,
		`			case "draining":
				os.Exit(0)
			case "revoked":
				return errRevoked`},
	{"every control frame is sent twice", "R14-heartbeat", "work.go",
		`	a.queue = append(a.queue, f)
	a.wake.Broadcast()`,
		`	a.queue = append(a.queue, f, f)
	a.wake.Broadcast()`},
	{"generationAck is sent twice", "ack-once", "link.go",
		`	go a.beat(`,
		`	a.control(frame{"t": "generationAck", "gen": ack.Gen}); go a.beat(`},
	{"hello is sent again when the handshake is over", "hello-first", "link.go",
		`	go a.beat(`,
		`	a.control(a.hello(f.Nonce)); go a.beat(`},
	{"a heartbeat does not wait for helloAck", "hello-first", "link.go",
		`	ack, err := read(opening, ws)`,
		"\tws.Write(opening, websocket.MessageText, []byte(`{\"t\":\"heartbeat\",\"gen\":\"1\",\"seq\":0,\"inflight\":[]}`))\n\tack, err := read(opening, ws)"},
	{"gen is written with a leading zero", "gen-echo", "link.go",
		`a.queue = append(a.queue[:0], frame{"t": "generationAck", "gen": ack.Gen})`,
		`a.queue = append(a.queue[:0], frame{"t": "generationAck", "gen": "0" + ack.Gen})`},
	{"base64 without padding", "stream-base64", "work.go",
		`base64.StdEncoding.EncodeToString(c.data)`,
		`base64.RawStdEncoding.EncodeToString(c.data)`},
	{"base64 of the URL alphabet", "stream-base64", "work.go",
		`base64.StdEncoding.EncodeToString(c.data)`,
		`base64.URLEncoding.EncodeToString(c.data)`},
	{"a message that is not UTF-8", "text-utf8", "work.go",
		`		b, err := json.Marshal(f)
		if err`,
		`		b, err := json.Marshal(f)
		b = bytes.ReplaceAll(b, []byte("is a folder"), []byte("is a f\xc3lder"))
		if err`},
	{"an exit code that is no integer", "exec-codes", "work.go",
		`f["exitCode"] = c.exitCode`,
		`f["exitCode"] = json.RawMessage(strconv.Itoa(c.exitCode) + ".5")`},
	{"a read ends with an exit chunk", "read-exact", "files.go",
		`return frame{"ok": true, "kind": "read"}`,
		`w.a.mu.Lock(); w.chunks = append(w.chunks, chunk{seq: w.next, kind: "exit"}); w.next++; w.a.mu.Unlock(); return frame{"ok": true, "kind": "read"}`},
	{"a line more than the limit", "read-lines", "files.go",
		`lines < *limit`,
		`lines <= *limit`},
	{"whole output is said to be truncated", "exec-output", "exec.go",
		`"kind": "exec", "exitCode": code}`,
		`"kind": "exec", "exitCode": code, "truncated": frame{"stdout": true, "stderr": false}}`},
	{"entries are named without their folder", "listdir-truth", "files.go",
		`infoOf(filepath.Join(path, e.Name()), i)`,
		`infoOf(e.Name(), i)`},
	{"a link's target is removed in its place", "remove", "files.go",
		`		remove := os.Remove
`,
		`		if r, err := filepath.EvalSymlinks(path); err == nil { path = r }
		remove := os.Remove
`},
	{"every file has the same inode", "write-receipt", "files.go",
		`"kind": "write", "canonicalPath": path}
		}`,
		`"kind": "write", "canonicalPath": path, "inode": "7"}
		}`},
	{"content is gathered in the temporary folder", "write-waits-for-commit", "files.go",
		`os.CreateTemp(dir, ".minimal-*")`,
		`os.CreateTemp("", ".minimal-*")`},
	{"an answer may be larger than a frame", "listdir-huge", "work.go",
		`len(b) > mostFrame-1024`,
		`len(b) < 0`},
	{"frames above 400 kB end the connection", "frame-limit", "link.go",
		`1<<20 + 1024`,
		`400_000`},
	{"the back-off has no jitter", "backoff", "link.go",
		`wait/2 + mathrand.N(wait/2)`,
		`wait + 0*mathrand.N(wait)`},
	{"a bad request is sent again", "enroll-400", "main.go",
		`			default:
				return fmt.Errorf("%s: %s", resp.Status, b)`,
		`			case resp.StatusCode == http.StatusForbidden:
				return fmt.Errorf("%s: %s", resp.Status, b)
			default:
				err = errors.New(resp.Status)`},
	{"a lost answer is followed up at once", "enroll-lost-answer", "main.go",
		`		wait := time.Second
`,
		`		wait := time.Millisecond
`},
	{"the upgrade carries the key as a bearer token", "upgrade-bare", "link.go",
		`+path, nil)`,
		`+path, &websocket.DialOptions{HTTPHeader: map[string][]string{"Authorization": {"Bearer " + base64.StdEncoding.EncodeToString(a.id.Seed)}}})`},
	{"a local socket accepts connections", "S1-outbound", "link.go",
		`	wait := time.Second
	for {`,
		`	l, _ := net.Listen("unix", filepath.Join(a.home, "sock"))
	defer l.Close()
	wait := time.Second
	for {`},
	{"a datagram socket can be reached", "S1-outbound", "link.go",
		`	wait := time.Second
	for {`,
		`	l, _ := net.ListenPacket("udp", "127.0.0.1:0")
	defer l.Close()
	wait := time.Second
	for {`},
	{"commands inherit the lock", "S1-descriptors", "main.go",
		`	b, err := os.ReadFile(filepath.Join(home, "identity.json"))`,
		`	syscall.Syscall(syscall.SYS_FCNTL, lock.Fd(), syscall.F_SETFD, 0)
	b, err := os.ReadFile(filepath.Join(home, "identity.json"))`},
}

// imports are what a replaced text may need and its file may not have.
var imports = []string{"bytes", "net", "strconv"}

// Every fault has its place in the source and its row. Whether the row catches it is
// for scripts/variants, which prints the lines that are logged here: it takes long.
func TestBrokenExecutorsOfOthersAreCaught(t *testing.T) {
	judge := os.Getenv("CONFORMANCE_VARIANTS") != ""
	slots := make(chan struct{}, 8) // most of them wait
	for _, b := range broken {
		t.Run(b.fault, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			source, text := breakMinimal(t, b.file, b.old, b.new)
			if _, err := Select([]string{b.row}); err != nil {
				t.Error(err)
			}
			if !judge {
				return
			}
			program := quote(buildOverlaid(t, source, text))
			results, err := Run(t.Context(), Config{Only: []string{b.row}, Dir: t.TempDir(),
				Enroll: program + " enroll {server} {home} {workspace} {credential}", Serve: program + " serve {home}"})
			if err != nil || results[0].Verdict != Fail {
				t.Fatalf("%-60s %-22s NOT CAUGHT (%v)", "minimal: "+b.fault, b.row, err)
			}
			t.Logf("%-60s %-22s %s", "minimal: "+b.fault, b.row, b.row)
		})
	}
}

// breakMinimal returns a file of the minimal executor with one text replaced.
func breakMinimal(t *testing.T, file, old, new string) (source, text string) {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("testdata", "minimal", file))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	text = string(b)
	if strings.Count(text, old) != 1 {
		t.Fatalf("%s does not have this text once:\n%s", file, old)
	}
	text = strings.Replace(text, old, new, 1)
	for _, name := range imports {
		if strings.Contains(new, name+".") && !strings.Contains(text, "\t\""+name+"\"\n") {
			text = strings.Replace(text, "import (\n", "import (\n\t\""+name+"\"\n", 1)
		}
	}
	return source, text
}

// buildOverlaid builds the minimal executor with another text in place of a file.
func buildOverlaid(t *testing.T, source, text string) string {
	t.Helper()
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "minimal")
	plan, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{changed: text, overlay: string(plan)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./testdata/minimal").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
