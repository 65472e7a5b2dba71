package enroll

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// certFileVariable names a file of extra CA certificates.
const certFileVariable = "SSL_CERT_FILE"

// defaultBundles are where Linux distributions keep the CA certificates of the
// system. Go reads the first of them, but not when SSL_CERT_FILE is set.
var defaultBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// NewTransport returns the way to servers for this machine: proxies from the
// usual variables, and the system's CA certificates plus those in the file that
// SSL_CERT_FILE names. Both the enrollment calls and the device's connection
// use it. The error is a *UsageError about that file.
func NewTransport(getenv func(string) string) (*http.Transport, error) {
	roots, err := rootCAs(getenv(certFileVariable))
	if err != nil {
		return nil, &UsageError{What: certFileVariable, Err: fmt.Errorf("%w.\nName a file of CA certificates in PEM form there, or unset %s", err, certFileVariable)}
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               proxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     30 * time.Second,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, said *http.Response) error {
			if said.StatusCode != http.StatusOK {
				return &proxyRefusal{status: said.StatusCode}
			}
			return nil
		},
	}, nil
}

// BadProxyError is what a variable such as HTTPS_PROXY holds and no proxy can be
// at. It does not quote that, which may have a password in it.
type BadProxyError struct{}

// Error implements error.
func (*BadProxyError) Error() string {
	return "it is not the address of a proxy, which looks like http://proxy.example:3128"
}

// proxyFromEnvironment is the proxy of the usual variables. What only looks like an
// address would be dialled all the same, and fail for a reason that is none.
func proxyFromEnvironment(r *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(r)
	if err != nil || u != nil && !usableProxy(u) {
		return nil, &BadProxyError{}
	}
	return u, nil
}

func usableProxy(u *url.URL) bool {
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return false
	}
	if strings.HasPrefix(u.Path, "//") { // "http://" was put before what has it already
		return false
	}
	host, port := u.Hostname(), u.Port()
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// proxyRefusal is a proxy's answer other than 200 to CONNECT. The transport's
// own error would be the bare words of the status.
type proxyRefusal struct{ status int }

func (e *proxyRefusal) Error() string { return "the proxy answered " + statusText(e.status) }

// rootCAs returns nil, the system's own verification, without an extra file.
func rootCAs(extra string) (*x509.CertPool, error) {
	if extra == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, bundle := range defaultBundles {
		if pem, err := os.ReadFile(bundle); err == nil {
			pool.AppendCertsFromPEM(pem)
			break
		}
	}
	pem, err := os.ReadFile(extra)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", extra, withoutPath(err))
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in PEM form in it", extra)
	}
	return pool, nil
}
