package enroll

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/remedy"
)

// The names of the key stores, and of the choice between them.
const (
	StoreFile     = "file"
	StoreKeychain = "keychain"
	StoreAuto     = "auto"
)

// keyDeadline bounds every call of a key store, whatever stands behind it.
const keyDeadline = 3 * time.Second

// KeyRef says where a private key is filed: the device's folder for the file
// store, the public half for the keychain. DeviceID, "" while there is none, is
// for messages.
type KeyRef struct {
	DeviceID string
	Dir      string
	Public   handshake.PublicKey
}

// KeyStore keeps private keys at rest. Every call ends within 3 s, or at the
// context's deadline if that is earlier, and every error of it is a *KeyError,
// or the cause for which the context was cancelled.
type KeyStore interface {
	// Name is StoreFile or StoreKeychain.
	Name() string
	// Save stores a key in place of any that is there.
	Save(ctx context.Context, ref KeyRef, key handshake.PrivateKey) error
	// Load returns the key, whose public half is ref's.
	Load(ctx context.Context, ref KeyRef) (handshake.PrivateKey, error)
	// Delete removes the key. That there is none is no error.
	Delete(ctx context.Context, ref KeyRef) error
}

// KeyTrouble says why a key store could not do its work.
type KeyTrouble string

// The troubles. Each has its own message and remedy.
const (
	KeyMissing       KeyTrouble = "missing"        // no key is stored
	KeyExposed       KeyTrouble = "exposed"        // others than the owner can read the key file
	KeyDamaged       KeyTrouble = "damaged"        // what is stored is not a key
	KeyMismatch      KeyTrouble = "mismatch"       // what is stored is another device's key
	KeyIO            KeyTrouble = "io"             // the file system refused
	KeyBusy          KeyTrouble = "busy"           // another command is at work on the key
	KeychainNoBus    KeyTrouble = "no_bus"         // no D-Bus session to reach a keychain over
	KeychainAbsent   KeyTrouble = "no_keychain"    // a session, but no keychain in it
	KeychainSilent   KeyTrouble = "not_answering"  // the keychain or the bus did not answer in time
	KeychainLocked   KeyTrouble = "locked"         // it waits for its owner to unlock it
	KeychainHeadless KeyTrouble = "headless"       // it needs to ask its owner, and there is no desktop to ask on
	KeychainRefused  KeyTrouble = "keychain_error" // it answered with another error
)

// KeyTroubles returns the closed set.
func KeyTroubles() []KeyTrouble {
	return []KeyTrouble{KeyMissing, KeyExposed, KeyDamaged, KeyMismatch, KeyIO, KeyBusy,
		KeychainNoBus, KeychainAbsent, KeychainSilent, KeychainLocked, KeychainHeadless, KeychainRefused}
}

// KeyError is a key store that could not do its work. It never quotes a key.
type KeyError struct {
	DeviceID string // whose key it is; "" while there is no device yet
	Store    string // StoreFile or StoreKeychain
	Doing    string // "read", "store", "delete", "move"
	Trouble  KeyTrouble
	Path     string // of the key file or folder at fault, if it is about one
	Err      error  // the cause in the system's words; may be nil
}

// Error implements error.
func (e *KeyError) Error() string {
	s := fmt.Sprintf("%s the private key: %s", e.Doing, e.Why())
	if e.Err != nil {
		s += fmt.Sprintf(" (%v)", e.Err)
	}
	return s
}

// Why says in a clause what is wrong.
func (e *KeyError) Why() string {
	switch e.Trouble {
	case KeyMissing:
		if e.Store == StoreFile {
			return "there is no key file at " + e.Path
		}
		return "the keychain holds no key for this device"
	case KeyExposed:
		return fmt.Sprintf("%s is open to other users of this machine", e.Path)
	case KeyDamaged:
		return fmt.Sprintf("what the %s holds is not a key", e.place())
	case KeyMismatch:
		return fmt.Sprintf("the key in the %s is not this device's: its public half is not the registered one", e.place())
	case KeyIO:
		return fmt.Sprintf("the key file %s cannot be used", e.Path)
	case KeyBusy:
		return fmt.Sprintf("another command is at work on it, and did not finish within %s", keyTurn)
	case KeychainNoBus:
		return "there is no D-Bus session here, so no keychain can be reached"
	case KeychainAbsent:
		return "there is no keychain in this session"
	case KeychainSilent:
		return fmt.Sprintf("the keychain did not answer within %s", keyDeadline)
	case KeychainLocked:
		return "the keychain is locked"
	case KeychainHeadless:
		return "the keychain must ask for its password, and there is no desktop to ask on"
	}
	return "the keychain failed"
}

func (e *KeyError) place() string {
	if e.Path != "" {
		return e.Store + " " + e.Path
	}
	return e.Store
}

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.Err }

