package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

func TestDeclaredWritesAreComparedWithWhatCanBeDone(t *testing.T) {
	both := enroll.OptionalWriteFaces()
	for name, c := range map[string]struct {
		declared []wire.Kind
		can      files.Faces
		level    Level
		what     string
	}{
		"all of it":           {both, files.Faces{Exclusive: true, Guarded: true}, OK, "every kind of write"},
		"one is lost":         {both, files.Faces{Exclusive: true}, Warn, "can do no longer what this device declares: writeFileGuarded"},
		"both are lost":       {both, files.Faces{}, Warn, "writeFileExclusive, writeFileGuarded"},
		"one is new":          {both[:1], files.Faces{Exclusive: true, Guarded: true}, OK, "could do more than this device declares: writeFileGuarded"},
		"never had, has none": {nil, files.Faces{}, OK, "this file system has no writeFileExclusive, writeFileGuarded"},
	} {
		f := faces(&enroll.Record{WriteFaces: c.declared}, c.can)
		if f.Level != c.level || !strings.Contains(f.What, c.what) || c.level == Warn && f.Mend == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestClocksApartInWords(t *testing.T) {
	for seconds, want := range map[int]string{
		7200: "is 2h00m ahead of the server's", -7260: "is 2h01m behind the server's", 300: "is 5 minutes ahead of the server's",
		-90000 * 24: "is 25 days behind the server's",
	} {
		if got := apart(time.Duration(seconds) * time.Second); got != want {
			t.Errorf("%d s: %q, want %q", seconds, got, want)
		}
	}
}
