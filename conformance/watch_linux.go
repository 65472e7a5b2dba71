package conformance

import (
	"bytes"
	"encoding/binary"
	"syscall"
)

// arrivals watches a folder for files that are moved into it from another one, which
// shows as an arrival without a departure of the same move. Stop returns their names,
// once.
func arrivals(dir string) (stop func() []string, err error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_MOVED_FROM|syscall.IN_MOVED_TO); err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	stopped := false
	return func() []string {
		if stopped {
			return nil
		}
		stopped = true
		defer syscall.Close(fd)
		left := map[uint32]bool{}
		var names []string
		buf := make([]byte, 64<<10)
		for {
			n, err := syscall.Read(fd, buf)
			if err != nil || n <= 0 {
				return names
			}
			for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
				mask, cookie := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])
				end := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
				name, _, _ := bytes.Cut(b[syscall.SizeofInotifyEvent:end], []byte{0})
				switch {
				case mask&syscall.IN_MOVED_FROM != 0:
					left[cookie] = true
				case mask&syscall.IN_MOVED_TO != 0 && !left[cookie]:
					names = append(names, string(name))
				}
				b = b[end:]
			}
		}
	}, nil
}
