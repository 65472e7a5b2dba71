package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode"
)

// mostPrinted is how much of what a process prints is kept and searched. An
// executor that prints without end shall fill neither the disk nor the memory.
const mostPrinted = 8 << 20

// printed takes what a process and its children print, for as long as the row
// lasts, and keeps the first of it in a file.
type printed struct {
	r    *os.File // of the pipe they write to
	log  *os.File
	over chan struct{} // closed when nobody can print any more, or close was called

	mu   sync.Mutex
	buf  [32 << 10]byte
	kept int
	lost int64 // bytes above mostPrinted
}

// newPrinted returns it with the end of the pipe that the process gets; the caller
// closes that end once the process has it.
func newPrinted(dir string) (*printed, *os.File, error) {
	log, err := os.CreateTemp(dir, printedPrefix+"*.log")
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		log.Close()
		return nil, nil, err
	}
	p := &printed{r: r, log: log, over: make(chan struct{})}
	go p.take()
	return p, w, nil
}

const printedPrefix = "printed-"

// isPrinted reports whether a file holds what a process printed.
func isPrinted(path string) bool { return strings.HasPrefix(filepath.Base(path), printedPrefix) }

func (p *printed) take() {
	defer close(p.over)
	defer p.log.Close()
	raw, err := p.r.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { // its end is the pipe's, or that of close
		for {
			if n, over := p.part(fd); over || n == 0 {
				return over
			}
		}
	})
}

// part takes what is in the pipe, or the next of it: none if it is empty. Reading and
// keeping are one step, so that whoever finds it empty finds all of it kept.
func (p *printed) part(fd uintptr) (n int, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := syscall.Read(int(fd), p.buf[:])
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), p.buf[:])
	}
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return 0, false
	case err != nil || n == 0:
		return 0, true
	}
	keep := min(n, mostPrinted-p.kept)
	p.lost += int64(n - keep)
	p.kept += keep
	_, _ = p.log.Write(p.buf[:keep]) // what is not in the file is not shown
	return n, false
}

// close stops taking; what still prints then gets a broken pipe.
func (p *printed) close() {
	_ = p.r.Close()
	<-p.over
}

// all returns what was printed up to now, and how many bytes more than are kept. What
// a process wrote before it ended is in the pipe by then.
func (p *printed) all() (text string, lost int64) {
	if raw, err := p.r.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // unless it was closed
			for range 64 { // no more than any pipe holds: others may go on printing
				if n, over := p.part(fd); over || n == 0 {
					return
				}
			}
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error(), p.lost
	}
	return string(b), p.lost
}

// printed returns the end of what it printed, in lines that are fit to be shown:
// no longer than a few of the terminal's, and without what would steer it.
func (x *process) printed(lines int) []string {
	text, lost := x.out.all()
	text = strings.TrimRight(text, "\n")
	if text == "" && lost == 0 {
		return nil
	}
	all := strings.Split(text, "\n")
	var shown []string
	for _, l := range all[max(0, len(all)-lines):] {
		shown = append(shown, plain(cut(l, 300)))
	}
	if lost > 0 {
		shown = append(shown, fmt.Sprintf("… and %d bytes more, which were not kept", lost))
	}
	return shown
}

// plain replaces what is not to be shown as it is.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\t' {
			return r
		}
		return '·'
	}, strings.ToValidUTF8(s, "·"))
}
