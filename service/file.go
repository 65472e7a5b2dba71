package service

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sema-agent/device-executor/internal/regular"
)

// A service's file carries the digest of its own content, so that it can be
// told whether somebody edited it, whichever version of this program wrote it.
const (
	digestLabel = "content-sha256: "
	digestGap   = "0000000000000000000000000000000000000000000000000000000000000000"
)

// seal puts the digest into a text that has a gap for it.
func seal(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return bytes.Replace([]byte(text), []byte(digestLabel+digestGap), []byte(digestLabel+hex.EncodeToString(sum[:])), 1)
}

// condition is what is found in the place of a service's file.
type condition int

const (
	absent  condition = iota
	intact            // as Install wrote it
	edited            // written by Install and changed since
	foreign           // something else
)

// inspect tells what a file's bytes are.
func inspect(data []byte) condition {
	_, rest, found := bytes.Cut(data, []byte(digestLabel))
	if !found || len(rest) < len(digestGap) {
		return foreign
	}
	digest := rest[:len(digestGap)]
	if _, err := hex.Decode(make([]byte, sha256.Size), digest); err != nil {
		return foreign
	}
	open := bytes.Replace(data, digest, []byte(digestGap), 1)
	if !bytes.Equal(seal(string(open)), data) {
		return edited
	}
	return intact
}

// maxFileBytes is far above any file of a service.
const maxFileBytes = 1 << 20

// look reads a service's file and tells what it is.
func look(path string) ([]byte, condition, error) {
	data, err := regular.Read(path, maxFileBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, absent, nil
	case errors.Is(err, regular.ErrOther): // a mask, which is a link to /dev/null
		return nil, foreign, nil
	}
	if err != nil {
		return nil, absent, fmt.Errorf("read the service's file: %w", err)
	}
	return data, inspect(data), nil
}

// place puts data at path unless it is there already. What somebody else wrote
// or edited is only replaced with force.
func place(path string, data []byte, force bool) (Change, error) {
	present, what, err := look(path)
	switch {
	case err != nil:
		return "", err
	case bytes.Equal(present, data):
		return Unchanged, nil
	case !force && (what == edited || what == foreign):
		return "", &ForeignFileError{Path: path, Ours: what == edited, Doing: "install"}
	}
	if err := replace(path, data); err != nil {
		return "", fmt.Errorf("write the service's file: %w", err)
	}
	if what == absent {
		return Created, nil
	}
	return Replaced, nil
}

// replace writes a file whole: a manager that reads it meanwhile sees the old
// one or the new one. It is the user's alone, since it may name a proxy.
func replace(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the error in hand tells more
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// removable refuses to let a file go that is not as Install wrote it.
func removable(path, deviceID string, force bool) error {
	_, what, err := look(path)
	switch {
	case err != nil:
		return err
	case what == absent:
		return &NotInstalledError{DeviceID: deviceID, File: path, Removing: true}
	case what != intact && !force:
		return &ForeignFileError{Path: path, Ours: what == edited, Doing: "uninstall"}
	}
	return nil
}

// remove deletes a service's file, and the folders above it, up to but without
// stop, that are empty then.
func remove(path, stop string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the service's file: %w", err)
	}
	for dir := filepath.Dir(path); dir != stop && len(dir) > len(stop); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil { // not empty: others have files there
			break
		}
	}
	return nil
}
