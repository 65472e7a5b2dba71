package enroll

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// CheckWorkspace returns the workspace root to enroll for a folder as a person
// names it: relative names are taken from the current folder, and links are
// resolved, because the server compares this root with the real paths that the
// device reports. It refuses, as a *UsageError, what is not a folder, not
// UTF-8, longer than the protocol takes, or so long in JSON that a hello would
// not fit. Zero platform and supports stand for the longest there are.
func CheckWorkspace(dir string, platform wire.Platform, supports []wire.Kind) (string, error) {
	root, err := workspaceRoot(dir)
	if err == nil {
		err = handshake.CheckFits(handshake.Identity{WorkspaceRoot: root, Platform: platform, Supports: supports})
	}
	if err != nil {
		return "", &UsageError{What: "workspace", Err: err}
	}
	return root, nil
}

func workspaceRoot(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", errors.New("the current folder is not there any more")
	}
	root, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	root = asOnDisk(root)
	info, err := os.Stat(root)
	if err != nil {
		return "", err
	}
	switch {
	case !info.IsDir():
		return "", fmt.Errorf("%q is not a folder", root)
	case !utf8.ValidString(root):
		return "", fmt.Errorf("%q is not valid UTF-8, which the protocol needs", root)
	case len(root) > maxWorkspaceBytes:
		return "", fmt.Errorf("%q has %d bytes; the server takes %d", root, len(root), maxWorkspaceBytes)
	}
	return root, nil
}

// asOnDisk spells a real path as the kernel does, which is how the device's real paths
// are told. A file system may take others for it: macOS's other capitals, and letters
// put together from other parts.
func asOnDisk(root string) string {
	dir, err := posix.OpenDir(posix.System{}, posix.CWD, root)
	if err != nil {
		return root
	}
	defer dir.Close()
	return dir.Path
}
