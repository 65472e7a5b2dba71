package lineage

import (
	"bytes"
	"encoding/binary"
	"iter"
)

// Variables are the environment in what the kernel tells of a process's start
// (sysctl kern.procargs2): the number of arguments, the path of the program, padding,
// the arguments, the environment, each ended by NUL. The environment is missing where
// the kernel hides it.
func Variables(b []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(b) < 4 {
			return
		}
		args := int(int32(binary.NativeEndian.Uint32(b)))
		_, rest, ok := bytes.Cut(b[4:], []byte{0})
		if !ok {
			return
		}
		for field := range bytes.SplitSeq(bytes.TrimLeft(rest, "\x00"), []byte{0}) {
			switch {
			case args > 0:
				args--
			case len(field) == 0: // its end; what follows is the loader's
				return
			case !yield(string(field)):
				return
			}
		}
	}
}
