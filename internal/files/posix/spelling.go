package posix

import "strings"

// NameIn is the object's name in a folder as it is spelled there; asked is the one it
// was found by. Where a file system takes several for one (macOS's other capitals, or
// letters put together from other parts), what is put in a file's place would take on
// the spelling asked for, and other programs would see a name that changed.
func (o *Object) NameIn(dir *Dir, asked string) string {
	if !severalSpellings {
		return asked
	}
	return o.spelledIn(dir, asked)
}

func (o *Object) spelledIn(dir *Dir, asked string) string {
	real, err := o.RealPath()
	if err != nil {
		return asked
	}
	name, ok := strings.CutPrefix(real, dir.Join(""))
	if !ok || name == "" || strings.Contains(name, "/") {
		return asked
	}
	// It may have been moved to that name: then it is at the other no more.
	if there, err := StatAt(dir.FD, asked); err != nil || !o.Same(there) {
		return asked
	}
	return name
}
