package files

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"

	"github.com/sema-agent/device-executor/internal/files/place"
	"github.com/sema-agent/device-executor/internal/files/posix"
)

// Error is a file operation that did not come about.
type Error = posix.Error

// Entry is what the next start needs to know of a write that a crash cut short.
type Entry = place.Entry

// Journal keeps entries.
type Journal = place.Journal

// Faces says which optional writes a workspace can do in one step.
type Faces = place.Faces

// Config is what a Layer is made of. The zero value serves the whole machine.
type Config struct {
	Roots   []string    // folders to stay in; none: no containment
	TempDir string      // "": the system's
	Journal Journal     // nil: a crash may leave temporary files behind
	Calls   posix.Calls // nil: the real ones
	Random  io.Reader   // nil: crypto/rand; for temporary names
}

// Layer does file operations. It is safe for concurrent use.
type Layer struct {
	calls  posix.Calls
	roots  []string // real paths; nil: everywhere
	temp   string   // real path
	random io.Reader
	placer *place.Placer
}

// New makes a Layer. It fails if a root is not a folder that can be opened. Without
// a temporary folder it is only the making of temporaries that fails.
func New(c Config) (*Layer, error) {
	l := &Layer{calls: c.Calls, random: c.Random, temp: c.TempDir}
	if l.calls == nil {
		l.calls = posix.System{}
	}
	if l.random == nil {
		l.random = rand.Reader
	}
	if l.temp == "" {
		l.temp = os.TempDir()
	}
	journal := c.Journal
	if journal == nil {
		journal = place.Forgetful{}
	}
	l.placer = place.New(l.calls, journal, l.random)
	if real, err := l.realFolder(l.temp); err == nil {
		l.temp = real
	}
	for _, root := range c.Roots {
		real, err := l.realFolder(root)
		if err != nil {
			return nil, fmt.Errorf("allowed root: %w", err)
		}
		l.roots = append(l.roots, real)
	}
	if l.roots != nil {
		l.roots = append(l.roots, l.temp)
	}
	return l, nil
}

func (l *Layer) realFolder(p string) (string, error) {
	dir, err := posix.OpenDir(l.calls, posix.CWD, p)
	if err != nil {
		return "", posix.Wrap("open", p, err)
	}
	defer dir.Close()
	return dir.Path, nil
}

// Probe finds out which optional writes can be done in the workspace. An error
// means that it cannot be written to at all.
func (l *Layer) Probe(ctx context.Context, workspace string) (Faces, error) {
	dir, err := posix.OpenDir(l.calls, posix.CWD, workspace)
	if err != nil {
		return Faces{}, posix.Wrap("open", workspace, err)
	}
	defer dir.Close()
	return l.placer.Probe(ctx, dir)
}

// Recover tidies up after one write that a crash cut short, and says in a few
// words what it did ("": there was nothing to do). Without an error the entry can
// be forgotten. It is not confined to the roots: what was begun there before they
// were set must be tidied up all the same.
func (l *Layer) Recover(ctx context.Context, e Entry) (did string, err error) {
	return l.placer.Recover(ctx, e)
}
