// Package lineage tells which processes of a machine belong to a command where no
// kernel keeps a tree together: macOS has no sub-reaper, so what loses its parent
// falls to launchd and its descent is forgotten.
//
// What it goes by, all of it readable without privilege:
//
//   - The session, and the process group, of the command's shell, which leads both.
//     A process leaves the session by setsid(2) alone, and keeps it when its parent
//     dies or its shell puts it into another group (`set -m`).
//   - Descent, while it lasts: what was once seen below a process of the command is
//     remembered. So it is worth looking while the command runs.
//   - The marker in the environment. The kernel hides the environment of Apple's own
//     programs (/bin/sh, /bin/sleep, ...) from others, so that this finds the rest.
//
// A number that is a session or a group is not given to a new process, so as long as
// no other process has the shell's number, its session is the command's.
//
// A table comes with each call; nothing is asked of the system but what the table
// does not say.
package lineage

// ID names one process for the whole boot.
type ID struct {
	PID   int
	Start uint64 // µs since 1970 by the wall clock as it was then
}

// Proc is a line of the process table.
type Proc struct {
	ID
	Parent, Group int
	Name          string
	Zombie        bool
}

// Table is the process table, by number.
type Table map[int]Proc

// line is a process and what it descends from, launchd and the kernel in any case.
func (t Table) line(pid int) map[int]bool {
	line := map[int]bool{0: true, 1: true}
	for ; pid > 1 && !line[pid]; pid = t[pid].Parent {
		line[pid] = true
	}
	return line
}

// below adds to members every descendant of a member.
func (t Table) below(members map[ID]bool) {
	for grown := true; grown; {
		grown = false
		for _, p := range t {
			parent, ok := t[p.Parent]
			if ok && members[parent.ID] && !members[p.ID] {
				members[p.ID] = true
				grown = true
			}
		}
	}
}

// System answers what the table does not say.
type System interface {
	// Session is the number of the process that leads, or led, the session of a
	// process; 0 if there is no telling.
	Session(pid int) int
	// Carries reports whether a process was started with one of these in its
	// environment, NAME=value each.
	Carries(pid int, variables ...string) bool
}

// Tree is what is known of the processes of one command, or of several. It belongs to
// one goroutine at a time.
type Tree struct {
	self    int
	shells  map[int]ID // leaders of sessions that are ours
	markers []string
	older   map[ID]bool
	members map[ID]bool
}

// Follow begins with a command's shell, which leads a session of its own. What is in
// the table from before its start is none of the command's; self is this process.
func Follow(shell ID, marker string, before Table, self int) *Tree {
	t := &Tree{self: self, shells: map[int]ID{shell.PID: shell}, markers: []string{marker},
		older: make(map[ID]bool, len(before)), members: make(map[ID]bool)}
	for _, p := range before {
		t.older[p.ID] = true
	}
	return t
}

// Left begins with what commands may have left whose executor is no more: the shells
// of them that still live, and whatever carries one of the markers. A shell whose
// parent lives, or that goes by the name of this program (self), is none of a dead
// executor's and is left alone; so is the session of one that is gone, since its
// number may be a later session's.
func Left(now Table, s System, self int, shells []ID, markers []string) *Tree {
	t := &Tree{self: self, shells: make(map[int]ID), markers: markers, members: make(map[ID]bool)}
	for _, id := range shells {
		p, ok := now[id.PID]
		if ok && p.ID == id && p.Parent <= 1 && p.Name != now[self].Name && s.Session(p.PID) == p.PID {
			t.shells[p.PID] = id
		}
	}
	return t
}

// Look lists the live processes of the tree and remembers them.
func (t *Tree) Look(now Table, s System) (live []Proc) {
	for pid, id := range t.shells {
		if p, ok := now[pid]; ok && p.ID != id {
			delete(t.shells, pid) // for good
		}
	}
	line := now.line(t.self)
	for _, p := range now {
		if line[p.PID] || t.older[p.ID] || t.members[p.ID] {
			continue
		}
		if t.leads(p.Group) || len(t.shells) > 0 && t.leads(s.Session(p.PID)) || len(t.markers) > 0 && s.Carries(p.PID, t.markers...) {
			t.members[p.ID] = true
		}
	}
	now.below(t.members)
	for id := range t.members {
		switch p, ok := now[id.PID]; {
		case !ok || p.ID != id:
			delete(t.members, id)
		case !p.Zombie && !line[p.PID]:
			live = append(live, p)
		}
	}
	return live
}

func (t *Tree) leads(pid int) bool {
	_, ok := t.shells[pid]
	return ok
}
