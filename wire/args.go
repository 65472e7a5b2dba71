package wire

// Args is the typed form of an instruction's `args` (§3.1): ExecArgs,
// PathArgs, ReadLinesArgs, WriteArgs, DirArgs, TempArgs or StatBatchArgs.
type Args interface {
	args()
}

// ExecArgs belongs to exec and execStream.
type ExecArgs struct {
	Command string
}

// PathArgs belongs to the kinds that take a path and nothing else:
// readTextFile, readBinaryFile, fileInfo, listDir, canonicalPath, exists and
// readLink.
type PathArgs struct {
	Path string
}

// ReadLinesArgs belongs to readTextLines. Nil means the member was absent.
type ReadLinesArgs struct {
	Path   string
	Offset *int64 // lines to skip
	Limit  *int64 // most lines to send
}

// WriteArgs belongs to the kinds whose content arrives as payload. Expect is
// nil for all but writeFileGuarded, and there too when it was absent.
type WriteArgs struct {
	Path       string
	ContentLen int64  // bytes
	SHA256     string // lower-case hex
	Expect     *Expect
}

// Expect is what a guarded write demands of the object it replaces (§3.5).
type Expect struct {
	CanonicalPath string
	FileID        string // "": absent
	Exclusive     bool
	NoFollow      bool
}

// DirArgs belongs to createDir and remove. Recursive is nil when absent.
type DirArgs struct {
	Path      string
	Recursive *bool
}

// TempArgs belongs to createTempDir (Prefix only) and createTempFile.
type TempArgs struct {
	Prefix string
	Suffix string
}

// StatBatchArgs belongs to statBatch, which no server dispatches today (§8).
type StatBatchArgs struct {
	Paths []string
}

func (ExecArgs) args()      {}
func (PathArgs) args()      {}
func (ReadLinesArgs) args() {}
func (WriteArgs) args()     {}
func (DirArgs) args()       {}
func (TempArgs) args()      {}
func (StatBatchArgs) args() {}
