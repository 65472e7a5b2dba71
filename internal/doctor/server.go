package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/wire"
)

const (
	discoverLimit = 4 * time.Second // to ask what the server is
	upgradeLimit  = 3 * time.Second // to open the device's connection
	// clockSlack is how far clocks may be apart before it is worth a word.
	clockSlack = 2 * time.Minute
)

const whyServer = "Work comes from the server; without it this device is offline."

// server goes the way an executor goes, as far as the challenge: discovery, the
// clocks, the versions, the upgrade.
func (d *Doctor) server(ctx context.Context, r *enroll.Record) []Finding {
	transport, err := d.Transport()
	if err != nil {
		what, _, _ := strings.Cut(err.Error(), ".\n") // the remedy is ours
		return []Finding{{
			Check: "server", Level: Fail, What: what, Why: whyServer,
			Mend: "SSL_CERT_FILE must name a file of CA certificates in PEM form, or be unset.", Run: "unset SSL_CERT_FILE",
		}}
	}
	defer transport.CloseIdleConnections()
	way := &way{doctor: d, record: r, transport: transport}
	lane, err := way.discover(ctx)
	if err != nil {
		return way.unreachable(ctx, err)
	}
	findings := []Finding{{Check: "server", Level: OK, What: fmt.Sprintf("%s answers, with version %d of the protocol", r.Server, lane.ProtocolVersion)}}
	if lane.ProtocolVersion > wire.ProtocolVersion {
		findings[0].Level = Warn
		findings[0].Why = fmt.Sprintf("This executor speaks version %d; the server may stop to take it.", wire.ProtocolVersion)
		findings[0].Mend = "Update this executor soon."
	}
	findings = append(findings, way.clock(lane.ServerTime)...)
	return append(findings, way.upgrade(ctx, lane))
}

// way is the way to one device's server.
type way struct {
	doctor    *Doctor
	record    *enroll.Record
	transport *http.Transport
	stage     atomic.Pointer[string] // what the call was doing last
}

func (w *way) discover(ctx context.Context) (enroll.Lane, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverLimit)
	defer cancel()
	at := func(stage string) { w.stage.Store(&stage) }
	host := w.host()
	at("reaching " + host)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart:          func(i httptrace.DNSStartInfo) { at("looking up the name " + i.Host) },
		ConnectStart:      func(_, address string) { at("connecting to " + address) },
		TLSHandshakeStart: func() { at("the TLS handshake with " + host) },
		GotConn:           func(httptrace.GotConnInfo) { at("waiting for an answer of " + host) },
	})
	client := enroll.Client{Transport: w.transport, UserAgent: w.doctor.UserAgent, Now: w.doctor.Now}
	return client.Discover(ctx, w.record.Server)
}

// address is where the server is.
func (w *way) address() *url.URL {
	u, err := url.Parse(w.record.Server.String())
	if err != nil {
		return &url.URL{} // a record's server has been parsed before
	}
	return u
}

func (w *way) host() string { return w.address().Host }

// unreachable names the layer at which discovery failed.
func (w *way) unreachable(ctx context.Context, err error) []Finding {
	f := Finding{Check: "server", Level: Fail, Why: whyServer, Mend: enroll.Advice(err)}
	var (
		unreachable *enroll.UnreachableError
		answered    *enroll.AnswerError
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.What = fmt.Sprintf("no answer within %s: stuck at %s", discoverLimit, *w.stage.Load())
		f.Mend = "Something between here and there drops what is sent: look at firewall, VPN and proxy."
	case errors.As(err, &answered):
		w.wrongAnswer(&f, answered)
	case errors.As(err, &unreachable):
		switch unreachable.Layer {
		case enroll.LayerDNS:
			f.What = fmt.Sprintf("DNS: the name %s cannot be looked up: %v", w.address().Hostname(), plain(err))
			f.Mend = "Check this machine's network, and the name in the server's address."
		case enroll.LayerProxy:
			w.proxy(&f, err)
		case enroll.LayerConnect:
			f.What = fmt.Sprintf("network: no connection to %s: %v", w.host(), plain(err))
			if errors.Is(err, syscall.ECONNREFUSED) {
				f.What = fmt.Sprintf("network: nothing listens at %s: the connection is refused", w.host())
				f.Mend = "The server is down, or its address has another port. Ask whoever runs it."
			}
		case enroll.LayerTLS:
			w.certificate(ctx, &f, err)
		default:
			f.What = fmt.Sprintf("HTTP: %s was reached and gave no HTTP answer: %v", w.host(), plain(err))
			f.Mend = "Something else may listen at this port: check the server's address, and what stands between."
		}
	default:
		f.What = plain(err).Error()
	}
	return []Finding{f}
}

