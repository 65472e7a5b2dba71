package files_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// skip leaves a test out, unless this machine was set up to run them all.
func skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// faces are the three ways to replace a file, for tests of what is kept.
func faces(path string) map[string]step {
	return map[string]step{"replace": replace, "append": appendTo, "guarded": guarded(files.Expect{CanonicalPath: path})}
}

func TestAReplacedFileKeepsItsMode(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	path := dir + "/f"
	for _, mode := range []uint32{0o600, 0o640, 0o644, 0o755, 0o666, 0o777, 0o4755, 0o2755, 0o1644} {
		for name, s := range faces(path) {
			write(t, path, "old", 0o600)
			must(t, unix.Chmod(path, mode))
			mustPut(t, l, path, "new", s)
			st, err := posix.StatAt(posix.CWD, path)
			must(t, err)
			if st.Perm() != mode {
				t.Errorf("%s: %o became %o", name, mode, st.Perm())
			}
			must(t, os.Remove(path))
		}
	}
}

func TestANewFileFollowsTheUmask(t *testing.T) {
	dir := folder(t)
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	for name, calls := range systems() {
		l := newLayer(t, files.Config{Calls: calls})
		for face, s := range map[string]step{"replace": replace, "create": create, "append": appendTo, "guarded": guarded(files.Expect{CanonicalPath: dir + "/f"})} {
			if calls, ok := calls.(without); ok && face == "guarded" && calls.renameNew {
				continue
			}
			mustPut(t, l, dir+"/f", "new", s)
			if i, err := os.Stat(dir + "/f"); err != nil || i.Mode() != 0o640 {
				t.Errorf("%s, %s: %v, %v", name, face, i.Mode(), err)
			}
			must(t, os.Remove(dir+"/f"))
		}
	}
	l := newLayer(t, files.Config{})
	mustPut(t, l, dir+"/a/b", "new", replace)
	if i, err := os.Stat(dir + "/a"); err != nil || i.Mode() != os.ModeDir|0o750 {
		t.Errorf("a folder made on the way: %v, %v", i.Mode(), err)
	}
}

func TestASetGidFolderGivesItsGroup(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "needs root to have another group")
	}
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, os.Chown(dir, 0, 1234))
	must(t, os.Chmod(dir, 0o775|os.ModeSetgid))
	for name, s := range map[string]step{"f": replace, "g": create, "h": appendTo, "sub/f": replace} {
		mustPut(t, l, dir+"/"+name, "new", s)
		st, err := posix.StatAt(posix.CWD, dir+"/"+name)
		must(t, err)
		if st.GID != 1234 {
			t.Errorf("%s has group %d", name, st.GID)
		}
	}
	st, err := posix.StatAt(posix.CWD, dir+"/sub")
	must(t, err)
	if st.GID != 1234 || st.Perm()&unix.S_ISGID == 0 {
		t.Errorf("the folder made on the way: group %d, mode %o", st.GID, st.Perm())
	}
}

func TestRootKeepsTheOwner(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "needs root to give a file away")
	}
	l, dir := newLayer(t, files.Config{}), folder(t)
	path := dir + "/f"
	for name, s := range faces(path) {
		write(t, path, "old", 0o644)
		must(t, os.Chown(path, 1234, 5678))
		must(t, unix.Chmod(path, 0o6755))
		mustPut(t, l, path, "new", s)
		st, err := posix.StatAt(posix.CWD, path)
		must(t, err)
		if st.UID != 1234 || st.GID != 5678 || st.Perm() != 0o6755 {
			t.Errorf("%s: %d:%d, mode %o", name, st.UID, st.GID, st.Perm())
		}
		must(t, os.Remove(path))
	}
}

// asNobody does something as an ordinary user of the file system.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		skip(t, "needs root to become somebody else")
	}
	var other sync.WaitGroup
	other.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		if err := unix.Setfsgid(65534); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		do()
	})
	other.Wait()
}

