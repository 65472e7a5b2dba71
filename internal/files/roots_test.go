package files_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

func TestContainment(t *testing.T) {
	dir, temp := folder(t), folder(t)
	for _, d := range []string{"/in/sub", "/out/sub", "/in2"} {
		must(t, os.MkdirAll(dir+d, 0o755))
	}
	for _, f := range []string{"/in/f", "/in/sub/f", "/out/f", "/in2/f"} {
		write(t, dir+f, f, 0o644)
	}
	must(t, os.Symlink(dir+"/in", dir+"/root")) // a root may be named by a link
	must(t, os.Symlink(dir+"/in/sub", dir+"/in/inside"))
	must(t, os.Symlink("sub/../f", dir+"/in/dotted"))
	must(t, os.Symlink(dir+"/out", dir+"/in/escape"))
	must(t, os.Symlink("../out/f", dir+"/in/escapefile"))
	must(t, os.Symlink(dir+"/out/new", dir+"/in/escapenew"))
	must(t, os.Symlink("../out/new", dir+"/in/escapefolder"))
	must(t, os.Symlink("sub/new", dir+"/in/dangling"))
	must(t, os.Symlink(dir+"/in/sub", dir+"/out/back"))
	l := newLayer(t, files.Config{Roots: []string{dir + "/root"}, TempDir: temp})
	ctx := context.Background()

	for _, p := range []string{"/in/f", "/in/inside/f", "/in/dotted", "/out/back/f", "/root/f", "/in/sub/f"} {
		if _, err := readAll(l, dir+p, -1); err != nil {
			t.Errorf("%s stays inside: %v", p, err)
		}
		if _, err := l.Canonical(dir + p); err != nil {
			t.Errorf("%s stays inside: %v", p, err)
		}
		mustPut(t, l, dir+p, "new", replace)
		mustPut(t, l, dir+p, "er", appendTo)
		if b, err := os.ReadFile(dir + p); err != nil || string(b) != "newer" {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
	for _, p := range []string{"/out/f", "/in/escape/f", "/in/escapefile", "/in2/f", "/out/missing", "/nowhere/at/all", "/in/escape/missing", "/in/escapenew", "/in/escapefolder/f", "/in/escape/no/such"} {
		for name, s := range map[string]step{"replace": replace, "append": appendTo,
			"guarded": guarded(files.Expect{CanonicalPath: dir + "/out/f"})} {
			_, err := put(l, dir+p, "new", s)
			if err == nil {
				t.Errorf("%s of %s went outside", name, p)
				continue
			}
			if name == "guarded" && p == "/in/escapefolder/f" {
				wantCode(t, err, wire.CodePreconditionFailed) // it leads nowhere yet
				continue
			}
			wantCode(t, err, wire.CodePermissionDenied)
		}
		_, err := readAll(l, dir+p, -1)
		wantCode(t, err, wire.CodePermissionDenied)
		_, err = l.Canonical(dir + p)
		wantCode(t, err, wire.CodePermissionDenied)
	}
	for _, p := range []string{"/out/f", "/in/escape/f", "/in2", "/out/new", "/in/escape/new", "/nowhere/new"} {
		_, err := put(l, dir+p, "new", create)
		wantCode(t, err, wire.CodePermissionDenied)
		_, err = l.Info(dir + p)
		wantCode(t, err, wire.CodePermissionDenied)
		_, err = l.Exists(dir + p)
		wantCode(t, err, wire.CodePermissionDenied)
		_, err = l.Readlink(dir + p)
		wantCode(t, err, wire.CodePermissionDenied)
		wantCode(t, l.MakeDir(dir+p, true), wire.CodePermissionDenied)
		wantCode(t, l.MakeDir(dir+p, false), wire.CodePermissionDenied)
		wantCode(t, l.Remove(ctx, dir+p, true), wire.CodePermissionDenied)
		_, err = l.List(ctx, dir+p)
		wantCode(t, err, wire.CodePermissionDenied)
	}
	for _, p := range []string{"/in/dangling", "/in/dangling/f"} {
		_, err := readAll(l, dir+p, -1) // whether anything is outside, it does not say
		wantCode(t, err, wire.CodeNotFound)
	}
	if there, err := l.Exists(dir + "/in/missing"); there || err != nil {
		t.Errorf("%v, %v", there, err)
	}
	must(t, l.MakeDir(dir+"/in/a/b", true))
	mustPut(t, l, dir+"/in/c/d/e", "deep", create)
	must(t, l.Remove(ctx, dir+"/in/escape", true)) // the link, which is inside
	made, err := l.TempDir("x-")
	must(t, err)
	mustPut(t, l, made+"/f", "temporary", replace)
	wantContent(t, dir+"/out/f", "/out/f")
	wantNames(t, dir+"/out", "back", "f", "sub")
	wantNames(t, dir, "in", "in2", "out", "root")
}

func TestContainmentWhileAFolderIsSwappedForALink(t *testing.T) {
	dir := quick(t)
	must(t, os.MkdirAll(dir+"/in/sub", 0o755))
	must(t, os.MkdirAll(dir+"/out/keep", 0o755))
	write(t, dir+"/out/f", "secret", 0o644)
	write(t, dir+"/in/sub/f", "open", 0o644)
	must(t, os.Symlink(dir+"/out", dir+"/in/link"))
	l := newLayer(t, files.Config{Roots: []string{dir + "/in"}})
	stop := meanwhile(func() {
		_ = os.Rename(dir+"/in/sub", dir+"/in/aside")
		_ = os.Rename(dir+"/in/link", dir+"/in/sub")
		_ = os.Rename(dir+"/in/sub", dir+"/in/link")
		_ = os.Rename(dir+"/in/aside", dir+"/in/sub")
	})
	path := dir + "/in/sub/f"
	for range long(400, 10_000) {
		if got, err := readAll(l, path, -1); err == nil && strings.Contains(got, "secret") {
			t.Fatal("read outside")
		}
		_, _ = put(l, path, "open", replace)
		_, _ = put(l, dir+"/in/sub/new", "new", create)
		_, _ = put(l, dir+"/in/sub/a/b/new", "new", replace)
		_, _ = put(l, path, "", appendTo)
		_ = l.MakeDir(dir+"/in/sub/made", true)
		_ = l.Remove(context.Background(), dir+"/in/sub/keep", true)
		_ = l.Remove(context.Background(), dir+"/in/sub/new", true)
	}
	stop()
	wantContent(t, dir+"/out/f", "secret")
	wantNames(t, dir+"/out", "f", "keep")
}
