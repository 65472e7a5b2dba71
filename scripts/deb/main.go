// Command deb writes a Debian package of the program. Its bytes are the same
// wherever it runs: it needs no Debian tools, and every time in the package is
// the one it is given.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	var p pack
	var program, man, out string
	var epoch int64
	flag.StringVar(&program, "program", "", "the program to pack")
	flag.StringVar(&man, "man", "", "folder with its manual pages")
	flag.StringVar(&p.Version, "version", "", "its version, v1.2.3")
	flag.StringVar(&p.Arch, "arch", "", "Debian's name of its architecture")
	flag.Int64Var(&epoch, "epoch", 0, "time of all files, in seconds since 1970")
	flag.StringVar(&out, "out", "", "the package to write")
	flag.Parse()
	p.Time = time.Unix(epoch, 0)
	if err := run(p, program, man, out); err != nil {
		fmt.Fprintf(os.Stderr, "deb: %v\n", err)
		os.Exit(1)
	}
}

func run(p pack, program, man, out string) error {
	var err error
	if p.Program, err = os.ReadFile(program); err != nil {
		return err
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return err
	}
	p.Pages = map[string][]byte{}
	for _, page := range pages {
		if p.Pages[page.Name()], err = os.ReadFile(filepath.Join(man, page.Name())); err != nil {
			return err
		}
	}
	data, err := p.bytes()
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}
