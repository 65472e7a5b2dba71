package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// variant is the minimal executor with texts of its source replaced, and the row
// that judges what that changes.
type variant struct {
	about, row string
	edits      []edit
}

// edit replaces a text that a file of the minimal executor has once.
type edit struct{ file, old, new string }

// Every fault has its place in the source and its row. Whether the row catches it is
// for scripts/variants, which prints the lines that are logged here: it takes long.
func TestBrokenExecutorsOfOthersAreCaught(t *testing.T) {
	judgeVariants(t, broken, func(r Result) bool { return r.Verdict == Fail }, "NOT CAUGHT")
}

// The suite is for executors of any hand, so a row may ask for nothing that the
// guide leaves open.
func TestExecutorsOfAnotherHandAreNotFailed(t *testing.T) {
	judgeVariants(t, allowed, func(r Result) bool { return r.Verdict != Fail }, "FAILED, though the guide allows it")
}

// judgeVariants has each variant judged by its row, if scripts/variants asks for it.
func judgeVariants(t *testing.T, variants []variant, right func(Result) bool, otherwise string) {
	judge := os.Getenv("CONFORMANCE_VARIANTS") != ""
	slots := make(chan struct{}, 8) // most of them wait
	for _, v := range variants {
		t.Run(v.about, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			texts := v.texts(t)
			if _, err := Select([]string{v.row}); err != nil {
				t.Error(err)
			}
			if !judge {
				return
			}
			program := quote(buildOverlaid(t, texts))
			line := fmt.Sprintf("%-60s %-22s ", "minimal: "+v.about, v.row)
			cfg := Config{Only: []string{v.row}, Dir: t.TempDir(),
				Enroll: program + " enroll {server} {home} {workspace} {credential}", Serve: program + " serve {home}"}
			results, err := Run(t.Context(), cfg)
			if err == nil && !right(results[0]) { // as for rows beside others, once more
				results, err = Run(t.Context(), cfg)
			}
			if err != nil {
				t.Fatalf("%s%v", line, err)
			}
			if !right(results[0]) {
				t.Fatalf("%s%s: %q", line, otherwise, results[0].Findings)
			}
			t.Logf("%s%s", line, map[Verdict]string{Fail: v.row, Pass: "allowed", NotApplicable: "not applicable"}[results[0].Verdict])
		})
	}
}

// imports are what a replaced text may need and its file may not have.
var imports = []string{"bytes", "crypto/x509", "encoding/base64", "encoding/pem", "fmt", "net", "os/exec", "strconv", "sync", "time"}

// texts are the changed files of the minimal executor, by their paths.
func (v variant) texts(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, e := range v.edits {
		source, err := filepath.Abs(filepath.Join("testdata", "minimal", e.file))
		if err != nil {
			t.Fatal(err)
		}
		text, changed := texts[source]
		if !changed {
			b, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if strings.Count(text, e.old) != 1 {
			t.Fatalf("%s does not have this text once:\n%s", e.file, e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
		for _, name := range imports {
			if strings.Contains(e.new, filepath.Base(name)+".") && !strings.Contains(text, "\t\""+name+"\"\n") {
				text = strings.Replace(text, "import (\n", "import (\n\t\""+name+"\"\n", 1)
			}
		}
		texts[source] = text
	}
	return texts
}

// buildOverlaid builds the minimal executor with other texts in place of files.
func buildOverlaid(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for source, text := range texts {
		replace[source] = filepath.Join(dir, "changed-"+filepath.Base(source))
		if err := os.WriteFile(replace[source], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "minimal")
	if err := os.WriteFile(overlay, plan, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./testdata/minimal").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
