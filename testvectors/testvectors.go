// Package testvectors holds the protocol's test vectors: JSON files, one
// subject each, that an implementation in any language can be held against.
// README.md describes their form. To Go tests it offers the files and nothing
// else; what a vector means is for the package that it judges.
package testvectors

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
)

// Files are the vectors, by file name.
//
//go:embed *.json
var Files embed.FS

// Version is the version of the files' form that Cases reads.
const Version = 1

// Case is one vector: what goes in and what must come out.
type Case[Input, Expect any] struct {
	Name   string // unique in its file
	Proves string // the rule, with its section in the guide
	Input  Input
	Expect Expect
}

// Cases gives the cases of the file of that name, read as strictly as Load.
func Cases[Input, Expect any](name string) ([]Case[Input, Expect], error) {
	var file struct {
		Version int
		About   string
		Cases   []Case[Input, Expect]
	}
	if err := Load(name, &file); err != nil {
		return nil, err
	}
	if file.Version != Version || file.About == "" || len(file.Cases) == 0 {
		return nil, fmt.Errorf("test vectors: %s: version %d, not %d, or about or cases missing", name, file.Version, Version)
	}
	names := map[string]bool{}
	for i, c := range file.Cases {
		if c.Name == "" || c.Proves == "" || names[c.Name] {
			return nil, fmt.Errorf("test vectors: %s: case %d, %q: no name, a name used before, or nothing proved", name, i, c.Name)
		}
		names[c.Name] = true
	}
	return file.Cases, nil
}

// Load decodes the file of that name into v, strictly: a member that v has no
// place for is an error, so that no part of a vector goes unread.
func Load(name string, v any) error {
	b, err := Files.ReadFile(name)
	if err != nil {
		return fmt.Errorf("test vectors: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("test vectors: %s: %w", name, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("test vectors: %s: text after the end", name)
	}
	return nil
}
