package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
)

// A secret is found in whatever a program makes of it, whatever stands before it.
func TestASecretIsFoundInEveryForm(t *testing.T) {
	seed := noise(32, 77)
	for before := range 7 {
		whole := slices.Concat(noise(16+before, 78), seed, noise(5, 79))
		armoured := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: whole})
		inJSON, err := json.Marshal(map[string]string{"pem": string(armoured)})
		if err != nil {
			t.Fatal(err)
		}
		twice, err := json.Marshal(string(inJSON))
		if err != nil {
			t.Fatal(err)
		}
		var parted []string
		for _, b := range whole {
			parted = append(parted, hex.EncodeToString([]byte{b}))
		}
		for form, text := range map[string]string{
			"raw": string(whole), "hex": hex.EncodeToString(whole), "HEX": strings.ToUpper(hex.EncodeToString(whole)), "hex with colons": strings.Join(parted, ":"),
			"base64": base64.StdEncoding.EncodeToString(whole), "base64url": base64.RawURLEncoding.EncodeToString(whole),
			"PEM": string(armoured), "PEM of DOS": strings.ReplaceAll(string(armoured), "\n", "\r\n"), "PEM in JSON": string(inJSON), "PEM in JSON in JSON": string(twice),
			"the middle of PEM": strings.Join(strings.Split(string(armoured), "\n")[1:2], "\n") + "\n" + strings.Join(strings.Split(string(armoured), "\n")[2:3], "\n"),
			"within a line":     "12:00 INFO key=" + base64.StdEncoding.EncodeToString(whole) + " loaded",
		} {
			if holdsKey(text, seed) == "" {
				t.Errorf("%s, %d bytes before it: not found", form, 16+before)
			}
			if holdsKey(text, noise(32, 80)) != "" {
				t.Errorf("%s: another key is seen in it", form)
			}
		}
	}
	numbers, err := json.Marshal(slices.Collect(func(yield func(int) bool) {
		for _, b := range seed {
			if !yield(int(b)) {
				return
			}
		}
	}))
	if err != nil || holdsKey(string(numbers), seed) == "" {
		t.Errorf("a list of numbers: not found, %v", err)
	}
	if holdsKey(string(bytes.Repeat([]byte("text without a secret "), 100)), seed) != "" {
		t.Error("a secret is seen where none is")
	}
}
