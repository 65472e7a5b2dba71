package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// line is a line of the input that is not blank.
type line struct {
	number int // from 1, blank ones counted
	text   []byte
	long   bool // longer than maxLine; there is no text then
	err    error
}

// maxLine is the most bytes a line may have: content is in it.
const maxLine = 64 << 20

// readLines passes on the lines of r. A read of a terminal cannot be interrupted:
// the goroutine may last as long as the process.
func readLines(r io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		in := bufio.NewReaderSize(r, 64<<10)
		for n := 1; ; n++ {
			text, long, err := readLine(in, maxLine)
			if long || len(bytes.TrimSpace(text)) > 0 {
				lines <- line{number: n, text: text, long: long}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				lines <- line{number: n, err: err}
				return
			}
		}
	}()
	return lines
}

// readLine reads a line without its end. Of one that is longer than most it keeps
// nothing.
func readLine(in *bufio.Reader, most int) (text []byte, long bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if long = long || len(text)+len(part) > most; long {
			text = nil
		} else {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(text, "\r\n"), long, err
		}
	}
}
