package conformance

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

// keyFile is a file in which the device's private key was found, and how it is
// written there.
type keyFile struct {
	path string
	seed []byte
}

// findKey looks through the executor's files for the private half of a public key:
// raw, in hex or in base64, alone or among other text, as a seed or as a seed with
// its public half.
func findKey(home string, public ed25519.PublicKey) ([]keyFile, error) {
	var found []keyFile
	err := filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // gone, or none of ours to read
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for _, seed := range seedsIn(b) {
			if ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey).Equal(public) {
				found = append(found, keyFile{path, seed})
				break
			}
		}
		return nil
	})
	return found, err
}

// seedsIn lists what may be a seed in a file.
func seedsIn(b []byte) [][]byte {
	var seeds [][]byte
	add := func(s []byte) {
		switch {
		case len(s) == 32, len(s) == 64:
			seeds = append(seeds, s[:32])
		case len(s) > 32 && len(s) < 200: // PKCS #8 ends in the seed
			seeds = append(seeds, s[len(s)-32:])
		}
	}
	add(b)
	for _, word := range strings.FieldsFunc(string(b), func(r rune) bool {
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
	return seeds
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
	found, err := findKey(c.place.home, c.publicKey())
	c.must(err)
	var paths []string
	for _, f := range found {
		paths = append(paths, f.path)
	}
	return paths
}

// keysIn are those of the files that are still there with anything in them.
func (c *Case) keysIn(paths []string) []string {
	var left []string
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil {
			for _, seed := range seedsIn(b) {
				if ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey).Equal(c.publicKey()) {
					left = append(left, p)
					break
				}
			}
		}
	}
	return left
}