// publicFolder is a folder that everybody can reach.
func publicFolder(t *testing.T) string {
	dir := folder(t)
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

func TestSetIDBitsGoWhenTheOwnerCannotBeKept(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "needs root to make a file of somebody else")
	}
	l, dir := newLayer(t, files.Config{}), publicFolder(t)
	path := dir + "/f"
	for name, s := range faces(path) {
		write(t, path, "old", 0o644)
		must(t, os.Chown(path, 1234, 5678))
		must(t, unix.Chmod(path, 0o6777))
		must(t, os.Chown(dir, 65534, 65534))
		asNobody(t, func() {
			if _, err := put(l, path, "new", s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		st, err := posix.StatAt(posix.CWD, path)
		must(t, err)
		if name == "append" && st.UID == 1234 {
			continue // written in place: nobody else may ask who has the file open
		}
		if st.UID != 65534 || st.Perm() != 0o777 {
			t.Errorf("%s: %d:%d, mode %o", name, st.UID, st.GID, st.Perm())
		}
	}
}

func TestAFileOfAnotherThatCannotBeWrittenIsNotReplaced(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), publicFolder(t)
	write(t, dir+"/f", "old", 0o644)
	must(t, os.Chmod(dir, 0o777))
	for name, s := range faces(dir + "/f") {
		asNobody(t, func() {
			_, err := put(l, dir+"/f", "new", s)
			if err == nil {
				t.Errorf("%s: replaced", name)
				return
			}
			wantCode(t, err, wire.CodePermissionDenied)
		})
	}
	must(t, os.Chmod(dir, 0o755))
	asNobody(t, func() {
		_, err := put(l, dir+"/new", "new", create)
		wantCode(t, err, wire.CodePermissionDenied)
		_, err = l.TempDir("x") // the layer's own temporary folder is root's
		wantCode(t, err, wire.CodePermissionDenied)
	})
	wantContent(t, dir+"/f", "old")
	wantNames(t, dir, "f")
}

// acl is a POSIX access control list with one named user, as the kernel takes it.
func acl(user uint32) []byte {
	var b bytes.Buffer
	put := func(v ...any) {
		for _, x := range v {
			_ = binary.Write(&b, binary.LittleEndian, x)
		}
	}
	const nobody = ^uint32(0)
	put(uint32(2))
	put(uint16(1), uint16(6), nobody) // owner rw
	put(uint16(2), uint16(4), user)   // the named user r
	put(uint16(4), uint16(4), nobody) // group r
	put(uint16(16), uint16(4), nobody)
	put(uint16(32), uint16(0), nobody)
	return b.Bytes()
}

func attribute(path, name string) string {
	b := make([]byte, 1024)
	n, err := unix.Getxattr(path, name, b)
	if err != nil {
		return err.Error()
	}
	return string(b[:n])
}

func TestAttributesAndAccessListsAreKept(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	path := dir + "/f"
	for name, s := range faces(path) {
		write(t, path, "old", 0o644)
		if err := unix.Setxattr(path, "user.note", []byte("kept"), 0); err != nil {
			skip(t, "no extended attributes here: "+err.Error())
		}
		must(t, unix.Setxattr(path, "user.empty", nil, 0))
		if err := unix.Setxattr(path, "system.posix_acl_access", acl(4321), 0); err != nil {
			skip(t, "no access control lists here: "+err.Error())
		}
		before := attribute(path, "system.posix_acl_access")
		mustPut(t, l, path, "new", s)
		if got := attribute(path, "user.note"); got != "kept" {
			t.Errorf("%s: the attribute: %s", name, got)
		}
		if got := attribute(path, "user.empty"); got != "" {
			t.Errorf("%s: the empty attribute: %s", name, got)
		}
		if got := attribute(path, "system.posix_acl_access"); got != before {
			t.Errorf("%s: the list became %q, was %q", name, got, before)
		}
		must(t, os.Remove(path))
	}
	// A list that the folder would give to new files is not given to a replaced one.
	write(t, path, "old", 0o644)
	must(t, unix.Setxattr(dir, "system.posix_acl_default", acl(4321), 0))
	mustPut(t, l, path, "new", replace)
	if got := attribute(path, "system.posix_acl_access"); got != unix.ENODATA.Error() {
		t.Errorf("a list came from the folder: %q", got)
	}
	mustPut(t, l, dir+"/g", "new", replace)
	if got := attribute(dir+"/g", "system.posix_acl_access"); got == unix.ENODATA.Error() {
		t.Error("a new file did not get the folder's list")
	}
}
