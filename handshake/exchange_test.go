package handshake_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/wire"
)

// line is a socket whose other end the test holds.
type line struct {
	toDevice, toServer chan string
	closed             chan struct{} // the server went away
	writeBlocks        bool
}

func newLine() *line {
	return &line{toDevice: make(chan string, 16), toServer: make(chan string, 16), closed: make(chan struct{})}
}

func (l *line) Read(ctx context.Context) ([]byte, error) {
	select {
	case text := <-l.toDevice:
		return []byte(text), nil
	case <-l.closed:
		return nil, io.ErrUnexpectedEOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *line) Write(ctx context.Context, frame []byte) error {
	if l.writeBlocks {
		<-ctx.Done()
		return ctx.Err()
	}
	l.toServer <- string(frame)
	return nil
}

const (
	challenge = `{"t":"challenge","nonce":"n-1","protocolVersion":1}`
	ack       = `{"t":"helloAck","ok":true,"heartbeatIntervalMs":15000,"maxInflight":4,"gen":"7","pendingInstructions":[],"chunkWatermarks":{}}`
)

func identity(t testing.TB) handshake.Identity {
	return handshake.Identity{
		DeviceID:      "dev_01J8ZQ4T9X0000000000000000",
		Key:           newKey(t),
		Epoch:         "01J8ZQ4T9X7M3K5N6P8R0S2V4W",
		WorkspaceRoot: "/home/u/work",
		Platform:      wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "1.2.3"},
		Supports:      []wire.Kind{wire.KindExec, wire.KindExists},
	}
}

// hello takes the one frame the device sent and checks its signature for nonce.
func (l *line) hello(t *testing.T, id handshake.Identity, nonce string) *wire.Hello {
	t.Helper()
	text := <-l.toServer
	frame, err := wire.DecodeDevice([]byte(text), wire.MaxPreAuthFrameBytes)
	if err != nil {
		t.Fatalf("a server refuses %s: %v", text, err)
	}
	h, ok := frame.(*wire.Hello)
	if !ok {
		t.Fatalf("the device sent a %s", frame.DeviceType())
	}
	signature, err := base64.StdEncoding.DecodeString(h.SignatureB64)
	if err != nil {
		t.Fatal(err)
	}
	public := id.Key.Public()
	if !ed25519.Verify(public[:], handshake.SignedBytes(nonce, h.DeviceID, handshake.Epoch(h.Epoch), uint32(h.ProtocolVersion)), signature) {
		t.Errorf("the signature does not fit nonce %q", nonce)
	}
	return h
}

func TestAChallengeIsAnsweredAndTheAckReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, id := newLine(), identity(t)
		l.toDevice <- challenge
		l.toDevice <- ack
		got, err := handshake.Exchange(t.Context(), l, id, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got.Gen != "7" || got.HeartbeatIntervalMs != 15000 || got.MaxInflight != 4 {
			t.Errorf("got %+v", got)
		}
		h := l.hello(t, id, "n-1")
		if h.PathFlavor != "posix" || h.WorkspaceRoot != id.WorkspaceRoot || strings.Join(h.Supports, " ") != "exec exists" ||
			h.Platform != id.Platform || h.Resuming == nil || h.Resuming.UnackedResults != 3 {
			t.Errorf("hello %+v", h)
		}
		if len(l.toServer) != 0 {
			t.Errorf("the device sent %s as well", <-l.toServer)
		}
	})
}

func TestAHelloWithNothingHeldDoesNotMentionResuming(t *testing.T) {
	h, err := handshake.Hello("n", identity(t), 0)
	if err != nil || h.Resuming != nil {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestASilentServerIsGivenUpFiveSecondsAfterTheSocketOpened(t *testing.T) {
	cases := map[string]struct {
		send  func(l *line)
		block bool
		want  error
	}{
		"nothing at all":              {func(*line) {}, false, handshake.ErrNoChallenge},
		"frames, but no challenge":    {func(l *line) { l.toDevice <- `{"t":"ping"}`; l.toDevice <- `{"t":"news"}` }, false, handshake.ErrNoChallenge},
		"an ack before any challenge": {func(l *line) { l.toDevice <- ack }, false, handshake.ErrNoChallenge},
		"a challenge, no answer":      {func(l *line) { l.toDevice <- challenge }, false, handshake.ErrNoAnswer},
		"a challenge after 4 s, no answer": {func(l *line) {
			time.Sleep(4 * time.Second)
			l.toDevice <- challenge
		}, false, handshake.ErrNoAnswer},
		"challenges for ever": {func(l *line) {
			for range 16 {
				l.toDevice <- challenge
				time.Sleep(time.Second)
			}
		}, false, handshake.ErrNoAnswer},
		"a socket that takes nothing": {func(l *line) { l.toDevice <- challenge }, true, handshake.ErrNoAnswer},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine()
				l.writeBlocks = c.block
				var sending sync.WaitGroup
				defer sending.Wait()
				sending.Go(func() { c.send(l) })
				opened := time.Now()
				_, err := handshake.Exchange(t.Context(), l, identity(t), 0)
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if took := time.Since(opened); took != 5*time.Second {
					t.Errorf("gave up after %s", took)
				}
			})
		})
	}
}

func TestAnAnswerInTheLastMomentCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		go func() {
			time.Sleep(2 * time.Second)
			l.toDevice <- challenge
			time.Sleep(2999 * time.Millisecond)
			l.toDevice <- ack
		}()
		if _, err := handshake.Exchange(t.Context(), l, identity(t), 0); err != nil {
			t.Error(err)
		}
	})
}

func TestASecondChallengeIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, id := newLine(), identity(t)
		for _, text := range []string{challenge, `{"t":"challenge","nonce":"n-2","protocolVersion":1}`, `{"t":"later than us","x":[1]}`, `{"t":"ping"}`, ack} {
			l.toDevice <- text
		}
		if _, err := handshake.Exchange(t.Context(), l, id, 0); err != nil {
			t.Fatal(err)
		}
		l.hello(t, id, "n-1")
		if len(l.toServer) != 0 {
			t.Errorf("a second hello: %s", <-l.toServer)
		}
	})
}

func TestRejectsKeepTheirCode(t *testing.T) {
	codes := wire.HelloRejectCodes()
	if len(codes) != 5 {
		t.Fatalf("%d codes", len(codes))
	}
	for _, code := range append(codes, "of_a_later_version") {
		for _, challenged := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				l := newLine()
				text := `{"t":"helloReject","code":"` + string(code) + `"}`
				if code == wire.RejectProtocolVersionUnsupported {
					text = `{"t":"helloReject","code":"protocol_version_unsupported","minProtocolVersion":3}`
				}
				if challenged {
					l.toDevice <- challenge
				}
				l.toDevice <- text
				_, err := handshake.Exchange(t.Context(), l, identity(t), 0)
				var reject *handshake.RejectError
				if !errors.As(err, &reject) || reject.Code != code {
					t.Fatalf("%s: got %v", code, err)
				}
				if !strings.Contains(err.Error(), string(code)) {
					t.Errorf("the message %q does not name %s", err, code)
				}
				if code != wire.RejectProtocolVersionUnsupported {
					if reject.MinProtocolVersion != nil {
						t.Errorf("%s carries a version", code)
					}
				} else if reject.MinProtocolVersion == nil || *reject.MinProtocolVersion != 3 || !strings.Contains(err.Error(), "3") {
					t.Errorf("the lowest version is lost: %v", err)
				}
			})
		}
	}
}

func TestOurVersionIsTheOnlyOneSigned(t *testing.T) {
	t.Run("a newer server may still take ours", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, id := newLine(), identity(t)
			l.toDevice <- `{"t":"challenge","nonce":"n","protocolVersion":9}`
			l.toDevice <- ack
			if _, err := handshake.Exchange(t.Context(), l, id, 0); err != nil {
				t.Fatal(err)
			}
			if h := l.hello(t, id, "n"); h.ProtocolVersion != wire.ProtocolVersion {
				t.Errorf("hello of version %d", h.ProtocolVersion)
			}
		})
	})
	t.Run("an older server cannot", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLine()
			l.toDevice <- `{"t":"challenge","nonce":"n","protocolVersion":0}`
			_, err := handshake.Exchange(t.Context(), l, identity(t), 0)
			var version *handshake.ServerVersionError
			if !errors.As(err, &version) || version.Server != 0 {
				t.Fatalf("got %v", err)
			}
			if len(l.toServer) != 0 {
				t.Error("a hello was sent all the same")
			}
		})
	})
}

