package simulation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/internal/files"
)

// Real plays a schedule in real time with real processes and files below dir, which
// must be empty. player is a program that calls [PlayIfAsked].
func Real(ctx context.Context, s Schedule, dir, player string) (*Report, error) {
	g := &reality{dir: dir, player: player}
	if err := g.make(); err != nil {
		return nil, err
	}
	return newWorld(ctx, s, func(*judge) ground { return g }).play(), nil
}

// reality is the ground of real time.
type reality struct{ dir, player string }

func (g *reality) make() error {
	for _, d := range []string{g.folder(), g.starts(), g.device()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("real ground: %w", err)
		}
	}
	return nil
}

func (g *reality) folder() string { return filepath.Join(g.dir, "workspace") }
func (g *reality) starts() string { return filepath.Join(g.dir, "starts") }
func (g *reality) device() string { return filepath.Join(g.dir, "device") }

func (g *reality) executor(c *executor.Config) {
	c.Dir = g.device()
	c.Env = append(os.Environ(), PlayerVariable+"="+g.player, startsVariable+"="+g.starts(),
		"GORACE=atexit_sleep_ms=0") // which would keep each command for a second
	c.Files = &files.Config{}
}

func (g *reality) written(path string) ([]byte, int) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, 0
	}
	return b, 1
}

func (g *reality) prepare(path string, content []byte) error {
	return os.WriteFile(path, content, 0o600)
}

func (*reality) settle() {}

// slack is for machines that do other things as well.
func (*reality) slack() time.Duration { return 30 * time.Second }

// end looks at what only the machine can tell: how often each command started, that
// none is left, and that no temporary file is.
func (g *reality) end(j *judge) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, a := range j.asks {
		b, err := os.ReadFile(filepath.Join(g.starts(), id))
		if err != nil && !os.IsNotExist(err) {
			j.fail("%v", err)
		}
		a.starts = strings.Count(string(b), "\n")
		j.starts += a.starts
		if a.starts > 1 {
			j.fail("%s started %d times", id, a.starts)
		}
		if a.starts > 0 && a.denied {
			j.fail("%s started, and it was answered that it did not", id)
		}
	}
	entries, err := os.ReadDir(g.folder())
	if err != nil {
		j.fail("%v", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "written-") && !strings.HasPrefix(e.Name(), "text-") {
			j.fail("%s was left in the workspace", e.Name())
		}
	}
	if left := alive(startsVariable + "=" + g.starts()); len(left) > 0 {
		j.fail("processes %v are left", left)
	}
}
