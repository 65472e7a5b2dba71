package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestAFolderThatTakesNoFileIsFound(t *testing.T) {
	closed := "/proc/self" // nobody can make a file there, not even root
	if runtime.GOOS == "darwin" {
		closed = "/System"
	}
	for dir, ok := range map[string]bool{t.TempDir(): true, closed: false, filepath.Join(t.TempDir(), "gone"): false} {
		err := keep(dir)
		if (err == nil) != ok {
			t.Errorf("%s: %v", dir, err)
		}
		if !ok {
			if f := unkept(dir, err); f.Level != Fail || !strings.Contains(f.What, dir) || f.Run != "ls -ld "+dir || f.Why == "" {
				t.Errorf("%+v", f)
			}
			continue
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	for err, mend := range map[syscall.Errno]string{syscall.ENOSPC: "Make room", syscall.EDQUOT: "Make room", syscall.EROFS: "writable again"} {
		f := unkept("/a b", &os.PathError{Op: "open", Path: "/a b/.doctor-1", Err: err})
		if !strings.Contains(f.Mend, mend) || f.Run != "df -h '/a b'" || f.What != "no file can be kept in /a b: "+err.Error() {
			t.Errorf("%+v", f)
		}
	}
}
