package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// kinds are the mandatory ones of §3.6.
var kinds = []string{"exec", "execStream", "readTextFile", "readTextLines", "readBinaryFile", "writeFile", "appendFile",
	"fileInfo", "listDir", "canonicalPath", "exists", "createDir", "remove", "createTempDir", "createTempFile"}

// do carries an instruction out.
func (w *work) do(f serverFrame) frame {
	switch f.Kind {
	case "exec", "execStream":
		return w.exec(f)
	case "createTempDir", "createTempFile":
		return temporary(f)
	}
	var args struct {
		Path       string `json:"path"`
		Limit      *int64 `json:"limit"`
		Recursive  *bool  `json:"recursive"`
		ContentLen int64  `json:"contentLen"`
		SHA256     string `json:"sha256"`
	}
	if err := json.Unmarshal(f.Args, &args); err != nil {
		return failure("invalid", err.Error())
	}
	known := false
	for _, k := range kinds {
		known = known || k == f.Kind
	}
	switch {
	case !known:
		return failure("not_supported", "this executor does not do "+f.Kind)
	case !filepath.IsAbs(args.Path) || strings.Contains(args.Path, "\x00"):
		return failure("invalid", "args.path is not an absolute path")
	case isClosed(w.ended):
		return w.stopped(false)
	}
	path := args.Path
	switch f.Kind {
	case "readTextFile", "readBinaryFile":
		return w.read(path, nil)
	case "readTextLines":
		return w.read(path, args.Limit)
	case "writeFile", "appendFile":
		return w.write(f.Kind, path, args.ContentLen, args.SHA256)
	case "fileInfo":
		info, err := os.Lstat(path)
		if err != nil {
			return wrong(err)
		}
		return frame{"ok": true, "kind": "stat", "info": infoOf(path, info)}
	case "listDir":
		return list(path)
	case "canonicalPath":
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return wrong(err)
		}
		return frame{"ok": true, "kind": "stat", "canonicalPath": real}
	case "exists":
		_, err := os.Lstat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return wrong(err)
		}
		return frame{"ok": true, "kind": "stat", "existsValue": err == nil}
	case "createDir":
		make := os.Mkdir
		if args.Recursive == nil || *args.Recursive {
			make = os.MkdirAll
		}
		if err := make(path, 0o777); err != nil {
			return wrong(err)
		}
	case "remove":
		if _, err := os.Lstat(path); err != nil {
			return wrong(err)
		}
		remove := os.Remove
		if args.Recursive != nil && *args.Recursive {
			remove = os.RemoveAll
		}
		if err := remove(path); err != nil {
			return wrong(err)
		}
	}
	return frame{"ok": true, "kind": "void"}
}

// wrong maps the system's word to the protocol's.
func wrong(err error) frame {
	code := "unknown"
	for _, m := range []struct {
		err  error
		code string
	}{
		{fs.ErrNotExist, "not_found"}, {fs.ErrPermission, "permission_denied"}, {syscall.EISDIR, "is_directory"},
		{syscall.ENOTDIR, "not_directory"}, {fs.ErrExist, "already_exists"}, {syscall.EINVAL, "invalid"},
	} {
		if errors.Is(err, m.err) {
			code = m.code
			break
		}
	}
	return failure(code, err.Error())
}

func infoOf(path string, i fs.FileInfo) frame {
	kind := "other"
	switch {
	case i.Mode().IsRegular():
		kind = "file"
	case i.IsDir():
		kind = "dir"
	case i.Mode()&fs.ModeSymlink != 0:
		kind = "symlink"
	}
	return frame{"path": path, "kind": kind, "size": i.Size(), "mtimeMs": i.ModTime().UnixMilli(), "mode": i.Mode().Perm()}
}

func list(path string) frame {
	d, err := os.Open(path)
	if err != nil {
		return wrong(err)
	}
	defer d.Close()
	found, err := d.ReadDir(-1)
	if err != nil {
		return wrong(err)
	}
	entries := []frame{}
	for _, e := range found {
		if i, err := e.Info(); err == nil {
			entries = append(entries, infoOf(filepath.Join(path, e.Name()), i))
		}
	}
	return frame{"ok": true, "kind": "stat", "entries": entries}
}

