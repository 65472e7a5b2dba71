package doctor_test

import (
	"context"
	"crypto/rand"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/doctor"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// A secret that no finding may show.
const theCredential = "cred-7f3a9b51c4"

// world is a machine with one device that is in order, and its server.
type world struct {
	t      *testing.T
	server *refserver.Server
	http   *httptest.Server
	home   *enroll.Home
	record *enroll.Record
	doctor *doctor.Doctor
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, server: refserver.New(refserver.Config{})}
	w.http = httptest.NewServer(w.server)
	t.Cleanup(func() {
		_ = w.server.Close()
		w.http.Close()
	})
	home, err := enroll.HomeAt(filepath.Join(t.TempDir(), "sema home"))
	if err != nil {
		t.Fatal(err)
	}
	w.home = home
	w.doctor = &doctor.Doctor{
		Stores:    enroll.Stores{File: enroll.NewFileStore(), Keychain: &keychain{trouble: enroll.KeychainNoBus}},
		Getenv:    func(string) string { return "" },
		Environ:   []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "SHELL=/bin/sh", "SEMA_CREDENTIAL=" + theCredential},
		Now:       time.Now,
		UserAgent: "sema-device/test",
		Transport: func() (*http.Transport, error) { return &http.Transport{}, nil },
		FindShell: instructions.FindShell,
	}
	w.record = w.enroll()
	return w
}

// enroll makes this machine a device of the server.
func (w *world) enroll() *enroll.Record {
	w.t.Helper()
	server, err := enroll.ParseServer(w.http.URL, false)
	if err != nil {
		w.t.Fatal(err)
	}
	credential, err := enroll.NewCredential(theCredential)
	if err != nil {
		w.t.Fatal(err)
	}
	enroller := &enroll.Enroller{
		Home:   w.home,
		Client: &enroll.Client{Transport: &http.Transport{}, UserAgent: "sema-device/test", Now: time.Now},
		Stores: w.doctor.Stores, Now: time.Now, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler),
		WriteFaces: func(context.Context, string) ([]wire.Kind, error) { return enroll.OptionalWriteFaces(), nil },
	}
	done, err := enroller.Enroll(w.t.Context(), enroll.Request{
		Server: server, Credential: credential, Workspace: w.t.TempDir(), Name: "tested", KeyStore: enroll.StoreFile,
		Platform: wire.Platform{OS: "linux", Arch: "amd64"}, Supports: wire.Kinds(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return done.Record
}

// at lets the record name another server.
func (w *world) at(address string) {
	w.t.Helper()
	server, err := enroll.ParseServer(address, true)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.home.Update(w.record, func(r *enroll.Record) { r.Server = server }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) examine() *doctor.Report {
	w.t.Helper()
	begun := time.Now()
	report := w.doctor.Examine(w.t.Context(), []*enroll.Record{w.record}, nil)
	if took := time.Since(begun); took > doctor.Limit+time.Second {
		w.t.Errorf("it took %s", took)
	}
	return report
}

// findings are those of the machine and its one device.
func findings(report *doctor.Report) []doctor.Finding {
	found := append([]doctor.Finding{}, report.Machine...)
	for _, d := range report.Devices {
		found = append(found, d.Findings...)
	}
	return found
}

// keychain is a keychain in some trouble.
type keychain struct {
	trouble enroll.KeyTrouble
}

func (*keychain) Name() string { return enroll.StoreKeychain }

func (k *keychain) err(doing string) error {
	return &enroll.KeyError{Store: enroll.StoreKeychain, Doing: doing, Trouble: k.trouble}
}

func (k *keychain) Save(context.Context, enroll.KeyRef, handshake.PrivateKey) error {
	return k.err("store")
}

func (k *keychain) Load(context.Context, enroll.KeyRef) (handshake.PrivateKey, error) {
	return handshake.PrivateKey{}, k.err("read")
}

func (k *keychain) Delete(context.Context, enroll.KeyRef) error { return k.err("delete") }

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// discard swallows what a test's server says of clients that turn away.
var discard = log.New(io.Discard, "", 0)
