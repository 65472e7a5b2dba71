package wire

import (
	"fmt"
)

// Outcome is the terminal answer inside a result (§3.3): one of ExecOutcome,
// ReadOutcome, StatOutcome, WriteOutcome, VoidOutcome, CancelledOutcome and
// Failure, all by value.
type Outcome interface {
	outcome()
}

// OutcomeKind is the `kind` member of a successful or cancelled outcome.
type OutcomeKind string

// The outcome kinds.
const (
	OutcomeExec      OutcomeKind = "exec"
	OutcomeRead      OutcomeKind = "read"
	OutcomeStat      OutcomeKind = "stat"
	OutcomeWrite     OutcomeKind = "write"
	OutcomeVoid      OutcomeKind = "void"
	OutcomeCancelled OutcomeKind = "cancelled"
)

// ExecOutcome answers exec and execStream; ExitCode equals the exit chunk's.
type ExecOutcome struct {
	ExitCode  int64
	Truncated *Truncated // nil: member absent
}

// Truncated says which streams of a command were cut. This executor never cuts.
type Truncated struct {
	Stdout bool
	Stderr bool
}

// ReadOutcome answers the read family; the bytes went before it as data chunks.
type ReadOutcome struct{}

// StatOutcome answers the stat family. Only what was asked for is set.
type StatOutcome struct {
	Info          *FileInfo
	Entries       []FileInfo // nil: absent; empty but not nil: an empty folder
	ExistsValue   *bool
	CanonicalPath string      // "": absent
	LinkTarget    *LinkTarget // nil: absent
}

// LinkTarget is readLink's answer. IsLink false is the wire's null.
type LinkTarget struct {
	IsLink bool
	Target string
}

// WriteOutcome answers the write family and the two temporaries: the receipt
// of the object really written.
type WriteOutcome struct {
	CanonicalPath string
	Inode         string // "": absent
	Created       *bool  // nil: absent
}

// VoidOutcome answers appendFile, createDir and remove.
type VoidOutcome struct{}

// CancelledOutcome answers a cancel (§5.3).
type CancelledOutcome struct {
	State CancelState
}

// Failure is the `ok: false` arm. Message is shown to the model: it says what
// was tried, on what, and what the system answered.
type Failure struct {
	Code    ErrorCode
	Message string
}

func (ExecOutcome) outcome()      {}
func (ReadOutcome) outcome()      {}
func (StatOutcome) outcome()      {}
func (WriteOutcome) outcome()     {}
func (VoidOutcome) outcome()      {}
func (CancelledOutcome) outcome() {}
func (Failure) outcome()          {}

// Failf makes a Failure with a formatted message.
func Failf(code ErrorCode, format string, args ...any) Failure {
	return Failure{Code: code, Message: fmt.Sprintf(format, args...)}
}

// FileKind is what an object in the file system is.
type FileKind string

// The file kinds.
const (
	FileFile    FileKind = "file"
	FileDir     FileKind = "dir"
	FileSymlink FileKind = "symlink"
	FileOther   FileKind = "other"
)

func (k FileKind) known() bool {
	switch k {
	case FileFile, FileDir, FileSymlink, FileOther:
		return true
	}
	return false
}

// FileInfo is the protocol's WireFileInfo. Size is in bytes, MtimeMs in
// milliseconds since 1970, Mode the permission bits with set-id and sticky.
type FileInfo struct {
	Path    string
	Kind    FileKind
	Size    int64
	MtimeMs int64
	Mode    *int64 // nil: absent
}

// Fits reports whether an outcome of this shape answers an instruction of kind
// k (§3.1). Cancelled and failed outcomes fit every kind. An empty CanonicalPath
// is none.
func Fits(k Kind, o Outcome) bool {
	switch o.(type) {
	case CancelledOutcome, Failure:
		return true
	}
	switch k {
	case KindExec, KindExecStream:
		_, ok := o.(ExecOutcome)
		return ok
	case KindReadTextFile, KindReadTextLines, KindReadBinaryFile:
		_, ok := o.(ReadOutcome)
		return ok
	case KindWriteFile, KindWriteFileExclusive, KindWriteFileGuarded, KindCreateTempDir, KindCreateTempFile:
		w, ok := o.(WriteOutcome)
		return ok && w.CanonicalPath != ""
	case KindAppendFile, KindCreateDir, KindRemove:
		_, ok := o.(VoidOutcome)
		return ok
	case KindFileInfo, KindListDir, KindCanonicalPath, KindExists, KindReadLink, KindStatBatch:
		s, ok := o.(StatOutcome)
		if !ok {
			return false
		}
		switch k {
		case KindFileInfo:
			return s.Info != nil
		case KindListDir:
			return s.Entries != nil
		case KindCanonicalPath:
			return s.CanonicalPath != ""
		case KindExists:
			return s.ExistsValue != nil
		case KindReadLink:
			return s.LinkTarget != nil
		}
		return true
	}
	return false
}
