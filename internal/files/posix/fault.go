package posix

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/wire"
)

// Error is a file operation that did not come about. Its text names the
// operation, the path and the system's words, and is fit to be an outcome's
// message.
type Error struct {
	Code wire.ErrorCode
	Op   string
	Path string
	Err  error // an errno, or words of ours
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Path, e.Err) }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Wrap turns an error of the system into an *Error. Nil stays nil, an *Error
// stays itself.
func Wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeOf(err), Op: op, Path: path, Err: err}
}

// Refuse makes an *Error in our own words.
func Refuse(code wire.ErrorCode, op, path, format string, args ...any) error {
	return &Error{Code: code, Op: op, Path: path, Err: fmt.Errorf(format, args...)}
}

// codes is the one table from the system's errors to the protocol's (§3.3). What
// is not in it is `unknown`, with the system's words to say what it is: a full or
// broken disk, too many open files, something in use.
var codes = map[unix.Errno]wire.ErrorCode{
	unix.ENOENT:       wire.CodeNotFound,
	unix.EEXIST:       wire.CodeAlreadyExists,
	unix.EISDIR:       wire.CodeIsDirectory,
	unix.ENOTDIR:      wire.CodeNotDirectory,
	unix.EACCES:       wire.CodePermissionDenied,
	unix.EPERM:        wire.CodePermissionDenied,
	unix.EROFS:        wire.CodePermissionDenied,
	unix.EINVAL:       wire.CodeInvalid,
	unix.ELOOP:        wire.CodeInvalid,
	unix.ENAMETOOLONG: wire.CodeInvalid,
	unix.EILSEQ:       wire.CodeInvalid,
	unix.ENXIO:        wire.CodeInvalid,
	unix.ENODEV:       wire.CodeInvalid,
	unix.ESPIPE:       wire.CodeInvalid,
	unix.ENOSYS:       wire.CodeNotSupported,
	unix.EOPNOTSUPP:   wire.CodeNotSupported,
	unix.EXDEV:        wire.CodeNotSupported,
}

// CodeOf is the protocol's code for an error that carries an errno; `unknown` for
// any other.
func CodeOf(err error) wire.ErrorCode {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		if errno == unix.ENOTSUP { // on Linux, EOPNOTSUPP by another name; on macOS, the usual one
			errno = unix.EOPNOTSUPP
		}
		if code, ok := codes[errno]; ok {
			return code
		}
	}
	return wire.CodeUnknown
}

// Missing reports whether a call says that the kernel or the file system does not
// have it.
func Missing(err error) bool {
	for _, e := range []error{unix.ENOSYS, unix.EOPNOTSUPP, unix.ENOTSUP, unix.EINVAL, unix.ENOTTY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
