package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Where the package puts the program and its manual pages.
const (
	programPath = "usr/bin/sema"
	manFolder   = "usr/share/man/man1/"
)

// pack is a Debian package of one program.
type pack struct {
	Program []byte
	Pages   map[string][]byte // manual pages by file name, such as sema.1
	Version string            // v1.2.3 or v1.2.3-rc.1
	Arch    string
	Time    time.Time
}

// debianVersion writes a version so that Debian sorts 1.2.3-rc.1 before 1.2.3.
func (p pack) debianVersion() string {
	return strings.ReplaceAll(strings.TrimPrefix(p.Version, "v"), "-", "~")
}

// installed are the files of the package.
func (p pack) installed() ([]file, error) {
	files := []file{{programPath, 0o755, p.Program}}
	for _, name := range slices.Sorted(maps.Keys(p.Pages)) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(p.Pages[name]); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		files = append(files, file{manFolder + name + ".gz", 0o644, b.Bytes()})
	}
	return files, nil
}

func (p pack) control(installed []file) string {
	size := 0
	for _, f := range installed {
		size += len(f.data)
	}
	return fmt.Sprintf(`Package: sema-device-executor
Version: %s
Architecture: %s
Maintainer: Sema device executor maintainers <sema-agent@users.noreply.github.com>
Installed-Size: %d
Recommends: bash, ca-certificates
Section: net
Priority: optional
Description: let a cloud coding agent use this machine, on your terms
 The executor makes one outbound connection to the server it was enrolled with
 and runs commands and file operations for it, as the user who started it.
 It is started per user, in the foreground or as a user service:
 see sema device --help.
`, p.debianVersion(), p.Arch, (size+1023)/1024)
}

// bytes returns the package: an archive of a version, the control files and the
// installed files.
func (p pack) bytes() ([]byte, error) {
	if p.Version == "" || p.Arch == "" || len(p.Program) == 0 {
		return nil, fmt.Errorf("a package needs a program, a version and an architecture")
	}
	installed, err := p.installed()
	if err != nil {
		return nil, err
	}
	var sums []byte
	for _, f := range installed {
		sums = fmt.Appendf(sums, "%x  %s\n", md5.Sum(f.data), f.path)
	}
	control, err := p.tarball([]file{{"control", 0o644, []byte(p.control(installed))}, {"md5sums", 0o644, sums}})
	if err != nil {
		return nil, err
	}
	data, err := p.tarball(installed)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	p.member(&b, "debian-binary", []byte("2.0\n"))
	p.member(&b, "control.tar.gz", control)
	p.member(&b, "data.tar.gz", data)
	return b.Bytes(), nil
}

// member appends a file to an ar archive.
func (p pack) member(b *bytes.Buffer, name string, data []byte) {
	fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, p.Time.Unix(), 0, 0, "100644", len(data))
	b.Write(data)
	if len(data)%2 == 1 {
		b.WriteByte('\n')
	}
}

// file is one file of a tarball.
type file struct {
	path string
	mode int64
	data []byte
}

// tarball writes files, and the folders above them, as root's.
func (p pack) tarball(files []file) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	made := map[string]bool{}
	header := func(name string, kind byte, mode, size int64) error {
		return t.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: size, ModTime: p.Time,
			Uname: "root", Gname: "root", Format: tar.FormatGNU})
	}
	for _, f := range files {
		for _, dir := range foldersOf(f.path) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := header(dir, tar.TypeDir, 0o755, 0); err != nil {
				return nil, err
			}
		}
		if err := header("./"+f.path, tar.TypeReg, f.mode, int64(len(f.data))); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// foldersOf lists the folders above a path, from the top down, as tar names them.
func foldersOf(name string) []string {
	var dirs []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		dirs = append([]string{"./" + dir + "/"}, dirs...)
	}
	return append([]string{"./"}, dirs...)
}