func TestNoncesAreSignedAsTheFrameSpellsThem(t *testing.T) {
	cases := map[string]struct{ json, nonce string }{
		"outside ASCII":        {`"nönce-日本-🙂"`, "nönce-日本-🙂"},
		"escaped":              {`"n\u00f6nce \ud83d\ude42 \"\\\/\n\u0000"`, "nönce 🙂 \"\\/\n\x00"},
		"a high half alone":    {`"a\ud800b"`, "a\uFFFDb"},
		"a low half alone":     {`"\udc00"`, "\uFFFD"},
		"halves in bad order":  {`"\udc00\ud800"`, "\uFFFD\uFFFD"},
		"looks like base64":    {`"AAAA"`, "AAAA"},
		"of 3000 bytes":        {`"` + strings.Repeat("n", 3000) + `"`, strings.Repeat("n", 3000)},
		"decomposed":           {`"e\u0301"`, "e\u0301"},
		"white space around":   {`"  n \t"`, "  n \t"},
		"that could be a JSON": {`"{\"nonce\":\"x\"}"`, `{"nonce":"x"}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, id := newLine(), identity(t)
				text := `{"t":"challenge","nonce":` + c.json + `,"protocolVersion":1}`
				if !json.Valid([]byte(text)) {
					t.Fatal("not a frame")
				}
				l.toDevice <- strings.ReplaceAll(text, "\t", `\t`)
				l.toDevice <- ack
				if _, err := handshake.Exchange(t.Context(), l, id, 0); err != nil {
					t.Fatal(err)
				}
				l.hello(t, id, c.nonce)
			})
		})
	}
}

func TestAFrameThatCannotBeReadEndsTheExchange(t *testing.T) {
	bad := []string{``, `[]`, `{"t":"challenge"}`, `{"t":"challenge","nonce":7,"protocolVersion":1}`, `{"t":"challenge","nonce":"n","protocolVersion":"1"}`}
	for _, text := range bad {
		synctest.Test(t, func(t *testing.T) {
			l := newLine()
			l.toDevice <- text
			began := time.Now()
			if _, err := handshake.Exchange(t.Context(), l, identity(t), 0); err == nil || time.Since(began) != 0 {
				t.Errorf("%q: %v after %s", text, err, time.Since(began))
			}
			if len(l.toServer) != 0 {
				t.Errorf("%q was answered with %s", text, <-l.toServer)
			}
		})
	}
	for _, text := range []string{`{"t":"helloAck","ok":true,"gen":"07"}`, `x`} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine()
			l.toDevice <- challenge
			l.toDevice <- text
			began := time.Now()
			if got, err := handshake.Exchange(t.Context(), l, identity(t), 0); err == nil || time.Since(began) != 0 {
				t.Errorf("%q: %v, %v after %s", text, got, err, time.Since(began))
			}
		})
	}
}

func TestEndsOfTheSocketAndOfTheCallerAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.toDevice <- challenge
		go func() {
			time.Sleep(time.Second)
			close(l.closed)
		}()
		if _, err := handshake.Exchange(t.Context(), l, identity(t), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the socket ended: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stopped by a signal")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel(stop)
		}()
		if _, err := handshake.Exchange(ctx, newLine(), identity(t), 0); !errors.Is(err, stop) {
			t.Errorf("the caller ended: %v", err)
		}
	})
}

func TestAHelloThatCannotBeSentIsNotSent(t *testing.T) {
	spoil := map[string]func(*handshake.Identity){
		"too long":                func(id *handshake.Identity) { id.WorkspaceRoot = "/" + strings.Repeat("w", 4000) },
		"too long once escaped":   func(id *handshake.Identity) { id.WorkspaceRoot = "/" + strings.Repeat("\x01", 900) },
		"no key":                  func(id *handshake.Identity) { id.Key = handshake.PrivateKey{} },
		"epoch in lower case":     func(id *handshake.Identity) { id.Epoch = "01j8zq4t9x7m3k5n6p8r0s2v4w" },
		"device id not UTF-8":     func(id *handshake.Identity) { id.DeviceID = "dev_\xff" },
		"workspace root no UTF-8": func(id *handshake.Identity) { id.WorkspaceRoot = "/\xff" },
	}
	for name, change := range spoil {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, id := newLine(), identity(t)
				change(&id)
				l.toDevice <- challenge
				if _, err := handshake.Exchange(t.Context(), l, id, 0); err == nil {
					t.Error("no error")
				}
				if len(l.toServer) != 0 {
					t.Errorf("sent %s", <-l.toServer)
				}
			})
		})
	}
}

func TestWhatCheckFitsPassesIsNeverTooLongLater(t *testing.T) {
	platform := wire.Platform{OS: "darwin", Arch: "arm64", ExecutorVersion: "1"}
	longest := 0
	for n := 1; n <= 1024; n++ { // control characters take six bytes each in JSON
		root := "/" + strings.Repeat("\x01", n)
		if handshake.CheckFits(handshake.Identity{WorkspaceRoot: root, Platform: platform}) != nil {
			break
		}
		longest = n
	}
	if longest == 0 || longest == 1024 {
		t.Fatalf("the border is at %d", longest)
	}
	platform.ExecutorVersion = strings.Repeat("9", 64) // a later executor
	id := handshake.Identity{
		DeviceID: "dev_" + strings.Repeat("Z", 26), Key: newKey(t), Epoch: "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		WorkspaceRoot: "/" + strings.Repeat("\x01", longest), Platform: platform, Supports: wire.Kinds(),
	}
	h, err := handshake.Hello("n", id, wire.MaxSafeInteger)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := wire.AppendDevice(nil, h)
	if err != nil || len(frame) > 4096 || len(frame) < 4096-6 {
		t.Errorf("%d bytes, %v", len(frame), err)
	}
	id.WorkspaceRoot += "\x01"
	if _, err := handshake.Hello("n", id, wire.MaxSafeInteger); err == nil {
		t.Error("the border is elsewhere")
	}
	if err := handshake.CheckFits(handshake.Identity{WorkspaceRoot: "/" + strings.Repeat("w", 1023), Platform: platform}); err != nil {
		t.Errorf("the longest root the server takes does not fit: %v", err)
	}
	if err := handshake.CheckFits(handshake.Identity{WorkspaceRoot: "/\xff", Platform: platform}); err == nil {
		t.Error("a root that is not UTF-8 fits")
	}
}
