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
)

// Files are the vectors, by file name.
//
//go:embed *.json
var Files embed.FS

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
	return nil
}
