package posix

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/wire"
)

func TestEveryErrnoHasItsCode(t *testing.T) {
	want := map[unix.Errno]wire.ErrorCode{
		unix.ENOENT: wire.CodeNotFound, unix.EEXIST: wire.CodeAlreadyExists,
		unix.EISDIR: wire.CodeIsDirectory, unix.ENOTDIR: wire.CodeNotDirectory,
		unix.EACCES: wire.CodePermissionDenied, unix.EPERM: wire.CodePermissionDenied, unix.EROFS: wire.CodePermissionDenied,
		unix.EINVAL: wire.CodeInvalid, unix.ELOOP: wire.CodeInvalid, unix.ENAMETOOLONG: wire.CodeInvalid,
		unix.EILSEQ: wire.CodeInvalid, unix.ENXIO: wire.CodeInvalid, unix.ENODEV: wire.CodeInvalid, unix.ESPIPE: wire.CodeInvalid,
		unix.ENOSYS: wire.CodeNotSupported, unix.EOPNOTSUPP: wire.CodeNotSupported, unix.EXDEV: wire.CodeNotSupported,
	}
	unknown := []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.EBUSY, unix.EIO, unix.EFBIG,
		unix.ETXTBSY, unix.ENOTEMPTY, unix.ENOTCONN, unix.ESTALE, unix.EHOSTDOWN, unix.ETIMEDOUT, unix.EAGAIN, unix.ENOMEM, unix.ELOOP + 1000}
	if !slices.Equal(slices.Sorted(maps.Keys(codes)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("the table and this test name different errors")
	}
	for errno, code := range want {
		if got := CodeOf(errno); got != code {
			t.Errorf("%v ⇒ %s, want %s", errno, got, code)
		}
		if got := CodeOf(fmt.Errorf("wrapped: %w", &fs.PathError{Err: errno})); got != code {
			t.Errorf("%v in other errors ⇒ %s, want %s", errno, got, code)
		}
	}
	if got := CodeOf(unix.ENOTSUP); got != wire.CodeNotSupported {
		t.Errorf("ENOTSUP ⇒ %s, want not_supported", got)
	}
	for _, errno := range unknown {
		if got := CodeOf(errno); got != wire.CodeUnknown {
			t.Errorf("%v ⇒ %s, want unknown", errno, got)
		}
	}
}

func TestAMessageNamesOperationPathAndTheSystemsWords(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.ELOOP, unix.ENAMETOOLONG, unix.EMFILE, unix.EBUSY} {
		err := Wrap("write", "/a \"b\"", errno)
		for _, part := range []string{"write", `/a \"b\"`, errno.Error()} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
		if !errors.Is(err, errno) {
			t.Errorf("%v hides its cause", err)
		}
	}
	if Wrap("write", "/a", nil) != nil {
		t.Error("no error became one")
	}
	first := Refuse(wire.CodeIsDirectory, "write", "/a", "a folder")
	if got := Wrap("outer", "/b", first); got != first {
		t.Errorf("wrapped twice: %v", got)
	}
}
