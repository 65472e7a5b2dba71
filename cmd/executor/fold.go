package main

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/internal/remedy"
)

// columns is how wide the lines are that people read.
const columns = 80

// fold breaks a line into lines of at most width characters: at spaces, and
// where a word is longer than a line, after a separator in it if there is one. A
// line that fits stays as it is.
func fold(text string, width int) []string {
	if length(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && length(line)+1+length(word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for length(word) > width {
			at := breakWord(word, width)
			lines = append(lines, word[:at])
			word = word[at:]
		}
		line = word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// foldCommand breaks a shell command between its words, as a shell takes it. Its
// words stay whole, however long they are.
func foldCommand(command, indent string, width int) string {
	if length(command) <= width {
		return command
	}
	words, ok := quotedWords(command)
	if !ok {
		return command
	}
	var b strings.Builder
	column := 0
	for i, word := range words {
		switch n := length(word); {
		case i == 0:
			column = n
		case column+1+n+2 > width: // room for a backslash
			b.WriteString(" \\\n" + indent)
			column = n
		default:
			b.WriteByte(' ')
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

// quotedWords parts a command at the blanks between its words, which keep their
// quotes. It knows the quotes that package remedy writes, and no others.
func quotedWords(command string) (words []string, ok bool) {
	word, quoted, escaped := "", false, false
	for _, r := range command {
		switch {
		case escaped:
			escaped = false
		case r == '\'':
			quoted = !quoted
		case quoted:
		case r == '\\':
			escaped = true
		case r == '"':
			return nil, false
		case r == ' ':
			if word != "" {
				words = append(words, word)
			}
			word = ""
			continue
		}
		word += string(r)
	}
	if word != "" {
		words = append(words, word)
	}
	return words, !quoted && !escaped
}

func length(s string) int { return utf8.RuneCountInString(s) }

// breakWord returns where to break a word that is longer than width characters.
func breakWord(word string, width int) int {
	end, n := 0, 0
	for i := range word {
		if n == width {
			end = i
			break
		}
		n++
	}
	for _, separators := range []string{":,;", "/"} {
		if at := strings.LastIndexAny(word[:end], separators); at > end/2 {
			return at + 1
		}
	}
	return end
}

// foldAll folds each line of text, those that are commands as such, and begins
// every line but the first with indent.
func foldAll(text, indent string, width int) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if command, ok := strings.CutPrefix(line, remedy.Indent); ok {
			lines = append(lines, remedy.Indent+foldCommand(command, indent+remedy.Indent+"  ", width-len(remedy.Indent)))
			continue
		}
		lines = append(lines, fold(line, width)...)
	}
	return strings.Join(lines, "\n"+indent)
}

// below folds a text that follows upon the beginning of its line, below itself.
func below(lead, text string) string {
	indent := strings.Repeat(" ", length(lead))
	text = strings.ReplaceAll(text, "\t", " ") // whose width is anybody's guess
	return lead + strings.Join(fold(text, columns-len(indent)), "\n"+indent)
}

// shown makes a text of strangers fit for a terminal: on one line, without
// characters that a terminal would act upon.
func shown(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
