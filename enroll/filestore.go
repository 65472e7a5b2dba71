package enroll

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/regular"
)

// keyFile is the key's name in the device's folder.
const keyFile = "key"

// seedLen is the length of a stored key: the base64 of its 32-byte seed.
const seedLen = 44

// NewFileStore returns the store that keeps each key in a file of its own in
// the device's folder: the seed in base64, 0600. A key file that is not its
// owner's alone is refused, not mended: who may have read it is not ours to
// say.
func NewFileStore() KeyStore { return fileStore{} }

type fileStore struct{}

func (fileStore) Name() string { return StoreFile }

// trouble makes the store's error; a context that ended is told as such.
func (fileStore) trouble(ctx context.Context, ref KeyRef, doing string, kind KeyTrouble, path string, err error) error {
	if gaveUp(ctx) {
		return context.Cause(ctx)
	}
	return &KeyError{DeviceID: ref.DeviceID, Store: StoreFile, Doing: doing, Trouble: kind, Path: path, Err: withoutPath(err)}
}

func (s fileStore) Save(ctx context.Context, ref KeyRef, key handshake.PrivateKey) error {
	path := filepath.Join(ref.Dir, keyFile)
	_, err := onTime(ctx, func() (struct{}, error) {
		return struct{}{}, writeDurably(path, encodeSeed(key))
	})
	if err != nil {
		return s.trouble(ctx, ref, "store", KeyIO, path, err)
	}
	return nil
}

func (s fileStore) Load(ctx context.Context, ref KeyRef) (handshake.PrivateKey, error) {
	path := filepath.Join(ref.Dir, keyFile)
	text, err := onTime(ctx, func() ([]byte, error) { return readPrivately(path) })
	var exposed *exposedError
	switch {
	case errors.As(err, &exposed):
		return handshake.PrivateKey{}, s.trouble(ctx, ref, "read", KeyExposed, exposed.path, exposed.err)
	case errors.Is(err, fs.ErrNotExist):
		return handshake.PrivateKey{}, s.trouble(ctx, ref, "read", KeyMissing, path, nil)
	case err != nil:
		return handshake.PrivateKey{}, s.trouble(ctx, ref, "read", KeyIO, path, err)
	}
	key, kind := decodeSeed(text, ref)
	if kind != "" {
		return handshake.PrivateKey{}, s.trouble(ctx, ref, "read", kind, path, nil)
	}
	return key, nil
}

func (s fileStore) Delete(ctx context.Context, ref KeyRef) error {
	path := filepath.Join(ref.Dir, keyFile)
	_, err := onTime(ctx, func() (struct{}, error) {
		// Copies of it that a killed Save left go first, and the key in any case.
		err := errors.Join(sweepBeside(path), unlessGone(os.Remove(path)))
		return struct{}{}, errors.Join(err, unlessGone(syncDir(ref.Dir)))
	})
	if err != nil {
		return s.trouble(ctx, ref, "delete", KeyIO, path, err)
	}
	return nil
}

// exposedError is a file or folder that others can get at.
type exposedError struct {
	path string
	err  error
}

func (e *exposedError) Error() string { return e.path + ": " + e.err.Error() }

// readPrivately reads a small file that only its owner can read, in a folder
// that only its owner can change.
func readPrivately(path string) ([]byte, error) {
	// A link planted in the file's place is not followed.
	f, err := regular.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := private(info, 0o077); err != nil {
		return nil, &exposedError{path: path, err: err}
	}
	dir := filepath.Dir(path)
	folder, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if err := private(folder, 0o022); err != nil {
		return nil, &exposedError{path: dir, err: err}
	}
	return io.ReadAll(io.LimitReader(f, 4096))
}

// private reports an object that belongs to another user, or has one of the
// given permission bits. The superuser may read for others.
func private(info fs.FileInfo, forbidden fs.FileMode) error {
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return errors.New("its mode is " + mode.String())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if me := os.Geteuid(); ok && me != 0 && int(stat.Uid) != me {
		return errors.New("it belongs to another user")
	}
	return nil
}

// encodeSeed is the text that both stores keep.
func encodeSeed(key handshake.PrivateKey) []byte {
	return append(base64.StdEncoding.AppendEncode(nil, key.ExportSeed()), '\n')
}

// decodeSeed reads that text and holds the key against the public half it was
// filed under.
func decodeSeed(text []byte, ref KeyRef) (handshake.PrivateKey, KeyTrouble) {
	text = bytes.TrimRight(text, "\r\n")
	seed, err := base64.StdEncoding.Strict().AppendDecode(nil, text)
	if err != nil || len(text) != seedLen {
		return handshake.PrivateKey{}, KeyDamaged
	}
	key, err := handshake.KeyFromSeed(seed)
	if err != nil {
		return handshake.PrivateKey{}, KeyDamaged
	}
	if key.Public() != ref.Public {
		return handshake.PrivateKey{}, KeyMismatch
	}
	return key, ""
}

// onTime runs do, which cannot be interrupted, and waits for it no longer than
// keyDeadline. What outlasts that is left to end by itself.
func onTime[T any](ctx context.Context, do func() (T, error)) (T, error) {
	if ctx.Err() != nil {
		var none T
		return none, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, keyDeadline)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, errLate
	}
}

// errLate is what onTime says of work that did not finish.
var errLate = errors.New("not done within " + keyDeadline.String())
