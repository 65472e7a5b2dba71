package files_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// exhausted is a system on which this process may open nothing more by a name, or
// with "*" by any.
type exhausted struct {
	posix.System
	name *string
}

func (e exhausted) Open(dir int, name string, flags int, mode uint32) (int, error) {
	if *e.name == "*" || name == *e.name {
		return -1, unix.EMFILE
	}
	return e.System.Open(dir, name, flags, mode)
}

func TestTooManyOpenFilesIsSaidAlsoWhereRootsAreSet(t *testing.T) {
	dir, name := folder(t), ""
	write(t, dir+"/f", "old", 0o644)
	l := newLayer(t, files.Config{Roots: []string{dir}, Calls: exhausted{name: &name}})
	name = "*"
	_, looked := l.Info(dir + "/f")
	_, read := readAll(l, dir+"/f", -1)
	_, written := put(l, dir+"/f", "new", replace)
	for what, err := range map[string]error{"look": looked, "read": read, "write": written} {
		wantCode(t, err, wire.CodeUnknown)
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAFolderThatWasMadeAndCannotBeOpenedIsTakenBack(t *testing.T) {
	dir, name := folder(t), "b"
	l := newLayer(t, files.Config{Calls: exhausted{name: &name}})
	_, err := put(l, dir+"/a/b/c/f", "new", replace)
	wantCode(t, err, wire.CodeUnknown)
	wantNames(t, dir)
	wantCode(t, l.MakeDir(dir+"/a/b/c", true), wire.CodeUnknown)
	wantNames(t, dir)
}
