package doctor_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/doctor"
	"github.com/sema-agent/device-executor/internal/status"
	"github.com/sema-agent/device-executor/refserver"
)

func TestAMachineInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	report := w.examine()
	checks := map[string]bool{}
	for _, f := range findings(report) {
		checks[f.Check] = true
		if f.Level != doctor.OK {
			t.Errorf("%+v", f)
		}
	}
	for _, c := range []string{"shell", "PATH", "processes", "temporary", "record", "folder", "key", "lock", "server", "clock", "websocket", "workspace", "writes"} {
		if !checks[c] {
			t.Errorf("%s was not looked at", c)
		}
	}
	if v := w.server.Violations(); len(v) > 0 {
		t.Errorf("the server was wronged: %v", v)
	}
	left, err := os.ReadDir(w.record.WorkspaceRoot)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the workspace: %v, %v", left, err)
	}
}

// trouble is what is wrong, and what of it must be said.
type trouble struct {
	make  func(t *testing.T, w *world)
	check string
	level doctor.Level
	what  string // is in Finding.What
	mend  string // is in Finding.Mend or is Finding.Run
}

func TestTheTrueCauseIsNamed(t *testing.T) {
	for name, c := range map[string]trouble{
		"the key file can be read by others": {
			func(t *testing.T, w *world) {
				if err := os.Chmod(filepath.Join(w.record.Dir(), "key"), 0o644); err != nil {
					t.Fatal(err)
				}
			}, "key", doctor.Fail, "open to other users", "chmod go= "},
		"the key file is gone": {
			func(t *testing.T, w *world) {
				if err := os.Remove(filepath.Join(w.record.Dir(), "key")); err != nil {
					t.Fatal(err)
				}
			}, "key", doctor.Fail, "no key file", "sema device enroll --server "},
		"the keychain is locked": {
			func(t *testing.T, w *world) {
				w.doctor.Stores.Keychain = &keychain{trouble: enroll.KeychainLocked}
				if err := w.home.Update(w.record, func(r *enroll.Record) { r.KeyStore = enroll.StoreKeychain }); err != nil {
					t.Fatal(err)
				}
			}, "key", doctor.Fail, "the keychain is locked", "Unlock it"},
		"the device is revoked": {
			func(t *testing.T, w *world) {
				if err := w.home.Revoke(t.Context(), w.record, w.doctor.Stores, time.Now()); err != nil {
					t.Fatal(err)
				}
			}, "revoked", doctor.Fail, "the server revoked this device", "sema device enroll --server http://127.0.0.1"},
		"the device is revoked, and its key is left": {
			func(t *testing.T, w *world) {
				if err := w.home.Update(w.record, func(r *enroll.Record) { r.RevokedAt = time.Now() }); err != nil {
					t.Fatal(err)
				}
			}, "revoked", doctor.Fail, "its key is still there, in the device's key file", "sema device unenroll --device "},
		"the device is revoked, and its keychain out of reach": {
			func(t *testing.T, w *world) {
				w.doctor.Stores.Keychain = &keychain{trouble: enroll.KeychainLocked}
				err := w.home.Update(w.record, func(r *enroll.Record) { r.RevokedAt, r.KeyStore = time.Now(), enroll.StoreKeychain })
				if err != nil {
					t.Fatal(err)
				}
			}, "revoked", doctor.Fail, "cannot be told whether its key is still in the session's keychain: the keychain is locked", "sema device unenroll --device "},
		"others can change the folder of the records": {
			func(t *testing.T, w *world) {
				if err := os.Chmod(w.home.Dir(), 0o777); err != nil {
					t.Fatal(err)
				}
			}, "folder", doctor.Warn, "open to other users of this machine: its mode is -rwxrwxrwx", "chmod 700 "},
		"the holder of the lock left no number": {
			func(t *testing.T, w *world) {
				path := filepath.Join(w.record.Dir(), "lock")
				l, err := fence.Lock(path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Unlock() })
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
			}, "lock", doctor.Warn, "a process that left no number holds this device", "/lock'"},
		"what is given as the proxy is no address": {
			func(_ *testing.T, w *world) {
				w.doctor.Getenv = func(name string) string { return map[string]string{"HTTP_PROXY": "garbage:::"}[name] }
				w.doctor.Transport = func() (*http.Transport, error) {
					return &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return nil, &enroll.BadProxyError{} }}, nil
				}
			}, "server", doctor.Fail, "proxy: garbage::: (from HTTP_PROXY) cannot be used: it is not the address of a proxy", "unset HTTP_PROXY"},
		"the workspace was deleted": {
			func(t *testing.T, w *world) {
				if err := os.Remove(w.record.WorkspaceRoot); err != nil {
					t.Fatal(err)
				}
			}, "workspace", doctor.Fail, "is not there", "mkdir -p "},
		"the workspace is a file": {
			func(t *testing.T, w *world) {
				if err := os.Remove(w.record.WorkspaceRoot); err != nil {
					t.Fatal(err)
				}
				mustWrite(t, w.record.WorkspaceRoot, "")
			}, "workspace", doctor.Fail, "is not a folder", "ls -ld "},
		"the file system could do more than is declared": {
			func(t *testing.T, w *world) {
				if err := w.home.Update(w.record, func(r *enroll.Record) { r.WriteFaces = nil }); err != nil {
					t.Fatal(err)
				}
			}, "writes", doctor.OK, "could do more", "Enroll again"},
		"another process holds the lock": {
			func(t *testing.T, w *world) {
				l, err := fence.Lock(filepath.Join(w.record.Dir(), "lock"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Unlock() })
			}, "lock", doctor.Warn, "process " + strconv.Itoa(os.Getpid()) + " holds this device", "kill " + strconv.Itoa(os.Getpid())},
		"the executor that runs has no connection": {
			func(t *testing.T, w *world) {
				l, err := fence.Lock(filepath.Join(w.record.Dir(), "lock"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Unlock() })
				err = status.Write(filepath.Join(w.record.Dir(), "status.json"), &status.Snapshot{Format: status.Format, PID: os.Getpid(),
					State: status.State{Phase: "backing_off"}, LastError: &status.LastError{Text: "auth failed", Remedy: "Enroll again."}})
				if err != nil {
					t.Fatal(err)
				}
			}, "lock", doctor.Warn, "no connection: auth failed", "Enroll again."},
		"there is no bash": {
			func(_ *testing.T, w *world) {
				w.doctor.FindShell = func(string, []string) (string, error) { return "/bin/sh", nil }
			}, "shell", doctor.Warn, "there is no bash", "install bash"},
		"there is no shell at all": {
			func(_ *testing.T, w *world) {
				w.doctor.FindShell = func(string, []string) (string, error) { return "", errors.New("no shell found") }
			}, "shell", doctor.Fail, "no shell found", "Install one"},
		"the login shell says nothing": {
			func(t *testing.T, w *world) {
				w.doctor.Environ = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "SHELL=/bin/false"}
			}, "PATH", doctor.Warn, "did not tell its environment", "the profile of your login shell"},
		"the server is down": {
			func(_ *testing.T, w *world) { w.http.Close() },
			"server", doctor.Fail, "network: nothing listens at 127.0.0.1:", "The server is down"},
		"the port is something else's, which speaks HTTP": {
			func(t *testing.T, w *world) {
				other := httptest.NewServer(http.NotFoundHandler())
				t.Cleanup(other.Close)
				w.at(other.URL)
			}, "server", doctor.Fail, "something else answers at 127.0.0.1:", "address and port"},
		"the port is something else's, with pages": {
			func(t *testing.T, w *world) {
				other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write([]byte("<!doctype html><title>Sign in</title>"))
				}))
				t.Cleanup(other.Close)
				w.at(other.URL)
			}, "server", doctor.Fail, "something else answers at 127.0.0.1:", "sign-in page"},
		"the port is something else's, which speaks no HTTP": {
			func(t *testing.T, w *world) { w.at("http://" + greeter(t, "SSH-2.0-OpenSSH_9.2\r\n")) },
			"server", doctor.Fail, "HTTP: 127.0.0.1:", "Something else may listen"},
		"the port is something else's, without TLS": {
			func(t *testing.T, w *world) { w.at(strings.Replace(w.http.URL, "http:", "https:", 1)) },
			"server", doctor.Fail, "does not speak TLS", "Check the port"},
		"the port takes connections and says nothing": {
			func(t *testing.T, w *world) { w.at("http://" + greeter(t, "")) },
			"server", doctor.Fail, "stuck at waiting for an answer of 127.0.0.1:", "firewall, VPN and proxy"},
		"the name is unknown": {
			func(_ *testing.T, w *world) { w.at("https://no-such-host.invalid") },
			"server", doctor.Fail, "DNS: the name no-such-host.invalid", "network"},
		"the certificate is self-signed": {
			func(t *testing.T, w *world) { w.at(tlsServer(t, w, certificate(t, time.Now(), "127.0.0.1"))) },
			"server", doctor.Fail, "is self-signed (CN=127.0.0.1)", "export SSL_CERT_FILE="},
		"the certificate is another's": {
			func(t *testing.T, w *world) {
				c := certificate(t, time.Now(), "sema.example")
				trusting(w, c)
				w.at(tlsServer(t, w, c))
			}, "server", doctor.Fail, "is for other names: sema.example", "Use the name"},
		"the certificate is not valid yet, by a clock that is wrong": {
			func(t *testing.T, w *world) {
				c := certificate(t, time.Now().Add(2*time.Hour), "127.0.0.1")
				trusting(w, c)
				w.at(tlsServer(t, w, c))
				w.doctor.Now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
			}, "server", doctor.Fail, "the clock here is 2h00m behind the server's", setClock()},
		"the clock is two hours ahead": {
			func(_ *testing.T, w *world) { w.doctor.Now = func() time.Time { return time.Now().Add(2 * time.Hour) } },
			"clock", doctor.Warn, "the clock here is 2h00m ahead of the server's", setClock()},
		"the proxy refuses": {
			func(t *testing.T, w *world) {
				proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					http.Error(w, "no", http.StatusForbidden)
				}))
				t.Cleanup(proxy.Close)
				through(t, w, proxy.Listener.Addr().String())
			}, "server", doctor.Fail, "from HTTPS_PROXY) does not let us through to sema.example: the proxy answered 403", "unset HTTPS_PROXY"},
		"the proxy is down": {
			func(t *testing.T, w *world) {
				proxy := httptest.NewServer(nil)
				proxy.Close()
				through(t, w, proxy.Listener.Addr().String())
			}, "server", doctor.Fail, "from HTTPS_PROXY) does not let us through to sema.example: connection refused", "unset HTTPS_PROXY"},
		"the server takes no devices": {
			func(t *testing.T, w *world) {
				other := httptest.NewServer(refserver.New(refserver.Config{Disabled: true}))
				t.Cleanup(other.Close)
				w.at(other.URL)
			}, "server", doctor.Fail, "does not take devices", "switch its device lane on"},
		"the server is newer": {
			func(t *testing.T, w *world) {
				other := httptest.NewServer(refserver.New(refserver.Config{ProtocolVersion: 2}))
				t.Cleanup(other.Close)
				w.at(other.URL)
			}, "server", doctor.Warn, "version 2", "Update this executor"},
		"upgrades are stopped on the way": {
			func(t *testing.T, w *world) {
				proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					r.Header.Del("Upgrade")
					r.Header.Del("Connection")
					w.server.ServeHTTP(rw, r)
				}))
				t.Cleanup(proxy.Close)
				w.at(proxy.URL)
			}, "websocket", doctor.Fail, "in place of an upgrade", "WebSocket upgrades"},
		"the server is draining": {
			func(_ *testing.T, w *world) { w.server.Drain() },
			"websocket", doctor.Warn, "restarting or full", "tries again by itself"},
		"the challenge does not come": {
			func(_ *testing.T, w *world) { w.server.SetFaults(refserver.Faults{NoChallenge: true}) },
			"websocket", doctor.Fail, "challenge does not come", "proxy"},
		"the CA file is not there": {
			func(_ *testing.T, w *world) {
				w.doctor.Transport = func() (*http.Transport, error) {
					return enroll.NewTransport(func(string) string { return "/not/there.pem" })
				}
			}, "server", doctor.Fail, "/not/there.pem: no such file", "unset SSL_CERT_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.make(t, w)
			all := findings(w.examine())
			named := false
			for _, f := range all {
				if f.Level == doctor.Fail && f.Check != c.check && (c.check != "shell" || f.Check != "processes") {
					t.Errorf("blamed as well: %+v", f)
				}
				if f.Level != doctor.OK && f.Mend == "" && f.Run == "" {
					t.Errorf("no remedy: %+v", f)
				}
				for _, text := range []string{f.What, f.Why, f.Mend, f.Run} {
					if strings.Contains(text, theCredential) || strings.Contains(text, "pass-7f3a") {
						t.Errorf("shows a secret: %+v", f)
					}
					for _, raw := range []string{"dial tcp", "Get \"", "x509:", "tls:", "syscall", "0x"} {
						if strings.Contains(text, raw) {
							t.Errorf("in a library's words: %+v", f)
						}
					}
				}
				if f.Check == c.check {
					named = named || f.Level == c.level && strings.Contains(f.What, c.what) &&
						(strings.Contains(f.Mend, c.mend) || strings.HasPrefix(f.Run, c.mend) || strings.HasSuffix(f.Run, c.mend))
				}
			}
			if !named {
				t.Errorf("no finding of %s at %q with %q, mended by %q, in %+v", c.check, c.level, c.what, c.mend, all)
			}
		})
	}
}

