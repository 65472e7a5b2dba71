package enroll

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Exit codes of the command line for the errors of this package.
const (
	exitUnexpected = 1
	exitUsage      = 2
	exitNoDevice   = 3
	exitRevoked    = 5
	exitRefused    = 8
	exitNoKey      = 9
)

// ExitCode returns the exit code that the command line documents for err: 0 for
// nil, 1 for what has no code of its own.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return exitUnexpected
}

// Advice returns what a person can do about err, in one or two sentences, or ""
// when there is nothing particular to say.
func Advice(err error) string {
	var advisor interface{ Advice() string }
	if errors.As(err, &advisor) {
		return advisor.Advice()
	}
	return ""
}

// UsageError is a value the caller gave that cannot be used. Nothing was sent.
type UsageError struct {
	What string // the value: "workspace", "server", …
	Err  error
}

// Error implements error.
func (e *UsageError) Error() string { return fmt.Sprintf("%s: %v", e.What, e.Err) }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// ExitCode implements the interface that ExitCode asks for.
func (*UsageError) ExitCode() int { return exitUsage }

// Reason says what kind of answer an AnswerError stands for.
type Reason string

// The reasons. Each has its own advice.
const (
	ReasonNoLane       Reason = "no_lane"        // deviceExecutor is false, or 501
	ReasonTokenRefused Reason = "token_refused"  // 403 device.enrollment_invalid
	ReasonNotSignedIn  Reason = "not_signed_in"  // 401
	ReasonForbidden    Reason = "forbidden"      // 403 auth.forbidden
	ReasonBadRequest   Reason = "bad_request"    // 400
	ReasonRateLimited  Reason = "rate_limited"   // 429, still, after the attempts we make
	ReasonNotFound     Reason = "not_found"      // 404
	ReasonRefused      Reason = "refused"        // any other 4xx
	ReasonServerFault  Reason = "server_fault"   // 5xx but 501
	ReasonRedirected   Reason = "redirected"     // 3xx
	ReasonNotTheAPI    Reason = "not_the_api"    // a success that is not the JSON expected
	ReasonTooOld       Reason = "server_too_old" // speaks only versions below ours
)

// Reasons returns the closed set.
func Reasons() []Reason {
	return []Reason{ReasonNoLane, ReasonTokenRefused, ReasonNotSignedIn, ReasonForbidden, ReasonBadRequest, ReasonRateLimited,
		ReasonNotFound, ReasonRefused, ReasonServerFault, ReasonRedirected, ReasonNotTheAPI, ReasonTooOld}
}

// AnswerError is an answer of the server other than the one hoped for.
type AnswerError struct {
	Doing      string // "register this device", …
	URL        string
	Status     int
	Code       string // the server's errorCode, "" if it named none
	Message    string // the server's message, made printable and cut
	Location   string // of a redirect
	RetryAfter time.Duration
	Reason     Reason
}

// Error implements error: what was asked of whom, and what came back.
func (e *AnswerError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", e.Doing)
	switch e.Reason {
	case ReasonNoLane:
		b.WriteString("this server does not take devices")
	case ReasonTokenRefused:
		b.WriteString("enrollment was refused")
	case ReasonNotSignedIn:
		b.WriteString("the server does not accept the credential")
	case ReasonForbidden:
		b.WriteString("the credential carries no identity that may enroll devices")
	case ReasonBadRequest:
		b.WriteString("the server found fault with the request")
	case ReasonRateLimited:
		b.WriteString("too many enrollment attempts")
	case ReasonNotFound:
		b.WriteString("there is nothing at this address")
	case ReasonServerFault:
		b.WriteString("the server failed")
	case ReasonRedirected:
		fmt.Fprintf(&b, "the server points to another address, %s", e.Location)
	case ReasonNotTheAPI:
		b.WriteString("the answer is not this protocol's JSON")
	case ReasonTooOld:
		b.WriteString("the server speaks an older version of the protocol")
	default:
		b.WriteString("the server refused")
	}
	fmt.Fprintf(&b, " (%s answered %s", e.URL, statusText(e.Status))
	if e.Code != "" {
		fmt.Fprintf(&b, ", %s", e.Code)
	}
	b.WriteString(")")
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	return b.String()
}

