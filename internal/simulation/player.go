package simulation

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
)

// startsVariable names the folder where each command that starts leaves a line in a
// file of its own.
const startsVariable = "SIMULATION_STARTS"

// PlayIfAsked must be called early by every program that PlayerVariable may name. In
// a command it does what the command is to do and never returns.
func PlayIfAsked() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "play":
		os.Exit(playCommand(os.Args[2]))
	case len(os.Args) == 4 && os.Args[1] == "orphan":
		os.Exit(playOrphan(os.Args[2], os.Args[3]))
	}
}

// playCommand is the life of a real command. Its exit code is 120 if it could not
// even begin.
func playCommand(text string) int {
	p, err := parseCommand("'" + text + "'")
	if err == nil {
		err = leaveStart()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 120
	}
	var mu sync.Mutex // held while something is written
	texts := [3]io.Reader{1: p.text(1), 2: p.text(2)}
	files := [3]*os.File{1: os.Stdout, 2: os.Stderr}
	said := 0
	say := func(stream, n int) error {
		mu.Lock()
		defer mu.Unlock()
		m, err := io.CopyN(files[stream], texts[stream], int64(n))
		if stream == 1 {
			said += int(m)
		}
		return err
	}
	switch p.Term {
	case Speaks:
		terms := make(chan os.Signal, 1)
		signal.Notify(terms, syscall.SIGTERM)
		go func() {
			<-terms
			mu.Lock() // for good: nothing is said after the last words
			_, _ = io.CopyN(os.Stdout, texts[1], wordBytes)
			os.Exit(exitOfSpeaker)
		}()
	case Ignores, Lingers, Undead:
		signal.Ignore(syscall.SIGTERM)
	}
	for round := 0; round == 0 || p.Loop; round++ {
		for _, s := range p.Steps {
			time.Sleep(s.After)
			if say(s.Stream, s.Bytes) != nil {
				return 121
			}
		}
	}
	mu.Lock() // for good: if there are more words, they are the orphan's
	if p.Orphan > 0 {
		child := exec.Command(os.Args[0], "orphan", text, fmt.Sprint(said))
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return 122
		}
	}
	return p.Exit
}

// leaveStart makes this start known.
func leaveStart() error {
	name := filepath.Join(os.Getenv(startsVariable), os.Getenv(process.Marker))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("started\n")
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// playOrphan lives for a while and says its last word where the command stopped.
func playOrphan(text, offset string) int {
	var skip int64
	p, err := parseCommand("'" + text + "'")
	if err == nil {
		_, err = fmt.Sscan(offset, &skip)
	}
	if err != nil {
		return 120
	}
	time.Sleep(p.Orphan)
	out := p.text(1)
	_, _ = io.CopyN(io.Discard, out, skip)
	_, _ = io.CopyN(os.Stdout, out, wordBytes)
	return 0
}
