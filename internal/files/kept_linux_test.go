package files_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
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

// smallDisk mounts a file system of 4 MiB in memory.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := folder(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		skip(t, "needs root to mount a file system: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAFullDiskLeavesTheOldBytes(t *testing.T) {
	for name, calls := range systems() {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			l, dir := newLayer(t, files.Config{Calls: calls, Journal: j}), smallDisk(t)
			old := strings.Repeat("o", 1<<20)
			write(t, dir+"/f", old, 0o644)
			for _, path := range []string{"/f", "/new", "/a/b/new"} {
				for face, s := range map[string]step{"replace": replace, "create": create, "append": appendTo, "guarded": guarded(files.Expect{CanonicalPath: dir + "/f"})} {
					_, err := put(l, dir+path, strings.Repeat("n", 8<<20), s)
					wantCode(t, err, wire.CodeUnknown)
					if err != nil && !strings.Contains(err.Error(), "no space left") {
						t.Errorf("%s: %v", face, err)
					}
				}
			}
			// The content fits, the copy for the append does not.
			write(t, dir+"/g", strings.Repeat("g", 1<<20), 0o644)
			_, err := put(l, dir+"/f", strings.Repeat("n", 1500<<10), appendTo)
			wantCode(t, err, wire.CodeUnknown)
			wantContent(t, dir+"/f", old)
			wantNames(t, dir, "f", "g")
			if n := j.open(); n != 0 {
				t.Errorf("%d entries left in the journal", n)
			}
		})
	}
}

func TestAShortAppendIsCutOff(t *testing.T) {
	for name, calls := range map[string]posix.Calls{"space is reserved": posix.System{}, "it cannot be": noReserve{}} {
		t.Run(name, func(t *testing.T) {
			l, dir := newLayer(t, files.Config{Calls: calls}), smallDisk(t)
			path := dir + "/log"
			held, err := os.Create(path)
			must(t, err)
			defer held.Close()
			old := strings.Repeat("o", 2<<20)
			_, err = held.WriteString(old)
			must(t, err)
			_, err = put(l, path, strings.Repeat("n", 1300<<10), appendTo)
			wantCode(t, err, wire.CodeUnknown)
			if err != nil && !strings.Contains(err.Error(), "no space left") {
				t.Error(err)
			}
			wantContent(t, path, old)
			wantNames(t, dir, "log")
		})
	}
}

type noReserve struct{ posix.System }

func (noReserve) Reserve(int, int64, int64) error { return unix.EOPNOTSUPP }

func TestAMountedPathCannotBeReplaced(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "below", 0o644)
	write(t, dir+"/g", "mounted", 0o644)
	if err := unix.Mount(dir+"/g", dir+"/f", "", unix.MS_BIND, ""); err != nil {
		skip(t, "needs root to mount a file: "+err.Error())
	}
	defer unix.Unmount(dir+"/f", unix.MNT_DETACH)
	for face, s := range faces(dir + "/f") {
		_, err := put(l, dir+"/f", "new", s)
		if err == nil || !strings.Contains(err.Error(), "mounted") {
			t.Errorf("%s: %v", face, err)
		}
	}
	wantContent(t, dir+"/f", "mounted")
	wantNames(t, dir, "f", "g")
}

