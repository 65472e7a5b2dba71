package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

// A path, a command or a value that is half a surrogate pair, or no UTF-8, would be
// another one once decoded; it is refused instead of acted on.
func TestWhatIsToBeDoneIsNeverReplaced(t *testing.T) {
	broken := []string{`\ud800`, `\udc00`, `\ud800\ud800`, `\ud800x`, `\uD83D\u0041`, "\xff", "a\xed\xa0\x80", `\\\ud800`}
	sound := []string{`\ud83d\ude42`, "🙂", `\ufffd`, "\uFFFD", `\\ud800`, `a\u0000b`, "é"}
	forms := map[Kind]string{
		KindExec:          `{"command":"x§"}`,
		KindReadTextFile:  `{"path":"/x§"}`,
		KindReadTextLines: `{"path":"/x§"}`,
		KindWriteFile:     `{"path":"/x§","contentLen":0,"sha256":"` + strings.Repeat("0", 64) + `"}`,
		KindWriteFileGuarded: `{"path":"/x","contentLen":0,"sha256":"` + strings.Repeat("0", 64) +
			`","expect":{"canonicalPath":"/x§"}}`,
		KindRemove:         `{"path":"/x§"}`,
		KindCreateTempFile: `{"prefix":"p","suffix":"x§"}`,
		KindCreateTempDir:  `{"prefix":"x§"}`,
	}
	for kind, form := range forms {
		for _, s := range broken {
			raw := strings.ReplaceAll(form, "§", s)
			if a, err := DecodeArgs(kind, json.RawMessage(raw)); err == nil {
				t.Errorf("%s %q was taken as %+v", kind, raw, a)
			}
		}
		for _, s := range sound {
			raw := strings.ReplaceAll(form, "§", s)
			if _, err := DecodeArgs(kind, json.RawMessage(raw)); err != nil {
				t.Errorf("%s %q: %v", kind, raw, err)
			}
		}
	}
	const frame = `{"t":"instruction","gen":"1","instructionId":"i","rootSessionId":"s","issuedSeq":1,"kind":"exec",` +
		`"args":{"command":"true"},"timeoutMs":1,%}`
	for _, member := range []string{`"cwd":"/x§"`, `"shellEnv":{"A":"x§"}`, `"shellEnv":{"A§":"x"}`} {
		for _, s := range broken {
			raw := strings.ReplaceAll(strings.ReplaceAll(frame, "%", member), "§", s)
			f, err := DecodeServer([]byte(raw))
			in, ok := f.(*Instruction)
			if err != nil || !ok || in.Problem == nil {
				t.Errorf("%q was taken: %+v, %v", raw, f, err)
			}
		}
		for _, s := range sound {
			if strings.Contains(member, "A§") && (s == "\uFFFD" || s == `\ufffd`) {
				continue // in a variable's name even an honest U+FFFD is refused
			}
			raw := strings.ReplaceAll(strings.ReplaceAll(frame, "%", member), "§", s)
			f, err := DecodeServer([]byte(raw))
			if in, ok := f.(*Instruction); err != nil || !ok || in.Problem != nil {
				t.Errorf("%q was refused: %+v, %v", raw, f, err)
			}
		}
	}
}
