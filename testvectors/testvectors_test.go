package testvectors_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/testvectors"
)

// A file of vectors that no test names proves nothing, and one that the README
// does not describe helps no one else.
func TestEveryFileIsDescribedAndRunBySomeTest(t *testing.T) {
	var tests strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "../testvectors/") {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			tests.Write(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(testvectors.Files, "*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.Contains(string(readme), "`"+f+"`") {
			t.Errorf("README.md does not describe %s", f)
		}
		if !strings.Contains(tests.String(), `"`+f+`"`) {
			t.Errorf("no test runs %s", f)
		}
	}
}

// A case that asks what another one asked proves nothing beside it.
func TestNoTwoCasesOfAFileAskTheSame(t *testing.T) {
	files, err := fs.Glob(testvectors.Files, "*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f == "foreign.json" { // of another form, and kept as it came
			continue
		}
		cases, err := testvectors.Cases[any, any](f)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[string]string{}
		for _, c := range cases {
			input, err := json.Marshal(c.Input) // members sorted
			if err != nil {
				t.Fatal(err)
			}
			if other, twice := asked[string(input)]; twice {
				t.Errorf("%s: %q asks what %q asks", f, c.Name, other)
			}
			asked[string(input)] = c.Name
		}
	}
}

// The vectors stand alone: an implementation that shares nothing with this
// module passes all that are about frames, hellos, epochs, base64, admission and streams.
func TestTheExamplePassesEveryVector(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil && os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
		t.Fatal("node is not installed, and nothing may be skipped here")
	}
	if err != nil {
		t.Skip("node is not installed; it runs the example")
	}
	script := filepath.Join("example", "verify.mjs")
	parts, err := filepath.Glob(filepath.Join("example", "*.mjs"))
	if err != nil || len(parts) < 2 {
		t.Fatalf("%v, %v", parts, err)
	}
	for _, p := range parts {
		if _, err := os.ReadFile(p); err != nil { // also lets the test cache see a change
			t.Fatal(err)
		}
	}
	out, err := exec.Command(node, script).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), " passed, 0 failed\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
