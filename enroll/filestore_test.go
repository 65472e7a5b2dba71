package enroll_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/handshake"
)

func filed(t *testing.T) (store enroll.KeyStore, ref enroll.KeyRef, path string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dev")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store, ref = enroll.NewFileStore(), enroll.KeyRef{Dir: dir, Public: newKey(t).Public()}
	if err := store.Save(t.Context(), ref, newKey(t)); err != nil {
		t.Fatal(err)
	}
	return store, ref, filepath.Join(dir, "key")
}

func TestAKeyFileIsTheSeedInBase64AndItsOwnersAlone(t *testing.T) {
	store, ref, path := filed(t)
	b, err := os.ReadFile(path)
	if err != nil || string(b) != seedText(newKey(t))+"\n" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	key, err := store.Load(t.Context(), ref)
	if err != nil || key.Public() != ref.Public {
		t.Error(err)
	}
	if entries, err := os.ReadDir(ref.Dir); err != nil || len(entries) != 1 {
		t.Errorf("beside it: %v, %v", entries, err)
	}
}

func TestADeletedKeyIsGoneAndDeletingAgainIsFine(t *testing.T) {
	store, ref, path := filed(t)
	for range 2 {
		if err := store.Delete(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ref.Dir = filepath.Join(ref.Dir, "gone")
	if err := store.Delete(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// What a store that was killed in the middle has written is the key, too.
func TestACopyThatAKilledStoreLeftGoesWithTheKey(t *testing.T) {
	store, ref, path := filed(t)
	for _, name := range []string{".key.123456", ".device.json.123456"} {
		if err := os.WriteFile(filepath.Join(ref.Dir, name), []byte(seedText(newKey(t))+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), ref); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 || left[0].Name() != ".device.json.123456" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A revoked device's key is deleted by every command that meets it, so by two at once,
// too: what one of them has taken away must not pass for the key to the other.
func TestAKeyGoesWhateverBecomesOfTheCopiesBesideIt(t *testing.T) {
	store, ref, path := filed(t)
	for round := range 10 {
		if err := os.WriteFile(path, []byte("key"), 0o600); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := os.WriteFile(filepath.Join(ref.Dir, fmt.Sprintf(".key.%d", i)), []byte("key"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := store.Delete(t.Context(), ref); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("round %d: two said that the key is gone, and it is there (%v)", round, err)
		}
	}

	if err := os.WriteFile(path, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(ref.Dir, ".key.odd", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 { // whether the key is still there or not
		if err := store.Delete(t.Context(), ref); err == nil {
			t.Error("nothing is said of what could not be removed")
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Error("the key stayed for the sake of what lies beside it")
		}
	}
}

func TestKeyFilesThatCannotBeTrustedAreRefused(t *testing.T) {
	otherKey := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 32))
	change := func(mode os.FileMode) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	content := func(text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { write(t, path, text) }
	}
	instead := func(make func(path string) error) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := errors.Join(os.Remove(path), make(path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]struct {
		spoil   func(t *testing.T, path string)
		trouble enroll.KeyTrouble
	}{
		"readable by the group":  {change(0o640), enroll.KeyExposed},
		"readable by all":        {change(0o604), enroll.KeyExposed},
		"writable by the group":  {change(0o620), enroll.KeyExposed},
		"executable by others":   {change(0o601), enroll.KeyExposed},
		"folder writable by all": {func(t *testing.T, path string) { change(0o707)(t, filepath.Dir(path)) }, enroll.KeyExposed},
		"gone":                   {instead(func(string) error { return nil }), enroll.KeyMissing},
		"folder gone": {func(t *testing.T, path string) {
			instead(func(string) error { return os.Remove(filepath.Dir(path)) })(t, path)
		}, enroll.KeyMissing},
		"empty":       {content(""), enroll.KeyDamaged},
		"not base64":  {content("?" + otherKey[1:]), enroll.KeyDamaged},
		"cut":         {content(otherKey[:40]), enroll.KeyDamaged},
		"too long":    {content(otherKey + otherKey), enroll.KeyDamaged},
		"31 bytes":    {content(base64.StdEncoding.EncodeToString(make([]byte, 31))), enroll.KeyDamaged},
		"33 bytes":    {content(base64.StdEncoding.EncodeToString(make([]byte, 33))), enroll.KeyDamaged},
		"another key": {content(otherKey + "\n"), enroll.KeyMismatch},
		"a folder":    {instead(func(path string) error { return os.Mkdir(path, 0o700) }), enroll.KeyIO},
		"a FIFO":      {instead(func(path string) error { return syscall.Mkfifo(path, 0o600) }), enroll.KeyIO},
		"a link":      {instead(func(path string) error { return os.Symlink("/etc/passwd", path) }), enroll.KeyIO},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			store, ref, path := filed(t)
			c.spoil(t, path)
			key, err := store.Load(t.Context(), ref)
			var trouble *enroll.KeyError
			if !errors.As(err, &trouble) || trouble.Trouble != c.trouble || trouble.Store != enroll.StoreFile || !key.IsZero() {
				t.Fatalf("got %v", err)
			}
			if enroll.ExitCode(err) != 9 || !strings.Contains(err.Error(), ref.Dir) {
				t.Errorf("exit %d: %v", enroll.ExitCode(err), err)
			}
			forPeople(t, err)
			for _, secret := range []string{otherKey, otherKey[:40], seedText(newKey(t))} {
				if strings.Contains(err.Error(), secret[:20]) {
					t.Errorf("quotes the key: %v", err)
				}
			}
		})
	}
}

func TestAKeyFileWithEditedLineEndsIsStillRead(t *testing.T) {
	store, ref, path := filed(t)
	text := seedText(newKey(t))
	for _, ends := range []string{"", "\n", "\r\n", "\n\n"} {
		write(t, path, text+ends)
		if _, err := store.Load(t.Context(), ref); err != nil {
			t.Errorf("%q: %v", ends, err)
		}
	}
}

func TestAKeyThatCannotBeStoredLeavesTheOldOne(t *testing.T) {
	store, ref, path := filed(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // a rename cannot replace it
		t.Fatal(err)
	}
	var trouble *enroll.KeyError
	if err := store.Save(t.Context(), ref, newKey(t)); !errors.As(err, &trouble) || trouble.Trouble != enroll.KeyIO {
		t.Errorf("got %v", err)
	}
	after, err := os.ReadFile(path + ".old")
	if err != nil || string(after) != string(before) {
		t.Error(err)
	}
	if entries, err := os.ReadDir(ref.Dir); err != nil || len(entries) != 2 {
		t.Errorf("a temporary stays: %v, %v", entries, err)
	}
}

func TestACallerWhoLeftIsToldSo(t *testing.T) {
	store, ref, path := filed(t)
	stop := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	_, loadErr := store.Load(ctx, ref)
	for name, err := range map[string]error{"save": store.Save(ctx, ref, newKey(t)), "load": loadErr, "delete": store.Delete(ctx, ref)} {
		if !errors.Is(err, stop) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("the key was deleted all the same")
	}
}

// seedText is the form in which a store holds a key.
func seedText(key handshake.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(key.ExportSeed())
}
