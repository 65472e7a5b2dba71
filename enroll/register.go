package enroll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/fault"
)

// Limits of the registration's fields, in bytes (§1.1).
const (
	maxArchBytes      = 32
	maxNameBytes      = 255
	maxWorkspaceBytes = 1024
)

// How calls are repeated. A refused attempt is made again only when the server
// said when; a lost answer after 1 s, 2 s, 4 s, ….
const (
	maxAttempts  = 5
	leastWait    = time.Second
	longestWait  = 5 * time.Minute // a retry-after above this ends the command instead
	lostWait     = time.Second
	issuing      = "get an enrollment token"
	registering  = "register this device"
	issuePath    = "/v1/devices/enroll-tokens"
	registerPath = "/v1/devices/enroll"
)

// Registration is what a device tells the server about itself.
type Registration struct {
	Token         Token
	PublicKey     handshake.PublicKey
	PlatformOS    string // darwin or linux
	PlatformArch  string // "": left out
	DisplayName   string // "": left out
	WorkspaceRoot string
}

// check holds a registration to the protocol's form before anything is sent.
func (r Registration) check() error {
	usage := func(what, format string, args ...any) error {
		return &UsageError{What: what, Err: fmt.Errorf(format, args...)}
	}
	if r.Token.IsZero() {
		return usage("enrollment token", "none given")
	}
	if r.PlatformOS != "darwin" && r.PlatformOS != "linux" {
		return usage("platform", "the protocol knows darwin and linux, not %q", r.PlatformOS)
	}
	if len(r.PlatformArch) > maxArchBytes {
		return usage("architecture", "%q has %d bytes; the server takes %d", r.PlatformArch, len(r.PlatformArch), maxArchBytes)
	}
	for what, text := range map[string]string{"name": r.DisplayName, "workspace": r.WorkspaceRoot} {
		if !utf8.ValidString(text) {
			return usage(what, "%q is not text in UTF-8, which is all that the server takes", text)
		}
	}
	if n := len(r.DisplayName); n > maxNameBytes {
		return usage("name", "it has %d bytes; the server takes up to %d", n, maxNameBytes)
	}
	if n := len(r.WorkspaceRoot); n == 0 || n > maxWorkspaceBytes {
		return usage("workspace", "%q has %d bytes; the server takes 1 to %d", r.WorkspaceRoot, n, maxWorkspaceBytes)
	}
	return nil
}

// body is the closed JSON shape of §1.1.
func (r Registration) body() ([]byte, error) {
	return json.Marshal(struct {
		Token         string              `json:"token"`
		Pubkey        handshake.PublicKey `json:"pubkey"`
		PlatformOS    string              `json:"platformOs"`
		PlatformArch  string              `json:"platformArch,omitempty"`
		DisplayName   string              `json:"displayName,omitempty"`
		WorkspaceRoot string              `json:"workspaceRoot"`
	}{r.Token.reveal(), r.PublicKey, r.PlatformOS, r.PlatformArch, r.DisplayName, r.WorkspaceRoot})
}

// IssueToken has the server issue a token to the credential's owner. A 429 is
// waited out, a lost answer asked for again (a token nobody uses expires).
func (c *Client) IssueToken(ctx context.Context, server Server, credential Credential) (Token, error) {
	if credential.IsZero() {
		return Token{}, errNoCredential
	}
	var token Token
	_, err := c.insist(ctx, func() error {
		a, err := c.send(ctx, call{doing: issuing, method: http.MethodPost, server: server, path: issuePath, credential: credential})
		if err != nil {
			return err
		}
		token, err = a.token()
		return err
	})
	return token, err
}

