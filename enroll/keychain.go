package enroll

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/zalando/go-keyring"

	"github.com/sema-agent/device-executor/handshake"
)

// keychainService is what the keychain's own programs show our keys under; the
// account is the public half.
const keychainService = "sema-device"

// NewKeychain returns the store that keeps keys in the keychain of the user's
// session: the Secret Service on Linux, the Keychain on macOS.
//
// The library behind it has no deadlines, asks for passwords on its own, and on
// Linux starts a message bus where there is none. So each call first makes sure,
// by calls that can be given up, that the keychain is there and unlocked; only
// then is the library asked, one call at a time. A call that hangs all the same
// is left behind: later ones then wait for their turn and fail at their own
// deadline, and a key that it stores when nobody waits for it any more is taken
// out again.
func NewKeychain(getenv func(string) string) KeyStore {
	return &keychain{getenv: getenv, ready: keychainReady, ring: systemRing{}, turn: make(chan struct{}, 1)}
}

// ring is the part of the keyring library that is used.
type ring interface {
	Set(service, user, password string) error
	Get(service, user string) (string, error)
	Delete(service, user string) error
}

type systemRing struct{}

func (systemRing) Set(service, user, password string) error {
	return keyring.Set(service, user, password)
}
func (systemRing) Get(service, user string) (string, error) { return keyring.Get(service, user) }
func (systemRing) Delete(service, user string) error        { return keyring.Delete(service, user) }

type keychain struct {
	getenv func(string) string
	// ready says in a *KeyError why the keychain cannot be used now. It ends
	// with its context.
	ready func(ctx context.Context, getenv func(string) string) error
	ring  ring
	turn  chan struct{} // holds one token; whoever talks to the library has it
}

func (*keychain) Name() string { return StoreKeychain }

func (k *keychain) Save(ctx context.Context, ref KeyRef, key handshake.PrivateKey) error {
	account := ref.Public.String()
	_, err := k.ask(ctx, ref, "store", func() (string, error) {
		return "", k.ring.Set(keychainService, account, string(encodeSeed(key)[:seedLen]))
	}, func() {
		_ = k.ring.Delete(keychainService, account) // nobody is left to tell
	})
	return err
}

func (k *keychain) Load(ctx context.Context, ref KeyRef) (handshake.PrivateKey, error) {
	text, err := k.ask(ctx, ref, "read", func() (string, error) {
		return k.ring.Get(keychainService, ref.Public.String())
	}, nil)
	if err != nil {
		return handshake.PrivateKey{}, err
	}
	key, kind := decodeSeed([]byte(text), ref)
	if kind != "" {
		return handshake.PrivateKey{}, &KeyError{DeviceID: ref.DeviceID, Store: StoreKeychain, Doing: "read", Trouble: kind}
	}
	return key, nil
}

func (k *keychain) Delete(ctx context.Context, ref KeyRef) error {
	_, err := k.ask(ctx, ref, "delete", func() (string, error) {
		err := k.ring.Delete(keychainService, ref.Public.String())
		if errors.Is(err, keyring.ErrNotFound) {
			err = nil
		}
		return "", err
	}, nil)
	return err
}

// ask runs one call of the library within the deadline. undo, if not nil, runs
// should the call succeed after ask has given up on it.
func (k *keychain) ask(ctx context.Context, ref KeyRef, doing string, do func() (string, error), undo func()) (string, error) {
	limited, cancel := context.WithTimeout(ctx, keyDeadline)
	defer cancel()
	late := func() error {
		if gaveUp(ctx) {
			return context.Cause(ctx)
		}
		return &KeyError{DeviceID: ref.DeviceID, Store: StoreKeychain, Doing: doing, Trouble: KeychainSilent}
	}
	select {
	case k.turn <- struct{}{}:
	case <-limited.Done():
		return "", late()
	}

	type result struct {
		text string
		err  error
	}
	var over atomic.Bool // set by the side that ends the call: this one or the goroutine
	done := make(chan result, 1)
	go func() {
		defer func() { <-k.turn }()
		err := k.ready(limited, k.getenv)
		text := ""
		if err == nil && limited.Err() == nil {
			text, err = do()
		}
		if over.CompareAndSwap(false, true) {
			done <- result{text, err}
		} else if err == nil && undo != nil {
			undo()
		}
	}()

	var r result
	select {
	case r = <-done:
	case <-limited.Done():
		if over.CompareAndSwap(false, true) {
			return "", late()
		}
		r = <-done
	}
	var trouble *KeyError
	switch {
	case r.err == nil:
		return r.text, nil
	case limited.Err() != nil:
		return "", late()
	case errors.As(r.err, &trouble):
		mine := *trouble
		mine.DeviceID, mine.Doing = ref.DeviceID, doing
		return "", &mine
	case errors.Is(r.err, keyring.ErrNotFound):
		return "", &KeyError{DeviceID: ref.DeviceID, Store: StoreKeychain, Doing: doing, Trouble: KeyMissing}
	}
	return "", &KeyError{DeviceID: ref.DeviceID, Store: StoreKeychain, Doing: doing, Trouble: keychainTrouble(r.err), Err: r.err}
}
