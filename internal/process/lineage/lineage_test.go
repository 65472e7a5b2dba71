package lineage

import (
	"encoding/binary"
	"slices"
	"testing"
)

const (
	self  = 100 // child of a login shell
	shell = 200 // of the command
)

// machine is a process table in the making: what a test says, and what the kernel
// knows beside it.
type machine struct {
	table    Table
	sessions map[int]int
	marked   map[int]string // what is visible of the environment
	now      uint64
}

func newMachine() *machine {
	m := &machine{table: Table{}, sessions: map[int]int{}, marked: map[int]string{}}
	m.start(1, 0, 1, 1)
	m.start(50, 1, 50, 50)
	m.start(self, 50, self, 50).named("sema")
	m.start(60, 1, 60, 60) // a stranger
	return m
}

// start starts a process.
func (m *machine) start(pid, parent, group, session int) *entry {
	m.now++
	e := &entry{Proc: Proc{ID: ID{pid, m.now}, Parent: parent, Group: group, Name: "bash"}, m: m}
	m.sessions[pid] = session
	e.put()
	return e
}

type entry struct {
	Proc
	m *machine
}

func (e *entry) put() { e.m.table[e.PID] = e.Proc }

func (e *entry) named(name string) *entry {
	e.Name = name
	e.put()
	return e
}

// end ends a process: its children fall to launchd.
func (m *machine) end(pid int) {
	delete(m.table, pid)
	delete(m.sessions, pid)
	delete(m.marked, pid)
	for child, p := range m.table {
		if p.Parent == pid {
			p.Parent = 1
			m.table[child] = p
		}
	}
}

func (m *machine) Session(pid int) int { return m.sessions[pid] }

func (m *machine) Carries(pid int, variables ...string) bool {
	return slices.Contains(variables, m.marked[pid]) && m.marked[pid] != ""
}

func (m *machine) follow() *Tree {
	before := Table{}
	for pid, p := range m.table {
		before[pid] = p
	}
	s := m.start(shell, self, shell, shell)
	return Follow(s.ID, "MARK=a", before, self)
}

func pids(list []Proc) (all []int) {
	for _, p := range list {
		all = append(all, p.PID)
	}
	slices.Sort(all)
	return all
}

func (m *machine) wantLook(t *testing.T, c *Tree, want ...int) {
	t.Helper()
	if got := pids(c.Look(m.table, m)); !slices.Equal(got, want) {
		t.Errorf("live: %v, want %v", got, want)
	}
}

func TestJobsInGroupsOfTheirOwnAreFoundAfterTheirParentsDied(t *testing.T) {
	m := newMachine()
	c := m.follow()
	m.start(201, shell, 201, shell) // set -m; (sleep 300 &)
	m.start(202, 201, 201, shell)
	m.end(201)
	m.end(shell)
	m.start(61, 60, 60, 60)
	m.wantLook(t, c, 202)
}

func TestWhatWasSeenBelowIsRemembered(t *testing.T) {
	m := newMachine()
	c := m.follow()
	m.start(201, shell, 201, 201) // setsid
	m.start(202, 201, 202, 202)
	m.wantLook(t, c, shell, 201, 202)
	m.end(201)
	m.end(shell)
	m.wantLook(t, c, 202)
	m.start(203, 202, 203, 203)
	m.end(202)
	m.wantLook(t, c) // born and bereft between two looks: no telling
	m.marked[203] = "MARK=a"
	m.wantLook(t, c, 203) // but by its marker
	m.marked[203] = "MARK=b"
	m.wantLook(t, c, 203) // once known, known
}

func TestAClockSetBackHidesNothing(t *testing.T) {
	m := newMachine()
	m.now = 1000
	c := m.follow()
	m.now = 1 // processes started from now on seem older than the shell
	m.start(201, shell, shell, shell)
	m.wantLook(t, c, shell, 201)
}

