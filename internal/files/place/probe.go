package place

import (
	"context"
	"strings"

	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// Faces says which of the two optional writes a folder's file system can do in one
// step (§3.2).
type Faces struct {
	Exclusive bool
	Guarded   bool
}

// Probe finds out by doing it: a file is created twice, then replaced once as
// expected and once not, and removed. An error means that the folder cannot be
// written to at all.
func (p *Placer) Probe(ctx context.Context, dir *posix.Dir) (Faces, error) {
	if st, err := posix.StatFd(dir.FD); err != nil || st.AppendOnly {
		return Faces{}, err // what is tried here would stay
	}
	name, err := p.tempName()
	if err != nil {
		return Faces{}, err
	}
	defer posix.Unlink(dir.FD, name)

	first, err := p.tryStage(dir, name, func(s *Stage) (Receipt, error) { return s.Create(ctx, dir, name) })
	if posix.CodeOf(err) == wire.CodeNotSupported {
		return Faces{}, nil
	}
	if err != nil {
		return Faces{}, err
	}
	_, err = p.tryStage(dir, name, func(s *Stage) (Receipt, error) { return s.Create(ctx, dir, name) })
	faces := Faces{Exclusive: posix.CodeOf(err) == wire.CodeAlreadyExists}

	// An identity that is a bare number comes back too soon to be trusted.
	if !strings.Contains(first.FileID, ".") {
		return faces, nil
	}
	again, err := posix.OpenDirNoLinks(p.calls, dir.Path)
	if err != nil {
		return faces, nil
	}
	defer again.Close()
	guarded := func(s *Stage) (Receipt, error) { return s.Guarded(ctx, again, name, Expect{FileID: first.FileID}) }
	if _, err := p.tryStage(dir, name, guarded); err != nil {
		return faces, nil
	}
	_, err = p.tryStage(dir, name, guarded)
	faces.Guarded = posix.CodeOf(err) == wire.CodePreconditionFailed
	return faces, nil
}

func (p *Placer) tryStage(dir *posix.Dir, name string, step func(*Stage) (Receipt, error)) (Receipt, error) {
	s, err := p.Stage(dir, dir.Join(name), false)
	if err != nil {
		return Receipt{}, err
	}
	defer s.Discard()
	return step(s)
}
