package files_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/files"
)

func init() {
	parts["interrupted"] = func() {
		if err := everyChange(os.Args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

// everyChange makes every change there is in a folder.
func everyChange(dir string) error {
	l, err := files.New(files.Config{TempDir: dir})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for _, s := range []step{create, replace, appendTo, guarded(files.Expect{CanonicalPath: dir + "/a/b/f"})} {
		d, err := l.Draft(dir + "/a/b/f")
		if err != nil {
			return err
		}
		_, err = d.Write([]byte("x"))
		if err == nil {
			_, err = s(ctx, d)
		}
		d.Discard()
		if err != nil {
			return err
		}
	}
	_, temporary := l.TempFile("x", "")
	_, folder := l.TempDir("x")
	_, listed := l.List(ctx, dir)
	return errors.Join(temporary, folder, listed, l.MakeDir(dir+"/made", false), l.Remove(ctx, dir+"/made", true), l.Remove(ctx, dir+"/a", true))
}

// A file system in user space tells of a signal that came in the middle of a call,
// and Go's own runtime sends signals.
func TestACallThatWasInterruptedIsMadeAgain(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		skip(t, "nobody to interrupt calls here: "+err.Error())
	}
	for _, call := range []string{"renameat", "renameat2", "linkat", "unlinkat", "mkdirat", "statx", "readlinkat", "openat", "fsync",
		"faccessat2", "fchmodat", "fchownat", "listxattr", "getxattr", "setxattr", "removexattr", "fstatfs"} {
		t.Run(call, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace="+call,
				"-e", "inject="+call+":error=EINTR:when=1+3", os.Args[0], folder(t))
			cmd.Env = append(os.Environ(), partVariable+"=interrupted", noLinger)
			out, err := cmd.Output()
			if err != nil && len(out) == 0 {
				t.Skipf("calls cannot be interrupted here: %v", err)
			}
			if len(out) > 0 {
				t.Errorf("%s", out)
			}
		})
	}
}