func TestZombiesAreDeadAndNumbersAreNoNames(t *testing.T) {
	m := newMachine()
	c := m.follow()
	z := m.start(201, shell, shell, shell)
	m.start(202, shell, 202, 202)
	m.wantLook(t, c, shell, 201, 202)
	z.Zombie = true
	z.put()
	m.wantLook(t, c, shell, 202)
	m.end(202)
	m.start(202, 60, 60, 60) // another of this number
	m.wantLook(t, c, shell)
	m.end(201)
	m.end(shell)
	m.start(shell, 60, shell, shell) // and another leader: its session is not ours
	m.start(203, shell, shell, shell)
	m.wantLook(t, c)
}

func TestNeitherWeNorOurElders(t *testing.T) {
	m := newMachine()
	c := m.follow()
	for _, pid := range []int{1, 50, self, 60} {
		m.marked[pid] = "MARK=a"
		m.sessions[pid] = shell
	}
	m.wantLook(t, c, shell)
	left := Left(m.table, m, self, nil, []string{"MARK=a"})
	if got := pids(left.Look(m.table, m)); !slices.Equal(got, []int{60}) {
		// here nothing is known to be older, but our own line is spared
		t.Errorf("left: %v", got)
	}
}

func TestWhatADeadExecutorLeftIsFoundByShellAndMarker(t *testing.T) {
	m := newMachine()
	executor := m.start(70, 1, 70, 70).named("sema")
	s := m.start(shell, 70, shell, shell)
	m.start(201, shell, 201, shell) // a job of its own
	m.start(202, shell, 202, 202)   // out of the session, still below
	m.start(203, 60, 60, 60)
	m.marked[203] = "MARK=b"
	shells := []ID{executor.ID, s.ID, {PID: 60, Start: 12345}, {PID: 999, Start: 1}}
	want := func(why string, markers []string, want ...int) *Tree {
		t.Helper()
		left := Left(m.table, m, self, shells, markers)
		if got := pids(left.Look(m.table, m)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", why, got, want)
		}
		return left
	}
	want("its executor lives", nil)
	m.end(70)
	known := want("it is dead", nil, shell, 201, 202)
	want("with markers", []string{"MARK=a", "MARK=b"}, shell, 201, 202, 203)
	m.end(shell)
	want("the shell ended before the first look", nil) // its number might be a later session's
	m.start(204, 201, 201, shell)
	m.wantLook(t, known, 201, 202, 204) // and after it
	m.start(shell, 60, shell, shell)
	m.start(205, shell, shell, shell)
	m.wantLook(t, known, 201, 202, 204)
	m.end(shell)
	m.start(206, 1, shell, shell)
	m.wantLook(t, known, 201, 202, 204) // what another leader had is not ours again
}

func TestVariablesAreReadFromTheKernelsLayout(t *testing.T) {
	raw := func(args uint32, text string) []byte {
		return append(binary.NativeEndian.AppendUint32(nil, args), text...)
	}
	for name, c := range map[string]struct {
		b    []byte
		want []string
	}{
		"usual":     {raw(2, "/bin/x\x00\x00\x00x\x00-c\x00A=1\x00B=\x00\x00executable_path=/bin/x\x00"), []string{"A=1", "B="}},
		"no end":    {raw(1, "/bin/x\x00x\x00A=1"), []string{"A=1"}},
		"hidden":    {raw(2, "/bin/x\x00\x00x\x00-c\x00"), nil},
		"no args":   {raw(0, "/bin/x\x00\x00\x00A=1\x00"), []string{"A=1"}},
		"a lie":     {raw(99, "/bin/x\x00x\x00A=1\x00"), nil},
		"a big lie": {raw(0xffffffff, "/bin/x\x00A=1\x00"), []string{"A=1"}},
		"cut short": {raw(1, "/bin/x"), nil},
		"empty":     {nil, nil},
	} {
		if got := slices.Collect(Variables(c.b)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func FuzzVariables(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00/bin/x\x00\x00x\x00A=1\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		for v := range Variables(b) {
			if v == "" {
				t.Fatal("a variable without a name")
			}
			total += len(v) + 1
		}
		if total > len(b) {
			t.Fatalf("%d bytes out of %d", total, len(b))
		}
	})
}
