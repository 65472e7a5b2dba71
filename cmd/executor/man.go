package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan writes the manual pages for packagers; people have --help.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a folder",
		Long: `Write a manual page for each command and each help topic into a folder, which is
made if it is not there.`,
		Example: "  sema man ./man1",
		Hidden:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("say into which folder: sema man DIR")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.InitDefaultHelpCmd()
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("make the folder of the manual pages: %w", err)
			}
			for name, text := range manPages(root) {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
					return fmt.Errorf("write a manual page: %w", err)
				}
			}
			return nil
		},
	}
}

// manPages makes the pages of a command and of those below it, by file name.
func manPages(c *cobra.Command) map[string]string {
	pages := map[string]string{manName(c) + ".1": manPage(c)}
	for _, sub := range c.Commands() {
		if sub.Hidden || sub.Name() == "help" {
			continue
		}
		for name, text := range manPages(sub) {
			pages[name] = text
		}
	}
	return pages
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func manPage(c *cobra.Command) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"sema %s\" \"Sema device executor\"\n", roff(strings.ToUpper(manName(c))), roff(buildVersion().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(c)), roff(c.Short))
	if c.Runnable() {
		fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", roff(c.UseLine()))
	}
	b.WriteString(".SH DESCRIPTION\n")
	writeText(&b, helpText(c))
	if below := subcommands(c); len(below) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range below {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR(1)\n%s\n", roff(manName(sub)), roff(sub.Short))
		}
	}
	if c.HasAvailableLocalFlags() {
		b.WriteString(".SH OPTIONS\n")
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { writeFlag(&b, f) })
	}
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		writeAsIs(&b, strings.Split(c.Example, "\n"))
	}
	if parent := c.Parent(); parent != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n\\fB%s\\fR(1)\n", roff(manName(parent)))
	}
	return b.String()
}

func helpText(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

// subcommands are those that have pages, topics included.
func subcommands(c *cobra.Command) []*cobra.Command {
	var below []*cobra.Command
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			below = append(below, sub)
		}
	}
	return below
}

// writeText writes help text: paragraphs, and lines with blanks before them,
// which stay as they are.
func writeText(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		b.WriteString(".PP\n")
		lines := strings.Split(paragraph, "\n")
		for len(lines) > 0 {
			if strings.HasPrefix(lines[0], " ") {
				n := 1
				for n < len(lines) && strings.HasPrefix(lines[n], " ") {
					n++
				}
				writeAsIs(b, lines[:n])
				lines = lines[n:]
				continue
			}
			b.WriteString(roff(lines[0]) + "\n")
			lines = lines[1:]
		}
	}
}

func writeAsIs(b *strings.Builder, lines []string) {
	b.WriteString(".nf\n")
	for _, line := range lines {
		b.WriteString(roff(line) + "\n")
	}
	b.WriteString(".fi\n")
}

func writeFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	kind, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(name))
	if kind != "" {
		fmt.Fprintf(b, " \\fI%s\\fR", roff(kind))
	}
	fmt.Fprintf(b, "\n%s", roff(usage))
	switch f.DefValue {
	case "", "false", "0", "[]":
	default:
		fmt.Fprintf(b, " (default: %s)", roff(f.DefValue))
	}
	b.WriteByte('\n')
}

// roff makes a line of text safe for the formatter of manual pages.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(line)
	var b strings.Builder
	if strings.HasPrefix(line, ".") {
		b.WriteString(`\&`)
	}
	for _, r := range line {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}
