package refserver

import (
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Takeover says which hello may take a lease that is still held.
type Takeover int

// The takeover rules.
const (
	TakeoverSameEpoch Takeover = iota // the same process only; others hear already_connected
	TakeoverAny                       // any process: the former one's work is abandoned
	TakeoverNever                     // none while a socket holds the lease
)

// Config is everything a Server can be told. The zero value of every member
// means the default named at it, which is the protocol's where it has one.
type Config struct {
	Now  func() time.Time // time.Now
	Rand io.Reader        // crypto/rand; read under the server's mutex
	Log  *slog.Logger     // discarded; written to under the server's mutex

	// Identify tells whose request it is, from its credential. False is
	// answered 403 auth.forbidden. Default: each bearer token is an identity.
	Identify func(*http.Request) (identity string, ok bool)

	// Disabled is a deployment without the device lane: discovery says false,
	// enrollment 501, the upgrade 404.
	Disabled bool
	WSPath   string        // wire.WSPath
	TokenTTL time.Duration // 900 s

	ProtocolVersion    int64 // 1
	MinProtocolVersion int64 // 1

	HandshakeDeadline time.Duration // 5 s from the socket's opening (§1.2)
	MaxPreAuth        int           // 64 sockets in the handshake; more ⇒ 503 (§1.2)
	Heartbeat         time.Duration // 15 s; three without a frame end the connection (R14)
	MaxInflight       int           // 4 committed instructions per device
	FirstGeneration   uint64        // 1; counted per device, beyond 2^53 too

	Lease     time.Duration // 45 s
	KeepLease bool          // hold the lease over the socket's end until it expires
	Takeover  Takeover      // TakeoverSameEpoch

	PayloadPart    int           // 262144 raw bytes per payload chunk (§3.4)
	GapTimeout     time.Duration // 30 s (R8)
	ReorderEntries int           // 64
	ReorderBytes   int           // 2 MiB, decoded
	PendingEntries int           // 8192 chunks not yet taken by the consumer (§4)
	PendingBytes   int           // 2 MiB of them
	Memo           int           // 512 most recently settled instructions (§2.4)
	CancelGrace    time.Duration // 10 s from the delivery of a cancel (R11)
	ExecutionGrace time.Duration // 30 s past timeoutMs (R12)
	ReconnectGrace time.Duration // 120 s (R4)

	// Trace, if set, sees every message of every connection, the refused ones
	// too. raw is valid during the call only. The two directions of a
	// connection call it from different goroutines.
	Trace func(dir Direction, f Frame, raw []byte)
}

func (c Config) withDefaults() Config {
	setDefault(&c.WSPath, wire.WSPath)
	setDefault(&c.TokenTTL, 900*time.Second)
	setDefault(&c.ProtocolVersion, wire.ProtocolVersion)
	setDefault(&c.MinProtocolVersion, wire.MinProtocolVersion)
	setDefault(&c.HandshakeDeadline, wire.HandshakeDeadline)
	setDefault(&c.MaxPreAuth, 64)
	setDefault(&c.Heartbeat, 15*time.Second)
	setDefault(&c.MaxInflight, 4)
	setDefault(&c.FirstGeneration, 1)
	setDefault(&c.Lease, 45*time.Second)
	setDefault(&c.PayloadPart, wire.DefaultPayloadPartBytes)
	setDefault(&c.GapTimeout, 30*time.Second)
	setDefault(&c.ReorderEntries, 64)
	setDefault(&c.ReorderBytes, 2<<20)
	setDefault(&c.PendingEntries, 8192)
	setDefault(&c.PendingBytes, 2<<20)
	setDefault(&c.Memo, 512)
	setDefault(&c.CancelGrace, 10*time.Second)
	setDefault(&c.ExecutionGrace, 30*time.Second)
	setDefault(&c.ReconnectGrace, 120*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Identify == nil {
		c.Identify = bearer
	}
	return c
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// bearer takes the bearer token itself for the identity.
func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
