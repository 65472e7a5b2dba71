package files_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

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
