package enroll

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// keyLock is the name, in the device's folder, of the lock that whoever writes or
// deletes the device's key holds meanwhile. It is not the lock of the executor,
// which holds its own as long as it runs: a key can be moved beside it.
const keyLock = "key.lock"

const (
	// keyTurn is how long a command waits for another one's work on the key: above
	// the four calls of a key store that a move makes, each at its deadline.
	keyTurn  = 15 * time.Second
	keyPause = 20 * time.Millisecond // between two tries
)

// alone runs do while no other process writes or deletes the key of the device
// whose folder r names. What do goes by it must read again: another command may
// have moved the key until its turn came. Where one has removed the device, that
// is a *NoDeviceError. doing is what a *KeyError says was to be done.
func alone(ctx context.Context, r *Record, doing string, do func() error) error {
	path := filepath.Join(r.dir, keyLock)
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(fileMode))
	defer lock.Close() // gives it back; the file stays for the next one
	limited, cancel := context.WithTimeout(ctx, keyTurn)
	defer cancel()
	gone := &NoDeviceError{Home: filepath.Dir(filepath.Dir(r.dir)), DeviceID: r.DeviceID}
	_, err := lock.TryLockContext(limited, keyPause)
	switch {
	case err == nil && !isDir(r.dir):
		return gone // with the lock that was waited for
	case err == nil:
		return do()
	case gaveUp(ctx):
		return context.Cause(ctx)
	case limited.Err() != nil:
		return &KeyError{DeviceID: r.DeviceID, Store: r.KeyStore, Doing: doing, Trouble: KeyBusy}
	case errors.Is(err, fs.ErrNotExist) && !isDir(r.dir):
		return gone
	case noPlaceFor(path, err):
		return do()
	}
	return &KeyError{DeviceID: r.DeviceID, Store: StoreFile, Doing: doing, Trouble: KeyIO, Path: path, Err: withoutPath(err)}
}

// noPlaceFor reports that the lock is not there and cannot be made, on a disk that
// is full or cannot be written to: then nobody holds it, and nobody can take it. A
// key can be deleted there all the same.
func noPlaceFor(path string, err error) bool {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) && !errors.Is(err, syscall.EROFS) {
		return false
	}
	_, err = os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// renewed is the record as its file has it now.
func (r *Record) renewed() (*Record, error) {
	data, err := readRecord(filepath.Join(r.dir, recordFile))
	if err != nil {
		return nil, err
	}
	return decodeRecord(data, r.dir)
}

// orRenewed is the record as its file has it now, or as it was where that cannot
// be read.
func (r *Record) orRenewed() *Record {
	if now, err := r.renewed(); err == nil {
		return now
	}
	return r
}
