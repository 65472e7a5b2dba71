package process

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkStart is a command's start to its shell's end, with a supervisor
// started ahead, beside a bare spawn of the same shell. Read the p50 column.
func BenchmarkStart(b *testing.B) {
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		b.Run("bare"+shell, func(b *testing.B) {
			median(b, func() {
				if err := exec.Command(shell, "-c", "true").Run(); err != nil {
					b.Fatal(err)
				}
			}, func() {})
		})
		b.Run("supervised"+shell, func(b *testing.B) {
			c := newControl(b)
			s := Spec{InstructionID: "ins_bench", Shell: shell, Command: "true", Env: os.Environ(), Dir: "/"}
			var last Command
			median(b, func() {
				cmd, err := c.Start(context.Background(), s)
				if err != nil {
					b.Fatal(err)
				}
				<-cmd.Exited()
				last = cmd
			}, func() {
				last.Release()
				<-last.Gone()
				awaitStandby(b, c)
			})
		})
	}
}

// median times work alone, and rests in between.
func median(b *testing.B, work, rest func()) {
	var times []time.Duration
	for b.Loop() {
		began := time.Now()
		work()
		times = append(times, time.Since(began))
		b.StopTimer()
		rest()
		b.StartTimer()
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}
