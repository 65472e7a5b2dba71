package enroll

import (
	"context"
	"errors"
	"fmt"

	"github.com/sema-agent/device-executor/internal/remedy"
)

// KeyState says what has become of the key of a revoked device.
type KeyState string

// The states. The empty one means that nobody has looked.
const (
	KeyGone    KeyState = "gone"    // it is not in its store
	KeyDeleted KeyState = "deleted" // it was, and has been deleted just now
	KeyLeft    KeyState = "left"    // it is still in its store
	KeyUnsure  KeyState = "unsure"  // its store cannot be asked
)

// Remains is what is left of a revoked device's key, which deserves to be said: a
// keychain that was out of reach when the revocation came keeps it.
type Remains struct {
	State KeyState
	Store string // StoreFile or StoreKeychain
	Err   error  // why it is left, or cannot be told; may be nil
}

// Left looks whether a device's key is still in its store, and changes nothing.
func (s Stores) Left(ctx context.Context, r *Record) Remains {
	store, err := s.ByName(r.KeyStore)
	if err == nil {
		_, err = store.Load(ctx, r.Key())
	}
	state := KeyUnsure
	var trouble *KeyError
	switch {
	case err == nil:
		state = KeyLeft
	case errors.As(err, &trouble):
		switch trouble.Trouble {
		case KeyMissing:
			state, err = KeyGone, nil
		case KeyExposed, KeyDamaged, KeyMismatch, KeyIO:
			state, err = KeyLeft, nil // something is there in its place
		}
	}
	return Remains{State: state, Store: r.KeyStore, Err: err}
}

// clear deletes what is left of a revoked device's key.
func (s Stores) clear(ctx context.Context, r *Record) Remains {
	left := s.Left(ctx, r)
	err := s.deleteAll(ctx, r)
	switch {
	case left.State == KeyUnsure:
	case err != nil:
		left.State, left.Err = KeyLeft, err
	case left.State == KeyLeft:
		left.State, left.Err = KeyDeleted, nil
	}
	return left
}

// String says it in a clause.
func (m Remains) String() string {
	where := "device's key file"
	if m.Store == StoreKeychain {
		where = "session's keychain"
	}
	why := ""
	var trouble *KeyError
	switch {
	case errors.As(m.Err, &trouble):
		why = ": " + trouble.Why()
		if trouble.Err != nil {
			why += fmt.Sprintf(" (%v)", trouble.Err)
		}
	case m.Err != nil:
		why = ": " + m.Err.Error()
	}
	switch m.State {
	case KeyGone:
		return "its key has been deleted"
	case KeyDeleted:
		return "its key was left, and has been deleted now"
	case KeyLeft:
		if why == "" {
			return "its key is still there, in the " + where
		}
		return "its key is still in the " + where + ", and could not be deleted" + why
	case KeyUnsure:
		return "it cannot be told whether its key is still in the " + where + why
	}
	return ""
}

// Advice is how to have the key gone, "" where nothing is left to do. named is how
// commands name the device.
func (m Remains) Advice(named string) string {
	switch m.State {
	case KeyLeft:
		return remedy.Step("Delete the key, and the record with it", remedy.For(named, "unenroll"))
	case KeyUnsure:
		return remedy.Step("Once that is mended, delete the key, and the record with it", remedy.For(named, "unenroll"))
	}
	return ""
}
