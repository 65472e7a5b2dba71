// Package remedy writes the commands that messages give a person to run. All of
// them are written here, so that each works pasted as it is: its words are quoted
// where a shell needs it, it names the device where there may be others, and it
// stands on a line of its own, marked by Indent, that nobody breaks in the middle.
package remedy

import "strings"

// Indent begins a line that is a command.
const Indent = "  "

// Command is `sema device` with these words. A word in capitals, such as URL,
// stands for what only the reader knows.
func Command(words ...string) string {
	line := "sema device"
	for _, w := range words {
		line += " " + Quote(w)
	}
	return line
}

// For is Command about one device; an empty deviceID stands for the only one
// there is.
func For(deviceID string, words ...string) string {
	if deviceID != "" {
		words = append(words[:len(words):len(words)], "--device", deviceID)
	}
	return Command(words...)
}

// Step is a piece of advice: what a command is for, and under it the command.
func Step(what, command string) string { return what + ":\n" + Indent + command }

// Unmask is the command that lets systemd start a masked unit again.
func Unmask(unit string) string { return "systemctl --user unmask " + Quote(unit) }

// Quote makes one word of s for a shell.
func Quote(s string) string {
	harmless := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("0123456789/._-:@=%+,", r)
	}
	// zsh takes a word such as =ls for the path of that program.
	if s != "" && s[0] != '=' && strings.IndexFunc(s, func(r rune) bool { return !harmless(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
