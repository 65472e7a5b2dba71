package simulation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// none stands for no events at all in -keep.
const none = "none"

// chosen is the schedule of the flags.
func chosen(t *testing.T, p Pace) Schedule {
	t.Helper()
	if *seedFlag == 0 {
		t.Skip("only with -seed: it plays one seed again")
	}
	s := Generate(*seedFlag, p)
	if *keepFlag == "" {
		return s
	}
	var keep []int
	for word := range strings.SplitSeq(*keepFlag, ",") {
		if word == none {
			continue
		}
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("-keep: %v", err)
		}
		keep = append(keep, n)
	}
	return s.Keep(keep)
}

// TestSoak plays seeds for as long as it is told, and stops at the first that fails.
func TestSoak(t *testing.T) {
	if *soakFlag == 0 {
		t.Skip("only with -soak: scripts/soak runs it")
	}
	played := 0
	defer func() { fmt.Printf("soak: played %d\n", played) }()
	for end, seed := time.Now().Add(*soakFlag), *firstFlag; time.Now().Before(end); seed += *stepFlag {
		if *groundFlag == "real" {
			playReal(t, Generate(seed, RealPace))
		} else {
			play(t, Generate(seed, VirtualPace))
		}
		played++
		if t.Failed() {
			fmt.Printf("soak: failed %d\n", seed)
			return
		}
	}
}

// TestMinimise leaves events out of a seed that fails for as long as it does.
func TestMinimise(t *testing.T) {
	pace, again := VirtualPace, "^TestSeed$"
	if *groundFlag == "real" {
		pace, again = RealPace, "^TestRealSeed$"
	}
	s := chosen(t, pace)
	replay := func(keep []int) []string {
		words := make([]string, len(keep))
		for i, n := range keep {
			words[i] = fmt.Sprint(n)
		}
		if len(words) == 0 {
			words = []string{none}
		}
		return []string{"-test.run=" + again, fmt.Sprintf("-seed=%d", s.Seed), "-keep=" + strings.Join(words, ",")}
	}
	// In a process of its own: a failure may be a crash or a hang.
	fails := func(keep []int) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		return exec.CommandContext(ctx, os.Args[0], replay(keep)...).Run() != nil
	}
	if !fails(slices.Collect(func(yield func(int) bool) {
		for i := range s.Events {
			if !yield(i) {
				return
			}
		}
	})) {
		t.Fatalf("seed %d does not fail when it is played again", s.Seed)
	}
	keep := Minimise(len(s.Events), fails)
	out, _ := exec.CommandContext(t.Context(), os.Args[0], append(replay(keep), "-test.v")...).CombinedOutput()
	fmt.Printf("%s\nsoak: %d of %d events are needed; replay with\n  go test ./internal/simulation -v %s\n", out, len(keep), len(s.Events),
		strings.ReplaceAll(strings.Join(replay(keep), " "), "-test.run=", "-run "))
}
