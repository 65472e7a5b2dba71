package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/remedy"
)

// folder tries to keep something in the device's own folder, as an executor does
// with its lock, its state and what it runs.
func folder(r *enroll.Record) []Finding {
	if err := keep(r.Dir()); err != nil {
		return []Finding{unkept(r.Dir(), err)}
	}
	if open := openTo(r.Dir()); open != nil {
		return []Finding{*open}
	}
	return []Finding{{Check: "folder", Level: OK, What: r.Dir()}}
}

// openTo finds the first of a device's folder and the two above it, of which the
// upper one is SEMA_HOME, that others can change; nil: none. Whoever can change a
// folder can put another in the place of what is in it, whatever its mode.
func openTo(dir string) *Finding {
	for range 3 {
		info, err := os.Stat(dir)
		if err != nil {
			return nil // what can be kept in the folder counts
		}
		if mode := info.Mode(); mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0 {
			return &Finding{
				Check: "folder", Level: Warn, What: fmt.Sprintf("%s is open to other users of this machine: its mode is %s", dir, mode.Perm()),
				Why: "They can put another key, record or lock in the place of this device's.",
				Run: "chmod 700 " + remedy.Quote(dir),
			}
		}
		dir = filepath.Dir(dir)
	}
	return nil
}

// keep writes a file of a block and takes it back.
func keep(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// unkept says what keeps a folder from taking a file.
func unkept(dir string, err error) Finding {
	f := Finding{
		Check: "folder", Level: Fail, What: fmt.Sprintf("no file can be kept in %s: %v", dir, plain(err)),
		Why:  "An executor notes there what it runs, and starts no command that it cannot note.",
		Mend: "Mend what the system names: the owner and the mode of this folder, or the disk.", Run: "ls -ld " + remedy.Quote(dir),
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		f.Mend, f.Run = "Make room there.", "df -h "+remedy.Quote(dir)
	case errors.Is(err, syscall.EROFS):
		f.Mend, f.Run = "Have that file system writable again.", "df -h "+remedy.Quote(dir)
	}
	return f
}
