package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"
)

// Frames of both directions, as maps where a struct would have one use.
type frame = map[string]any

type serverFrame struct {
	T                   string            `json:"t"`
	Gen                 string            `json:"gen"`
	Nonce               string            `json:"nonce"`
	Code                string            `json:"code"`
	Reason              string            `json:"reason"`
	HeartbeatIntervalMs int64             `json:"heartbeatIntervalMs"`
	PendingInstructions []string          `json:"pendingInstructions"`
	ChunkWatermarks     map[string]int64  `json:"chunkWatermarks"`
	InstructionID       string            `json:"instructionId"`
	Kind                string            `json:"kind"`
	Args                json.RawMessage   `json:"args"`
	Cwd                 string            `json:"cwd"`
	ShellEnv            map[string]string `json:"shellEnv"`
	TimeoutMs           int64             `json:"timeoutMs"`
	UpToStreamSeq       int64             `json:"upToStreamSeq"`
	Part                string            `json:"part"`
	Offset              int64             `json:"offset"`
	DataB64             string            `json:"dataB64"`
	TotalLen            int64             `json:"totalLen"`
	SHA256              string            `json:"sha256"`
}

var (
	errRevoked    = errors.New("this device was revoked")
	errSuperseded = errors.New("another executor took over")
)

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// newEpoch is a ULID: 48 bits of milliseconds, 80 random ones.
func newEpoch() (text string, raw [16]byte) {
	binary.BigEndian.PutUint64(raw[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(raw[6:])
	n := new(big.Int).SetBytes(raw[:])
	digits := make([]byte, 26)
	for i := 25; i >= 0; i-- {
		m := new(big.Int)
		n.DivMod(n, big.NewInt(32), m)
		digits[i] = crockford[m.Int64()]
	}
	return string(digits), raw
}

func (a *agent) hello(nonce string) frame {
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	b := text(text([]byte("sema.device.hello.v1"), nonce), a.id.DeviceID)
	b = binary.BigEndian.AppendUint32(append(b, a.epochRaw[:]...), 1)
	sig := ed25519.Sign(ed25519.NewKeyFromSeed(a.id.Seed), b)
	return frame{"t": "hello", "protocolVersion": 1, "deviceId": a.id.DeviceID, "epoch": a.epoch,
		"signatureB64": base64.StdEncoding.EncodeToString(sig), "workspaceRoot": a.id.Workspace, "pathFlavor": "posix",
		"platform": frame{"os": runtime.GOOS, "arch": runtime.GOARCH, "executorVersion": "minimal"}, "supports": kinds}
}

// run connects again and again, until something final happens.
func (a *agent) run() error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		go a.leave()
		<-signals
		a.endAll("aborted")
		os.Exit(0)
	}()
	wait := time.Second
	for {
		good, err := a.connection()
		a.disconnected()
		switch {
		case a.left():
			<-a.gone
			return nil
		case errors.Is(err, errRevoked):
			a.endAll("fence")
			os.Remove(filepath.Join(a.home, "identity.json"))
			return err
		case errors.Is(err, errSuperseded):
			a.endAll("fence")
			return err
		}
		if good {
			wait = time.Second
		}
		select {
		case <-time.After(wait/2 + mathrand.N(wait/2)):
		case <-a.gone:
			return nil
		}
		wait = min(2*wait, time.Minute)
	}
}

func read(ctx context.Context, ws *websocket.Conn) (f serverFrame, err error) {
	_, b, err := ws.Read(ctx)
	if err != nil {
		return f, err
	}
	if json.Unmarshal(b, &f) != nil {
		f.T = "" // not for us to understand
	}
	return f, nil
}

