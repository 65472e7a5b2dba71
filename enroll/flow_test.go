package enroll_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/wire"
)

// registry is a server's half of enrollment: tokens, and the one device that
// each was used for.
type registry struct {
	tokens   map[string]string // token → "key id", "" while unused
	asked    int               // tokens issued
	devices  int
	loseNext bool   // register, and lose the answer
	after    func() // runs when the answer is lost
	refuse   *said  // instead of registering
	sameID   bool   // every device gets the first one's id
}

func (s *registry) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	switch r.URL.Path {
	case "/api/v1/capabilities":
		return answer(200, good["capabilities"].Body)
	case "/api/v1/devices/enroll-tokens":
		fresh := theToken + strings.Repeat("+", s.asked)
		s.asked++
		s.tokens[fresh] = ""
		return answer(200, `{"token":"`+fresh+`","expiresAt":"2026-03-01T12:15:00Z","ttlSec":900}`)
	}
	var body struct{ Token, Pubkey string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	if s.refuse != nil {
		return answer(s.refuse.Status, s.refuse.Body)
	}
	used, known := s.tokens[body.Token]
	key, id, _ := strings.Cut(used, " ")
	if !known || used != "" && key != body.Pubkey {
		return answer(403, `{"errorCode":"device.enrollment_invalid","message":"refused"}`)
	}
	if used == "" {
		s.devices++
		id = "dev_0000000000000000000000000" + string(rune('0'+s.devices))
		if s.sameID {
			id = "dev_00000000000000000000000001"
		}
		s.tokens[body.Token] = body.Pubkey + " " + id
	}
	if s.loseNext {
		s.loseNext = false
		s.after()
		return nil, &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	}
	return answer(200, `{"deviceId":"`+id+`"}`)
}

// machine is one with a home, a workspace and a keychain that does not work.
type machine struct {
	*enroll.Enroller
	dir, workspace string
	registry       *registry
	ctx            context.Context
	kill           context.CancelFunc
}

var errNoKeychain = &enroll.KeyError{Store: enroll.StoreKeychain, Doing: "store", Trouble: enroll.KeychainNoBus}

// noKeychain is the keychain of a machine without one.
type noKeychain struct{}

func (noKeychain) Name() string { return enroll.StoreKeychain }
func (noKeychain) Save(context.Context, enroll.KeyRef, handshake.PrivateKey) error {
	return errNoKeychain
}
func (noKeychain) Load(context.Context, enroll.KeyRef) (handshake.PrivateKey, error) {
	return handshake.PrivateKey{}, errNoKeychain
}
func (noKeychain) Delete(context.Context, enroll.KeyRef) error { return errNoKeychain }

func newMachine(t *testing.T) *machine {
	t.Helper()
	root := t.TempDir()
	m := &machine{dir: filepath.Join(root, "home"), workspace: filepath.Join(root, "work"), registry: &registry{tokens: map[string]string{}}}
	if err := os.Mkdir(m.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.workspace, err = filepath.EvalSymlinks(m.workspace); err != nil {
		t.Fatal(err)
	}
	home, err := enroll.HomeAt(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	m.ctx, m.kill = context.WithCancel(t.Context())
	m.registry.after = m.kill
	m.Enroller = &enroll.Enroller{
		Home: home, Client: newClient(m.registry), Stores: enroll.Stores{File: enroll.NewFileStore(), Keychain: noKeychain{}},
		Now:  func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) },
		Rand: rand.NewChaCha8([32]byte{1}), Log: discard(),
		WriteFaces: func(_ context.Context, root string) ([]wire.Kind, error) {
			if root != m.workspace {
				t.Errorf("probes %s", root)
			}
			return []wire.Kind{wire.KindWriteFileExclusive}, nil
		},
	}
	return m
}

func (m *machine) request(t testing.TB) enroll.Request {
	return enroll.Request{Server: theServer(t), Credential: credential(t), Workspace: m.workspace, Name: "Ada's laptop",
		KeyStore: enroll.StoreAuto, Platform: wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "1"}, Supports: wire.Kinds()}
}