// wrongAnswer is about something that speaks HTTP and is not a server for us.
func (w *way) wrongAnswer(f *Finding, e *enroll.AnswerError) {
	_, said, _ := strings.Cut(e.Error(), ": ")
	f.What = "HTTP: " + said
	switch e.Reason {
	case enroll.ReasonNotFound, enroll.ReasonNotTheAPI, enroll.ReasonRedirected, enroll.ReasonBadRequest, enroll.ReasonRefused:
		f.What = fmt.Sprintf("HTTP: something else answers at %s: %s", w.host(), said)
		f.Mend = "Check the server's address and port. A sign-in page or a proxy may be answering in its place."
	case enroll.ReasonServerFault:
		f.Mend = "It may be restarting: try again in a minute."
	}
}

// proxy is about a proxy that does not let us through.
func (w *way) proxy(f *Finding, err error) {
	f.What = fmt.Sprintf("proxy: %v", plain(err))
	f.Mend = "Unset the variable if no proxy is needed, add the server to NO_PROXY, or ask whoever runs the proxy."
	variables := []string{"HTTPS_PROXY", "https_proxy"}
	if w.address().Scheme == "http" {
		variables = []string{"HTTP_PROXY", "http_proxy"}
	}
	for _, name := range variables {
		value := w.doctor.Getenv(name)
		if value == "" {
			continue
		}
		f.Run = "unset " + name
		if u, err := url.Parse(value); err == nil && u.Host != "" {
			value = u.Redacted()
		} else if i := strings.LastIndexByte(value, '@'); i >= 0 {
			value = value[i+1:] // without a scheme, and with a password before it
		}
		f.What = fmt.Sprintf("proxy: %s (from %s) does not let us through to %s: %v", value, name, w.host(), plain(err))
		var address *enroll.BadProxyError
		if errors.As(err, &address) {
			f.What = fmt.Sprintf("proxy: %s (from %s) cannot be used: %v", value, name, address)
			f.Mend = "Unset the variable if no proxy is needed, or put the address of one there."
		}
		return
	}
}

