package simulation

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// failures plays a schedule in virtual time and returns what did not hold. A
// deadlock, which is also how goroutines that stay behind show, is one of them.
func failures(t *testing.T, s Schedule) (bad []string, r *Report) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			bad = append(bad, fmt.Sprintf("panic: %v", p))
		}
	}()
	r = Virtual(t, s)
	return r.Failures, r
}

// play plays a schedule and complains of what did not hold.
func play(t *testing.T, s Schedule) *Report {
	t.Helper()
	bad, r := failures(t, s)
	if len(bad) > 0 {
		t.Errorf("seed %d:\n  %s\nreplay: go test ./internal/simulation -run '^TestSeed$' -v -seed=%d", s.Seed, strings.Join(bad, "\n  "), s.Seed)
	}
	return r
}

// TestSeed plays one seed again and shows all that happens.
func TestSeed(t *testing.T) {
	s := chosen(t, VirtualPace)
	r := play(t, s)
	if r != nil && testing.Verbose() {
		fmt.Fprint(os.Stderr, s)
		for _, l := range r.Trace {
			fmt.Fprintln(os.Stderr, l)
		}
	}
}

// In this schedule the server swallows what it owes for the last 64 chunks that may be
// under way, and the connection stays: nobody can send anything more.
func TestAcknowledgementsThatNeverComeAreNotTheExecutorsFault(t *testing.T) {
	play(t, Generate(1796030461802, VirtualPace).Keep([]int{9, 10, 16}))
}

// seedsInTest is how many seeds every run of the tests plays.
const seedsInTest = 500

func TestEverySeedKeepsThePromises(t *testing.T) {
	const parts = 25 // beside one another, and no other test of the package beside them
	var lives, fences, starts, settled atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for part := range uint64(parts) {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for seed := part + 1; seed <= seedsInTest; seed += parts {
					r := play(t, Generate(seed, VirtualPace))
					if r == nil {
						continue
					}
					lives.Add(int64(r.Lives))
					starts.Add(int64(r.Starts))
					for _, n := range r.Settled {
						settled.Add(int64(n))
					}
					for _, l := range r.Trace {
						if strings.Contains(l, "generationAck") {
							fences.Add(1)
						}
					}
				}
			})
		}
	})
	t.Logf("%d seeds: %d executors, %d connections, %d commands started, %d instructions settled", seedsInTest, lives.Load(), fences.Load(), starts.Load(), settled.Load())
	if lives.Load() < seedsInTest*11/10 || fences.Load() < seedsInTest*2 || starts.Load() < seedsInTest*3 || settled.Load() < seedsInTest*8 {
		t.Error("the schedules are too tame to show anything")
	}
}

func TestTheSchedulesHoldEverything(t *testing.T) {
	actions, reactions := map[Action]int{}, map[Reaction]int{}
	for seed := range uint64(seedsInTest) {
		for _, e := range Generate(seed+1, VirtualPace).Events {
			actions[e.Do]++
			if e.Ask != nil {
				reactions[e.Ask.Program.Term]++
			}
		}
	}
	for _, a := range []Action{DoAsk, Cut, Freeze, Stall, Slow, Delay, Refuse, Deafen, Restart, Drain, Bye, Reject, NoHello, NoWelcome,
		LateHello, Repeat, Withhold, Inject, Clock, Sleep, Crash, Stop, Settle, Unlist, Dismiss, Age} {
		if actions[a] < 50 {
			t.Errorf("only %d times %q", actions[a], a)
		}
	}
	for _, r := range []Reaction{Dies, Speaks, Ignores, Lingers, Undead} {
		if reactions[r] < 50 {
			t.Errorf("only %d commands that react with %q", reactions[r], r)
		}
	}
}

// Virtual time gives every event a nanosecond of its own. Where one event makes two
// goroutines ready at once, either may be first; so once in a hundred a seed has a
// second trace, but not a third.
func TestOneSeedHasOneTrace(t *testing.T) {
	const seeds, seconds = 12, 2
	parted := 0
	for seed := range uint64(seeds) {
		s := Generate(seed+1, VirtualPace)
		if again := Generate(seed+1, VirtualPace); again.String() != s.String() {
			t.Fatalf("seed %d has two schedules", seed+1)
		}
		first, second := play(t, s).Trace, play(t, s).Trace
		if slices.Equal(first, second) {
			continue
		}
		i := 0
		for at(first, i) == at(second, i) {
			i++
		}
		where := fmt.Sprintf("seed %d: the traces part at line %d:\n%s\n%s", seed+1, i, at(first, i), at(second, i))
		parted++
		if third := play(t, s).Trace; parted > seconds || !slices.Equal(third, first) && !slices.Equal(third, second) {
			t.Error(where)
		} else {
			t.Log(where)
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(the end)"
}
