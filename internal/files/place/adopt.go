package place

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files/posix"
)

// adopt gives our object what the replaced one had. The owner comes before the
// mode, because a change of owner clears the set-id bits; those are not given to
// an owner or a group that did not have them.
func (s *Stage) adopt(old *posix.Object) error {
	mode := old.Perm()
	if err := keepOwner(s.own, old); err != nil {
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		mode &^= unix.S_ISUID | unix.S_ISGID
		// The group may still be one of ours.
		_ = posix.Chown(s.own.FD, -1, int(old.GID))
	}
	if err := posix.CopyAttributes(s.own.FD, old); err != nil {
		return err
	}
	return posix.Chmod(s.own.FD, mode)
}

func keepOwner(own, old *posix.Object) error {
	now, err := posix.StatFd(own.FD)
	if err != nil {
		return err
	}
	if now.UID == old.UID && now.GID == old.GID {
		return nil
	}
	return posix.Chown(own.FD, int(old.UID), int(old.GID))
}