// certificate is about a TLS handshake that failed.
func (w *way) certificate(ctx context.Context, f *Finding, err error) {
	var (
		verification *tls.CertificateVerificationError
		unknown      x509.UnknownAuthorityError
		name         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	const trust = "Get the CA's certificate (PEM) from whoever runs the server and name it in SSL_CERT_FILE; for the service, install it again from there."
	f.What = fmt.Sprintf("TLS: the handshake with %s failed: %v", w.host(), plain(err))
	f.Run = ""
	switch {
	case errors.As(err, &name):
		f.What = fmt.Sprintf("TLS: the certificate of %s is for other names: %s", w.host(), strings.Join(name.Certificate.DNSNames, ", "))
		f.Mend = "Use the name that is in it as the server's address, or ask whoever runs the server."
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		cert, now := invalid.Cert, time.Now()
		f.What = fmt.Sprintf("TLS: the certificate of %s is valid from %s to %s, and here it is %s", w.host(),
			day(cert.NotBefore), day(cert.NotAfter), day(now))
		f.Mend = "Its owner has to renew it, unless the clock here is wrong."
		if off := w.doctor.Now().Sub(w.unverifiedTime(ctx)); off.Abs() > clockSlack && off.Abs() < 100*365*24*time.Hour {
			f.What += "; the clock here " + apart(off)
			f.Mend, f.Run = "Set the clock.", setClock()
		}
	case errors.As(err, &unknown):
		f.What = fmt.Sprintf("TLS: the certificate of %s comes from an authority that this machine does not know", w.host())
		if errors.As(err, &verification) && len(verification.UnverifiedCertificates) > 0 {
			cert := verification.UnverifiedCertificates[0]
			f.What += fmt.Sprintf(" (%s)", cert.Issuer)
			if cert.Issuer.String() == cert.Subject.String() {
				f.What = fmt.Sprintf("TLS: the certificate of %s is self-signed (%s)", w.host(), cert.Subject)
			}
		}
		f.Mend, f.Run = trust, "export SSL_CERT_FILE=/path/to/ca.pem"
	case errors.As(err, new(tls.RecordHeaderError)), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		f.What = fmt.Sprintf("TLS: what listens at %s does not speak TLS", w.host())
		f.Mend = "Check the port in the server's address: this one may be for http://, or for something else."
	}
}

func day(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

// unverifiedTime asks the server for the time without believing who it is: it is
// used to say that a clock is wrong and for nothing else. Zero: no answer.
func (w *way) unverifiedTime(ctx context.Context) time.Time {
	ctx, cancel := context.WithTimeout(ctx, upgradeLimit)
	defer cancel()
	t := w.transport.Clone()
	t.DisableKeepAlives = true
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // nothing is sent and only a date is read
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.record.Server.URL("/v1/capabilities"), nil)
	if err != nil {
		return time.Time{}
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return time.Time{}
	}
	defer resp.Body.Close()
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return at
}

// clock compares the clocks; the server's may not be known.
func (w *way) clock(there time.Time) []Finding {
	if there.IsZero() {
		return nil
	}
	off := w.doctor.Now().Sub(there)
	if off.Abs() <= clockSlack {
		return []Finding{{Check: "clock", Level: OK, What: "agrees with the server's"}}
	}
	return []Finding{{
		Check: "clock", Level: Warn, What: "the clock here " + apart(off),
		Why: "Certificates are judged by it, and times in logs and records are wrong.", Mend: "Set the clock.", Run: setClock(),
	}}
}

// apart says by how much our clock is off.
func apart(off time.Duration) string {
	way := "ahead of"
	if off < 0 {
		way = "behind"
	}
	amount := off.Abs().Round(time.Minute)
	text := fmt.Sprintf("%d minutes", int(amount.Minutes()))
	switch hours := int(amount.Hours()); {
	case hours >= 48:
		text = fmt.Sprintf("%d days", hours/24)
	case hours > 0:
		text = fmt.Sprintf("%dh%02dm", hours, int(amount.Minutes())%60)
	}
	return fmt.Sprintf("is %s %s the server's", text, way)
}

func setClock() string {
	if runtime.GOOS == "darwin" {
		return "sudo sntp -sS time.apple.com"
	}
	return "sudo timedatectl set-ntp true"
}

// upgrade opens the device's connection as far as the server's challenge.
func (w *way) upgrade(ctx context.Context, lane enroll.Lane) Finding {
	ctx, cancel := context.WithTimeout(ctx, upgradeLimit)
	defer cancel()
	f := Finding{Check: "websocket", Level: Fail, Why: whyServer}
	dialer := link.Dialer{Server: w.address(), Transport: w.transport, UserAgent: w.doctor.UserAgent}
	socket, err := dialer.DialPath(ctx, lane.WSPath)
	var refused *link.UpgradeError
	switch {
	case err == nil:
	case errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable:
		f.Level, f.What = Warn, "the server takes no connection now (503): it is restarting or full"
		f.Mend = "An executor tries again by itself."
		return f
	case errors.As(err, &refused):
		f.What = fmt.Sprintf("the device's connection is refused: %s answers %d in place of an upgrade", w.host()+lane.WSPath, refused.Status)
		f.Mend = "What stands before the server must let WebSocket upgrades through: ask whoever runs it, or the proxy."
		return f
	case ctx.Err() != nil:
		f.What = fmt.Sprintf("the device's connection did not open within %s", upgradeLimit)
		f.Mend = "A proxy or a firewall may hold WebSockets back."
		return f
	default:
		f.What = fmt.Sprintf("the device's connection does not open: %v", plain(err))
		f.Mend = "A proxy or a firewall may hold WebSockets back."
		return f
	}
	defer func() { _ = socket.CloseNow() }() // nothing was said that needs an end
	text, err := socket.Read(ctx)
	if err != nil {
		f.What = "the connection opens, but the server's challenge does not come"
		f.Mend = "A proxy may hold WebSockets back; otherwise tell whoever runs the server."
		return f
	}
	frame, err := wire.DecodeServer(text)
	switch said := frame.(type) {
	case *wire.Challenge:
		if said.ProtocolVersion < wire.ProtocolVersion {
			f.What = fmt.Sprintf("the server speaks version %d of the protocol, this executor %d", said.ProtocolVersion, wire.ProtocolVersion)
			f.Mend = "The server has to be updated."
			return f
		}
		return Finding{Check: "websocket", Level: OK, What: "the device's connection opens, and the server challenges"}
	case *wire.HelloReject:
		f.Level, f.What = Warn, fmt.Sprintf("the server takes no device now: %s", said.Code)
		f.Mend = "An executor tries again by itself."
		return f
	}
	f.What = "the connection opens, but what comes is not the server's challenge"
	if err != nil {
		f.What = "the connection opens, but what comes is not this protocol"
	}
	f.Mend = "Check the server's address; a proxy may be answering in its place."
	return f
}

// plain takes off an error what the words around it say already.
func plain(err error) error {
	var (
		dns         *net.DNSError
		number      syscall.Errno
		unreachable *enroll.UnreachableError
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return errors.New("no such name")
	case errors.As(err, &dns):
		return errors.New(dns.Err)
	case errors.As(err, &number):
		return number
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed")
	case errors.As(err, &unreachable):
		return unreachable.Err
	}
	return err
}
