package loginenv

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// answerFD is where the shell answers: a descriptor that no profile prints to.
	answerFD = 9
	// mostAnswer bounds an answer, in bytes; no system takes a larger environment.
	mostAnswer = 8 << 20
	// farewell is how long a shell that has answered may take to end by itself.
	farewell = time.Second
)

// ask runs shell as a login shell and has it print its environment.
//
// The question is asked twice over: as the command of -c, and on stdin, line by
// line. So a `read` in a profile eats a line and does no harm, and a shell that
// the profile has put in the place of its own reads the question from stdin. The
// answer comes on a pipe of its own and ends with a mark, since a background
// process of the profile may keep that pipe open for ever.
func ask(ctx context.Context, shell string, env []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	mark := "end of the environment " + rand.Text()
	question := fmt.Sprintf("/usr/bin/env -0 >/dev/fd/%d; echo '%s' >/dev/fd/%d; exit\n", answerFD, mark, answerFD)

	in, feed, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer in.Close()
	// A handful of lines fits into the pipe's buffer, so this does not block.
	_, err = io.WriteString(feed, strings.Repeat(question, 8))
	feed.Close()
	if err != nil {
		return nil, fmt.Errorf("write the question: %w", err)
	}
	answer, tell, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer answer.Close()

	cmd := command(shell, question)
	cmd.Env = env
	cmd.Stdin = in
	cmd.ExtraFiles = make([]*os.File, answerFD-2)
	cmd.ExtraFiles[answerFD-3] = tell
	// A session of its own: no terminal to ask on, and one group to end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if home := lookup(env, "HOME"); home != "" {
		if info, err := os.Stat(home); err == nil && info.IsDir() {
			cmd.Dir = home
		}
	}
	err = cmd.Start()
	tell.Close()
	if err != nil {
		return nil, fmt.Errorf("start it: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the answer counts, not the exit code of a profile
		close(ended)
	}()

	vars, err := hear(ctx, answer, mark, ended)
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	select {
	case <-ended:
	case <-time.After(farewell):
		// Background processes of a profile (an agent) are the user's own: only the
		// shell is ended.
		_ = cmd.Process.Kill()
		<-ended
	}
	return vars, err
}

// command makes the login shell's command line.
func command(shell, question string) *exec.Cmd {
	base := filepath.Base(shell)
	if base == "csh" || base == "tcsh" {
		// These take -l only by itself, but a name with a dash does the same.
		cmd := exec.Command(shell, "-c", question)
		cmd.Args[0] = "-" + base
		return cmd
	}
	return exec.Command(shell, "-l", "-c", question)
}

// hear reads the answer up to its mark.
func hear(ctx context.Context, answer *os.File, mark string, ended <-chan struct{}) ([]string, error) {
	stop := context.AfterFunc(ctx, func() { _ = answer.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	go func() {
		// The shell is gone: what it said is in the pipe, whoever else holds it.
		select {
		case <-ended:
			_ = answer.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		case <-ctx.Done():
		}
	}()
	var said []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := answer.Read(buf)
		said = append(said, buf[:n]...)
		if text, _, ok := bytes.Cut(said, []byte(mark)); ok {
			return parse(text)
		}
		switch {
		case len(said) > mostAnswer:
			return nil, errors.New("its answer has no end")
		case err == nil:
		case ctx.Err() != nil:
			return nil, fmt.Errorf("it did not answer within %v; look for what its profile waits for", timeout)
		default:
			return nil, errSilent
		}
	}
}

// parse takes the output of env -0 apart.
func parse(text []byte) ([]string, error) {
	var vars []string
	for v := range bytes.SplitSeq(text, []byte{0}) {
		if name, _, ok := bytes.Cut(v, []byte("=")); ok && len(name) > 0 {
			vars = append(vars, string(v))
		}
	}
	if len(vars) == 0 {
		return nil, errors.New("its answer names no variable")
	}
	return vars, nil
}
