package enroll_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/sema-agent/device-executor/enroll"
)

// These tests meet a real Secret Service. Each runs in a session of its own:
// the test starts the test binary again, inside scripts/with-keyring or a bare
// message bus, and the inner run does the asking.

// soon is what a keychain in any state may take to become a message.
const soon = 4 * time.Second

// programs skips the test where they are not installed, unless everything is
// required to be there.
func programs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
			t.Fatalf("%s is not installed; scripts/packages installs it", name)
		}
		t.Skipf("%s is not installed; scripts/packages installs it", name)
	}
}

const insideVariable = "SEMA_TEST_SESSION"

// inSession runs the named inner test under a command that makes a session.
func inSession(t *testing.T, inner string, session ...string) {
	t.Helper()
	args := append(session[1:], os.Args[0], "-test.run=^"+inner+"$", "-test.v", "-test.timeout=60s")
	cmd := exec.Command(session[0], args...)
	cmd.Env = append(without(os.Environ(), "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"), insideVariable+"="+inner)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+inner) {
		t.Fatalf("%v\n%s", err, out)
	}
}

func without(env []string, names ...string) []string {
	var kept []string
	for _, entry := range env {
		drop := false
		for _, name := range names {
			drop = drop || strings.HasPrefix(entry, name+"=")
		}
		if !drop {
			kept = append(kept, entry)
		}
	}
	return kept
}

func inside(t *testing.T) {
	t.Helper()
	if os.Getenv(insideVariable) != t.Name() {
		t.Skip("runs in a session that another test makes")
	}
}

func withKeyring(t *testing.T, inner string) {
	t.Helper()
	t.Parallel()
	programs(t, "gnome-keyring-daemon", "dbus-run-session", "dbus-send", "secret-tool")
	inSession(t, inner, "../scripts/with-keyring")
}

// bareBus is a session whose bus can start nothing.
func bareBus(t *testing.T, inner string) {
	t.Helper()
	t.Parallel()
	programs(t, "dbus-run-session")
	config := filepath.Join(t.TempDir(), "bus.conf")
	write(t, config, `<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen>
		<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`)
	inSession(t, inner, "dbus-run-session", "--config-file="+config, "--")
}

// expect asks a keychain for a key, in every way at once, and wants a trouble,
// in time, in words.
func expect(t *testing.T, getenv func(string) string, want enroll.KeyTrouble) {
	t.Helper()
	ref := enroll.KeyRef{Dir: t.TempDir(), Public: newKey(t).Public()}
	var all sync.WaitGroup
	for doing, ask := range map[string]func(enroll.KeyStore) error{
		"read":   func(k enroll.KeyStore) error { _, err := k.Load(t.Context(), ref); return err },
		"store":  func(k enroll.KeyStore) error { return k.Save(t.Context(), ref, newKey(t)) },
		"delete": func(k enroll.KeyStore) error { return k.Delete(t.Context(), ref) },
	} {
		all.Go(func() {
			began := time.Now()
			err := ask(enroll.NewKeychain(getenv))
			if took := time.Since(began); took > soon {
				t.Errorf("%s took %s", doing, took)
			}
			var trouble *enroll.KeyError
			if !errors.As(err, &trouble) || trouble.Trouble != want || trouble.Store != enroll.StoreKeychain || enroll.ExitCode(err) != 9 {
				t.Errorf("%s: %v, want %s", doing, err, want)
				return
			}
			forPeople(t, err)
		})
	}
	all.Wait()
}

// expectAutoFile enrolls with StoreAuto and wants the key in the file.
func expectAutoFile(t *testing.T, getenv func(string) string) {
	t.Helper()
	m := newMachine(t)
	m.Stores.Keychain = enroll.NewKeychain(getenv)
	began := time.Now()
	done, err := m.Enroll(m.ctx, m.request(t))
	if err != nil || done.Record.KeyStore != enroll.StoreFile || done.KeyStoreReason == "" {
		t.Fatalf("%+v, %v", done, err)
	}
	if took := time.Since(began); took > soon {
		t.Errorf("took %s", took)
	}
}

func TestAKeyLivesInTheKeyringAndNowhereElse(t *testing.T) { withKeyring(t, "TestInsideKeyring") }

