package conformance

// allowed are executors of a third party's hand that do what the guide leaves open
// otherwise than this module's two. row is the one that might take it amiss.
var allowed = []variant{
	{"it ends with code 143 on TERM", "R15-goodbye", []edit{{"link.go",
		"\t}\n\tos.Exit(0)\n}",
		"\t}\n\tos.Exit(143)\n}"}}},
	{"what runs at its goodbye is ended and failed at once", "R15-straggler", []edit{{"link.go",
		`time.Now().Add(5 * time.Second)`,
		`time.Now()`}}},
	{"readLink of no link is invalid, as §3.3 has it", "readlink-truth", []edit{
		{"files.go", `"createTempDir", "createTempFile"}`, `"createTempDir", "createTempFile", "readLink"}`},
		{"files.go", `	case "listDir":
		return list(path)`,
			`	case "readLink":
		to, err := os.Readlink(path)
		if err != nil {
			return wrong(err)
		}
		return frame{"ok": true, "kind": "stat", "linkTarget": to}
	case "listDir":
		return list(path)`}}},
	{"a write that waits for its content has begun, so is killed", "R11-not-started", []edit{{"files.go",
		`		case <-w.ended:
			return w.stopped(false)
		}`,
		`		case <-w.ended:
			return w.stopped(true)
		}`}}},
	{"a command's two streams end with an empty chunk each", "stream-entries", []edit{{"exec.go",
		`				n, err := r.Read(buf)
`,
		`				n, err := r.Read(buf)
				if err != nil {
					w.a.mu.Lock()
					w.chunks = append(w.chunks, chunk{seq: w.next, kind: kind})
					w.next++
					w.a.mu.Unlock()
				}
`}}},
	{"output goes out as it comes, a few bytes a chunk", "stream-entries", []edit{{"work.go",
		`mostChunk   = 48 << 10`,
		`mostChunk   = 5`}}},
	{"there is no window: chunkAck is none (§8)", "stream-slow-consumer", []edit{{"work.go",
		`mostUnacked = 1 << 20`,
		`mostUnacked = 1 << 30`}}},
	{"a flood meets no window", "R14-busy", []edit{{"work.go",
		`mostUnacked = 1 << 20`,
		`mostUnacked = 1 << 30`}}},
	{"a cancel for what never came is answered not_started", "R11-unknown", []edit{{"link.go",
		`			a.end(f.InstructionID, "cancel")`,
		`			a.mu.Lock()
			if !a.seen[f.InstructionID] {
				a.seen[f.InstructionID] = true
				w := a.open(f.InstructionID, "")
				w.result = frame{"ok": true, "kind": "cancelled", "state": "not_started"}
				close(w.over)
				a.wake.Broadcast()
			}
			a.mu.Unlock()
			a.end(f.InstructionID, "cancel")`}}},
	{"a timeoutMs of 0 or less is invalid", "R12-spent", []edit{{"work.go",
		`failure("timeout", "timeoutMs had run out before anything was started")`,
		`failure("invalid", "timeoutMs is no budget")`}}},
	{"malformed args are unknown trouble", "bad-args", []edit{
		{"files.go", `return failure("invalid", err.Error())`, `return failure("unknown", err.Error())`},
		{"files.go", `return failure("invalid", "args.path is not an absolute path")`, `return failure("unknown", "no path")`}}},
	{"the back-off is a third of the whole, by chance", "reject-auth_failed", []edit{{"link.go",
		`wait/2 + mathrand.N(wait/2)`,
		`wait/3 + 0*mathrand.N(wait)`}}},
	{"the back-off is short at first, by chance", "R13-draining", []edit{
		{"link.go", `	wait := time.Second
	for {`, `	wait := time.Second
	for tries := 0; ; tries++ {`},
		{"link.go", `wait/2 + mathrand.N(wait/2)`, `wait*time.Duration(tries%2*8+1)/10 + 0*mathrand.N(wait)`}}},
	{"it takes a while to start", "reject-already_connected", []edit{{"main.go",
		`	if err := endLeftovers(home); err != nil {`,
		`	time.Sleep(3500 * time.Millisecond)
	if err := endLeftovers(home); err != nil {`}}},
	{"a back-off starts over only after a minute of connection", "R5-bounded", []edit{{"link.go",
		`		if good {
			wait = time.Second
		}
`,
		`		_ = good
`}}},
	{"ten registrations are spaced out over minutes", "enroll-429-cap", []edit{
		{"main.go", `for range 5 {
		wait := time.Second`, `for n := range 10 {
		wait := time.Second << n`}}},
	{"createDir of a folder that is there says so", "createdir", []edit{{"files.go",
		`			make = os.MkdirAll
`,
		`			make = func(path string, mode fs.FileMode) error {
				if i, err := os.Stat(path); err == nil && i.IsDir() {
					return fs.ErrExist
				}
				return os.MkdirAll(path, mode)
			}
`}}},
	{"times are rounded", "listdir-truth", []edit{{"files.go",
		`i.ModTime().UnixMilli()`,
		`i.ModTime().Round(time.Millisecond).UnixMilli()`}}},
	{"output above 1 MiB is cut, and said to be", "stream-exact", cutOutput},
	{"much output is cut, and said to be", "R8-no-gap", cutOutput},
	{"exec sends its output when it is done", "R7-same-bytes", bufferOutput},
	{"output of exec that ran out of time is left out", "stream-failed", []edit{
		bufferOutput[0], {"exec.go", `				if !w.put(kind, buf[:n]) || err != nil {`,
			`				if f.Kind == "exec" {
					if held = append(held, buf[:n]...); err == nil {
						continue
					}
					if !isClosed(w.ended) {
						w.put(kind, held)
					}
					return
				}
				if !w.put(kind, buf[:n]) || err != nil {`}}},
	{"a second challenge ends the connection", "S4-sign-once", []edit{{"link.go",
		`		if f.Gen != gen {
			continue
		}`,
		`		if f.T == "challenge" {
			return errors.New("a second challenge")
		}
		if f.Gen != gen {
			continue
		}`}}},
	{"the temporary file goes a moment after the answer", "payload-digest", []edit{{"files.go",
		`defer os.Remove(temp.Name())`,
		`defer time.AfterFunc(300*time.Millisecond, func() { os.Remove(temp.Name()) })`}}},
	{"it owns to not knowing whether all of a cancelled command is dead", "R11-stubborn", unknowing},
	{"it owns to not knowing whether all of a command that ran out of time is dead", "R12-tree", unknowing},
	{"a bye of another generation on the present socket is heeded", "wrong-gen-ignored", []edit{{"link.go",
		`		if f.Gen != gen {
			continue
		}
`, ``}}},
	{"bye draining is answered with a new connection, and an end of the old one", "wrong-gen-ignored", []edit{{"link.go",
		`			case "revoked":
				return errRevoked`, `			case "draining":
				return errors.New("this server leaves")
			case "revoked":
				return errRevoked`}}},
	{"a home of its own is not needed", "S3-token", []edit{{"main.go",
		`	b, err := os.ReadFile(filepath.Join(home, "identity.json"))`,
		`	os.Unsetenv("HOME")
	b, err := os.ReadFile(filepath.Join(home, "identity.json"))`}}},
	{"its runtime takes 400 MiB from the start", "M-outbox-bounded", largeRuntime},
	{"its runtime takes 400 MiB, whatever it does", "M-settles", largeRuntime},
	{"readTextLines sends lines, the last without its end", "read-exact", []edit{{"files.go",
		`		return w.read(path, args.Limit)`,
		`		if args.Limit == nil {
			b, err := os.ReadFile(path)
			if err != nil {
				return wrong(err)
			}
			w.put("data", bytes.TrimSuffix(b, []byte("\n")))
			return frame{"ok": true, "kind": "read"}
		}
		return w.read(path, args.Limit)`}}},
}