func setClock() string {
	if _, err := os.Stat("/usr/bin/sntp"); err == nil {
		return "sudo sntp -sS time.apple.com"
	}
	return "sudo timedatectl set-ntp true"
}

// greeter takes connections, says its piece and stays silent.
func greeter(t *testing.T, greeting string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			_, _ = c.Write([]byte(greeting))
		}
	}()
	return l.Addr().String()
}

// certificate makes one that is its own authority, valid for an hour from a time.
func certificate(t *testing.T, from time.Time, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from.Add(-time.Minute), NotAfter: from.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func tlsServer(t *testing.T, w *world, c tls.Certificate) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(w.server)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{c}}
	s.Config.ErrorLog = discard
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// trusting has the machine know an authority.
func trusting(w *world, c tls.Certificate) {
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		w.t.Fatal(err)
	}
	pool.AddCert(leaf)
	w.doctor.Transport = func() (*http.Transport, error) {
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, nil
	}
}

// through sends everything through a proxy whose address has a password in it.
func through(t *testing.T, w *world, proxy string) {
	t.Helper()
	w.at("https://sema.example")
	address := "http://user:pass-7f3a@" + proxy
	w.doctor.Getenv = func(name string) string {
		if name == "HTTPS_PROXY" {
			return address
		}
		return ""
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	w.doctor.Transport = func() (*http.Transport, error) {
		transport, err := enroll.NewTransport(func(string) string { return "" })
		if err == nil {
			transport.Proxy = http.ProxyURL(u)
		}
		return transport, err
	}
}

func TestTheServiceManagersWordCounts(t *testing.T) {
	t.Parallel()
	off := false
	good := doctor.ServiceState{Installed: true, Enabled: true, Running: true}
	w := newWorld(t)
	for name, c := range map[string]struct {
		change func(*doctor.ServiceState)
		err    error
		level  doctor.Level
		what   string
	}{
		"in order":      {func(*doctor.ServiceState) {}, nil, doctor.OK, "starts by itself"},
		"not installed": {func(s *doctor.ServiceState) { s.Installed = false }, nil, doctor.OK, "none is installed"},
		"not enabled":   {func(s *doctor.ServiceState) { s.Enabled = false }, nil, doctor.Warn, "does not start by itself"},
		"no lingering":  {func(s *doctor.ServiceState) { s.Lingering = &off }, nil, doctor.Warn, "when you sign out"},
		"stopped":       {func(s *doctor.ServiceState) { s.Running = false }, nil, doctor.Warn, "not running"},
		"ended":         {func(s *doctor.ServiceState) { s.Running, s.LastExit = false, "exit code 9" }, nil, doctor.Warn, "exit code 9"},
		"ended, and no lingering": {func(s *doctor.ServiceState) {
			s.Running, s.LastExit, s.Lingering = false, "exit code 9", &off
		}, nil, doctor.Warn, "exit code 9"},
		"no lingering, and ended": {func(s *doctor.ServiceState) {
			s.Running, s.LastExit, s.Lingering = false, "exit code 9", &off
		}, nil, doctor.Warn, "when you sign out"},
		"not enabled, and stopped": {func(s *doctor.ServiceState) { s.Running, s.Enabled = false, false }, nil, doctor.Warn, "not running"},
		"edited":                   {func(s *doctor.ServiceState) { s.Edited = true }, nil, doctor.OK, "was edited"},
		"can have none": {func(s *doctor.ServiceState) {
			s.Installed, s.Barred = false, errors.New("no systemd here")
		}, nil, doctor.OK, "none is installed; no systemd here"},
		"no manager": {nil, &enroll.UsageError{What: "systemd", Err: errors.New("not here")}, doctor.Warn, "systemd: not here"},
	} {
		w.doctor.Service = func(_ context.Context, id string) (doctor.ServiceState, error) {
			if id != w.record.DeviceID {
				t.Errorf("asked about %q", id)
			}
			s := good
			if c.err == nil {
				c.change(&s)
			}
			return s, c.err
		}
		found := false
		for _, f := range findings(w.examine()) {
			found = found || f.Check == "service" && f.Level == c.level && strings.Contains(f.What, c.what)
			if strings.Contains(f.What, "when you sign out") && f.Run != "sudo loginctl enable-linger $USER" {
				t.Errorf("%s: mended by %q, which install has tried without sudo already", name, f.Run)
			}
		}
		if !found {
			t.Errorf("%s: no finding at %q with %q", name, c.level, c.what)
		}
	}
}

func TestABrokenRecordAndNoDeviceAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mustWrite(t, filepath.Join(w.record.Dir(), "device.json"), "{")
	_, broken, err := w.home.Records()
	if err != nil {
		t.Fatal(err)
	}
	report := w.doctor.Examine(t.Context(), nil, broken)
	if len(report.Devices) != 1 || report.Devices[0].DeviceID != w.record.DeviceID || report.Count(doctor.Fail) != 1 {
		t.Errorf("%+v", report)
	}
	report = w.doctor.Examine(t.Context(), nil, nil)
	if report.Count(doctor.Fail) != 1 || !strings.Contains(report.Machine[len(report.Machine)-1].Run, "sema device enroll") {
		t.Errorf("%+v", report)
	}
}

func TestSeveralDevicesAreExaminedSideBySide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var records []*enroll.Record
	for range 4 {
		records = append(records, w.enroll())
	}
	silent, err := enroll.ParseServer("http://"+greeter(t, ""), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		r.Server = silent
	}
	begun := time.Now()
	report := w.doctor.Examine(t.Context(), records, nil)
	if took := time.Since(begun); took > doctor.Limit {
		t.Errorf("it took %s", took)
	}
	if report.Count(doctor.Fail) != len(records) {
		t.Errorf("%d failures of %d", report.Count(doctor.Fail), len(records))
	}
}

func TestACheckThatIsStuckHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	w.doctor.Service = func(context.Context, string) (doctor.ServiceState, error) {
		<-forever
		return doctor.ServiceState{}, nil
	}
	found := false
	for _, f := range findings(w.examine()) {
		found = found || f.Check == "service" && f.Level == doctor.Fail && strings.Contains(f.What, "stuck")
		if f.Level != doctor.OK && f.Check != "service" {
			t.Errorf("held up: %+v", f)
		}
	}
	if !found {
		t.Error("nothing is said of it")
	}
}
