package files_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

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

// That a folder is at the path says more than that its folder takes no files.
func TestAFolderAtThePathIsSaidAlsoWhereNothingCanBeWritten(t *testing.T) {
	l := newLayer(t, files.Config{})
	for _, path := range []string{"/sys/kernel", "/proc/self"} {
		for _, s := range []step{replace, appendTo} {
			_, err := put(l, path, "new", s)
			wantCode(t, err, wire.CodeIsDirectory)
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

// losing is a system without renameat2 whose folder lets go of no name any more once
// a file is to get its own.
type losing struct {
	without
	close func()
}

func (l losing) RenameNew(int, string, int, string) error {
	l.close()
	return unix.EINVAL
}

func TestAFileThatIsInPlaceIsNotCalledAFailure(t *testing.T) {
	j, dir := &journal{}, folder(t)
	t.Cleanup(func() { setFlags(t, dir, 0) })
	l := newLayer(t, files.Config{Journal: j, Calls: losing{without{nameless: true}, func() { setFlags(t, dir, appendOnly) }}})
	mustPut(t, l, dir+"/f", "new", create)
	setFlags(t, dir, 0)
	wantContent(t, dir+"/f", "new")
	left := slices.Collect(maps.Values(j.entries))
	if len(left) != 1 {
		t.Fatalf("%d entries in the journal, want that of the temporary name", len(left))
	}
	_, err := l.Recover(context.Background(), left[0])
	must(t, err)
	wantNames(t, dir, "f")
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
