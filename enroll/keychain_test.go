package enroll

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/sema-agent/device-executor/handshake"
)

// slowRing is a keyring whose calls each take their time.
type slowRing struct {
	set, get, del time.Duration
	fail          error
	calls         atomic.Int32

	mu   sync.Mutex
	held map[string]string
}

func (r *slowRing) Set(service, user, password string) error {
	r.calls.Add(1)
	time.Sleep(r.set)
	if r.fail == nil {
		r.put(service+" "+user, password)
	}
	return r.fail
}

func (r *slowRing) Get(service, user string) (string, error) {
	r.calls.Add(1)
	time.Sleep(r.get)
	r.mu.Lock()
	defer r.mu.Unlock()
	if text, ok := r.held[service+" "+user]; ok {
		return text, r.fail
	}
	return "", keyring.ErrNotFound
}

func (r *slowRing) Delete(service, user string) error {
	r.calls.Add(1)
	time.Sleep(r.del)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.held[service+" "+user]; !ok {
		return keyring.ErrNotFound
	}
	delete(r.held, service+" "+user)
	return r.fail
}

func (r *slowRing) put(name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[name] = text
}

func (r *slowRing) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

func ringStore(r *slowRing, ready error) *keychain {
	r.held = map[string]string{}
	return &keychain{
		getenv: func(string) string { return "" }, ring: r, turn: make(chan struct{}, 1),
		ready: func(context.Context, func(string) string) error { return ready },
	}
}

func testKey(t *testing.T) (handshake.PrivateKey, KeyRef) {
	t.Helper()
	key, err := handshake.KeyFromSeed(bytes.Repeat([]byte{5}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return key, KeyRef{Dir: "/nowhere", Public: key.Public()}
}

func troubleOf(err error) KeyTrouble {
	var trouble *KeyError
	if errors.As(err, &trouble) && trouble.Store == StoreKeychain {
		return trouble.Trouble
	}
	return ""
}

func TestKeychainKeepsAKeyUnderItsPublicHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRing{}
		k := ringStore(r, nil)
		key, ref := testKey(t)
		if _, err := k.Load(t.Context(), ref); troubleOf(err) != KeyMissing {
			t.Errorf("before: %v", err)
		}
		if err := k.Save(t.Context(), ref, key); err != nil {
			t.Fatal(err)
		}
		if text := r.held["sema-device "+ref.Public.String()]; len(text) != 44 {
			t.Errorf("held %d characters", len(text))
		}
		if got, err := k.Load(t.Context(), ref); err != nil || got.Public() != ref.Public {
			t.Error(err)
		}
		for range 2 {
			if err := k.Delete(t.Context(), ref); err != nil {
				t.Error(err)
			}
		}
		if r.size() != 0 {
			t.Error("still there")
		}
		for text, want := range map[string]KeyTrouble{
			"":         KeyDamaged,
			"a secret": KeyDamaged,
			"CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=": KeyMismatch,
		} {
			r.put("sema-device "+ref.Public.String(), text)
			if _, err := k.Load(t.Context(), ref); troubleOf(err) != want {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

func TestAKeychainThatHangsIsAMessageInThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ages = time.Hour
		key, ref := testKey(t)
		for name, call := range map[string]func(*keychain) error{
			"save":   func(k *keychain) error { return k.Save(t.Context(), ref, key) },
			"load":   func(k *keychain) error { _, err := k.Load(t.Context(), ref); return err },
			"delete": func(k *keychain) error { return k.Delete(t.Context(), ref) },
		} {
			r := &slowRing{set: ages, get: ages, del: ages}
			k := ringStore(r, nil)
			for n := range 3 { // the later ones behind the first
				began := time.Now()
				if err := call(k); troubleOf(err) != KeychainSilent || time.Since(began) != 3*time.Second {
					t.Errorf("%s %d: %v after %s", name, n, err, time.Since(began))
				}
			}
			if n := r.calls.Load(); n != 1 {
				t.Errorf("%s: %d calls are left hanging", name, n)
			}
		}
		time.Sleep(2 * ages)
	})
}

func TestAKeyThatIsStoredTooLateIsTakenOutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRing{set: 4 * time.Second}
		k := ringStore(r, nil)
		key, ref := testKey(t)
		if err := k.Save(t.Context(), ref, key); troubleOf(err) != KeychainSilent {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if r.size() != 0 {
			t.Error("the key is in the keychain, and nobody knows")
		}
		r.set = 0
		if err := k.Save(t.Context(), ref, key); err != nil || r.size() != 1 {
			t.Errorf("later: %v", err)
		}
	})
}

