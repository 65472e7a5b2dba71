package files_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// elusive is a system that opens files for reading by their path, as macOS does, on
// which a file is replaced so many times just before that.
type elusive struct {
	posix.System
	times int
}

func (e *elusive) Open(dir int, name string, flags int, mode uint32) (int, error) {
	if reading := flags&unix.O_NOCTTY != 0 && flags&posix.Handle == 0; reading && e.times > 0 {
		e.times--
		return -1, unix.ENOENT
	}
	return e.System.Open(dir, name, flags, mode)
}

func TestAFileThatOthersKeepReplacingIsReadAllTheSame(t *testing.T) {
	for times, there := range map[int]bool{50: true, 1000: false} {
		l, dir := newLayer(t, files.Config{Calls: &elusive{times: times}}), folder(t)
		write(t, dir+"/f", "content", 0o644)
		got, err := readAll(l, dir+"/f", -1)
		switch {
		case there && (err != nil || got != "content"):
			t.Errorf("%d times: %q, %v", times, got, err)
		case !there:
			wantCode(t, err, wire.CodeNotFound)
		}
	}
}
