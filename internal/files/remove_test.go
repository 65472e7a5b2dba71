package files_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/sema-agent/device-executor/internal/files"
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
	stop := make(chan struct{})
	var adversary sync.WaitGroup
	adversary.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Whichever of the two is in the tree, the other takes its place.
			_ = os.Rename(dir+"/tree/sub", dir+"/aside")
			_ = os.Rename(dir+"/swap", dir+"/tree/sub")
			_ = os.Rename(dir+"/tree/sub", dir+"/swap")
			_ = os.Rename(dir+"/aside", dir+"/tree/sub")
			if _, err := os.Lstat(dir + "/swap"); err != nil {
				_ = os.Symlink(dir+"/outside", dir+"/swap")
			}
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
	close(stop)
	adversary.Wait()
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
