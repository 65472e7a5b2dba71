package enroll

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// homeVariable names the folder where records live.
const homeVariable = "SEMA_HOME"

// Home is the folder of all records on this machine, SEMA_HOME. It and what is
// in it come into being when something is first stored.
type Home struct {
	dir string
}

// OpenHome takes the folder that SEMA_HOME names, relative to the current one
// if it is relative, or else the user's configuration folder + "/sema". The
// error is a *UsageError.
func OpenHome(getenv func(string) string) (*Home, error) {
	dir := getenv(homeVariable)
	if dir == "" {
		config, err := os.UserConfigDir()
		if err != nil {
			return nil, &UsageError{What: homeVariable, Err: fmt.Errorf("no folder to keep records in; set it to one: %w", err)}
		}
		dir = filepath.Join(config, "sema")
	}
	return HomeAt(dir)
}

// HomeAt takes a folder by name.
func HomeAt(dir string) (*Home, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, &UsageError{What: homeVariable, Err: err}
	}
	return &Home{dir: abs}, nil
}

// Dir returns the folder, absolute.
func (h *Home) Dir() string { return h.dir }

// DeviceDir returns the folder of one device, whether it is there or not.
func (h *Home) DeviceDir(deviceID string) string { return filepath.Join(h.dir, "devices", deviceID) }

func (h *Home) devices() string { return filepath.Join(h.dir, "devices") }

// Records returns the devices enrolled here, by id, and beside them those
// whose record cannot be read. It finishes enrollments that had their device id
// when they were interrupted, and removals that were. The error means that the
// folder itself cannot be read; a folder that is not there holds no records.
func (h *Home) Records() (sound []*Record, broken []*BrokenRecordError, err error) {
	h.settle()
	entries, err := os.ReadDir(h.devices())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the records: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), removedHead) {
			_ = os.RemoveAll(filepath.Join(h.devices(), e.Name())) // not now: next time
		}
		if strings.HasPrefix(e.Name(), ".") || !isDir(filepath.Join(h.devices(), e.Name())) {
			continue
		}
		r, err := h.read(e.Name())
		var bad *BrokenRecordError
		switch {
		case errors.As(err, &bad):
			broken = append(broken, bad)
		case err == nil:
			sound = append(sound, r)
		}
	}
	return sound, broken, nil
}

// Record returns one device's record, or a *NoDeviceError or
// *BrokenRecordError.
func (h *Home) Record(deviceID string) (*Record, error) {
	h.settle()
	if !idForm.MatchString(deviceID) {
		return nil, &NoDeviceError{Home: h.dir, DeviceID: deviceID}
	}
	return h.read(deviceID)
}

func (h *Home) read(deviceID string) (*Record, error) {
	dir := h.DeviceDir(deviceID)
	path := filepath.Join(dir, recordFile)
	data, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) && !isDir(dir) {
		return nil, &NoDeviceError{Home: h.dir, DeviceID: deviceID}
	}
	if err != nil {
		return nil, &BrokenRecordError{DeviceID: deviceID, Path: path, Err: withoutPath(err)}
	}
	r, err := decodeRecord(data, dir)
	if err == nil && r.DeviceID == "" {
		err = errors.New(`member "deviceId" is missing`)
	}
	if err == nil && r.DeviceID != deviceID {
		err = fmt.Errorf("it is the record of %q, not of its folder's device", r.DeviceID)
	}
	if err != nil {
		return nil, &BrokenRecordError{DeviceID: deviceID, Path: path, Err: err}
	}
	return r, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Choose returns the record that a command is about: the one named, or else the
// only one there is, revoked ones not counted unless there is no other. Errors:
// *NoDeviceError, *SeveralDevicesError, *BrokenRecordError.
func (h *Home) Choose(deviceID string) (*Record, error) {
	if deviceID != "" {
		return h.Record(deviceID)
	}
	sound, broken, err := h.Records()
	if err != nil {
		return nil, err
	}
	var live []*Record
	for _, r := range sound {
		if !r.Revoked() {
			live = append(live, r)
		}
	}
	switch {
	case len(live) == 1:
		return live[0], nil
	case len(live) > 1:
		return nil, &SeveralDevicesError{Records: live}
	case len(sound) == 1:
		return sound[0], nil
	case len(sound) > 1:
		return nil, &SeveralDevicesError{Records: sound}
	case len(broken) > 0:
		return nil, broken[0]
	}
	return nil, &NoDeviceError{Home: h.dir}
}

// Update changes a record in its file: change gets it as it is there now, which
// may be newer than r. r itself becomes what was written.
func (h *Home) Update(r *Record, change func(*Record)) error {
	return locked(r.dir, func() error {
		now, err := h.read(r.DeviceID)
		if err != nil {
			return err
		}
		change(now)
		_ = sweepBeside(filepath.Join(now.dir, recordFile)) // no secret: another Update may do it
		if err := now.save(); err != nil {
			return err
		}
		*r = *now
		return nil
	})
}

func (r *Record) save() error {
	data, err := r.encode()
	if err == nil {
		err = writeDurably(filepath.Join(r.dir, recordFile), data)
	}
	if err != nil {
		return fmt.Errorf("store the record in %s: %w", r.dir, err)
	}
	return nil
}

// Revoke records that the server has revoked the device and then deletes its
// key. Each is done even if the other cannot be: on a full disk nothing can be
// recorded, and the key can go. An error about the key is a *KeyError.
func (h *Home) Revoke(ctx context.Context, r *Record, stores Stores, now time.Time) error {
	recorded := h.Update(r, func(r *Record) { r.RevokedAt = now })
	deleted := alone(ctx, r, "delete", func() error {
		return stores.deleteAll(ctx, r.orRenewed())
	})
	if noDevice(deleted) {
		deleted = nil // unenrolled meanwhile, and its key with it
	}
	return errors.Join(recorded, deleted)
}

// Unenroll deletes a device's key and then its folder. The server is not told:
// revoking the device there is the account owner's to do. If the key cannot be
// deleted, the record stays, so that the command can be repeated.
func (h *Home) Unenroll(ctx context.Context, r *Record, stores Stores) error {
	err := alone(ctx, r, "delete", func() error {
		now, err := h.read(r.DeviceID)
		if err != nil {
			return err
		}
		if err := stores.deleteAll(ctx, now); err != nil {
			return err
		}
		return h.forget(now)
	})
	if noDevice(err) {
		return nil // another command did it
	}
	return err
}

func noDevice(err error) bool {
	var none *NoDeviceError
	return errors.As(err, &none)
}

// removedHead begins the name, beside the devices, of a device's folder that is
// being removed.
const removedHead = ".removed-"

// Forget removes a device's folder, and with it a key that is kept in a file. One
// in a keychain stays there: this is for a keychain that is gone for good. Other
// commands see the device until it is gone, and never a part of it.
func (h *Home) Forget(ctx context.Context, r *Record) error {
	err := alone(ctx, r, "delete", func() error { return h.forget(r) })
	if noDevice(err) {
		return nil // another command did it
	}
	return err
}

func (h *Home) forget(r *Record) error {
	aside := filepath.Join(h.devices(), removedHead+r.DeviceID)
	err := os.RemoveAll(aside) // what an interrupted removal left
	if err == nil {
		err = os.Rename(r.dir, aside)
	}
	if err == nil {
		err = os.RemoveAll(aside)
	}
	var refused *os.LinkError
	if errors.As(err, &refused) {
		err = &fs.PathError{Op: refused.Op, Path: r.dir, Err: refused.Err}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // else another command did it
		return fmt.Errorf("remove the record: %w", err)
	}
	return syncDir(h.devices())
}