// connection lives through one socket. good says whether work was possible on it.
func (a *agent) connection() (good bool, err error) {
	path, err := lane(a.id.Server)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opening, opened := context.WithTimeout(ctx, 5*time.Second)
	defer opened()
	ws, _, err := websocket.Dial(opening, "ws"+strings.TrimPrefix(a.id.Server, "http")+path, nil)
	if err != nil {
		return false, err
	}
	defer ws.CloseNow()
	ws.SetReadLimit(1<<20 + 1024)

	f, err := read(opening, ws)
	if err != nil || f.T != "challenge" {
		return false, errors.Join(err, errors.New("no challenge"))
	}
	b, err := json.Marshal(a.hello(f.Nonce))
	if err != nil {
		return false, err
	}
	if err := ws.Write(opening, websocket.MessageText, b); err != nil {
		return false, err
	}
	ack, err := read(opening, ws)
	if err != nil {
		return false, err
	}
	if ack.T != "helloAck" {
		if ack.Code == "revoked" {
			return false, errRevoked
		}
		return false, errors.New("refused: " + ack.Code)
	}
	a.fence(ack)

	writerDone := make(chan struct{})
	go func() {
		defer close(writerDone)
		a.writeLoop(ctx, ws, ack.Gen)
		ws.CloseNow()
	}()
	go a.beat(ctx, ack.Gen, time.Duration(min(ack.HeartbeatIntervalMs, 1<<40))*time.Millisecond)
	err = a.readLoop(ctx, ws, ack.Gen)
	cancel()
	a.wake.Broadcast()
	<-writerDone
	return true, err
}

func (a *agent) readLoop(ctx context.Context, ws *websocket.Conn, gen string) error {
	for {
		f, err := read(ctx, ws)
		if err != nil {
			return err
		}
		if f.Gen != gen {
			continue
		}
		switch f.T {
		case "instruction":
			a.instruct(f)
		case "payload":
			a.payload(f)
		case "cancel":
			a.end(f.InstructionID, "cancel")
		case "resultAck":
			a.acked(f.InstructionID)
		case "chunkAck":
			a.chunksAcked(f.InstructionID, f.UpToStreamSeq)
		case "bye":
			switch f.Reason {
			case "revoked":
				return errRevoked
			case "superseded":
				return errSuperseded
			}
		}
	}
}

// beat sends heartbeats until the connection ends.
func (a *agent) beat(ctx context.Context, gen string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for seq := 0; ; seq++ {
		select {
		case <-tick.C:
			a.control(frame{"t": "heartbeat", "gen": gen, "seq": seq, "inflight": a.inflight()})
		case <-ctx.Done():
			return
		}
	}
}

// fence ends what is not listed, and puts the rest on the new generation.
func (a *agent) fence(ack serverFrame) {
	var ending []*work
	a.mu.Lock()
	for id, w := range a.works {
		if !slices.Contains(ack.PendingInstructions, id) {
			w.silent = true
			ending = append(ending, w)
			delete(a.works, id)
		}
	}
	a.mu.Unlock()
	for _, w := range ending {
		w.end("fence")
	}
	for _, w := range ending {
		<-w.over
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gen = ack.Gen
	a.writing = false
	a.queue = append(a.queue[:0], frame{"t": "generationAck", "gen": ack.Gen})
	if a.leaving {
		a.queue = append(a.queue, frame{"t": "goodbye", "gen": ack.Gen, "reason": "shutdown", "graceMs": 15000})
	}
	for _, id := range ack.PendingInstructions {
		if w := a.works[id]; w != nil {
			w.resume(ack.ChunkWatermarks[id])
			continue
		}
		code := "target_unavailable" // it never came here
		if a.seen[id] {
			code = "outcome_unknown"
		}
		a.seen[id] = true
		w := a.open(id, "")
		w.result = failure(code, "this executor has no such work")
		close(w.over)
	}
	a.online = true
	a.wake.Broadcast()
}

func (a *agent) disconnected() {
	a.mu.Lock()
	a.online = false
	var cut []*work
	for _, w := range a.works {
		if w.content != nil {
			cut = append(cut, w)
		}
	}
	a.mu.Unlock()
	for _, w := range cut {
		w.end("cut")
	}
}

// leave says goodbye, gives running work five seconds, ends the rest, and waits
// until the answers are acknowledged.
func (a *agent) leave() {
	defer close(a.gone)
	a.mu.Lock()
	a.leaving = true
	a.queue = append(a.queue, frame{"t": "goodbye", "gen": a.gen, "reason": "shutdown", "graceMs": 15000})
	a.wake.Broadcast()
	a.mu.Unlock()
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) && len(a.inflight()) > 0 {
		time.Sleep(20 * time.Millisecond)
	}
	a.endAll("aborted")
	deadline = time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) && !a.drained() {
		time.Sleep(20 * time.Millisecond)
	}
	os.Exit(0)
}
