package files_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/files"
)

// inFolder is a journal of one small file per entry.
type inFolder string

func (dir inFolder) Record(e files.Entry) (func(), error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(string(dir), "entry")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return nil, err
	}
	return func() { os.Remove(f.Name()) }, nil
}

func (dir inFolder) entries(t *testing.T) []files.Entry {
	t.Helper()
	var all []files.Entry
	names, err := filepath.Glob(string(dir) + "/entry*")
	must(t, err)
	for _, n := range names {
		b, err := os.ReadFile(n)
		must(t, err)
		var e files.Entry
		if json.Unmarshal(b, &e) == nil { // one cut short says nothing
			all = append(all, e)
		}
	}
	return all
}

func TestKilledInTheMiddleOfAWrite(t *testing.T) {
	size := long(8<<20, 64<<20)
	for round := range long(20, 200) {
		dir, store := quick(t), t.TempDir()
		cmd := another("writer", dir, store, fmt.Sprint(size))
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		must(t, err)
		time.Sleep(time.Duration(rand.Int64N(int64(size>>20) * int64(15*time.Millisecond)))) // the moment of the kill is the test
		must(t, cmd.Process.Kill())
		cmd.Wait()

		l := newLayer(t, files.Config{})
		for _, e := range inFolder(store).entries(t) {
			_, err := l.Recover(context.Background(), e)
			must(t, err)
		}
		if b, err := os.ReadFile(dir + "/f"); !os.IsNotExist(err) {
			must(t, err)
			if len(b) != size || strings.Count(string(b), string(b[:1])) != size {
				t.Fatalf("round %d: %d bytes, neither old nor new", round, len(b))
			}
		}
		if b, err := os.ReadFile(dir + "/log"); !os.IsNotExist(err) {
			must(t, err)
			if string(b) != strings.Repeat("line\n", len(b)/5) {
				t.Fatalf("round %d: the log holds %q", round, b)
			}
		}
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if e.Name() != "f" && e.Name() != "log" {
				t.Fatalf("round %d: %s was left", round, e.Name())
			}
		}
		must(t, os.RemoveAll(dir))
	}
}