func (w *work) read(path string, limit *int64) frame {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO without a writer is empty
	if err != nil {
		return wrong(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return wrong(err)
	}
	if info.IsDir() {
		return failure("is_directory", path+" is a folder")
	}
	r := bufio.NewReaderSize(f, mostChunk)
	for lines := int64(0); limit == nil || lines < *limit; {
		var b []byte
		if limit != nil {
			if b, err = r.ReadSlice('\n'); err == bufio.ErrBufferFull {
				err = nil
			} else if err == nil {
				lines++
			}
		} else {
			b = make([]byte, mostChunk)
			var n int
			n, err = r.Read(b)
			b = b[:n]
		}
		if !w.put("data", bytes.Clone(b)) {
			return w.stopped(true)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return wrong(err)
		}
	}
	return frame{"ok": true, "kind": "read"}
}

// write gathers the content beside the target and puts it there in one step.
func (w *work) write(kind, path string, length int64, digest string) frame {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
			dir, err = filepath.EvalSymlinks(filepath.Dir(path))
		}
	}
	if err != nil {
		return wrong(err)
	}
	path = filepath.Join(dir, filepath.Base(path))
	mode := fs.FileMode(0o644)
	if i, err := os.Stat(path); err == nil {
		if mode = i.Mode().Perm(); i.IsDir() {
			return failure("is_directory", path+" is a folder")
		}
	}
	temp, err := os.CreateTemp(dir, ".minimal-*")
	if err != nil {
		return wrong(err)
	}
	defer os.Remove(temp.Name()) // fails once it has its name
	defer temp.Close()
	sum, got := sha256.New(), int64(0)
	for {
		var p serverFrame
		select {
		case p = <-w.content:
		case <-w.ended:
			return w.stopped(false)
		}
		switch p.Part {
		case "begin":
			if p.TotalLen != length || p.SHA256 != digest {
				return failure("invalid", "the content is announced otherwise than in args; nothing was written")
			}
		case "chunk":
			b, err := base64.StdEncoding.DecodeString(p.DataB64)
			if err != nil || p.Offset != got {
				return failure("invalid", "the content has a hole; nothing was written")
			}
			got += int64(len(b))
			sum.Write(b)
			if _, err := temp.Write(b); err != nil {
				return wrong(err)
			}
		case "commit":
			if got != length || hex.EncodeToString(sum.Sum(nil)) != digest {
				return failure("invalid", "the content is not what was announced; nothing was written")
			}
			if isClosed(w.ended) {
				return w.stopped(false)
			}
			if kind == "appendFile" {
				if err := appendTo(path, temp, mode); err != nil {
					return wrong(err)
				}
				return frame{"ok": true, "kind": "void"}
			}
			if err := place(temp, path, mode); err != nil {
				return wrong(err)
			}
			return frame{"ok": true, "kind": "write", "canonicalPath": path}
		}
	}
}

// place gives a finished file its name, in one step.
func place(f *os.File, path string, mode fs.FileMode) error {
	if err := errors.Join(f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// appending lets one append at a time look at what is there and replace it.
var appending sync.Mutex

// appendTo puts a file in place that holds what is at path and then what is in more.
func appendTo(path string, more *os.File, mode fs.FileMode) error {
	appending.Lock()
	defer appending.Unlock()
	whole, err := os.CreateTemp(filepath.Dir(path), ".minimal-*")
	if err != nil {
		return err
	}
	defer os.Remove(whole.Name()) // fails once it has its name
	defer whole.Close()
	old, err := os.Open(path)
	switch {
	case err == nil:
		defer old.Close()
		if _, err := io.Copy(whole, old); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if _, err := more.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(whole, more); err != nil {
		return err
	}
	return place(whole, path, mode)
}

func temporary(f serverFrame) frame {
	var args struct {
		Prefix string `json:"prefix"`
		Suffix string `json:"suffix"`
	}
	if err := json.Unmarshal(f.Args, &args); err != nil || strings.Contains(args.Prefix+args.Suffix, "/") {
		return failure("invalid", "prefix and suffix are texts without a slash")
	}
	var path string
	var err error
	if f.Kind == "createTempDir" {
		path, err = os.MkdirTemp("", args.Prefix+"*")
	} else {
		var file *os.File
		if file, err = os.CreateTemp("", args.Prefix+"*"+args.Suffix); err == nil {
			path = file.Name()
			file.Close()
		}
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return wrong(err)
	}
	return frame{"ok": true, "kind": "write", "canonicalPath": path}
}