// cutOutput keeps no more than 1 MiB of each stream, and says so.
var cutOutput = []edit{
	{"exec.go", `	var readers sync.WaitGroup
`, `	var readers sync.WaitGroup
	var cutOut, cutErr bool
`},
	{"exec.go", `			buf := make([]byte, 48<<10)
`, `			buf, sum := make([]byte, 48<<10), 0
`},
	{"exec.go", `				if !w.put(kind, buf[:n]) || err != nil {`, `				if sum += n; sum > 1<<20 {
					if kind == "stdout" {
						cutOut = true
					} else {
						cutErr = true
					}
					n = 0
				}
				if !w.put(kind, buf[:n]) || err != nil {`},
	{"exec.go", `"kind": "exec", "exitCode": code}`, `"kind": "exec", "exitCode": code, "truncated": frame{"stdout": cutOut, "stderr": cutErr}}`},
}

// bufferOutput sends what exec wrote when it is done: only execStream is live.
var bufferOutput = []edit{
	{"exec.go", `			buf := make([]byte, 48<<10)
`, `			buf, held := make([]byte, 48<<10), []byte(nil)
`},
	{"exec.go", `				if !w.put(kind, buf[:n]) || err != nil {`, `				if f.Kind == "exec" {
					if held = append(held, buf[:n]...); err == nil {
						continue
					}
					w.put(kind, held)
					return
				}
				if !w.put(kind, buf[:n]) || err != nil {`},
}

// unknowing does not find what has lost its parent, and does not say that it is dead.
var unknowing = []edit{
	unadopted[0],
	{"exec.go", `	if stopped || isClosed(w.ended) {
		return w.stopped(true)`, `	if stopped || isClosed(w.ended) {
		return failure("outcome_unknown", "the command was killed; whether all that it started is dead is not known")`}}

// largeRuntime is an executor in a language whose runtime is at home in memory.
var largeRuntime = []edit{{"main.go",
	`	if err := endLeftovers(home); err != nil {`,
	`	ballast := bytes.Repeat([]byte{1}, 400<<20)
	defer func() { _ = ballast[0] }()
	if err := endLeftovers(home); err != nil {`}}