func TestInsideKeyring(t *testing.T) {
	inside(t)
	m := newMachine(t)
	m.Stores = enroll.SystemStores(os.Getenv)
	done, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	r := done.Record
	if r.KeyStore != enroll.StoreKeychain {
		t.Fatalf("auto took the %s: %s", r.KeyStore, done.KeyStoreReason)
	}
	key, err := m.Stores.Load(m.ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	secret := seedText(key)
	held := func() string {
		out, err := exec.Command("secret-tool", "lookup", "service", "sema-device", "username", r.PublicKey.String()).Output()
		if err != nil && len(out) == 0 {
			return ""
		}
		return string(out)
	}
	if held() != secret {
		t.Error("secret-tool does not find the key")
	}
	for _, name := range m.files(t, secret) {
		if filepath.Base(name) == "key" {
			t.Errorf("%s as well", name)
		}
	}

	if _, err := enroll.MoveKey(m.ctx, m.Home, r, m.Stores, enroll.StoreFile); err != nil {
		t.Fatal(err)
	}
	if held() != "" || r.KeyStore != enroll.StoreFile {
		t.Error("moved to the file, and still in the keyring")
	}
	if again, err := m.Stores.Load(m.ctx, r); err != nil || seedText(again) != secret {
		t.Error(err)
	}
	if _, err := enroll.MoveKey(m.ctx, m.Home, r, m.Stores, enroll.StoreKeychain); err != nil {
		t.Fatal(err)
	}
	if held() != secret {
		t.Error("moved back, and not there")
	}
	if _, err := os.Stat(filepath.Join(r.Dir(), "key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("moved back, and still in the file: %v", err)
	}

	// Another device beside it, and its end.
	q := m.request(t)
	q.KeyStore = enroll.StoreKeychain
	second, err := m.Enroll(m.ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Home.Unenroll(m.ctx, second.Record, m.Stores); err != nil {
		t.Fatal(err)
	}
	if held() != secret {
		t.Error("the other device's key went")
	}
	if err := m.Home.Revoke(m.ctx, r, m.Stores, m.Now()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("secret-tool", "search", "--all", "service", "sema-device").Output(); len(out) != 0 {
		t.Errorf("left in the keyring: %s, %v", out, err)
	}

	t.Run("an enrollment that is refused leaves no key", func(t *testing.T) {
		m.registry.refuse = &said{Status: 403, Body: `{"errorCode":"device.enrollment_invalid"}`}
		if _, err := m.Enroll(m.ctx, q); enroll.ExitCode(err) != 8 {
			t.Errorf("got %v", err)
		}
		if out, _ := exec.Command("secret-tool", "search", "--all", "service", "sema-device").Output(); len(out) != 0 {
			t.Errorf("left in the keyring: %s", out)
		}
	})
}

func TestALockedKeyringIsAMessage(t *testing.T) { withKeyring(t, "TestInsideLockedKeyring") }

func TestInsideLockedKeyring(t *testing.T) {
	inside(t)
	if err := enroll.NewKeychain(os.Getenv).Save(t.Context(), enroll.KeyRef{Public: newKey(t).Public()}, newKey(t)); err != nil {
		t.Fatalf("while it is open: %v", err)
	}
	lock(t)
	expect(t, os.Getenv, enroll.KeychainHeadless)
	expectAutoFile(t, os.Getenv)
	desktop := func(name string) string {
		if name == "DISPLAY" {
			return ":99"
		}
		return os.Getenv(name)
	}
	expect(t, desktop, enroll.KeychainLocked)
}

// lock locks the session's login collection.
func lock(t *testing.T) {
	t.Helper()
	conn, err := dbus.ConnectSessionBus()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var locked []dbus.ObjectPath
	var prompt dbus.ObjectPath
	login := []dbus.ObjectPath{"/org/freedesktop/secrets/collection/login"}
	err = conn.Object("org.freedesktop.secrets", "/org/freedesktop/secrets").
		CallWithContext(ctx, "org.freedesktop.Secret.Service.Lock", 0, login).Store(&locked, &prompt)
	if err != nil || len(locked) != 1 {
		t.Fatalf("%v, %v", locked, err)
	}
}

func TestAStoppedKeyringIsAMessage(t *testing.T) { withKeyring(t, "TestInsideStoppedKeyring") }

func TestInsideStoppedKeyring(t *testing.T) {
	inside(t)
	pid, err := strconv.Atoi(os.Getenv("SEMA_KEYRING_PID"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	expect(t, os.Getenv, enroll.KeychainSilent)
	expectAutoFile(t, os.Getenv)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	store, ref := enroll.NewKeychain(os.Getenv), enroll.KeyRef{Public: newKey(t).Public()}
	if err := store.Save(t.Context(), ref, newKey(t)); err != nil {
		t.Errorf("once it runs again: %v", err)
	}
	if _, err := store.Load(t.Context(), ref); err != nil {
		t.Errorf("once it runs again: %v", err)
	}
}

func TestASessionWithoutDesktopAndKeyringIsAMessage(t *testing.T) {
	programs(t, "gnome-keyring-daemon", "dbus-run-session")
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("XDG_CACHE_HOME", home)
	inSession(t, "TestInsideHeadlessSession", "dbus-run-session", "--")
	// Looking has not made a keyring service begin a life of its own.
	left, err := os.ReadDir(home)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the home: %v, %v", left, err)
	}
}

func TestInsideHeadlessSession(t *testing.T) {
	inside(t)
	expect(t, os.Getenv, enroll.KeychainHeadless)
	expectAutoFile(t, os.Getenv)
}

func TestABusWithoutKeychainIsAMessage(t *testing.T) { bareBus(t, "TestInsideBareBus") }

func TestInsideBareBus(t *testing.T) {
	inside(t)
	expect(t, os.Getenv, enroll.KeychainAbsent)
	expectAutoFile(t, os.Getenv)
}

func TestAKeyringThatIsThereAndHangsIsAMessage(t *testing.T) {
	bareBus(t, "TestInsideHangingKeyring")
}

// hanging is a Secret Service that looks well and never opens a session.
type hanging struct{ never chan struct{} }

func (hanging) Get(iface, name string) (dbus.Variant, *dbus.Error) {
	switch iface + "." + name {
	case "org.freedesktop.Secret.Service.Collections":
		return dbus.MakeVariant([]dbus.ObjectPath{"/org/freedesktop/secrets/collection/login"}), nil
	case "org.freedesktop.Secret.Collection.Locked":
		return dbus.MakeVariant(false), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("no property %s", name))
}

func (h hanging) OpenSession(string, dbus.Variant) (dbus.Variant, dbus.ObjectPath, *dbus.Error) {
	<-h.never
	return dbus.MakeVariant(""), "/session", nil
}

func (h hanging) Unlock([]dbus.ObjectPath) ([]dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	<-h.never
	return nil, "/", nil
}

func TestInsideHangingKeyring(t *testing.T) {
	inside(t)
	conn, err := dbus.ConnectSessionBus()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	service := hanging{never: make(chan struct{})}
	for _, e := range []error{
		conn.Export(service, "/org/freedesktop/secrets", "org.freedesktop.Secret.Service"),
		conn.Export(service, "/org/freedesktop/secrets", "org.freedesktop.DBus.Properties"),
		conn.Export(service, "/org/freedesktop/secrets/collection/login", "org.freedesktop.DBus.Properties"),
	} {
		if e != nil {
			t.Fatal(e)
		}
	}
	if reply, err := conn.RequestName("org.freedesktop.secrets", dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v, %v", reply, err)
	}
	expect(t, os.Getenv, enroll.KeychainSilent)
	close(service.never)
}

func TestABusThatNeverAnswersIsAMessage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", path) // the kernel accepts; nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	getenv := env(map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:path=" + path})
	expect(t, getenv, enroll.KeychainSilent)
}

func TestABusThatIsGoneIsAMessage(t *testing.T) {
	address := "unix:path=" + filepath.Join(t.TempDir(), "bus")
	expect(t, env(map[string]string{"DBUS_SESSION_BUS_ADDRESS": address}), enroll.KeychainNoBus)
}

func TestWithoutABusNoneIsStarted(t *testing.T) {
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d/bus", os.Getuid())); err == nil {
		t.Skip("this user has a session, which the keychain would rightly use")
	}
	trap := t.TempDir()
	began := filepath.Join(trap, "started")
	if err := os.WriteFile(filepath.Join(trap, "dbus-launch"), []byte("#!/bin/sh\n>"+began+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", trap+":"+os.Getenv("PATH"))
	if err := exec.Command("dbus-launch").Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(began); err != nil {
		t.Fatalf("this test would see nothing: %v", err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	for _, address := range []string{"", "autolaunch:", "autolaunch:scope=user"} {
		getenv := env(map[string]string{"DBUS_SESSION_BUS_ADDRESS": address})
		expect(t, getenv, enroll.KeychainNoBus)
		expectAutoFile(t, getenv)
	}
	if _, err := os.Stat(began); err == nil {
		t.Error("a message bus was started")
	}
}