func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// Advice says what a person can do.
func (e *AnswerError) Advice() string {
	switch e.Reason {
	case ReasonNoLane:
		return "Nothing on this machine changes that. Ask whoever runs the server to switch its device lane on, or enroll with another server."
	case ReasonTokenRefused:
		return "The token may have expired, may belong to another account, or may have been used by another device; the server does not say which. " +
			"Get a new enrollment token and enroll again."
	case ReasonNotSignedIn:
		return "Sign in again and pass a fresh credential in SEMA_CREDENTIAL or with --credential-file."
	case ReasonForbidden:
		return "Sign in through your organization's sign-in page first, then pass that credential in SEMA_CREDENTIAL or with --credential-file."
	case ReasonBadRequest:
		return "The server's message names the part at fault. If you did not choose it, this executor and the server disagree: update the older one."
	case ReasonRateLimited:
		if e.RetryAfter > 0 {
			return fmt.Sprintf("Try again in %s. The token was not used up.", e.RetryAfter)
		}
		return "Wait a minute and try again. The token was not used up."
	case ReasonNotFound:
		return "Check --server: it is the address of the server's API, without /v1."
	case ReasonServerFault:
		return "Try again later; if it stays so, tell whoever runs the server."
	case ReasonRedirected:
		return "Give the server's final address as --server. A credential is never sent on to an address you did not name."
	case ReasonNotTheAPI:
		return "Check --server: a sign-in page or a proxy may be answering in the server's place."
	case ReasonTooOld:
		return "Ask whoever runs the server to update it."
	}
	return "The server's message says why, if it gave one."
}

// Refused reports whether the server decided against the request, as opposed to
// failing at it.
func (e *AnswerError) Refused() bool {
	switch e.Reason {
	case ReasonServerFault, ReasonRedirected, ReasonNotTheAPI:
		return false
	}
	return true
}

// ExitCode implements the interface that ExitCode asks for.
func (e *AnswerError) ExitCode() int {
	if e.Refused() {
		return exitRefused
	}
	return exitUnexpected
}

// Layer is the part of the way to the server at which a call failed.
type Layer string

// The layers, from the machine outwards.
const (
	LayerDNS     Layer = "dns"
	LayerProxy   Layer = "proxy"
	LayerConnect Layer = "connect"
	LayerTLS     Layer = "tls"
	LayerHTTP    Layer = "http" // connected, and then no complete answer
)

// UnreachableError means that no answer of the server arrived.
type UnreachableError struct {
	Doing string
	URL   string
	Layer Layer
	Err   error
}

// Error implements error.
func (e *UnreachableError) Error() string {
	what := map[Layer]string{
		LayerDNS:     "the server's name cannot be looked up",
		LayerProxy:   "the proxy does not let us through",
		LayerConnect: "no connection to the server",
		LayerTLS:     "the server's certificate is not accepted",
		LayerHTTP:    "the server gave no complete answer",
	}[e.Layer]
	var address *BadProxyError
	switch {
	case e.plaintext():
		what = "the server does not speak TLS there"
	case errors.As(e.Err, &address):
		what = "what is given as the proxy cannot be used"
	}
	return fmt.Sprintf("%s: %s (%s): %v", e.Doing, what, e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// plaintext reports that what answered a TLS handshake was something else.
func (e *UnreachableError) plaintext() bool {
	return e.Layer == LayerTLS && notTLS(e.Err)
}

// Advice says what a person can do.
func (e *UnreachableError) Advice() string {
	switch e.Layer {
	case LayerDNS:
		return "Check the spelling of --server and this machine's network."
	case LayerProxy:
		return "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY."
	case LayerTLS:
		if e.plaintext() {
			return "Check the port in --server. On this machine itself a server may want http:// instead."
		}
		return "If the server's certificate comes from your organization, name its CA file in SSL_CERT_FILE. Check this machine's clock, too."
	case LayerConnect:
		return "Check that the address and port are right, that the server is up, and whether a proxy is needed (HTTPS_PROXY)."
	}
	return "Try again; if it stays so, look at what stands between this machine and the server."
}

// UnfinishedError means that registering ended without its answer: the server
// may know this device although this machine does not know its id.
type UnfinishedError struct {
	Err error
	// Again says that enrolling again with the same token finishes it.
	Again bool
}

// Error implements error.
func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("%v; the server may have registered this device all the same", e.Err)
}

// Unwrap returns the cause.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// ExitCode implements the interface that ExitCode asks for.
func (e *UnfinishedError) ExitCode() int { return ExitCode(e.Err) }

// Advice says what a person can do.
func (e *UnfinishedError) Advice() string {
	if e.Again {
		return "Run the same command again with the same token: it takes up where this one stopped."
	}
	return "Enroll again. Should the server then list a device that never connects, revoke that one there."
}

// TakenError means that the server gave this device the id of another one that
// is enrolled here. That one is untouched.
type TakenError struct {
	DeviceID string
	Server   Server
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("%s: %s answered with the id %s, which another device on this machine has", registering, e.Server, e.DeviceID)
}

// Advice says what a person can do.
func (*TakenError) Advice() string {
	return "That device is untouched, and nothing was kept of this one. Tell whoever runs the server: an id must stand for one key only."
}
