package conformance

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// keyFile is a file in which the device's private key was found, and how it is
// written there.
type keyFile struct {
	path string
	seed []byte
}

// findKey looks through the row's files for the private half of what was registered.
func (c *Case) findKey() []keyFile {
	public := c.publicKey()
	var found []keyFile
	c.must(filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || isPrinted(path) {
			return nil // gone, or none of ours to read
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		if seed := seedIn(b, public); seed != nil {
			found = append(found, keyFile{path, seed})
		}
		return nil
	}))
	return found
}

// seedIn finds the private half of a public key in a file, nil if it is not there:
// raw, in hex, in base64, in PEM or as a list of numbers, alone or within any text or
// encoding, such as PKCS #8 or OpenSSH's.
func seedIn(b []byte, public ed25519.PublicKey) []byte {
	for _, blob := range blobsIn(b) {
		for ; len(blob) >= ed25519.SeedSize; blob = blob[1:] {
			seed := blob[:ed25519.SeedSize]
			if ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey).Equal(public) {
				return seed
			}
		}
	}
	return nil
}

// mostBlob is how long a piece of binary may be that is looked through for a key.
const mostBlob = 8 << 10

// numbers is a list as JSON has it.
var numbers = regexp.MustCompile(`\[[0-9,\s]+\]`)

// blobsIn lists the pieces of binary that a file holds in any form, each once.
func blobsIn(b []byte) [][]byte {
	var blobs [][]byte
	seen := map[string]bool{}
	add := func(s []byte) {
		if len(s) >= ed25519.SeedSize && len(s) <= mostBlob && !seen[string(s)] {
			seen[string(s)] = true
			blobs = append(blobs, s)
		}
	}
	if !utf8.Valid(b) || len(b) == ed25519.SeedSize {
		add(b)
		return blobs
	}
	text := strings.NewReplacer(`\n`, "\n", `\r`, "").Replace(string(b)) // of a text within JSON
	for rest := []byte(text); ; {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		add(block.Bytes)
		rest = after
	}
	for _, list := range numbers.FindAllString(text, -1) {
		var ns []byte
		for _, f := range strings.FieldsFunc(list, func(r rune) bool { return r < '0' || r > '9' }) {
			n, err := strconv.ParseUint(f, 10, 8)
			if err != nil {
				break
			}
			ns = append(ns, byte(n))
		}
		add(ns)
	}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-", r)
	}) {
		if s, err := hex.DecodeString(word); err == nil {
			add(s)
		}
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			if s, err := e.DecodeString(word); err == nil {
				add(s)
			}
		}
	}
	return blobs
}

// publicKey is what was registered; the row has to watch the HTTP calls.
func (c *Case) publicKey() ed25519.PublicKey {
	bodies := registrations(c, c.calls)
	if len(bodies) == 0 {
		c.stop("no registration was seen")
	}
	key, err := base64.StdEncoding.DecodeString(bodies[len(bodies)-1]["pubkey"])
	if err != nil || len(key) != ed25519.PublicKeySize {
		c.stop("what was registered is no public key")
	}
	return key
}

// keyFiles are the files that hold the device's private key now.
func (c *Case) keyFiles() []string {
	var paths []string
	for _, f := range c.findKey() {
		paths = append(paths, f.path)
	}
	return paths
}

// keysIn are those of the files that are still there with anything in them.
func (c *Case) keysIn(paths []string) []string {
	var left []string
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil && seedIn(b, c.publicKey()) != nil {
			left = append(left, p)
		}
	}
	return left
}