// ExitCode implements the interface that ExitCode asks for.
func (*KeyError) ExitCode() int { return exitNoKey }

// Advice says what a person can do.
func (e *KeyError) Advice() string {
	orFile := "\nTo do without a keychain, enroll with --key-store file."
	switch {
	case e.DeviceID != "" && e.Doing == "read":
		orFile = "\n" + remedy.Step("To do without a keychain once it can be read", remedy.For(e.DeviceID, "key", "move", StoreFile))
	case e.DeviceID != "":
		orFile = ""
	}
	switch e.Trouble {
	case KeyMissing, KeyMismatch, KeyDamaged:
		return "Restore the key from where it went, or enroll again: a lost key cannot be made anew."
	case KeyExposed:
		return remedy.Step("If others may have read it, revoke the device at the server and enroll again. If not, take their rights away",
			"chmod go= "+remedy.Quote(e.Path))
	case KeyIO:
		return "Mend what the system names: the folder's owner and mode, or the disk."
	case KeyBusy:
		return "Let it finish, then repeat this command. A window that asks for the keychain's password may be what it waits for."
	case KeychainNoBus:
		return "Run this from a desktop session, or set DBUS_SESSION_BUS_ADDRESS to that of one." + orFile
	case KeychainAbsent:
		return "Have one with a default keyring in it: on Linux by gnome-keyring, KWallet or KeePassXC with its Secret Service, on macOS by Keychain Access." + orFile
	case KeychainSilent:
		return "Look for a password window waiting behind others, or start the keychain anew by signing in again." + orFile
	case KeychainLocked:
		return "Unlock it: sign in to the desktop with a password, or open its password manager (Passwords and Keys, Keychain Access)." + orFile
	case KeychainHeadless:
		return "Sign in to this machine's desktop once, or unlock the keychain from this login (`gnome-keyring-daemon --unlock`, `security unlock-keychain`)." + orFile
	}
	return "Look at the keychain with its own program." + orFile
}

