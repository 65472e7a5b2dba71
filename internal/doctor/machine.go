package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/sema-agent/device-executor/internal/loginenv"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/internal/remedy"
)

// shell looks for what commands run in.
func (d *Doctor) shell(env []string) []Finding {
	path, err := d.FindShell("", env)
	switch {
	case err != nil:
		return []Finding{{
			Check: "shell", Level: Fail, What: err.Error(),
			Why:  "Every command of the agent runs in a shell.",
			Mend: "Install one.", Run: installBash(),
		}}
	case filepath.Base(path) != "bash":
		return []Finding{{
			Check: "shell", Level: Warn, What: fmt.Sprintf("there is no bash; commands run in %s", path),
			Why: "Agents write their commands for bash; some fail in another shell.", Run: installBash(),
		}}
	}
	return []Finding{{Check: "shell", Level: OK, What: path}}
}

func installBash() string {
	if runtime.GOOS == "darwin" {
		return "brew install bash"
	}
	for manager, run := range map[string]string{
		"/usr/bin/apt-get": "sudo apt-get install bash", "/usr/bin/dnf": "sudo dnf install bash",
		"/sbin/apk": "sudo apk add bash", "/usr/bin/pacman": "sudo pacman -S bash", "/usr/bin/zypper": "sudo zypper install bash",
	} {
		if _, err := os.Stat(manager); err == nil {
			return run
		}
	}
	return ""
}

// path says where commands look for programs: as started from here, and as
// started by the service, which asks the login shell.
func (d *Doctor) path(ctx context.Context, env []string) []Finding {
	here := pathOf(env)
	warnings := &listener{}
	service := pathOf(loginenv.Resolve(ctx, loginenv.Config{Mode: loginenv.Login, Inherited: env, Log: slog.New(warnings)}))
	if said := warnings.words(); said != "" {
		return []Finding{{
			Check: "PATH", Level: Warn, What: said,
			Why:  "Commands under the service then look for programs only where the service manager does.",
			Mend: "Look for what the profile of your login shell waits for; it must end without a terminal. From here commands see " + strings.Join(here, ":"),
		}}
	}
	if len(here) == 0 && len(service) == 0 {
		return []Finding{{
			Check: "PATH", Level: Fail, What: "it is empty", Why: "Commands find no program.",
			Mend: "Set PATH in the profile of your login shell.",
		}}
	}
	f := Finding{Check: "PATH", Level: OK, What: strings.Join(service, ":")}
	var lost []string
	for _, dir := range here {
		if !slices.Contains(service, dir) && !slices.Contains(lost, dir) {
			lost = append(lost, dir)
		}
	}
	if len(lost) > 0 {
		f.What += "; under the service not " + strings.Join(lost, ", ") + ", which this terminal has"
		f.Mend = "If commands need it, set it in the profile of your login shell."
	}
	return []Finding{f}
}

func pathOf(env []string) []string {
	for _, v := range env {
		if list, ok := strings.CutPrefix(v, "PATH="); ok {
			return filepath.SplitList(list)
		}
	}
	return nil
}

// listener keeps the warnings that are logged to it.
type listener struct {
	mu   sync.Mutex
	said []string
}

// Enabled implements slog.Handler.
func (*listener) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (l *listener) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf("; %s: %v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, text)
	return nil
}

// WithAttrs implements slog.Handler.
func (l *listener) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *listener) WithGroup(string) slog.Handler { return l }

func (l *listener) words() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "; ")
}

// processes runs a command as the agent's would be and sees it end.
func (d *Doctor) processes(ctx context.Context, env []string) []Finding {
	bad := func(what string, err error) []Finding {
		return []Finding{{
			Check: "processes", Level: Fail, What: fmt.Sprintf("%s: %v", what, err),
			Why:  "Commands are started and ended this way.",
			Mend: "A sandbox or a container around this program may forbid it: " + processNeeds,
		}}
	}
	shell, err := d.FindShell("", env)
	if err != nil {
		return nil // said under shell
	}
	control, err := process.New(process.Config{})
	if err != nil {
		return bad("processes cannot be controlled", err)
	}
	defer control.Close()
	const code = 7
	command, err := control.Start(ctx, process.Spec{InstructionID: "doctor", Shell: shell, Command: fmt.Sprintf("exit %d", code), Env: env, Dir: "/"})
	if err != nil {
		return bad("no command can be started", err)
	}
	defer command.Release()
	select {
	case <-command.Exited():
	case <-ctx.Done():
		return bad("a command that should end at once", context.Cause(ctx))
	}
	if command.Err() != nil {
		return bad("a command's end was not seen", command.Err())
	}
	if got := command.ExitCode(); got != code {
		return bad("a command's exit code", fmt.Errorf("%d in place of %d", got, code))
	}
	what := "a command is ended with everything it started"
	if control.Level() == process.LevelGroup {
		what = "a command is ended with everything of its session and lineage"
	}
	return []Finding{{Check: "processes", Level: OK, What: what}}
}

// temporary looks at the folder for temporary files.
func temporary(context.Context) []Finding {
	dir := os.TempDir()
	f, err := os.CreateTemp(dir, "sema-doctor-*")
	if err == nil {
		_ = f.Close()
		err = os.Remove(f.Name())
	}
	if err != nil {
		return []Finding{{
			Check: "temporary", Level: Fail, What: fmt.Sprintf("no file can be made in %s: %v", dir, plain(err)),
			Why: "Temporary files and folders of the agent go there.", Mend: "Mend it, or set TMPDIR to a folder of yours.", Run: "ls -ld " + remedy.Quote(dir),
		}}
	}
	return []Finding{{Check: "temporary", Level: OK, What: dir}}
}