// Register registers the device and returns its id. A 429 is waited out exactly
// as long as the server asks, but never less than a second; a lost answer is
// asked for again with the same token and key, which the server answers as the
// first time. After 5 attempts the last error stands.
//
// settled is false if the server may have registered the device although err
// is not nil.
func (c *Client) Register(ctx context.Context, server Server, credential Credential, r Registration) (deviceID string, settled bool, err error) {
	if credential.IsZero() {
		return "", true, errNoCredential
	}
	if err := r.check(); err != nil {
		return "", true, err
	}
	body, err := r.body()
	if err != nil {
		return "", true, fmt.Errorf("%s: %w", registering, err)
	}
	lost, err := c.insist(ctx, func() error {
		a, err := c.send(ctx, call{doing: registering, method: http.MethodPost, server: server, path: registerPath, credential: credential, body: body})
		if err != nil {
			return err
		}
		deviceID, err = a.deviceID()
		return err
	})
	return deviceID, err == nil || !lost, err
}

// errNoCredential is the answer to calls that need the user and have none.
var errNoCredential = &UsageError{What: "credential",
	Err: errors.New("none given: set SEMA_CREDENTIAL or use --credential-file")}

func (a *answer) token() (Token, error) {
	all, err := a.members(issuing)
	if err != nil {
		return Token{}, err
	}
	var text string
	if json.Unmarshal(all["token"], &text) == nil {
		if token, err := NewToken(text); err == nil {
			return token, nil
		}
	}
	return Token{}, &AnswerError{Doing: issuing, URL: a.url, Status: a.status, Reason: ReasonNotTheAPI}
}

// idForm is what a device id may look like: it becomes a folder's name. A
// server of today mints dev_ and 26 more.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func (a *answer) deviceID() (string, error) {
	all, err := a.members(registering)
	if err != nil {
		return "", err
	}
	var id string
	if json.Unmarshal(all["deviceId"], &id) == nil && idForm.MatchString(id) {
		return id, nil
	}
	return "", &AnswerError{Doing: registering, URL: a.url, Status: a.status, Reason: ReasonNotTheAPI}
}

// insist makes attempts until one succeeds, is refused for good, or the last
// one has failed. lost reports whether any attempt may have reached the server
// without its answer reaching us.
func (c *Client) insist(ctx context.Context, attempt func() error) (lost bool, err error) {
	backoff := lostWait
	for n := 1; ; n++ {
		err = attempt()
		if err == nil {
			return lost, nil
		}
		again := judge(err)
		lost = lost || again.lost
		if !again.worthwhile || n == maxAttempts || again.after > longestWait {
			return lost, err
		}
		wait, why := max(again.after, leastWait), "too many enrollment attempts"
		if again.after == 0 {
			wait, backoff = backoff, 2*backoff
		}
		var silent *UnreachableError
		switch {
		case errors.As(err, &silent):
			why = "no answer from the server"
		case again.lost:
			why = "the server failed"
		}
		if fault.On("enroll: retry-after is not waited out") {
			wait = leastWait / 10
		}
		if c.Waiting != nil {
			c.Waiting(why, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return lost, fmt.Errorf("%w (while waiting to try again after: %w)", context.Cause(ctx), err)
		}
	}
}

// verdict says whether another attempt makes sense.
type verdict struct {
	worthwhile bool
	after      time.Duration // what the server asked for; 0: nothing
	lost       bool          // the request may have been carried out
}

func judge(err error) verdict {
	var answered *AnswerError
	var silent *UnreachableError
	switch {
	case errors.As(err, &answered):
		switch answered.Reason {
		case ReasonRateLimited:
			return verdict{worthwhile: true, after: answered.RetryAfter}
		case ReasonServerFault: // also a gateway that lost the answer
			return verdict{worthwhile: true, lost: true}
		case ReasonRedirected:
			return verdict{}
		case ReasonNotTheAPI: // a 200, whoever it was from
			return verdict{lost: true}
		}
		return verdict{worthwhile: fault.On("enroll: a refused token is tried again")}
	case errors.As(err, &silent):
		return verdict{worthwhile: silent.Layer != LayerTLS, lost: silent.Layer == LayerHTTP}
	}
	return verdict{lost: true} // the caller gave up in the middle
}