// gaveUp reports whether the caller left, as opposed to time running out.
func gaveUp(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// Stores are the key stores of this machine.
type Stores struct {
	File     KeyStore
	Keychain KeyStore
}

// SystemStores returns the stores of this machine as the environment describes
// its session.
func SystemStores(getenv func(string) string) Stores {
	return Stores{File: NewFileStore(), Keychain: NewKeychain(getenv)}
}

// ByName returns the store that a record names.
func (s Stores) ByName(name string) (KeyStore, error) {
	switch name {
	case StoreFile:
		return s.File, nil
	case StoreKeychain:
		return s.Keychain, nil
	}
	return nil, &UsageError{What: "key store", Err: fmt.Errorf("%q is neither %s nor %s", name, StoreKeychain, StoreFile)}
}

// Load returns the private key of a device from the store its record names: a
// *RevokedError for a revoked one, otherwise as KeyStore.Load. What a crash or a
// locked keychain left of a revoked device's key is deleted by the way.
func (s Stores) Load(ctx context.Context, r *Record) (handshake.PrivateKey, error) {
	if r.Revoked() {
		revoked := &RevokedError{Record: r}
		err := alone(ctx, r, "delete", func() error {
			revoked.Key = s.clear(ctx, r.orRenewed())
			return nil
		})
		if err != nil {
			revoked.Key = Remains{State: KeyUnsure, Store: r.KeyStore, Err: err}
		}
		return handshake.PrivateKey{}, revoked
	}
	key, err := s.load(ctx, r)
	var trouble *KeyError
	if errors.As(err, &trouble) && trouble.Trouble == KeyMissing {
		// A command may have moved it since the record was read.
		if now := r.orRenewed(); now.KeyStore != r.KeyStore {
			return s.load(ctx, now)
		}
	}
	return key, err
}

// load is Load of a device that is not revoked.
func (s Stores) load(ctx context.Context, r *Record) (handshake.PrivateKey, error) {
	store, err := s.ByName(r.KeyStore)
	if err != nil {
		return handshake.PrivateKey{}, err
	}
	return store.Load(ctx, r.Key())
}

// place stores a new key where want says and reads it back. StoreAuto takes the
// keychain if that works within the deadline, and else the file; why then says
// what was chosen and for what reason. about is told the store's name before
// anything is put there.
func (s Stores) place(ctx context.Context, want string, ref KeyRef, key handshake.PrivateKey, about func(name string) error) (name, why string, err error) {
	put := func(store KeyStore) error {
		if err := about(store.Name()); err != nil {
			return err
		}
		return saveVerified(ctx, store, ref, key)
	}
	if want != StoreAuto {
		store, err := s.ByName(want)
		if err != nil {
			return "", "", err
		}
		return want, "as asked", put(store)
	}
	err = put(s.Keychain)
	if err == nil {
		return StoreKeychain, "the keychain of this session works", nil
	}
	var trouble *KeyError
	if !errors.As(err, &trouble) || gaveUp(ctx) {
		return "", "", err
	}
	return StoreFile, trouble.Why(), put(s.File)
}

// saveVerified stores a key and reads it back, both within one deadline. What
// cannot be read back is taken out again.
func saveVerified(ctx context.Context, store KeyStore, ref KeyRef, key handshake.PrivateKey) error {
	ctx, cancel := context.WithTimeout(ctx, keyDeadline)
	defer cancel()
	if err := store.Save(ctx, ref, key); err != nil {
		return err
	}
	_, err := store.Load(ctx, ref)
	if err == nil {
		return nil
	}
	if after := store.Delete(context.WithoutCancel(ctx), ref); after != nil {
		err = fmt.Errorf("%w; what was stored could not be taken out again: %w", err, after)
	}
	return fmt.Errorf("read back what was stored: %w", err)
}

// deleteKey removes a device's key from the named store.
func (s Stores) deleteKey(ctx context.Context, name string, r *Record) error {
	store, err := s.ByName(name)
	if err != nil {
		return err
	}
	return store.Delete(ctx, r.Key())
}

// deleteAll removes a device's key from the store that its record names, and the
// copy that an interrupted move may have left in the other one. A keychain that
// cannot be asked for such a copy is no failure: nothing says that it has one.
func (s Stores) deleteAll(ctx context.Context, r *Record) error {
	err := s.deleteKey(ctx, r.KeyStore, r)
	if r.KeyStore != StoreKeychain {
		_ = s.deleteKey(ctx, StoreKeychain, r)
		return err
	}
	if copied := s.deleteKey(ctx, StoreFile, r); err == nil {
		err = copied
	}
	return err
}

// Moved is what MoveKey did.
type Moved struct {
	From, To string // the same: it was there already
	// Unsure is why nobody can tell whether the other store has a copy, too, as an
	// interrupted move leaves one; nil: there is none.
	Unsure *KeyError
}

// MoveKey moves a device's private key to the store named to: it stores it
// there, reads it back (which checks its public half against the record's),
// writes the new place into the record, and only then removes it from the old
// one. Each step can be repeated: after an error or a crash the record names a
// store that holds the key, and moving again finishes the job. Of several moves of
// one device, in this process or another, each begins when the one before is over.
func MoveKey(ctx context.Context, home *Home, r *Record, stores Stores, to string) (*Moved, error) {
	target, err := stores.ByName(to)
	if err != nil {
		return nil, err
	}
	var done *Moved
	err = alone(ctx, r, "move", func() error {
		now, err := home.read(r.DeviceID)
		if err != nil {
			return err
		}
		*r = *now
		done, err = stores.move(ctx, home, r, target)
		return err
	})
	return done, err
}

// move is MoveKey when its turn has come.
func (s Stores) move(ctx context.Context, home *Home, r *Record, target KeyStore) (*Moved, error) {
	if r.Revoked() {
		return nil, &RevokedError{Record: r, Key: s.clear(ctx, r)}
	}
	done := &Moved{From: r.KeyStore, To: target.Name()}
	if done.From == done.To {
		return done, s.forgetElsewhere(ctx, r, done)
	}
	key, err := s.load(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := saveVerified(ctx, target, r.Key(), key); err != nil {
		return nil, fmt.Errorf("the key stays in the %s: %w", done.From, err)
	}
	if err := home.Update(r, func(r *Record) { r.KeyStore = done.To }); err != nil {
		return nil, err
	}
	if err := s.dropCopy(ctx, r, done.From); err != nil {
		return nil, fmt.Errorf("the key is in the %s now, but its old copy could not be removed (run the same command again later): %w", done.To, err)
	}
	return done, nil
}

// dropCopy removes the copy of a key that the named store has, once the key has
// been read, and found to be the device's, where the record says that it is.
func (s Stores) dropCopy(ctx context.Context, r *Record, name string) error {
	if name == r.KeyStore {
		return fmt.Errorf("the record names the %s for the key: it has no copy to lose", name)
	}
	if _, err := s.load(ctx, r); err != nil {
		return err
	}
	return s.deleteKey(ctx, name, r)
}

// forgetElsewhere removes what an interrupted move left in the other store. A
// keychain that cannot be reached is no failure, since nothing says that it holds
// a copy; but then nobody knows.
func (s Stores) forgetElsewhere(ctx context.Context, r *Record, done *Moved) error {
	if done.To == StoreKeychain {
		return s.dropCopy(ctx, r, StoreFile)
	}
	err := s.dropCopy(ctx, r, StoreKeychain)
	var trouble *KeyError
	if errors.As(err, &trouble) && trouble.Store == StoreKeychain {
		done.Unsure, err = trouble, nil
	}
	return err
}
