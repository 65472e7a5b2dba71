package conformance

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// needle is a text, or a key, that must not be somewhere, in each form in which it
// may be written: as it is, in hex, and in base64, which has three forms of what
// stands within a longer text.
type needle struct {
	text  string
	hex   string
	cores [3]string
}

func needleOf(text string) needle {
	n := needle{text: text, hex: hex.EncodeToString([]byte(text))}
	for before := range n.cores {
		all := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", before) + text))
		// The first and the last character may belong to what stands beside it.
		from := (before*8 + 5) / 6
		n.cores[before] = all[from : (before+len(text))*8/6]
	}
	return n
}

func needlesOf(texts ...string) []needle {
	var all []needle
	for _, t := range texts {
		if t != "" {
			all = append(all, needleOf(t))
		}
	}
	return all
}

// flat takes out of a text what may stand within hex or base64: line breaks, as they
// are or escaped within JSON, and what parts pairs of digits.
var flat = strings.NewReplacer(`\\n`, "", `\\r`, "", `\n`, "", `\r`, "", `\u000a`, "", `\u000d`, "", "\n", "", "\r", "", " ", "", "\t", "", ":", "",
	"-", "+", "_", "/", `\/`, "/", `\u002b`, "+", `\u002B`, "+", `\u002f`, "/", `\u002F`, "/")

// haystack is a text, ready to be searched for any number of needles.
type haystack struct{ text, flat, lower string }

func haystackOf(text string) haystack {
	f := flat.Replace(text)
	return haystack{text, f, strings.ToLower(f)}
}

// find says in which form a needle is there, "" if in none.
func (h haystack) find(n needle) string {
	switch {
	case strings.Contains(h.text, n.text):
		return "as it is"
	case strings.Contains(h.lower, n.hex):
		return "in hex"
	case slices.ContainsFunc(n.cores[:], func(core string) bool { return strings.Contains(h.flat, core) }):
		return "in base64"
	}
	return ""
}

// holdsKey says in which form a text holds a private key's seed, "" if in none.
func holdsKey(text string, seed []byte) string {
	if form := haystackOf(text).find(needleOf(string(seed))); form != "" {
		return form
	}
	for _, blob := range blobsIn([]byte(text)) { // as a list of numbers
		if strings.Contains(string(blob), string(seed)) {
			return "encoded"
		}
	}
	return ""
}

// grep lists the files in the row's folder that hold any of the needles, less those
// that hold what was printed and those that are spared.
func (c *Case) grep(spared func(path string) bool, needles ...needle) (found []string, err error) {
	err = filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() || isPrinted(path) || spared(path) {
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		hay := haystackOf(string(b))
		for _, n := range needles {
			if form := hay.find(n); form != "" {
				found = append(found, fmt.Sprintf("%s holds %q, %s", path, cut(n.text, 24), form))
			}
		}
		return nil
	})
	return found, err
}

// nowhere expects texts in no file that the executor has written on its own account,
// wherever in the row's folder, and in nothing it printed. The row's own files are
// those that it made, or had the executor write.
func (c *Case) nowhere(what string, texts ...string) {
	needles := needlesOf(texts...)
	found, err := c.grep(func(path string) bool { return c.own[path] }, needles...)
	c.must(err)
	for _, x := range c.procs {
		hay := haystackOf(c.said(x))
		for _, n := range needles {
			if form := hay.find(n); form != "" {
				found = append(found, fmt.Sprintf("what it printed holds %q, %s", cut(n.text, 24), form))
			}
		}
	}
	c.expect(len(found) == 0, "%s: %s", what, strings.Join(found, "; "))
}

// said is all that a process printed; more than is kept cannot be searched.
func (c *Case) said(x *process) string {
	text, lost := x.out.all()
	c.expect(lost == 0, "the executor printed %d bytes more than the %d that are searched here", lost, mostPrinted)
	return text
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
