package service

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAFileKnowsWhetherItWasEdited(t *testing.T) {
	written, err := unit(aSpec())
	if err != nil {
		t.Fatal(err)
	}
	if got := inspect(written); got != intact {
		t.Errorf("as written: %d", got)
	}
	for i := range written {
		changed := bytes.Clone(written)
		changed[i] ^= 1
		if got := inspect(changed); got == intact {
			t.Fatalf("a change of byte %d, %q, passed", i, written[i])
		}
	}
	for name, c := range map[string]struct {
		data []byte
		want condition
	}{
		"a line added":     {append(bytes.Clone(written), "X=1\n"...), edited},
		"cut short":        {written[:len(written)-10], edited},
		"another program":  {[]byte("[Unit]\nDescription=x\n"), foreign},
		"empty":            {nil, foreign},
		"a digest cut off": {[]byte("# " + digestLabel + "12"), foreign},
	} {
		if got := inspect(c.data); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestAnotherVersionsFileIsReplacedWithoutForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "x.service")
	old := seal("# an older layout\n# " + digestLabel + digestGap + "\nX=1\n")
	if change, err := place(path, old, false); err != nil || change != Created {
		t.Fatal(change, err)
	}
	written, err := unit(aSpec())
	if err != nil {
		t.Fatal(err)
	}
	if change, err := place(path, written, false); err != nil || change != Replaced {
		t.Error(change, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
}

func TestRemovingTakesOnlyEmptyFolders(t *testing.T) {
	stop := t.TempDir()
	path := filepath.Join(stop, "systemd", "user", "x.service")
	makeFile(t, path)
	makeFile(t, filepath.Join(stop, "systemd", "other"))
	if err := remove(path, stop); err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Dir(path)) || !exists(filepath.Join(stop, "systemd", "other")) {
		t.Errorf("left: %q", treeOf(t, stop))
	}
	var none *NotInstalledError
	if err := removable(path, "dev_01", true); !errors.As(err, &none) {
		t.Errorf("what is not there: %v", err)
	}
}
