package files_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

func TestRemoveNeverFollowsALink(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, os.MkdirAll(dir+"/outside/deep", 0o755))
	write(t, dir+"/outside/f", "x", 0o644)
	must(t, os.MkdirAll(dir+"/tree/a/b", 0o755))
	write(t, dir+"/tree/a/f", "x", 0o444)
	must(t, os.Symlink(dir+"/outside", dir+"/tree/a/link"))
	must(t, os.Symlink("nowhere", dir+"/tree/dangling"))
	must(t, os.Symlink("outside", dir+"/link"))
	must(t, l.Remove(context.Background(), dir+"/tree", true))
	must(t, l.Remove(context.Background(), dir+"/link", true))
	wantNames(t, dir, "outside")
	wantNames(t, dir+"/outside", "deep", "f")
	wantCode(t, l.Remove(context.Background(), "/", true), wire.CodeInvalid)
}

func TestRemoveWhileASubfolderIsSwappedForALink(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), quick(t)
	must(t, os.MkdirAll(dir+"/outside/sub", 0o755))
	for i := range 50 {
		write(t, fmt.Sprintf("%s/outside/%d", dir, i), "x", 0o644)
		write(t, fmt.Sprintf("%s/outside/sub/%d", dir, i), "x", 0o644)
	}
	must(t, os.Symlink(dir+"/outside", dir+"/swap"))
	stop := meanwhile(func() {
		// Whichever of the two is in the tree, the other takes its place.
		_ = os.Rename(dir+"/tree/sub", dir+"/aside")
		_ = os.Rename(dir+"/swap", dir+"/tree/sub")
		_ = os.Rename(dir+"/tree/sub", dir+"/swap")
		_ = os.Rename(dir+"/aside", dir+"/tree/sub")
		if _, err := os.Lstat(dir + "/swap"); err != nil {
			_ = os.Symlink(dir+"/outside", dir+"/swap")
		}
	})
	for range long(150, 2000) {
		_ = os.MkdirAll(dir+"/tree/sub/sub", 0o755)
		for i := range 5 {
			_ = os.WriteFile(fmt.Sprintf("%s/tree/sub/sub/mine-%d", dir, i), nil, 0o644)
		}
		// It may fail, for what comes and goes. It may not go outside.
		_ = l.Remove(context.Background(), dir+"/tree", true)
	}
	stop()
	for i := range 50 {
		wantContent(t, fmt.Sprintf("%s/outside/%d", dir, i), "x")
		wantContent(t, fmt.Sprintf("%s/outside/sub/%d", dir, i), "x")
	}
}

func TestRemoveStopsWhenItsContextEnds(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, os.MkdirAll(dir+"/tree/sub", 0o755))
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if err := l.Remove(ctx, dir+"/tree", true); err != why {
		t.Errorf("%v, want the context's cause", err)
	}
	wantNames(t, dir, "tree")
}

func TestRemoveOfALargeAndDeepTree(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), quick(t)
	deep := dir + "/tree"
	for range 200 {
		deep += "/d"
	}
	must(t, os.MkdirAll(deep, 0o755))
	for i := range 3000 {
		write(t, fmt.Sprintf("%s/tree/%d", dir, i), "", 0o644)
	}
	must(t, l.Remove(context.Background(), dir+"/tree", true))
	wantNames(t, dir)
}

// TestADeepTreeIsRemovedWithFewDescriptors: a tree may be deeper than this process
// may have files open, whose other work needs some too.
func TestADeepTreeIsRemovedWithFewDescriptors(t *testing.T) {
	dir := quick(t)
	depth := long(2000, 20_000)
	must(t, os.Mkdir(dir+"/tree", 0o755))
	at, err := unix.Open(dir+"/tree", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range depth { // deeper than a path may be long
		must(t, unix.Mkdirat(at, "folder", 0o755))
		must(t, unix.Mkdirat(at, "empty", 0o755))
		next, err := unix.Openat(at, "folder", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	counted := &counting{most: 1000}
	must(t, newLayer(t, files.Config{Calls: counted}).Remove(context.Background(), dir+"/tree", true))
	wantNames(t, dir)
}

// counting refuses descriptors above a number.
type counting struct {
	posix.System
	most int
}

func (c *counting) Open(dir int, name string, flags int, mode uint32) (int, error) {
	fd, err := c.System.Open(dir, name, flags, mode)
	if err == nil && fd > c.most {
		unix.Close(fd)
		return -1, unix.EMFILE
	}
	return fd, err
}

// TestARemovalThatIsMovedAwayDoesNotGoOnElsewhere: on the way up it finds another
// folder than the one it came from.
func TestARemovalThatIsMovedAwayDoesNotGoOnElsewhere(t *testing.T) {
	dir := quick(t)
	deep := dir + "/tree/a"
	for range 60 {
		deep += "/d"
	}
	must(t, os.MkdirAll(deep, 0o755))
	must(t, os.Mkdir(dir+"/other", 0o755))
	write(t, dir+"/other/precious", "x", 0o644)
	mover := &moving{from: dir + "/tree/a/d", to: dir + "/other/d"}
	err := newLayer(t, files.Config{Calls: mover}).Remove(context.Background(), dir+"/tree", true)
	if err == nil || !strings.Contains(err.Error(), "moved") {
		t.Errorf("%v", err)
	}
	wantContent(t, dir+"/other/precious", "x")
}

// moving moves a folder away when a removal is far below it.
type moving struct {
	posix.System
	from, to string
	opened   int
}

func (m *moving) Open(dir int, name string, flags int, mode uint32) (int, error) {
	if name == "d" {
		if m.opened++; m.opened == 55 {
			if err := os.Rename(m.from, m.to); err != nil {
				return -1, err
			}
		}
	}
	return m.System.Open(dir, name, flags, mode)
}