func TestAFileJustWrittenCanBeRun(t *testing.T) {
	dir := folder(t)
	for name, calls := range map[string]posix.Calls{"nameless": posix.System{}, "named": without{nameless: true}} {
		l := newLayer(t, files.Config{Calls: calls})
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				path := fmt.Sprintf("%s/%d", dir, i)
				for round := range long(12, 200) {
					d, err := l.Draft(path)
					if err != nil {
						t.Error(err)
						return
					}
					fmt.Fprintf(d, "#!/bin/sh\nexit %d\n", round%100)
					_, err = d.Replace(t.Context())
					d.Discard()
					if err == nil && round == 0 {
						err = os.Chmod(path, 0o755)
					}
					if err != nil {
						t.Error(err)
						return
					}
					cmd := exec.Command(path)
					if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != round%100 {
						t.Errorf("%s: round %d: %v", name, round, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

func TestNoDescriptorIsLeftOpen(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	for name, calls := range systems() {
		l, dir := newLayer(t, files.Config{Calls: calls, Roots: []string{folder(t)}}), folder(t)
		inside := newLayer(t, files.Config{Calls: calls, Roots: []string{dir}})
		must(t, os.Symlink("f", dir+"/link"))
		must(t, os.Symlink("loop", dir+"/loop"))
		must(t, os.Mkdir(dir+"/folder", 0o755))
		everything := func() {
			for _, l := range []*files.Layer{l, inside} {
				for _, path := range []string{"/f", "/link", "/loop", "/folder", "/a/b/c", "/f/x", "/no/where"} {
					path = dir + path
					for _, s := range []step{replace, create, appendTo, guarded(files.Expect{CanonicalPath: path}), guarded(files.Expect{CanonicalPath: path, FileID: "1", NoFollow: true})} {
						_, _ = put(l, path, "x", s)
					}
					_, _ = readAll(l, path, -1)
					_, _ = l.Info(path)
					_, _ = l.Canonical(path)
					_, _ = l.Readlink(path)
					_, _ = l.List(t.Context(), path)
					_ = l.MakeDir(path+"/new", true)
					_ = l.Remove(t.Context(), path+"/new", true)
				}
				_, _ = l.Probe(t.Context(), dir)
				_, _ = l.TempFile("x", "y")
				_, _ = l.Recover(t.Context(), files.Entry{Target: dir + "/f", Temp: ".sema-" + strings.Repeat("0a", 16) + ".tmp"})
			}
		}
		everything()
		before := open()
		everything()
		if after := open(); after != before {
			t.Errorf("%s: %d descriptors became %d", name, before, after)
		}
	}
}

// A link of /proc leads to an object, not to what its text names.
func TestALinkOfProcIsNotTakenByItsText(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	held, err := os.Create(dir + "/gone")
	must(t, err)
	defer held.Close()
	must(t, os.Remove(dir+"/gone"))
	pipe, end, err := os.Pipe()
	must(t, err)
	defer pipe.Close()
	defer end.Close()
	there, err := os.Create(dir + "/there")
	must(t, err)
	defer there.Close()
	descriptor := func(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
	must(t, os.Symlink(descriptor(held), dir+"/link"))
	for name, s := range map[string]step{"replace": replace, "append": appendTo} {
		for _, path := range []string{descriptor(held), dir + "/link"} {
			if _, err := put(l, path, "new", s); err == nil {
				t.Errorf("%s wrote to %s", name, path)
			} else {
				wantCode(t, err, wire.CodeNotFound)
			}
		}
		_, err := put(l, descriptor(end), "new", s)
		wantCode(t, err, wire.CodeInvalid)
	}
	mustPut(t, l, descriptor(there), "new", replace)
	wantContent(t, dir+"/there", "new")
	wantNames(t, dir, "link", "there")
}

// A receipt names the object really written, so what cannot be named is not
// written.
func TestNothingIsWrittenWhereTheReceiptCouldNotSayWhere(t *testing.T) {
	dir := folder(t)
	must(t, os.Mkdir(dir+"/bad\xff", 0o755))
	must(t, os.Symlink("bad\xff", dir+"/link"))
	must(t, os.Symlink("bad\xfe", dir+"/dangling"))
	l := newLayer(t, files.Config{TempDir: dir + "/link"})
	for _, path := range []string{"/link/f", "/link/made/f", "/dangling"} {
		for name, s := range map[string]step{"replace": replace, "create": create} {
			if path == "/dangling" && name == "create" {
				continue
			}
			if _, err := put(l, dir+path, "new", s); err == nil {
				t.Errorf("%s of %s", name, path)
			} else if wantCode(t, err, wire.CodeUnknown); !strings.Contains(err.Error(), `\xf`) {
				t.Errorf("%s of %s: %v", name, path, err)
			}
		}
	}
	_, err := l.TempDir("x")
	wantCode(t, err, wire.CodeUnknown)
	_, err = l.TempFile("x", "")
	wantCode(t, err, wire.CodeUnknown)
	mustPut(t, l, dir+"/link/log", "an append says nothing of where", appendTo)
	wantNames(t, dir+"/link", "log")
	wantNames(t, dir, "bad\xff", "dangling", "link")
}

func TestARemovalThatFailsNamesWhatStays(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), publicFolder(t)
	must(t, os.MkdirAll(dir+"/a/b/c", 0o755))
	write(t, dir+"/a/b/c/kept", "x", 0o644)
	if os.Getuid() != 0 {
		skip(t, "needs root to make a folder of somebody else")
	}
	for _, d := range []string{dir, dir + "/a", dir + "/a/b"} {
		must(t, os.Chown(d, 65534, 65534))
	}
	asNobody(t, func() {
		err := l.Remove(context.Background(), dir+"/a", true)
		wantCode(t, err, wire.CodePermissionDenied)
		if err != nil && !strings.Contains(err.Error(), `"`+dir+`/a/b/c/kept"`) {
			t.Error(err)
		}
	})
	wantContent(t, dir+"/a/b/c/kept", "x")
}

func TestWhereOnlyTheKernelMakesFilesIsSaid(t *testing.T) {
	l := newLayer(t, files.Config{})
	for _, path := range []string{"/proc/self/comm", "/proc/self/new", "/proc/sys/new"} {
		for _, s := range []step{replace, appendTo} {
			_, err := put(l, path, "new", s)
			wantCode(t, err, wire.CodePermissionDenied)
		}
	}
}

// Flags of a file as the kernel has them.
const (
	immutable  = 0x10
	appendOnly = 0x20
)

// setFlags is chattr.
func setFlags(t *testing.T, path string, flags uint32) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	now, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(now&^(immutable|appendOnly)|flags))
	}
	if err != nil {
		skip(t, "needs root, and a file system with these flags: "+err.Error())
	}
}

func TestWhatMayOnlyGrowGrowsAndIsNeverReplaced(t *testing.T) {
	j := &journal{}
	l, dir := newLayer(t, files.Config{Journal: j}), folder(t)
	path := dir + "/log"
	write(t, path, "old", 0o644)
	for _, only := range []string{path, dir} {
		t.Cleanup(func() { setFlags(t, only, 0) })
		setFlags(t, only, appendOnly)
		for _, s := range []step{replace, guarded(files.Expect{CanonicalPath: path})} {
			_, err := put(l, path, "new", s)
			wantCode(t, err, wire.CodePermissionDenied)
		}
		mustPut(t, l, path, ", new", appendTo)
		setFlags(t, only, 0)
		wantNames(t, dir, "log")
		if n := j.open(); n != 0 {
			t.Errorf("%d entries left in the journal", n)
		}
	}
	wantContent(t, path, "old, new, new")
	setFlags(t, dir, appendOnly)
	if _, err := l.Probe(context.Background(), dir); err != nil {
		t.Error(err)
	}
	mustPut(t, l, dir+"/made", "new", create)
	mustPut(t, l, dir+"/made-too", "new", replace)
	setFlags(t, dir, 0)
	wantNames(t, dir, "log", "made", "made-too")
}

// A file system on a disk keeps what it could reserve of too much; one in memory
// does not.
func TestAnAppendThatDoesNotFitTakesNoSpace(t *testing.T) {
	dir := folder(t)
	image, mounted := dir+"/image", dir+"/mounted"
	write(t, image, "", 0o600)
	must(t, os.Truncate(image, 16<<20))
	must(t, os.Mkdir(mounted, 0o755))
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, mounted}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no file system of one's own here: %v: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(mounted, unix.MNT_DETACH)) })
	held, err := os.Create(mounted + "/log")
	must(t, err)
	defer held.Close()
	_, err = held.WriteString(strings.Repeat("o", 4<<20))
	must(t, err)
	must(t, held.Sync())
	blocks := func() int64 {
		var st unix.Stat_t
		must(t, unix.Fstat(int(held.Fd()), &st))
		return st.Blocks
	}
	before := blocks()
	l := newLayer(t, files.Config{})
	// Staged it fits, and once more it does not.
	_, err = put(l, mounted+"/log", strings.Repeat("n", 6<<20), appendTo)
	wantCode(t, err, wire.CodeUnknown)
	if after := blocks(); after != before {
		t.Errorf("the file takes %d blocks, and took %d before the append that failed: %v", after, before, err)
	}
}

// A file server has leases on the files of its clients, and lets go when asked.
func TestAFileUnderALeaseIsWaitedFor(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	path := dir + "/f"
	for name, do := range map[string]func() error{
		"read":   func() error { _, err := readAll(l, path, -1); return err },
		"append": func() error { _, err := put(l, path, ", new", appendTo); return err },
	} {
		write(t, path, "old", 0o644)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, unix.SIGIO)
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Skipf("no leases here: %v", err)
		}
		var server sync.WaitGroup
		server.Go(func() {
			<-asked
			_ = f.Close() // and the lease goes
		})
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		asked <- unix.SIGIO // had it not been asked
		server.Wait()
		signal.Stop(asked)
	}
	wantNames(t, dir, "f")
}