// files returns everything under the home, and checks what it owes: modes, and
// no secret anywhere but the key in its file.
func (m *machine) files(t *testing.T, seeds ...string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() {
			if info.Mode().Perm() != 0o700 {
				t.Errorf("%s has mode %s", path, info.Mode())
			}
			return nil
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, secret := range append(seeds, theToken, theCredential) {
			if strings.Contains(string(b), secret) && filepath.Base(path) != "key" {
				t.Errorf("%s holds a secret", path)
			}
		}
		rel, err := filepath.Rel(m.dir, path)
		names = append(names, rel)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestEnrollLeavesARecordAndAKeyThatFit(t *testing.T) {
	m := newMachine(t)
	done, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	r := done.Record
	if r.DeviceID != "dev_00000000000000000000000001" || r.Server != theServer(t) || r.WorkspaceRoot != m.workspace || r.KeyStore != enroll.StoreFile ||
		r.Name != "Ada's laptop" || r.WSPath != "/v1/device/ws" || !r.EnrolledAt.Equal(m.Now()) || r.Dir() != m.Home.DeviceDir(r.DeviceID) {
		t.Errorf("record %+v", r)
	}
	if !slices.Equal(r.WriteFaces, []wire.Kind{wire.KindWriteFileExclusive}) || !slices.Equal(r.Excluded(), []wire.Kind{wire.KindWriteFileGuarded}) {
		t.Errorf("faces %v, excluded %v", r.WriteFaces, r.Excluded())
	}
	if done.KeyStoreReason == "" || len(done.Notes) != 0 {
		t.Errorf("said %q, %v", done.KeyStoreReason, done.Notes)
	}
	key, err := m.Stores.Load(m.ctx, r)
	if err != nil || key.Public() != r.PublicKey || m.registry.tokens[theToken] != r.PublicKey.String()+" "+r.DeviceID {
		t.Errorf("the key does not fit: %v", err)
	}
	if got := m.files(t); !slices.Equal(got, []string{"devices/" + r.DeviceID + "/device.json", "devices/" + r.DeviceID + "/key", "devices/" + r.DeviceID + "/key.lock"}) {
		t.Errorf("files %v", got)
	}
	only, err := m.Home.Choose("")
	if err != nil || only.DeviceID != r.DeviceID {
		t.Errorf("%v, %v", only, err)
	}
}

func TestACrashBetweenRegistrationAndRecordLosesNoDevice(t *testing.T) {
	m := newMachine(t)
	m.registry.tokens[theToken] = ""
	m.registry.loseNext = true // and the process ends there
	q := m.request(t)
	q.Token = token(t)
	_, err := m.Enroll(m.ctx, q)
	var unfinished *enroll.UnfinishedError
	if !errors.Is(err, context.Canceled) || !errors.As(err, &unfinished) || !unfinished.Again {
		t.Fatalf("got %v", err)
	}
	forPeople(t, err)
	if m.registry.devices != 1 {
		t.Fatal("the server does not know the device")
	}
	if sound, broken, err := m.Home.Records(); len(sound)+len(broken) != 0 || err != nil {
		t.Errorf("a device without id is listed: %v, %v, %v", sound, broken, err)
	}
	left := m.files(t)
	if len(left) != 3 || !strings.HasPrefix(left[0], "enrolling/") {
		t.Fatalf("files %v", left)
	}

	t.Run("another workspace is not what the server has registered", func(t *testing.T) {
		q := q
		q.Workspace = t.TempDir()
		m.WriteFaces = func(context.Context, string) ([]wire.Kind, error) { return nil, nil }
		if _, err := m.Enroll(t.Context(), q); enroll.ExitCode(err) != 2 || !strings.Contains(err.Error(), m.workspace) {
			t.Errorf("got %v", err)
		}
	})
	done, err := m.Enroll(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if m.registry.devices != 1 || done.Record.DeviceID != "dev_00000000000000000000000001" {
		t.Errorf("%d devices, ours %s", m.registry.devices, done.Record.DeviceID)
	}
	if len(done.Notes) != 1 || !strings.Contains(done.Notes[0], "interrupted") {
		t.Errorf("notes %q", done.Notes)
	}
	if got := m.files(t); len(got) != 3 || !strings.HasPrefix(got[0], "devices/") {
		t.Errorf("files %v", got)
	}
	if b, err := os.ReadFile(filepath.Join(done.Record.Dir(), "device.json")); err != nil || strings.Contains(string(b), "tokenDigest") {
		t.Errorf("the digest of the token stays: %s, %v", b, err)
	}
}

func TestACrashBeforeTheLastStepIsFinishedByTheNextLook(t *testing.T) {
	m := newMachine(t)
	done, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	// The folder as it was before it was renamed.
	pending := filepath.Join(m.dir, "enrolling", "0123456789abcdef")
	if err := os.Rename(done.Record.Dir(), pending); err != nil {
		t.Fatal(err)
	}
	sound, broken, err := m.Home.Records()
	if err != nil || len(broken) != 0 || len(sound) != 1 || sound[0].DeviceID != done.Record.DeviceID {
		t.Fatalf("%v, %v, %v", sound, broken, err)
	}
	if _, err := m.Stores.Load(m.ctx, sound[0]); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(pending); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old folder is still there: %v", err)
	}
}

func TestARefusedEnrollmentLeavesNothing(t *testing.T) {
	for name, answer := range map[string]said{
		"token":       {Status: 403, Body: `{"errorCode":"device.enrollment_invalid"}`},
		"credential":  {Status: 401},
		"no lane":     {Status: 501},
		"bad request": {Status: 400, Body: `{"errorCode":"request.field_invalid"}`},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.registry.refuse = &answer
			_, err := m.Enroll(m.ctx, m.request(t))
			if enroll.ExitCode(err) != 8 {
				t.Errorf("got %v", err)
			}
			if left := m.files(t); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

func TestAStoreThatFailsLeavesNothing(t *testing.T) {
	m := newMachine(t)
	q := m.request(t)
	q.KeyStore = enroll.StoreKeychain
	_, err := m.Enroll(m.ctx, q)
	var trouble *enroll.KeyError
	if !errors.As(err, &trouble) || trouble.Trouble != enroll.KeychainNoBus || enroll.ExitCode(err) != 9 {
		t.Errorf("got %v", err)
	}
	forPeople(t, err)
	if left := m.files(t); len(left) != 0 || m.registry.devices != 0 {
		t.Errorf("left %v and %d devices", left, m.registry.devices)
	}
}

func TestARequestWithAFaultSendsNothing(t *testing.T) {
	cases := map[string]func(*enroll.Request){
		"no server":         func(q *enroll.Request) { q.Server = enroll.Server{} },
		"no credential":     func(q *enroll.Request) { q.Credential = enroll.Credential{} },
		"unknown key store": func(q *enroll.Request) { q.KeyStore = "usb" },
		"no such workspace": func(q *enroll.Request) { q.Workspace += "/missing" },
		"long name":         func(q *enroll.Request) { q.Name = strings.Repeat("n", 256) },
		"third platform":    func(q *enroll.Request) { q.Platform.OS = "plan9" },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			network := &scripted{}
			m.Client = newClient(network)
			q := m.request(t)
			spoil(&q)
			if _, err := m.Enroll(m.ctx, q); enroll.ExitCode(err) != 2 {
				t.Errorf("got %v", err)
			}
			if len(network.requests) != 0 || len(m.files(t)) != 0 {
				t.Errorf("sent %d, left %v", len(network.requests), m.files(t))
			}
		})
	}
}

func TestEnrollingAgainReplacesTheRevokedDeviceOnly(t *testing.T) {
	m := newMachine(t)
	first, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(second.Notes) != 1 || !strings.Contains(second.Notes[0], first.Record.DeviceID) {
		t.Errorf("notes %q", second.Notes)
	}
	var several *enroll.SeveralDevicesError
	if _, err := m.Home.Choose(""); !errors.As(err, &several) || enroll.ExitCode(err) != 2 {
		t.Errorf("got %v", err)
	} else {
		forPeople(t, err)
	}
	if err := m.Home.Revoke(m.ctx, first.Record, m.Stores, m.Now()); err != nil {
		t.Fatal(err)
	}
	if one, err := m.Home.Choose(""); err != nil || one.DeviceID != second.Record.DeviceID {
		t.Errorf("%v, %v", one, err)
	}
	revoked, err := m.Home.Record(first.Record.DeviceID)
	if err != nil || !revoked.Revoked() {
		t.Fatalf("%+v, %v", revoked, err)
	}
	if _, err := m.Stores.Load(m.ctx, revoked); enroll.ExitCode(err) != 5 {
		t.Errorf("got %v", err)
	} else {
		forPeople(t, err)
	}
	if _, err := os.Stat(filepath.Join(revoked.Dir(), "key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the revoked key is still there: %v", err)
	}
	third, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	sound, _, err := m.Home.Records()
	if err != nil || len(sound) != 2 || sound[0].DeviceID != second.Record.DeviceID || sound[1].DeviceID != third.Record.DeviceID {
		t.Errorf("%v, %v", sound, err)
	}
}

func TestALostAnswerToATokenOfOurOwnLeavesNothing(t *testing.T) {
	m := newMachine(t)
	m.registry.loseNext = true
	_, err := m.Enroll(m.ctx, m.request(t))
	var unfinished *enroll.UnfinishedError
	if !errors.As(err, &unfinished) || unfinished.Again || !strings.Contains(enroll.Advice(err), "revoke") {
		t.Errorf("got %v", err)
	}
	if left := m.files(t); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestInterruptedEnrollmentsAreSweptAfterADay(t *testing.T) {
	m := newMachine(t)
	m.registry.loseNext = true
	m.registry.tokens[theToken+"-given"] = ""
	q := m.request(t)
	var err error
	if q.Token, err = enroll.NewToken(theToken + "-given"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Enroll(m.ctx, q); err == nil {
		t.Fatal("nothing was interrupted")
	}
	began := m.Now()
	for _, c := range []struct {
		age  time.Duration
		left int // files of the interrupted enrollment
	}{{23 * time.Hour, 3}, {25 * time.Hour, 0}} {
		m.Now = func() time.Time { return began.Add(c.age) }
		if _, err := m.Enroll(t.Context(), m.request(t)); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, name := range m.files(t) {
			if strings.HasPrefix(name, "enrolling/") {
				n++
			}
		}
		if n != c.left {
			t.Errorf("after %s %d files are left, want %d", c.age, n, c.left)
		}
	}
}

func TestAnEnrollmentInterruptedBeforeItsRecordIsSweptToo(t *testing.T) {
	m := newMachine(t)
	folder := filepath.Join(m.Home.Dir(), "enrolling", "0123456789abcdef")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, ".device.json.123456"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age  time.Duration
		left bool
	}{{23 * time.Hour, true}, {25 * time.Hour, false}} {
		m.Now = func() time.Time { return info.ModTime().Add(c.age) }
		if _, err := m.Enroll(m.ctx, m.request(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(folder); (err == nil) != c.left {
			t.Errorf("after %s: %v", c.age, err)
		}
	}
}

func TestUnenrollRemovesKeyAndRecord(t *testing.T) {
	m := newMachine(t)
	done, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Home.Unenroll(m.ctx, done.Record, m.Stores); err != nil {
		t.Fatal(err)
	}
	if left := m.files(t); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	_, err = m.Home.Choose("")
	if enroll.ExitCode(err) != 3 {
		t.Errorf("got %v", err)
	}
	forPeople(t, err)
	if _, err := m.Home.Choose(done.Record.DeviceID); enroll.ExitCode(err) != 3 {
		t.Errorf("got %v", err)
	}
}

func TestTheServerIsNotTroubledWhereRecordsCannotBeKept(t *testing.T) {
	place := t.TempDir()
	file := filepath.Join(place, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(place, "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]error{file: syscall.ENOTDIR, filepath.Join(file, "below"): syscall.ENOTDIR, filepath.Join(closed, "sema"): syscall.EACCES} {
		if want == syscall.EACCES && os.Geteuid() == 0 {
			continue // root may write there
		}
		m := newMachine(t)
		home, err := enroll.HomeAt(dir)
		if err != nil {
			t.Fatal(err)
		}
		m.Home = home
		m.Client = newClient(roundTrip(func(r *http.Request) (*http.Response, error) {
			t.Errorf("%s: asked the server for %s", dir, r.URL.Path)
			return m.registry.RoundTrip(r)
		}))
		if _, err := m.Enroll(m.ctx, m.request(t)); !errors.Is(err, want) || !strings.Contains(err.Error(), dir) && !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestANewerServerIsANote(t *testing.T) {
	m := newMachine(t)
	m.Client = newClient(roundTrip(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/capabilities") {
			body := `{"deviceExecutor":{"enabled":true,"protocolVersion":2,"wsPath":"/v2/ws"}}`
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
		return m.registry.RoundTrip(r)
	}))
	done, err := m.Enroll(m.ctx, m.request(t))
	if err != nil || len(done.Notes) != 1 || !strings.Contains(done.Notes[0], "version 2") || done.Record.WSPath != "/v2/ws" {
		t.Errorf("%+v, %v", done, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnIdThatAnotherDeviceHasLeavesThatOneAndNothingElse(t *testing.T) {
	m := newMachine(t)
	m.registry.sameID = true
	if _, err := m.Enroll(m.ctx, m.request(t)); err != nil {
		t.Fatal(err)
	}
	before := m.files(t)
	key := m.key(t)
	_, err := m.Enroll(m.ctx, m.request(t))
	var taken *enroll.TakenError
	if !errors.As(err, &taken) || taken.DeviceID != "dev_00000000000000000000000001" || enroll.ExitCode(err) != 1 {
		t.Fatalf("got %v", err)
	}
	forPeople(t, err)
	if after := m.files(t); !slices.Equal(after, before) || m.key(t) != key {
		t.Errorf("before %q, after %q", before, after)
	}
	left, err := os.ReadDir(filepath.Join(m.dir, "enrolling"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// key is what the key file of the only device holds.
func (m *machine) key(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.dir, "devices", "*", "key"))
	if err != nil || len(files) != 1 {
		t.Fatalf("key files %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
