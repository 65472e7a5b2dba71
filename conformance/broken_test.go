package conformance

// broken are executors of a third party's hand with one fault each. row is the one
// that names the broken promise.
var broken = []variant{
	{"a result is sent twice", "R1-every-answered", []edit{{"work.go",
		`			w.sent = true
			w.sends++
			return frame{`,
		`			w.sent = true
			w.sends++
			a.queue = append(a.queue, frame{"t": "result", "gen": gen, "instructionId": id, "deviceSeq": w.seq, "outcome": w.result})
			return frame{`}}},
	{"a reconnect forgets which ids have run", "R1-once", []edit{{"link.go",
		`	a.gen = ack.Gen
`,
		`	a.gen = ack.Gen
	a.seen = map[string]bool{}
`}}},
	{"what is not listed runs on", "R2-unlisted", []edit{{"link.go",
		`			ending = append(ending, w)
			delete(a.works, id)`,
		`			_ = ending`}}},
	{"what is not listed is ended, and its output still sent", "R2-unlisted", []edit{{"link.go",
		`			ending = append(ending, w)
			delete(a.works, id)`,
		`			ending = append(ending, w)`}}},
	{"the epoch is the same in every process", "R3-new-epoch", []edit{{"work.go",
		`a.epoch, a.epochRaw = newEpoch()`,
		`a.epoch, a.epochRaw = "01J8ZQ4T9X7M3K5N6P8R0S2V4W", [16]byte{0x01,0x92,0x3f,0x72,0x69,0x3d,0x3d,0x07,0x32,0xd4,0xd6,0x46,0x01,0x91,0x6c,0x9c}`}}},
	{"a command that waits for acknowledgements cannot be cancelled", "M-outbox-bounded", []edit{{"work.go",
		`for w.held > mostUnacked && !isClosed(w.ended) {`,
		`for w.held > mostUnacked {`}}},
	{"a cancelled command is said to have failed", "R11-killed", []edit{{"work.go",
		`return frame{"ok": true, "kind": "cancelled", "state": "killed"}`,
		`return failure("aborted", "cancelled")`}}},
	{"a write waits for its content without end", "R12-content", []edit{{"files.go",
		`		case <-w.ended:
			return w.stopped(false)
		}`,
		`		}`}}},
	{"a read waits on the system without end", "R12-stuck", []edit{{"files.go",
		`syscall.O_NONBLOCK`,
		`0`}}},
	{"bye draining ends the process", "R13-draining", []edit{{"link.go",
		`			case "revoked":
				return errRevoked`,
		`			case "draining":
				os.Exit(0)
			case "revoked":
				return errRevoked`}}},
	{"every control frame is sent twice", "R14-heartbeat", []edit{{"work.go",
		`	a.queue = append(a.queue, f)
	a.wake.Broadcast()`,
		`	a.queue = append(a.queue, f, f)
	a.wake.Broadcast()`}}},
	{"generationAck is sent twice", "ack-once", []edit{{"link.go",
		`	go a.beat(`,
		`	a.control(frame{"t": "generationAck", "gen": ack.Gen}); go a.beat(`}}},
	{"hello is sent again when the handshake is over", "hello-first", []edit{{"link.go",
		`	go a.beat(`,
		`	a.control(a.hello(f.Nonce)); go a.beat(`}}},
	{"a heartbeat does not wait for helloAck", "hello-first", []edit{{"link.go",
		`	ack, err := read(opening, ws)`,
		"\tws.Write(opening, websocket.MessageText, []byte(`{\"t\":\"heartbeat\",\"gen\":\"1\",\"seq\":0,\"inflight\":[]}`))\n\tack, err := read(opening, ws)"}}},
	{"gen is written with a leading zero", "gen-echo", []edit{{"link.go",
		`a.queue = append(a.queue[:0], frame{"t": "generationAck", "gen": ack.Gen})`,
		`a.queue = append(a.queue[:0], frame{"t": "generationAck", "gen": "0" + ack.Gen})`}}},
	{"base64 without padding", "stream-base64", []edit{{"work.go",
		`base64.StdEncoding.EncodeToString(c.data)`,
		`base64.RawStdEncoding.EncodeToString(c.data)`}}},
	{"base64 of the URL alphabet", "stream-base64", []edit{{"work.go",
		`base64.StdEncoding.EncodeToString(c.data)`,
		`base64.URLEncoding.EncodeToString(c.data)`}}},
	{"a message that is not UTF-8", "text-utf8", []edit{{"work.go",
		`		b, err := json.Marshal(f)
		if err`,
		`		b, err := json.Marshal(f)
		b = bytes.ReplaceAll(b, []byte("is a folder"), []byte("is a f\xc3lder"))
		if err`}}},
	{"an exit code that is no integer", "exec-codes", []edit{{"work.go",
		`f["exitCode"] = c.exitCode`,
		`f["exitCode"] = json.RawMessage(strconv.Itoa(c.exitCode) + ".5")`}}},
	{"a read ends with an exit chunk", "read-exact", []edit{{"files.go",
		`return frame{"ok": true, "kind": "read"}`,
		`w.a.mu.Lock(); w.chunks = append(w.chunks, chunk{seq: w.next, kind: "exit"}); w.next++; w.a.mu.Unlock(); return frame{"ok": true, "kind": "read"}`}}},
	{"a line more than the limit", "read-lines", []edit{{"files.go",
		`lines < *limit`,
		`lines <= *limit`}}},
	{"whole output is said to be truncated", "exec-output", []edit{{"exec.go",
		`"kind": "exec", "exitCode": code}`,
		`"kind": "exec", "exitCode": code, "truncated": frame{"stdout": true, "stderr": false}}`}}},
	{"entries are named without their folder", "listdir-truth", []edit{{"files.go",
		`infoOf(filepath.Join(path, e.Name()), i)`,
		`infoOf(e.Name(), i)`}}},
	{"a link's target is removed in its place", "remove", []edit{{"files.go",
		`		remove := os.Remove
`,
		`		if r, err := filepath.EvalSymlinks(path); err == nil { path = r }
		remove := os.Remove
`}}},
	{"every file has the same inode", "write-receipt", []edit{{"files.go",
		`"kind": "write", "canonicalPath": path}
		}`,
		`"kind": "write", "canonicalPath": path, "inode": "7"}
		}`}}},
	{"content is gathered in the temporary folder", "write-waits-for-commit", []edit{{"files.go",
		`os.CreateTemp(dir, ".minimal-*")`,
		`os.CreateTemp("", ".minimal-*")`}}},
	{"an answer may be larger than a frame", "listdir-huge", []edit{{"work.go",
		`len(b) > mostFrame-1024`,
		`len(b) < 0`}}},
	{"frames above 400 kB end the connection", "frame-limit", []edit{{"link.go",
		`1<<20 + 1024`,
		`400_000`}}},
	{"the back-off has no jitter", "backoff", []edit{{"link.go",
		`wait/2 + mathrand.N(wait/2)`,
		`wait + 0*mathrand.N(wait)`}}},
	{"a bad request is sent again", "enroll-400", []edit{{"main.go",
		`			default:
				return fmt.Errorf("%s: %s", resp.Status, b)`,
		`			case resp.StatusCode == http.StatusForbidden:
				return fmt.Errorf("%s: %s", resp.Status, b)
			default:
				err = errors.New(resp.Status)`}}},
	{"a lost answer is followed up at once", "enroll-lost-answer", []edit{{"main.go",
		`		wait := time.Second
`,
		`		wait := time.Millisecond
`}}},
	{"the upgrade carries the key as a bearer token", "upgrade-bare", []edit{{"link.go",
		`+path, nil)`,
		`+path, &websocket.DialOptions{HTTPHeader: map[string][]string{"Authorization": {"Bearer " + base64.StdEncoding.EncodeToString(a.id.Seed)}}})`}}},
	{"a local socket accepts connections", "S1-outbound", []edit{{"link.go",
		`	wait := time.Second
	for {`,
		`	l, _ := net.Listen("unix", "sock")
	defer l.Close()
	wait := time.Second
	for {`}}},
	{"a datagram socket can be reached", "S1-outbound", []edit{{"link.go",
		`	wait := time.Second
	for {`,
		`	l, _ := net.ListenPacket("udp", "127.0.0.1:0")
	defer l.Close()
	wait := time.Second
	for {`}}},
	{"commands inherit the lock", "S1-descriptors", []edit{{"main.go",
		`	b, err := os.ReadFile(filepath.Join(home, "identity.json"))`,
		`	syscall.Syscall(syscall.SYS_FCNTL, lock.Fd(), syscall.F_SETFD, 0)
	b, err := os.ReadFile(filepath.Join(home, "identity.json"))`}}},
	{"a refused upgrade is tried again at once", "upgrade-503", []edit{{"link.go",
		`+path, nil)
`,
		`+path, nil)
	for n := 0; err != nil && n < 50; n++ {
		ws, _, err = websocket.Dial(opening, "ws"+strings.TrimPrefix(a.id.Server, "http")+path, nil)
	}
`}}},
	{"a socket that closes before helloAck ends the process", "hello-needs-challenge", []edit{{"link.go",
		`	ack, err := read(opening, ws)
	if err != nil {`,
		`	ack, err := read(opening, ws)
	if err != nil {
		os.Exit(1)`}}},
	{"hello holds the workspace root three times more", "hello-root", []edit{{"link.go",
		`"pathFlavor": "posix"`,
		`"pathFlavor": "posix " + strings.Repeat(a.id.Workspace, 3)`}}},
	{"an unjittered back-off with a low ceiling", "backoff", []edit{
		{"link.go", `wait/2 + mathrand.N(wait/2)`, `wait + 0*mathrand.N(wait)`},
		{"link.go", `min(2*wait, time.Minute)`, `min(2*wait, 4*time.Second)`}}},
	{"a server that cannot be reached ends the process", "server-away", []edit{{"main.go",
		`		last = err
`,
		`		last = err
		if method == "GET" {
			os.Exit(1)
		}
`}}},
	{"a connection that drops is made anew at once", "server-drops", []edit{{"link.go",
		`			wait = time.Second
		}`,
		`			wait = time.Second
			if websocket.CloseStatus(err) == -1 {
				continue
			}
		}`}}},
	{"a connection closed in good order ends the process", "R14-closed", []edit{
		{"link.go", `			case "superseded":
				return errSuperseded`, `			case "draining":
				return errors.New("draining")
			case "superseded":
				return errSuperseded`},
		{"link.go", `		f, err := read(ctx, ws)
		if err != nil {`, `		f, err := read(ctx, ws)
		if err != nil {
			if websocket.CloseStatus(err) != -1 {
				os.Exit(0)
			}`}}},
	{"every device is a Mac", "enroll-body", []edit{{"main.go",
		`"platformOs": runtime.GOOS`,
		`"platformOs": map[string]string{"linux": "darwin", "darwin": "linux"}[runtime.GOOS]`}}},
	{"an interrupt ends it without a goodbye", "R15-goodbye", []edit{{"link.go",
		`syscall.SIGTERM, syscall.SIGINT)`,
		`syscall.SIGTERM)`}}},
	{"execStream runs in the workspace, whatever cwd says", "exec-cwd", []edit{{"exec.go",
		`if cmd.Dir == "" {`,
		`if cmd.Dir == "" || f.Kind == "execStream" {`}}},
	{"shellEnv is for exec alone", "exec-shellenv", []edit{{"exec.go",
		`	for name, value := range f.ShellEnv {
`,
		`	for name, value := range f.ShellEnv {
		if f.Kind == "execStream" {
			break
		}
`}}},
	{"shellEnv is in force beside its command too", "exec-shellenv", []edit{{"exec.go",
		`	for name, value := range f.ShellEnv {
`,
		`	for name, value := range f.ShellEnv {
		old := os.Getenv(name)
		os.Setenv(name, value)
		defer os.Setenv(name, old)
`}}},
	{"a command is made one line", "exec-output", []edit{{"exec.go",
		`"run", *args.Command)`,
		`"run", strings.ReplaceAll(*args.Command, "\n", "; "))`}}},
	{"cancel is for exec alone", "R11-killed", []edit{{"work.go",
		`	if w != nil {
		w.end(why)`,
		`	if w != nil && w.kind != "execStream" {
		w.end(why)`}}},
	{"timeoutMs is for exec alone", "R12-timeout", []edit{{"work.go",
		`func() { w.end("timeout") })`,
		`func() {
				if f.Kind != "execStream" {
					w.end("timeout")
				}
			})`}}},
	{"timeoutMs has 32 bits", "R12-long", []edit{{"work.go",
		`min(f.TimeoutMs, 1<<40)`,
		`int32(f.TimeoutMs)`}}},
	{"what has just begun is said not to have", "R11-not-started", []edit{
		{"exec.go", `	cmd.Env = os.Environ()
`, `	cmd.Env = os.Environ()
	begun := time.Now()
`},
		{"exec.go", `	if stopped || isClosed(w.ended) {
		return w.stopped(true)`, `	if stopped || isClosed(w.ended) {
		return w.stopped(time.Since(begun) > 300*time.Millisecond)`}}},
	{"a cancel leaves what has a session of its own", "R11-stubborn", leaving("cancel")},
	{"the fence leaves what has a session of its own", "R10-fence", leaving("fence")},
	{"a cancel leaves what has lost its parent", "R11-stubborn", unadopted},
	{"a timeout leaves what has lost its parent", "R12-tree", unadopted},
	{"the fence leaves what has lost its parent", "R10-fence", unadopted},
	{"output that nobody takes is dropped unsaid", "stream-slow-consumer", []edit{{"work.go",
		`		for w.held > mostUnacked && !isClosed(w.ended) {
			w.a.wake.Wait()
		}
`,
		`		if w.held > mostUnacked {
			w.a.mu.Unlock()
			return true
		}
`}}},
	{"a silent command sends empty chunks", "stream-entries", []edit{{"exec.go",
		`				n, err := r.Read(buf)
`,
		`				r.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				n, err := r.Read(buf)
				if os.IsTimeout(err) {
					w.a.mu.Lock()
					w.chunks = append(w.chunks, chunk{seq: w.next, kind: kind})
					w.next++
					w.a.wake.Broadcast()
					w.a.mu.Unlock()
					continue
				}
`}}},
	{"a file that is read is held whole", "M-outbox-bounded", []edit{
		{"work.go", `for w.held > mostUnacked && !isClosed(w.ended) {`, `for kind != "data" && w.held > mostUnacked && !isClosed(w.ended) {`},
		{"work.go", `		if w.held > mostUnacked {
			w.a.mu.Unlock()`, `		if isClosed(w.ended) {
			w.a.mu.Unlock()`}}},
	{"what was acknowledged is kept", "M-settles", []edit{
		{"work.go", `		w.chunks = w.chunks[1:]
`, `		kept = append(kept, w.chunks[0])
		w.chunks = w.chunks[1:]
`},
		{"work.go", `func (w *work) release(`, `var kept []chunk

func (w *work) release(`}}},
	{"a list has a thousand entries at most", "listdir-truth", []edit{{"files.go",
		`	entries := []frame{}
`,
		`	entries := []frame{}
	found = found[:min(len(found), 1000)]
`}}},
	{"entries of a list have no size", "listdir-truth", []edit{{"files.go",
		`			entries = append(entries, infoOf(filepath.Join(path, e.Name()), i))
`,
		`			info := infoOf(filepath.Join(path, e.Name()), i)
			info["size"] = 0
			entries = append(entries, info)
`}}},
	{"a folder's list is remembered", "read-fresh", []edit{
		{"files.go", `	entries := []frame{}
`, `	known.Lock()
	defer known.Unlock()
	if l := known.lists[path]; l != nil {
		return l
	}
	entries := []frame{}
`},
		{"files.go", `	return frame{"ok": true, "kind": "stat", "entries": entries}
}`, `	known.lists[path] = frame{"ok": true, "kind": "stat", "entries": entries}
	return known.lists[path]
}

var known = struct {
	sync.Mutex
	lists map[string]frame
}{lists: map[string]frame{}}`}}},
	{"the receipt of a write through a link names the link", "write-receipt", []edit{
		{"files.go", `	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
`, `	asked := path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
`},
		{"files.go", `			return frame{"ok": true, "kind": "write", "canonicalPath": path}
`, `			if dir, err = filepath.EvalSymlinks(filepath.Dir(asked)); err != nil {
				return wrong(err)
			}
			return frame{"ok": true, "kind": "write", "canonicalPath": filepath.Join(dir, filepath.Base(asked))}
`}}},
	{"the key is in hello, in PEM within JSON", "S2-key-wire", append([]edit{{"link.go",
		`"executorVersion": "minimal"`, `"executorVersion": pemOf(a.id.Seed)`}}, pemOf...)},
	{"the key is in hello, within other base64", "S2-key-wire", []edit{{"link.go",
		`"executorVersion": "minimal"`, `"executorVersion": base64.RawURLEncoding.EncodeToString(append([]byte("key="), a.id.Seed...))`}}},
	{"the key is printed as PEM", "S2-key-wire", append([]edit{{"link.go",
		`	wait := time.Second
	for {`, `	os.Stderr.WriteString(pemOf(a.id.Seed))
	wait := time.Second
	for {`}}, pemOf...)},
	{"the key is printed in a line of JSON", "S2-key-wire", append([]edit{{"link.go",
		`	wait := time.Second
	for {`, `	json.NewEncoder(os.Stderr).Encode(frame{"loaded": pemOf(a.id.Seed)})
	wait := time.Second
	for {`}}, pemOf...)},
	{"the key is in the user's home, readable by all", "S2-key-file", []edit{{"main.go",
		`	return os.WriteFile(filepath.Join(home, "identity.json"), b, 0o600)`,
		`	user, _ := os.UserHomeDir()
	os.WriteFile(filepath.Join(user, ".minimal"), b, 0o644)
	return os.WriteFile(filepath.Join(home, "identity.json"), b, 0o600)`}}},
	{"output is logged in the workspace", "S9-content", logging(`filepath.Join(w.a.id.Workspace, ".minimal.log")`, `string(buf[:n])`)},
	{"output is logged in the user's home", "S9-content", logging(`os.Getenv("HOME") + "/.minimal.log"`, `string(buf[:n])`)},
	{"output is logged in hex", "S9-content", logging(`filepath.Join(w.a.home, "log")`, `fmt.Sprintf("%x\n", buf[:n])`)},
	{"output is logged in base64, behind a time", "S9-content", logging(`filepath.Join(w.a.home, "log")`,
		`base64.StdEncoding.EncodeToString(append([]byte("12:00 "), buf[:n]...))`)},
	{"the token and the credential stay in the user's home", "S3-token", []edit{{"main.go",
		`	public, private, err := ed25519`,
		`	os.WriteFile(os.Getenv("HOME")+"/.minimal", []byte(token.Token+" "+credential), 0o600)
	public, private, err := ed25519`}}},
	{"a helper that has left the family listens", "S1-outbound", []edit{
		{"main.go", `	case len(os.Args) == 3 && os.Args[1] == "serve":
`, `	case len(os.Args) == 2 && os.Args[1] == "listen":
		net.Listen("tcp", "0.0.0.0:0")
		time.Sleep(time.Minute)
	case len(os.Args) == 3 && os.Args[1] == "serve":
		exec.Command("/bin/sh", "-c", "setsid "+os.Args[0]+" listen & sleep 0.3").Run()
`}}},
	{"output past 9 MB is dropped unsaid", "stream-exact", []edit{
		{"exec.go", `			buf := make([]byte, 48<<10)
`, `			buf, sum := make([]byte, 48<<10), 0
`},
		{"exec.go", `				if !w.put(kind, buf[:n]) || err != nil {`, `				if sum += n; sum > 9_000_000 {
					n = 0
				}
				if !w.put(kind, buf[:n]) || err != nil {`}}},
	{"exists is false for whatever cannot be looked at", "exists-truth", []edit{{"files.go",
		`		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return wrong(err)
		}
		return frame`,
		`		return frame`}}},
	{"times are cut to seconds", "fileinfo-truth", []edit{{"files.go",
		`i.ModTime().UnixMilli()`,
		`i.ModTime().Unix() * 1000`}}},
	{"the finished file comes from a folder below the target's", "write-waits-for-commit", []edit{{"files.go",
		`	return os.Rename(f.Name(), path)`,
		`	below, err := os.MkdirTemp(filepath.Dir(path), ".minimal-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(below)
	if err := os.Rename(f.Name(), filepath.Join(below, "x")); err != nil {
		return err
	}
	return os.Rename(filepath.Join(below, "x"), path)`}}},
	{"a socket that was superseded is still heeded", "wrong-gen-ignored", superseding(`		go a.readLoop(context.Background(), ws, ack.Gen)`)},
	{"a bye on a superseded socket ends the process", "wrong-gen-ignored", superseding(`		go func() {
			if errors.Is(a.readLoop(context.Background(), ws, ack.Gen), errSuperseded) {
				os.Exit(0)
			}
		}()`)},
	{"an exclusive write looks, and then writes", "write-exclusive-outsider", exclusively},
	{"all content goes to the write that came last", "payload-parts", []edit{{"work.go",
		`	w := a.works[f.InstructionID]
	a.mu.Unlock()
	if w != nil && w.content`,
		`	var w *work
	for _, id := range a.order {
		if of := a.works[id]; of != nil && of.content != nil {
			w = of
		}
	}
	a.mu.Unlock()
	if w != nil && w.content`}}},
	{"output of one command comes from another", "stream-numbers", []edit{{"work.go",
		`		w.chunks = append(w.chunks, chunk{seq: w.next, kind: kind, data: slices.Clone(data[:n])})
		w.next++
`,
		`		if id := w.a.order[0]; w.a.works[id] != nil && w.a.works[id].result == nil {
			w = w.a.works[id]
		}
		w.chunks = append(w.chunks, chunk{seq: w.next, kind: kind, data: slices.Clone(data[:n])})
		w.next++
`}}},
	{"an append is lost to another at once", "append-race", []edit{{"files.go",
		`	appending.Lock()
	defer appending.Unlock()
`, ``}}},
	{"content is gathered among the executor's own files", "write-waits-for-commit", []edit{{"files.go",
		`	temp, err := os.CreateTemp(dir,`,
		`	temp, err := os.CreateTemp(w.a.home,`}}},
	{"the token stays in the temporary folder", "S3-token", []edit{{"main.go",
		`	public, private, err := ed25519`,
		`	os.WriteFile(filepath.Join(os.TempDir(), "enrolling"), []byte(token.Token), 0o600)
	public, private, err := ed25519`}}},
	{"output is logged in the temporary folder", "S9-content", []edit{{"exec.go",
		`				n, err := r.Read(buf)
`,
		`				n, err := r.Read(buf)
				if n > 0 {
					os.WriteFile(filepath.Join(os.TempDir(), kind+".log"), buf[:n], 0o600)
				}
`}}},
	{"a copy of the key in OpenSSH's form stays", "R13-revoked", []edit{{"main.go",
		`	id := identity{`,
		`	os.WriteFile(filepath.Join(home, "key"), pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY",
		Bytes: append(append([]byte("openssh-key-v1, and what else comes before the seed"), private...), "its comment"...)}), 0o600)
	id := identity{`}}},
}

