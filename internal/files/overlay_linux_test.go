package files_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
)

// overlay mounts what fill makes as the lower layer of an overlay, as the image of a
// container is.
func overlay(t *testing.T, fill func(lower string)) (merged string) {
	t.Helper()
	base := folder(t)
	mount := func(source, target, kind, options string) {
		if err := unix.Mount(source, target, kind, 0, options); err != nil {
			skip(t, "needs root to mount a file system: "+err.Error())
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	mount("tmpfs", base, "tmpfs", "size=16m") // an overlay may not lie on another
	for _, d := range []string{"/lower", "/upper", "/work", "/merged"} {
		must(t, os.Mkdir(base+d, 0o755))
	}
	fill(base + "/lower")
	mount("overlay", base+"/merged", "overlay", "lowerdir="+base+"/lower,upperdir="+base+"/upper,workdir="+base+"/work")
	return base + "/merged"
}

// The exchange itself copies the file up, and the copy has another time of birth.
func TestAFileOfALowerLayerIsReplacedAsExpected(t *testing.T) {
	dir := overlay(t, func(lower string) { write(t, lower+"/f", "old", 0o644) })
	l := newLayer(t, files.Config{})
	path := dir + "/f"
	expected := guarded(files.Expect{CanonicalPath: path, FileID: fmt.Sprint(inode(t, path))})
	mustPut(t, l, path, "new", expected)
	wantContent(t, path, "new")
	wantNames(t, dir, "f")
}

// A removal copies up the folders that it works in.
func TestADeepTreeOfALowerLayerIsRemoved(t *testing.T) {
	dir := overlay(t, func(lower string) {
		for path := lower + "/tree"; strings.Count(path, "/d") < 60; path += "/d" {
			must(t, os.Mkdir(path, 0o755))
			write(t, path+"/f", "x", 0o644)
		}
	})
	must(t, newLayer(t, files.Config{}).Remove(context.Background(), dir+"/tree", true))
	wantNames(t, dir)
}
