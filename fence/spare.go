package fence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// On a full disk there is no room for an entry, and without an entry nothing may
// start, not even the command that would free some. So a ledger keeps files ready
// that have their room already. An entry that finds no room of its own is written
// over one of them, which then takes the entry's name; once the entry is over, its
// file is the next spare.
//
// File systems that never write in place (btrfs, ZFS, APFS) may refuse that too.
const (
	spareFiles  = 16 // of which each lets one more thing begin
	spareBytes  = 4 << 10
	spareSuffix = ".spare"
)

// errNoSpare: every spare is in use, or there never was room for one.
var errNoSpare = errors.New("no file kept in reserve is left")

// noRoom reports whether err says that a disk, or somebody's share of it, is full.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// keepSpares finds the spares that are there and makes the others, as far as there
// is room.
func (l *Ledger) keepSpares() {
	for i := range spareFiles {
		name := fmt.Sprintf("%02d%s", i, spareSuffix)
		path := filepath.Join(l.dir, name)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || info.Size() != spareBytes {
			_ = os.Remove(path)
			if err = os.WriteFile(path, bytes.Repeat([]byte("\n"), spareBytes), 0o600); err != nil {
				_ = os.Remove(path)
			}
		}
		if err == nil {
			l.spares = append(l.spares, name)
		} else {
			l.vacant = append(l.vacant, name)
		}
	}
}

// fromSpare makes an entry of a spare. It has its name once it is whole.
func (l *Ledger) fromSpare(key Key, text []byte) error {
	if len(text) > spareBytes {
		return errNoSpare
	}
	if _, err := os.Lstat(l.path(key)); !errors.Is(err, fs.ErrNotExist) {
		return fs.ErrExist
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.spares) - 1; n >= 0; n-- {
		name := l.spares[n]
		path := filepath.Join(l.dir, name)
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		l.spares, l.vacant = l.spares[:n], append(l.vacant, name)
		if err != nil {
			continue // somebody has put another thing there
		}
		_, err = f.WriteAt(append(text, bytes.Repeat([]byte("\n"), spareBytes-len(text))...), 0)
		err = errors.Join(err, f.Truncate(spareBytes), f.Close())
		if err == nil {
			err = os.Rename(path, l.path(key))
		}
		if err != nil {
			l.spares, l.vacant = append(l.spares, name), l.vacant[:len(l.vacant)-1]
		}
		return err
	}
	return errNoSpare
}

// toSpare makes a spare of an entry's file, if one is missing.
func (l *Ledger) toSpare(key Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.vacant)
	if n == 0 || os.Rename(l.path(key), filepath.Join(l.dir, l.vacant[n-1])) != nil {
		return false
	}
	l.vacant, l.spares = l.vacant[:n-1], append(l.spares, l.vacant[n-1])
	return true
}