func TestTheLibraryIsNotAskedWhileTheKeychainIsNotReady(t *testing.T) {
	for _, want := range []KeyTrouble{KeychainNoBus, KeychainAbsent, KeychainLocked, KeychainHeadless, KeychainSilent, KeychainRefused} {
		r := &slowRing{}
		k := ringStore(r, &KeyError{Store: StoreKeychain, Trouble: want})
		key, ref := testKey(t)
		_, loadErr := k.Load(t.Context(), ref)
		for doing, err := range map[string]error{"store": k.Save(t.Context(), ref, key), "read": loadErr, "delete": k.Delete(t.Context(), ref)} {
			var trouble *KeyError
			if !errors.As(err, &trouble) || trouble.Trouble != want || trouble.Doing != doing || ExitCode(err) != 9 || Advice(err) == "" {
				t.Errorf("%s %s: %v", want, doing, err)
			}
		}
		if r.calls.Load() != 0 {
			t.Error("the library was asked")
		}
	}
}

func TestACallerOfTheKeychainWhoLeavesIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRing{get: time.Minute}
		k := ringStore(r, nil)
		_, ref := testKey(t)
		stop := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		if _, err := k.Load(ctx, ref); !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestErrorsOfTheLibraryAreNamedAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("the keyring is on fire")
		r := &slowRing{fail: boom}
		key, ref := testKey(t)
		if err := ringStore(r, nil).Save(t.Context(), ref, key); troubleOf(err) != KeychainRefused || !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAutoTakesTheFileWithinThreeSecondsOfAHangingKeychain(t *testing.T) {
	for name, r := range map[string]*slowRing{
		"when storing":      {set: time.Hour},
		"when reading back": {get: time.Hour},
		"a bit of each":     {set: 2 * time.Second, get: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key, ref := testKey(t)
				file := &memory{}
				var announced []string
				began := time.Now()
				got, why, err := Stores{File: file, Keychain: ringStore(r, nil)}.place(t.Context(), StoreAuto, ref, key, func(name string) error {
					announced = append(announced, name)
					return nil
				})
				took := time.Since(began)
				if err != nil || got != StoreFile || file.key.IsZero() || why == "" {
					t.Errorf("%q, %q, %v", got, why, err)
				}
				if took > 6*time.Second { // the deadline, and that of taking out what is there
					t.Errorf("took %s", took)
				}
				if len(announced) != 2 || announced[0] != StoreKeychain || announced[1] != StoreFile {
					t.Errorf("announced %v", announced)
				}
				time.Sleep(3 * time.Hour)
				if r.set == time.Hour && r.size() != 0 {
					t.Error("a second copy of the key stays in the keychain")
				}
			})
		})
	}
}

func TestAutoTakesAKeychainThatWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, file := &slowRing{set: time.Second, get: time.Second}, &memory{}
		key, ref := testKey(t)
		got, why, err := Stores{File: file, Keychain: ringStore(r, nil)}.place(t.Context(), StoreAuto, ref, key, func(string) error { return nil })
		if err != nil || got != StoreKeychain || r.size() != 1 || !file.key.IsZero() || why == "" {
			t.Errorf("%q, %q, %v", got, why, err)
		}
	})
}

