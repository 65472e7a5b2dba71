package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sema-agent/device-executor/internal/files"
)

// writes compares the replacement of a file in one step, flushed to disk, with a
// bare temporary, write and rename, and with the same flushed.
func writes(ctx context.Context, rounds int, folder string) error {
	dir, err := os.MkdirTemp(folder, "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	layer, err := files.New(files.Config{})
	if err != nil {
		return err
	}
	for _, size := range []int{4 << 10, 1 << 20} {
		content := make([]byte, size)
		ours := timed(func() error {
			d, err := layer.Draft(filepath.Join(dir, "ours"))
			if err != nil {
				return err
			}
			defer d.Discard()
			if _, err := d.Write(content); err != nil {
				return err
			}
			_, err = d.Replace(ctx)
			return err
		})
		for _, flushed := range []bool{false, true} {
			name := "temp, write, rename"
			if flushed {
				name = "temp, write, sync, rename, sync"
			}
			bare, mine, err := compare(rounds, timed(func() error { return bareWrite(dir, content, flushed) }), ours)
			if err != nil {
				return err
			}
			showTimes(fmt.Sprintf("replace a file by %d KiB", size>>10), name, bare, mine)
		}
	}
	return nil
}

func bareWrite(dir string, content []byte, flushed bool) error {
	f, err := os.CreateTemp(dir, "bare-")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if flushed {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "bare")); err != nil || !flushed {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
