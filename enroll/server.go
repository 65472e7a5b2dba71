package enroll

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/wire"
)

// Server is the address of a server: scheme, host, port and an optional path
// prefix, in one normalized spelling. The zero value is no server.
type Server struct {
	scheme, host, prefix string // prefix has no trailing slash
}

// ParseServer reads an address as a person gives it. http:// is taken for
// loopback addresses only, unless allowInsecure is set. The error is a
// *UsageError.
func ParseServer(raw string, allowInsecure bool) (Server, error) {
	s, err := parseServer(raw, allowInsecure)
	if err != nil {
		return Server{}, &UsageError{What: "server", Err: err}
	}
	return s, nil
}

func parseServer(raw string, allowInsecure bool) (Server, error) {
	if raw == "" {
		return Server{}, errors.New("no address given: use --server or SEMA_SERVER")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Server{}, errors.New("this is not an address; it looks like https://host or https://host/prefix")
	}
	if u.User != nil { // before anything that would print it
		return Server{}, errors.New("the address carries a user name or password; pass the credential in SEMA_CREDENTIAL")
	}
	scheme := strings.ToLower(u.Scheme)
	switch {
	case scheme != "https" && scheme != "http", u.Hostname() == "", u.Opaque != "":
		return Server{}, fmt.Errorf("%q is not an address; it looks like https://host or https://host/prefix", raw)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Server{}, fmt.Errorf("%q has a query or fragment, which an address of a server cannot have", raw)
	case scheme == "http" && !loopback(u.Hostname()) && !allowInsecure:
		return Server{}, fmt.Errorf("%q is not encrypted; use https://, or --allow-insecure if you accept that anyone on the way can read the credential", raw)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return Server{}, fmt.Errorf("%q has a port that cannot be: ports go from 1 to 65535", raw)
		}
	}
	prefix := strings.TrimRight(u.EscapedPath(), "/")
	if strings.Contains(prefix, "//") || strings.Contains(prefix+"/", "/../") || strings.Contains(prefix+"/", "/./") {
		return Server{}, fmt.Errorf("%q has a path that is not in its simplest form", raw)
	}
	host := strings.ToLower(u.Host)
	if port := u.Port(); scheme == "https" && port == "443" || scheme == "http" && port == "80" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return Server{scheme: scheme, host: strings.TrimSuffix(host, ":"), prefix: prefix}, nil
}

// loopback reports whether host names this very machine.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// String returns the address without a trailing slash.
func (s Server) String() string {
	if s.host == "" {
		return ""
	}
	return s.scheme + "://" + s.host + s.prefix
}

// LogValue implements slog.LogValuer: logs for programs get the address, too.
func (s Server) LogValue() slog.Value { return slog.StringValue(s.String()) }

// IsZero reports whether there is no address here.
func (s Server) IsZero() bool { return s.host == "" }

// Insecure reports whether traffic to the server is unencrypted and leaves this
// machine.
func (s Server) Insecure() bool {
	u := url.URL{Host: s.host}
	return s.scheme == "http" && !loopback(u.Hostname())
}

// EnrollCommand is the command line that makes this machine a device of the
// server, with the workspace named: pasted in another folder, it must not give
// that one away.
func (s Server) EnrollCommand(workspace string) string {
	words := []string{"enroll", "--server", s.String()}
	if s.Insecure() {
		words = append(words, "--allow-insecure")
	}
	words = append(words, "--workspace", workspace)
	return remedy.Command(words...)
}

// URL returns the address of an absolute path below the server's prefix.
func (s Server) URL(path string) string { return s.String() + path }

// WebSocketURL returns the address to open the device's connection at. wsPath
// is what discovery named; "" stands for wire.WSPath.
func (s Server) WebSocketURL(wsPath string) string {
	if wsPath == "" {
		wsPath = wire.WSPath
	}
	return "ws" + strings.TrimPrefix(s.URL(wsPath), "http")
}