// memory is a store of one key, with a fault at will.
type memory struct {
	mu                  sync.Mutex
	name                string
	key                 handshake.PrivateKey
	noSave, noLoad, noD bool
}

func (m *memory) fault(doing string) error {
	return &KeyError{Store: m.Name(), Doing: doing, Trouble: KeyIO, Path: "/m"}
}

func (m *memory) Name() string {
	if m.name == "" {
		return StoreFile
	}
	return m.name
}

func (m *memory) Save(_ context.Context, _ KeyRef, key handshake.PrivateKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noSave {
		return m.fault("store")
	}
	m.key = key
	return nil
}

func (m *memory) Load(_ context.Context, ref KeyRef) (handshake.PrivateKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.noLoad:
		return handshake.PrivateKey{}, m.fault("read")
	case m.key.IsZero():
		return handshake.PrivateKey{}, &KeyError{Store: m.Name(), Trouble: KeyMissing}
	case m.key.Public() != ref.Public:
		return handshake.PrivateKey{}, &KeyError{Store: m.Name(), Trouble: KeyMismatch}
	}
	return m.key, nil
}

func (m *memory) Delete(context.Context, KeyRef) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noD {
		return m.fault("delete")
	}
	m.key = handshake.PrivateKey{}
	return nil
}

// mover is a home with one device whose key is in the file store.
func mover(t *testing.T) (*Home, *Record, *memory, *memory) {
	t.Helper()
	home, err := HomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ParseServer("https://sema.example", false)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := testKey(t)
	r := &Record{Server: server, WorkspaceRoot: "/w", PublicKey: key.Public(), KeyStore: StoreFile, EnrolledAt: time.Unix(1e9, 0)}
	if err := home.begin(r); err != nil {
		t.Fatal(err)
	}
	if err := home.complete(t.Context(), r, "dev_1"); err != nil {
		t.Fatal(err)
	}
	return home, r, &memory{key: key}, &memory{name: StoreKeychain}
}

func TestMovingAKeyLeavesItInOnePlaceThatTheRecordNames(t *testing.T) {
	home, r, file, chain := mover(t)
	stores := Stores{File: file, Keychain: chain}
	for _, to := range []string{StoreKeychain, StoreKeychain, StoreFile, StoreFile} {
		if _, err := MoveKey(t.Context(), home, r, stores, to); err != nil {
			t.Fatal(err)
		}
		now, err := home.Record(r.DeviceID)
		if err != nil || now.KeyStore != to || r.KeyStore != to {
			t.Errorf("record %+v, %v", now, err)
		}
		if file.key.IsZero() == (to == StoreFile) || chain.key.IsZero() == (to == StoreKeychain) {
			t.Errorf("after moving to the %s: file %v, keychain %v", to, !file.key.IsZero(), !chain.key.IsZero())
		}
	}
	if _, err := MoveKey(t.Context(), home, r, stores, "usb"); ExitCode(err) != 2 {
		t.Errorf("got %v", err)
	}
}

func TestAMoveSaysOfTheOtherStoreOnlyWhatIsKnown(t *testing.T) {
	home, r, file, chain := mover(t)
	stores := Stores{File: file, Keychain: chain}
	for _, c := range []struct {
		from, to     string
		silent, copy bool // the keychain does not answer; the other store has a copy
	}{
		{from: StoreFile, to: StoreFile},
		{from: StoreFile, to: StoreFile, copy: true},
		{from: StoreFile, to: StoreFile, silent: true},
		{from: StoreFile, to: StoreKeychain},
		{from: StoreKeychain, to: StoreKeychain},
		{from: StoreKeychain, to: StoreKeychain, copy: true},
		{from: StoreKeychain, to: StoreFile},
	} {
		chain.noD = c.silent
		if c.copy {
			both := file.key
			if both.IsZero() {
				both = chain.key
			}
			file.key, chain.key = both, both
		}
		done, err := MoveKey(t.Context(), home, r, stores, c.to)
		if err != nil || done.From != c.from || done.To != c.to || (done.Unsure != nil) != c.silent {
			t.Fatalf("%+v: %+v, %v", c, done, err)
		}
		if !c.silent && file.key.IsZero() == chain.key.IsZero() {
			t.Errorf("%+v: file %v, keychain %v", c, !file.key.IsZero(), !chain.key.IsZero())
		}
	}
}

