package enroll

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"

	"github.com/sema-agent/device-executor/handshake"
)

// paused is a store whose first reading gives others time, and tells them so.
type paused struct {
	*memory
	once sync.Once
	then func()
}

func (p *paused) Load(ctx context.Context, ref KeyRef) (handshake.PrivateKey, error) {
	key, err := p.memory.Load(ctx, ref)
	p.once.Do(p.then)
	return key, err
}

// Whoever changes where a key is while another move is at work: the move has read
// the key and the record, and is about to act on both.
func TestOneAtATimeMovesOrDeletesTheKeyOfADevice(t *testing.T) {
	for name, c := range map[string]struct {
		to      string // of the move that is interrupted, with the key in the file
		meant   func(home *Home, r *Record, stores Stores) error
		removed bool
		gone    bool
	}{
		"there already, and moved away": {StoreFile, func(home *Home, r *Record, stores Stores) error {
			_, err := MoveKey(context.Background(), home, r, stores, StoreKeychain)
			return err
		}, false, false},
		"moved to the same place": {StoreKeychain, func(home *Home, r *Record, stores Stores) error {
			_, err := MoveKey(context.Background(), home, r, stores, StoreKeychain)
			return err
		}, false, false},
		"moved there, and back": {StoreKeychain, func(home *Home, r *Record, stores Stores) error {
			_, err := MoveKey(context.Background(), home, r, stores, StoreFile)
			return err
		}, false, false},
		"unenrolled": {StoreKeychain, func(home *Home, r *Record, stores Stores) error {
			return home.Unenroll(context.Background(), r, stores)
		}, true, true},
		"revoked": {StoreKeychain, func(home *Home, r *Record, stores Stores) error {
			return home.Revoke(context.Background(), r, stores, time.Unix(2e9, 0))
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home, r, file, chain := mover(t)
				other, err := home.Record(r.DeviceID) // as another process has read it
				if err != nil {
					t.Fatal(err)
				}
				plain := Stores{File: file, Keychain: chain}
				done := make(chan error, 1)
				slow := Stores{Keychain: chain, File: &paused{memory: file, then: func() {
					go func() { done <- c.meant(home, other, plain) }()
					time.Sleep(2 * time.Second) // it is over by then, if nothing holds it up
				}}}
				if _, err := MoveKey(t.Context(), home, r, slow, c.to); err != nil && !c.gone {
					t.Error(err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				now, err := home.Record(r.DeviceID)
				if c.removed != noDevice(err) {
					t.Errorf("the record: %v", err)
				}
				if c.gone {
					if !file.key.IsZero() || !chain.key.IsZero() {
						t.Errorf("a key is left: in the file %v, in the keychain %v", !file.key.IsZero(), !chain.key.IsZero())
					}
					return
				}
				if file.key.IsZero() == (now.KeyStore == StoreFile) || chain.key.IsZero() == (now.KeyStore == StoreKeychain) {
					t.Errorf("the record names the %s; in the file %v, in the keychain %v", now.KeyStore, !file.key.IsZero(), !chain.key.IsZero())
				}
			})
		})
	}
}

func TestAKeyThatAnotherCommandIsAtWorkOnIsSaidToBeAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, r, file, chain := mover(t)
		stores := Stores{File: file, Keychain: chain}
		held := flock.New(filepath.Join(r.Dir(), keyLock))
		if err := held.Lock(); err != nil {
			t.Fatal(err)
		}
		for name, do := range map[string]func() error{
			"move":     func() error { _, err := MoveKey(t.Context(), home, r, stores, StoreKeychain); return err },
			"unenroll": func() error { return home.Unenroll(t.Context(), r, stores) },
			"forget":   func() error { return home.Forget(t.Context(), r) },
		} {
			began := time.Now()
			err := do()
			var trouble *KeyError
			if !errors.As(err, &trouble) || trouble.Trouble != KeyBusy || ExitCode(err) != 9 || Advice(err) == "" || time.Since(began) > keyTurn+time.Second {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
			if file.key.IsZero() || !chain.key.IsZero() {
				t.Errorf("%s took or gave a key", name)
			}
		}
		if err := held.Unlock(); err != nil {
			t.Fatal(err)
		}
		if _, err := MoveKey(t.Context(), home, r, stores, StoreKeychain); err != nil || chain.key.IsZero() {
			t.Error(err)
		}
	})
}

