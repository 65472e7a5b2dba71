package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// compare does two things in turns, so that whatever else the machine is at
// burdens both alike, and returns the times of each.
func compare(rounds int, bare, ours func() (time.Duration, error)) (a, b []time.Duration, err error) {
	for i := range rounds + warmUp {
		x, err := bare()
		if err != nil {
			return nil, nil, err
		}
		y, err := ours()
		if err != nil {
			return nil, nil, err
		}
		if i >= warmUp {
			a, b = append(a, x), append(b, y)
		}
	}
	slices.Sort(a)
	slices.Sort(b)
	return a, b, nil
}

// warmUp is how many first rounds do not count.
const warmUp = 5

// timed makes a measurement of what can be measured from its outside.
func timed(do func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		began := time.Now()
		err := do()
		return time.Since(began), err
	}
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*q))]
}

// showTimes prints median and 99th percentile of both and their ratio.
func showTimes(what, baseline string, bare, ours []time.Duration) {
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", .5}, {"p99", .99}} {
		a, b := quantile(bare, q.q), quantile(ours, q.q)
		row(what+" "+q.name, ms(b), baseline, ms(a), float64(b)/float64(a), fmt.Sprintf("added %s", ms(b-a)))
	}
}

// showRates prints the median rates of both, in bytes a second, and their ratio.
func showRates(what, baseline string, size int64, bare, ours []time.Duration) {
	a, b := rate(size, quantile(bare, .5)), rate(size, quantile(ours, .5))
	row(what, fmt.Sprintf("%.0f MB/s", b), baseline, fmt.Sprintf("%.0f MB/s", a), b/a, "")
}

func rate(size int64, took time.Duration) float64 { return float64(size) / took.Seconds() / 1e6 }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func header() { fmt.Printf("%-34s %12s   %-32s %12s   ratio\n", "", "here", "beside", "") }

func row(what, ours, baseline, bare string, ratio float64, note string) {
	text := fmt.Sprintf("%-34s %12s   %-32s %12s   × %-6.2f %s", what, ours, baseline, bare, ratio, note)
	fmt.Println(strings.TrimRight(text, " "))
}