func TestAMoveThatFailsLeavesTheKeyWhereTheRecordSays(t *testing.T) {
	cases := map[string]struct {
		spoil func(file, chain *memory)
		in    string // the store the record names afterwards
		both  bool   // the old copy is still there
	}{
		"the old store cannot be read": {func(file, _ *memory) { file.noLoad = true }, StoreFile, false},
		"the new store takes nothing":  {func(_, chain *memory) { chain.noSave = true }, StoreFile, false},
		"it cannot be read back":       {func(_, chain *memory) { chain.noLoad = true }, StoreFile, false},
		"the old copy cannot go":       {func(file, _ *memory) { file.noD = true }, StoreKeychain, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			home, r, file, chain := mover(t)
			c.spoil(file, chain)
			_, err := MoveKey(t.Context(), home, r, Stores{File: file, Keychain: chain}, StoreKeychain)
			if ExitCode(err) != 9 {
				t.Errorf("got %v", err)
			}
			now, readErr := home.Record(r.DeviceID)
			if readErr != nil || now.KeyStore != c.in {
				t.Fatalf("record %+v, %v", now, readErr)
			}
			if file.key.IsZero() || chain.key.IsZero() == c.both {
				t.Errorf("file %v, keychain %v", !file.key.IsZero(), !chain.key.IsZero())
			}
			if c.both { // the same command finishes it
				file.noD = false
				if _, err := MoveKey(t.Context(), home, r, Stores{File: file, Keychain: chain}, StoreKeychain); err != nil || !file.key.IsZero() {
					t.Errorf("again: %v", err)
				}
			}
		})
	}
}

func TestARevokedOrForeignKeyIsNotMoved(t *testing.T) {
	home, r, file, chain := mover(t)
	stores := Stores{File: file, Keychain: chain}
	other, err := handshake.KeyFromSeed(bytes.Repeat([]byte{6}, 32))
	if err != nil {
		t.Fatal(err)
	}
	mine := file.key
	file.key = other
	if _, err := MoveKey(t.Context(), home, r, stores, StoreKeychain); ExitCode(err) != 9 || !chain.key.IsZero() {
		t.Errorf("a key that is not the record's: %v", err)
	}
	file.key = mine
	if err := home.Revoke(t.Context(), r, stores, time.Unix(2e9, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := MoveKey(t.Context(), home, r, stores, StoreKeychain); ExitCode(err) != 5 {
		t.Errorf("got %v", err)
	}
}

func TestEveryTroubleWithAKeyHasItsOwnWordsAndRemedy(t *testing.T) {
	said := map[string]KeyTrouble{}
	for _, trouble := range KeyTroubles() {
		e := &KeyError{Store: StoreKeychain, Doing: "read", Trouble: trouble}
		if trouble == KeyExposed || trouble == KeyIO {
			e.Store, e.Path = StoreFile, "/home/o'neil/key"
		}
		text := e.Error()
		if before, ok := said[text]; ok {
			t.Errorf("%s and %s say the same: %s", before, trouble, text)
		}
		said[text] = trouble
		if e.Advice() == "" {
			t.Errorf("%s has no remedy", trouble)
		}
	}
	quoted := (&KeyError{Store: StoreFile, Trouble: KeyExposed, Path: "/home/o'neil/key"}).Advice()
	if want := `chmod go= '/home/o'\''neil/key'`; !bytes.Contains([]byte(quoted), []byte(want)) {
		t.Errorf("%s does not hold %s", quoted, want)
	}
}