// Nothing but the record and the stores: no copy goes before the key was read,
// and found to be the device's, where the record says that it is.
func TestNoCopyOfAKeyGoesUnlessTheKeyWasReadWhereItIsToBe(t *testing.T) {
	for _, to := range []string{StoreFile, StoreKeychain} {
		home, r, file, chain := mover(t)
		copied := file.key
		other, err := handshake.KeyFromSeed([]byte(strings.Repeat("x", 32)))
		if err != nil {
			t.Fatal(err)
		}
		file.key, chain.key = copied, copied
		if to == StoreFile {
			file.key = other
		} else {
			chain.key = other
		}
		if err := home.Update(r, func(r *Record) { r.KeyStore = to }); err != nil {
			t.Fatal(err)
		}
		_, err = MoveKey(t.Context(), home, r, Stores{File: file, Keychain: chain}, to)
		if ExitCode(err) != 9 || file.key.IsZero() || chain.key.IsZero() {
			t.Errorf("to the %s: %v; in the file %v, in the keychain %v", to, err, !file.key.IsZero(), !chain.key.IsZero())
		}
	}
}

func TestAKeyIsFoundThoughItWasMovedSinceTheRecordWasRead(t *testing.T) {
	home, r, file, chain := mover(t)
	stores := Stores{File: file, Keychain: chain}
	before, err := home.Record(r.DeviceID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MoveKey(t.Context(), home, r, stores, StoreKeychain); err != nil {
		t.Fatal(err)
	}
	if key, err := stores.Load(t.Context(), before); err != nil || key.Public() != r.PublicKey {
		t.Errorf("got %v", err)
	}
}

func TestARefusedEnrollmentDoesNotTakeTheKeyOfOneThatSucceeded(t *testing.T) {
	home, err := HomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ParseServer("https://sema.example", false)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := testKey(t)
	begun := Record{Server: server, WorkspaceRoot: "/w", PublicKey: key.Public(), KeyStore: StoreKeychain, EnrolledAt: time.Unix(1e9, 0), tokenDigest: "d"}
	if err := home.begin(&begun); err != nil {
		t.Fatal(err)
	}
	if err := begun.save(); err != nil {
		t.Fatal(err)
	}
	first, second, third := begun, begun, begun // commands that took it up
	chain := &memory{name: StoreKeychain, key: key}
	stores := Stores{File: &memory{}, Keychain: chain}
	if err := home.complete(t.Context(), &first, "dev_1"); err != nil {
		t.Fatal(err)
	}
	if err := home.abandon(t.Context(), &second, stores); err != nil || chain.key.IsZero() {
		t.Errorf("%v; the key is left: %v", err, !chain.key.IsZero())
	}
	if err := home.complete(t.Context(), &third, "dev_1"); err != nil || third.Dir() != first.Dir() {
		t.Errorf("the same answer again: %v, %s", err, third.Dir())
	}
	if _, err := os.Stat(filepath.Join(first.Dir(), recordFile)); err != nil {
		t.Error(err)
	}
}

func TestWhatAnInterruptedMoveLeftGoesWithTheKey(t *testing.T) {
	for name, do := range map[string]func(home *Home, r *Record, stores Stores) error{
		"revoked": func(home *Home, r *Record, stores Stores) error {
			return home.Revoke(context.Background(), r, stores, time.Unix(2e9, 0))
		},
		"unenrolled": func(home *Home, r *Record, stores Stores) error {
			return home.Unenroll(context.Background(), r, stores)
		},
		"revoked while nothing could be deleted": func(home *Home, r *Record, stores Stores) error {
			if err := home.Update(r, func(r *Record) { r.RevokedAt = time.Unix(2e9, 0) }); err != nil {
				return err
			}
			_, err := stores.Load(context.Background(), r)
			var revoked *RevokedError
			if errors.As(err, &revoked) && revoked.Key.State == KeyDeleted {
				return nil
			}
			return err
		},
	} {
		for _, store := range []string{StoreFile, StoreKeychain} {
			home, r, file, chain := mover(t)
			chain.key = file.key
			if err := home.Update(r, func(r *Record) { r.KeyStore = store }); err != nil {
				t.Fatal(err)
			}
			if err := do(home, r, Stores{File: file, Keychain: chain}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !file.key.IsZero() || !chain.key.IsZero() {
				t.Errorf("%s, with the key in the %s: left in the file %v, in the keychain %v", name, store, !file.key.IsZero(), !chain.key.IsZero())
			}
		}
	}
}