// pemOf writes a seed as programs write private keys.
var pemOf = []edit{{"link.go", `const crockford`, `func pemOf(seed []byte) string {
	b, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}))
}

const crockford`}}

// logging appends what a command writes to a file, in some form.
func logging(path, text string) []edit {
	return []edit{{"exec.go",
		`				n, err := r.Read(buf)
`,
		`				n, err := r.Read(buf)
				if l, err := os.OpenFile(` + path + `, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
					l.WriteString(` + text + `)
					l.Close()
				}
`}}
}

// superseding makes a new connection upon bye draining, without closing the one on
// which it came, and does with that one what is given.
func superseding(then string) []edit {
	return []edit{
		{"link.go", `	defer ws.CloseNow()
`, ``},
		{"link.go", `			case "revoked":
				return errRevoked`, `			case "draining":
				return errDraining
			case "revoked":
				return errRevoked`},
		{"link.go", `	errSuperseded = `, `	errDraining   = errors.New("this server leaves")
	errSuperseded = `},
		{"link.go", `	err = a.readLoop(ctx, ws, ack.Gen)
`, `	err = a.readLoop(context.Background(), ws, ack.Gen)
	if errors.Is(err, errDraining) {
` + then + `
	} else {
		ws.CloseNow()
	}
`},
		{"link.go", `		a.writeLoop(ctx, ws, ack.Gen)
		ws.CloseNow()
`, `		a.writeLoop(ctx, ws, ack.Gen)
`},
	}
}

