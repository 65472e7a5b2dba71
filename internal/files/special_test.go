package files_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

// atOnce is how long an answer may take in these tests. The promise is a second on
// an idle machine.
const atOnce = 4 * time.Second

// readAll reads through the layer.
func readAll(l *files.Layer, path string, lines int64) (string, error) {
	f, err := l.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var s strings.Builder
	put := func(b []byte) error {
		if len(b) == 0 || len(b) > wire.MaxChunkBytes {
			return fmt.Errorf("a piece of %d bytes", len(b))
		}
		s.Write(b)
		return nil
	}
	if lines < 0 {
		err = f.Everything(context.Background(), put)
	} else {
		err = f.Lines(context.Background(), 0, lines, put)
	}
	return s.String(), err
}

func TestWhatIsNoFileIsRefusedAtOnce(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, mkfifo(dir+"/fifo"))
	short, err := os.MkdirTemp("", "s") // a socket's path must be short
	must(t, err)
	defer os.RemoveAll(short)
	socket, err := net.Listen("unix", short+"/socket")
	must(t, err)
	defer socket.Close()
	start := time.Now()
	for path, word := range map[string]string{dir + "/fifo": "FIFO", short + "/socket": "socket", "/dev/zero": "device", "/dev/null": "device"} {
		for _, lines := range []int64{-1, 3} {
			_, err := readAll(l, path, lines)
			wantCode(t, err, wire.CodeInvalid)
			if err != nil && !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not say that it is a %s", err, word)
			}
		}
		if i, err := l.Info(path); err != nil || i.Kind != wire.FileOther {
			t.Errorf("%s: %+v, %v", path, i, err)
		}
	}
	if d := time.Since(start); d > atOnce {
		t.Errorf("took %v", d)
	}
}

func TestFilesWithoutASizeAreReadToTheirEnd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc is Linux's")
	}
	l := newLayer(t, files.Config{})
	got, err := readAll(l, "/proc/self/status", -1)
	must(t, err)
	if !strings.HasPrefix(got, "Name:") || !strings.HasSuffix(got, "\n") || !strings.Contains(got, "nonvoluntary_ctxt_switches") {
		t.Errorf("%q", got)
	}
	if got, err := readAll(l, "/proc/self/status", 1); err != nil || strings.Count(got, "\n") != 1 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAFewLinesOfAHugeFile(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "1\n2\n3\n4\n5\n", 0o644)
	must(t, os.Truncate(dir+"/f", 1<<40))
	start := time.Now()
	if got, err := readAll(l, dir+"/f", 3); err != nil || got != "1\n2\n3\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := readAll(l, dir+"/f", 0); err != nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
	if d := time.Since(start); d > atOnce {
		t.Errorf("took %v", d)
	}
}

func TestAReadEndsWhenItsContextDoes(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "x", 0o644)
	must(t, os.Truncate(dir+"/f", 1<<40))
	f, err := l.Open(dir + "/f")
	must(t, err)
	defer f.Close()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	n := 0
	err = f.Everything(ctx, func(b []byte) error {
		if n++; n == 3 {
			cancel(why)
		}
		return nil
	})
	if err != why || n != 3 {
		t.Errorf("%v after %d pieces", err, n)
	}
	if err := f.Everything(context.Background(), func([]byte) error { return io.ErrClosedPipe }); err != io.ErrClosedPipe {
		t.Errorf("%v, want the taker's error", err)
	}
}

func TestLinesAreCutAnywhere(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	line := strings.Repeat("x", 40_000) + "\n" // lines across the pieces
	write(t, dir+"/f", strings.Repeat(line, 10)+"tail", 0o644)
	for n := range int64(13) {
		want := strings.Repeat(line, int(min(n, 10)))
		if n > 10 {
			want += "tail"
		}
		if got, err := readAll(l, dir+"/f", n); err != nil || got != want {
			t.Errorf("%d lines: %d bytes, %v, want %d", n, len(got), err, len(want))
		}
	}
}

func TestAHugeFolderIsAnsweredAtOnceInFlatMemory(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), quick(t)
	n := long(30_000, 200_000)
	for i := range n {
		must(t, os.Symlink("x", fmt.Sprintf("%s/%d", dir, i))) // the cheapest object there is
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	_, err := l.List(context.Background(), dir)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	wantCode(t, err, wire.CodeUnknown)
	for _, part := range []string{fmt.Sprint(n), fmt.Sprint(wire.MaxFrameBytes)} {
		if err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
	if took > atOnce {
		t.Errorf("took %v", took)
	}
	t.Logf("%d entries: %v", n, took)
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 64<<20 {
		t.Errorf("took %d bytes", grew)
	}
}

func TestAListIsTheTruthOrAFailure(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	if list, err := l.List(context.Background(), dir); err != nil || list == nil || len(list) != 0 {
		t.Errorf("an empty folder: %v, %v", list, err)
	}
	must(t, os.Symlink("nowhere", dir+"/dangling"))
	must(t, os.Mkdir(dir+"/b", 0o755))
	write(t, dir+"/a", "123", 0o4711)
	must(t, os.Chmod(dir+"/a", 0o711|os.ModeSetuid|os.ModeSticky))
	must(t, os.Chtimes(dir+"/a", time.UnixMilli(-1500), time.UnixMilli(-1500)))
	list, err := l.List(context.Background(), dir+"/")
	must(t, err)
	if len(list) != 3 || list[0].Path != dir+"/a" || list[1].Path != dir+"/b" || list[2].Path != dir+"/dangling" {
		t.Fatalf("%+v", list)
	}
	if a := list[0]; a.Kind != wire.FileFile || a.Size != 3 || a.MtimeMs != -1500 || *a.Mode != 0o5711 {
		t.Errorf("%+v, mode %o", a, *a.Mode)
	}
	if list[1].Kind != wire.FileDir || list[2].Kind != wire.FileSymlink {
		t.Errorf("%+v", list)
	}
	if os.Getuid() != 0 {
		must(t, os.Chmod(dir, 0o444))
		_, err = l.List(context.Background(), dir)
		wantCode(t, err, wire.CodePermissionDenied)
		must(t, os.Chmod(dir, 0o755))
	}
	if err := os.WriteFile(dir+"/bad\xff", nil, 0o644); err != nil {
		t.Skip("this file system takes no such name")
	}
	_, err = l.List(context.Background(), dir)
	wantCode(t, err, wire.CodeUnknown)
	if err != nil && !strings.Contains(err.Error(), `"bad\xff"`) {
		t.Errorf("%v does not show the name quoted", err)
	}
}
