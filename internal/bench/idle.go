package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// idling starts the program itself, has it run one command, and looks at what it
// and its helpers use while the server wants nothing but heartbeats.
func idling(ctx context.Context, sema string, period time.Duration) (err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := refserver.New(refserver.Config{})
	var all sync.WaitGroup
	all.Go(func() { _ = server.Serve(listener) }) // ends with Close
	defer func() {
		err = errors.Join(err, server.Close())
		all.Wait()
	}()
	home, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)

	program := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, sema, append([]string{"device"}, args...)...)
		cmd.Env = append(os.Environ(), "SEMA_HOME="+filepath.Join(home, "sema"), "SEMA_CREDENTIAL=bench")
		cmd.Stderr = os.Stderr
		return cmd
	}
	out, err := program("enroll", "--server", "http://"+listener.Addr().String(), "--workspace", home, "--key-store", "file", "--json").Output()
	if err != nil {
		return fmt.Errorf("enroll: %w", err)
	}
	var enrolled struct{ DeviceID string }
	if err := json.Unmarshal(out, &enrolled); err != nil {
		return fmt.Errorf("enroll: %w", err)
	}
	serve := program("serve", "--log-level", "warn")
	if err := serve.Start(); err != nil {
		return err
	}
	defer func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		err = errors.Join(err, serve.Wait())
	}()
	limit, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := server.WaitActive(limit, enrolled.DeviceID); err != nil {
		return err
	}
	call, err := server.Dispatch(ctx, enrolled.DeviceID, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: "true"}})
	if err != nil {
		return err
	}
	if _, err := call.Wait(limit); err != nil {
		return err
	}

	before, err := look(serve.Process.Pid)
	if err != nil {
		return err
	}
	time.Sleep(period) // what is measured is what it does by itself
	after, err := look(serve.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %12s   of a core over %v (aim: below 1 %%)\n", "idle, with its helpers",
		fmt.Sprintf("%.2f %%", 100*(after.cpu-before.cpu).Seconds()/period.Seconds()), period)
	fmt.Printf("%-34s %12s   resident (aim: below 40 MiB)\n", "serve", mib(after.resident))
	fmt.Printf("%-34s %12s   of their own, %d processes\n", "its helpers", mib(after.helpers), after.processes)
	return nil
}

// use is what a process and its descendants have used.
type use struct {
	cpu       time.Duration // all together
	resident  int64         // bytes, the process alone
	helpers   int64         // bytes of the descendants that nobody shares
	processes int           // descendants
}

// tick is the unit of processor time in /proc, the same on every Linux.
const tick = 10 * time.Millisecond

func look(pid int) (use, error) {
	parents := map[int]int{}
	cpu := map[int]time.Duration{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return use{}, fmt.Errorf("idle use is read from /proc, which only Linux has: %w", err)
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parents[n], _ = strconv.Atoi(f[1])
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		cpu[n] = time.Duration(user+system) * tick
	}
	if _, ok := parents[pid]; !ok {
		return use{}, errors.New("serve has ended")
	}
	var u use
	for p := range parents {
		switch {
		case p == pid:
			u.cpu += cpu[p]
			u.resident = field(p, "status", "VmRSS:")
		case descends(parents, p, pid):
			u.cpu += cpu[p]
			u.helpers += field(p, "smaps_rollup", "Private_Dirty:")
			u.processes++
		}
	}
	return u, nil
}

func descends(parents map[int]int, p, from int) bool {
	for p > 1 && p != from {
		p = parents[p]
	}
	return p == from
}

// field reads a number of bytes from a file in /proc; 0 where there is none.
func field(pid int, file, name string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