// leaving ends, where work ends for a reason, no more than the group of the command.
func leaving(why string) []edit {
	return []edit{
		{"exec.go", `		open.Close() // which ends it
`, `		if w.why == "` + why + `" {
			syscall.Kill(-pid, syscall.SIGKILL)
		}
		open.Close()
`},
		{"exec.go", `ok && s.Signaled() {`, `ok && s.Signaled() && w.why != "` + why + `" {`}}
}

// unadopted finds what descends from a command, and no more than that and its group.
var unadopted = []edit{{"keeper.go", `	adopt()
`, ``}}

// exclusively is writeFileExclusive as it must not be: a look, and then a write, with
// writers of the same process taking turns.
var exclusively = []edit{
	{"files.go", `"createTempDir", "createTempFile"}`, `"createTempDir", "createTempFile", "writeFileExclusive"}`},
	{"files.go", `	case "writeFile", "appendFile":
		return`, `	case "writeFile", "appendFile", "writeFileExclusive":
		return`},
	{"files.go", `			if err := place(temp, path, mode); err != nil {`, `			if kind == "writeFileExclusive" {
				appending.Lock()
				defer appending.Unlock()
				if _, err := os.Lstat(path); err == nil {
					return failure("already_exists", path+" is there")
				}
			}
			if err := place(temp, path, mode); err != nil {`},
	{"work.go", `	case "writeFile", "appendFile":
		w.content`, `	case "writeFile", "appendFile", "writeFileExclusive":
		w.content`},
}
