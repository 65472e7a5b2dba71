package enroll

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/handshake"
)

// unfinishedFor is how long an interrupted enrollment waits for the same token
// to come again. Tokens live for minutes; this is for slow people.
const unfinishedFor = 24 * time.Hour

func (h *Home) enrolling() string { return filepath.Join(h.dir, "enrolling") }

// pendingDir is the folder of an enrollment under way, named after its key.
func (h *Home) pendingDir(public handshake.PublicKey) string {
	sum := sha256.Sum256(public[:])
	return filepath.Join(h.enrolling(), hex.EncodeToString(sum[:8]))
}

// pending returns the records of the enrollments under way. Folders without a
// readable record are skipped: their record was not yet durable when the
// machine stopped, so no key was stored for it either.
func (h *Home) pending() []*Record {
	entries, err := os.ReadDir(h.enrolling())
	if err != nil {
		return nil // none, or the same trouble that reading the devices will report
	}
	var found []*Record
	for _, e := range entries {
		dir := filepath.Join(h.enrolling(), e.Name())
		data, err := readRecord(filepath.Join(dir, recordFile))
		if err != nil {
			continue
		}
		if r, err := decodeRecord(data, dir); err == nil {
			found = append(found, r)
		}
	}
	return found
}

// begun returns the enrollment that a token was used for, or nil.
func (h *Home) begun(server Server, token Token) *Record {
	for _, r := range h.pending() {
		if r.DeviceID == "" && r.Server == server && r.tokenDigest == token.digest() {
			return r
		}
	}
	return nil
}

// mayKeep reports what stands against making the folders of a new enrollment, as
// far as that can be told without making them.
func (h *Home) mayKeep() error {
	missing, dir := "", h.enrolling()
	for {
		info, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			missing, dir = dir, filepath.Dir(dir)
			continue
		}
		if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		if err == nil {
			err = unix.Access(dir, unix.W_OK|unix.X_OK)
		}
		var path *fs.PathError
		if err != nil && !errors.As(err, &path) {
			err = &fs.PathError{Op: "mkdir", Path: cmp.Or(missing, dir), Err: err}
		}
		if err != nil {
			return fmt.Errorf("make a folder for the records: %w", err)
		}
		return nil
	}
}

// begin makes the folder of a new enrollment. Its record is not stored yet.
func (h *Home) begin(r *Record) error {
	r.dir = h.pendingDir(r.PublicKey)
	for _, dir := range []string{h.devices(), r.dir} {
		if err := makeFolder(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{h.enrolling(), h.dir} { // make their names durable
		if err := syncDir(dir); err != nil {
			return fmt.Errorf("store the record: %w", err)
		}
	}
	_ = syncDir(filepath.Dir(h.dir)) // not ours; it may be closed to us
	return nil
}

// complete gives an enrollment its device id and its final place. A
// *TakenError means that another device has that place; nothing was changed.
func (h *Home) complete(ctx context.Context, r *Record, deviceID string) error {
	err := alone(ctx, r, "store", func() error { return h.finish(r, deviceID) })
	if there, readErr := h.read(deviceID); noDevice(err) && readErr == nil && there.PublicKey == r.PublicKey {
		r.DeviceID, r.tokenDigest, r.dir = deviceID, "", there.dir
		return nil // another command with the same token was faster
	}
	return err
}

func (h *Home) finish(r *Record, deviceID string) error {
	if h.taken(deviceID, r.PublicKey) {
		return &TakenError{DeviceID: deviceID, Server: r.Server}
	}
	r.DeviceID, r.tokenDigest = deviceID, ""
	if err := r.save(); err != nil {
		return err
	}
	return h.promote(r)
}

// taken reports whether a device other than the one with this key has an id.
func (h *Home) taken(deviceID string, key handshake.PublicKey) bool {
	if !isDir(h.DeviceDir(deviceID)) {
		return false
	}
	there, err := h.read(deviceID)
	return err != nil || there.PublicKey != key
}

// promote moves the folder of an enrollment that has its device id to its
// final place.
func (h *Home) promote(r *Record) error {
	to := h.DeviceDir(r.DeviceID)
	if err := os.Rename(r.dir, to); err != nil {
		// Another command may have looked at the records meanwhile and done it.
		if there, readErr := h.read(r.DeviceID); readErr != nil || there.PublicKey != r.PublicKey || isDir(r.dir) {
			return fmt.Errorf("store the record: %w", err)
		}
	}
	r.dir = to
	for _, dir := range []string{h.devices(), h.enrolling()} {
		if err := syncDir(dir); err != nil {
			return fmt.Errorf("store the record: %w", err)
		}
	}
	return nil
}

// settle finishes the enrollments that had their device id when they were
// interrupted. What cannot be moved now stays for the next time.
func (h *Home) settle() {
	for _, r := range h.pending() {
		if r.DeviceID != "" {
			_ = h.promote(r)
		}
	}
}

// abandon removes an enrollment that came to nothing, and its key. One that came
// to something meanwhile, for another command with the same token, stays.
func (h *Home) abandon(ctx context.Context, r *Record, stores Stores) error {
	err := alone(ctx, r, "delete", func() error {
		now, err := r.renewed()
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && now.DeviceID != r.DeviceID:
			return nil
		case err != nil:
			return err
		}
		if err := stores.deleteKey(ctx, now.KeyStore, now); err != nil {
			return err
		}
		return os.RemoveAll(r.dir)
	})
	if noDevice(err) {
		return nil
	}
	return err
}

// sweep removes the unfinished enrollments that nobody came back for, and those
// whose place is another device's.
func (h *Home) sweep(ctx context.Context, stores Stores, now time.Time) {
	h.sweepUnrecorded(now)
	for _, r := range h.pending() {
		vain := r.DeviceID == "" || h.taken(r.DeviceID, r.PublicKey)
		if vain && now.Sub(r.EnrolledAt) > unfinishedFor {
			_ = h.abandon(ctx, r, stores) // a keychain out of reach: next time
		}
	}
}

// sweepUnrecorded removes the folders of enrollments that were interrupted before
// they had a record, and so before they had a key.
func (h *Home) sweepUnrecorded(now time.Time) {
	entries, err := os.ReadDir(h.enrolling())
	if err != nil {
		return // as in pending
	}
	for _, e := range entries {
		dir := filepath.Join(h.enrolling(), e.Name())
		info, err := os.Stat(dir)
		if err != nil || now.Sub(info.ModTime()) <= unfinishedFor {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, recordFile)); errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(dir) // not now: next time
		}
	}
}
