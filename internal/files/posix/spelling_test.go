package posix

import (
	"errors"
	"os"
	"testing"
)

func TestAFileKeepsTheSpellingOfItsName(t *testing.T) {
	at := realFolder(t)
	if err := errors.Join(os.Mkdir(at+"/folder", 0o755), os.WriteFile(at+"/README", nil, 0o644), os.WriteFile(at+"/other", nil, 0o644),
		os.WriteFile(at+"/folder/README", nil, 0o644), os.Link(at+"/README", at+"/readme"), os.Link(at+"/folder/README", at+"/away")); err != nil {
		t.Fatal(err)
	}
	dir, err := OpenDir(System{}, CWD, at)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, c := range []struct{ real, asked, want string }{
		{"/README", "readme", "README"}, // stands for a second spelling
		{"/README", "README", "README"},
		{"/README", "other", "other"},     // moved, and another is at the old name
		{"/README", "missing", "missing"}, // moved, and nothing is
		{"/folder/README", "away", "away"},
		{"/nowhere", "readme", "readme"},
	} {
		st, err := StatAt(CWD, at+c.real)
		if err != nil {
			st = Stat{}
		}
		o := &Object{FD: -1, Stat: st, path: at + c.real}
		if got := o.spelledIn(dir, c.asked); got != c.want {
			t.Errorf("%s, asked for as %s: %s, want %s", c.real, c.asked, got, c.want)
		}
	}
}
