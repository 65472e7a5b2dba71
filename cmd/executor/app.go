package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is what a command may touch of the world, so that tests can hand it
// another one.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	now    func() time.Time
	random io.Reader

	services serviceHost
}

func system() *app {
	return &app{
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		getenv: os.Getenv,
		now:    time.Now,
		random: rand.Reader,
	}
}

// run executes one command line and returns the exit code of the process.
func run(args []string, a *app) int {
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	strictly(root)
	caller := a.stderr
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitOK
	}
	code := told(args, exitCode(err))
	var quiet *codeError
	if errors.As(err, &quiet) && quiet.err == nil {
		return code
	}
	text := foldAll("sema: "+a.shortened(explain(err)), "", columns)
	fmt.Fprintln(a.stderr, text)
	if a.stderr != caller && !forManager(args) { // the log has it; so must who waits for the command
		fmt.Fprintln(caller, text)
	}
	return code
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "sema",
		Short: "Let a cloud coding agent use this machine, on your terms",
		// One line for the error and, for a wrong command line, how to get
		// help: cobra's own reaction is a page of usage.
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          showHelp,
		Version:       a.versionLine(),

		PersistentPreRunE: noEmptyFlags,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version, as 'sema version' does") // cobra's own has -v, too
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%s\nRun '%s --help' for its flags.", flagTrouble(err), c.CommandPath())
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", columns)))
	device := &cobra.Command{
		Use:   "device",
		Short: "This machine as a device: enroll it, serve it, look at it",
		Args:  noArgs,
		RunE:  showHelp,
	}
	device.AddCommand(deviceCommands(a)...)
	root.AddCommand(device, newVersion(a), newMan())
	root.AddCommand(newTopics()...)
	a.completeFlags(root)
	return root
}

// flagTrouble says what is wrong with a flag, and not in the words of what
// reads numbers and times.
func flagTrouble(err error) string {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	f := wrong.GetFlag()
	takes, name := "", "--"+f.Name
	switch f.Value.Type() {
	case "int":
		takes = "a whole number"
	case "duration":
		takes = "a time like 90s, 5m or 2h"
	case "bool":
		takes = "true or false"
	default:
		return err.Error()
	}
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	return fmt.Sprintf("%s takes %s, not %q", name, takes, wrong.GetValue())
}

// strictly makes the commands that cobra adds refuse words that mean nothing to
// them, as all others do, instead of answering with a page of help and success.
// They write to where root writes when this is called.
func strictly(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = noArgs, showHelp
			for _, shell := range c.Commands() {
				shell.Args = noArgs
				shell.Long = foldAll(shell.Long, "", columns)
			}
		case "help":
			show := c.Run
			c.Run = nil
			c.RunE = func(c *cobra.Command, args []string) error {
				topic, rest, err := c.Root().Find(args)
				if err != nil {
					return exitWith(exitUsage, err)
				}
				if len(rest) > 0 {
					return noArgs(topic, rest)
				}
				show(c, args)
				return nil
			}
		}
	}
}

func showHelp(c *cobra.Command, _ []string) error { return c.Help() }

// noArgs refuses words that are no command, naming the nearest one.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !c.HasAvailableSubCommands() {
		return usagef("'%s' takes flags alone, not %q.\nRun '%s --help' for its flags.", c.CommandPath(), args[0], c.CommandPath())
	}
	msg := fmt.Sprintf("'%s' has no command %q.", c.CommandPath(), args[0])
	// A word of which more than a third is wrong is another word.
	c.SuggestionsMinimumDistance = max(1, len(args[0])/3)
	if near := c.SuggestionsFor(args[0]); len(near) > 0 && args[0] != "" {
		msg += fmt.Sprintf(" Did you mean %q?", near[0])
	}
	return usagef("%s\nRun '%s --help' to see what there is.", msg, c.CommandPath())
}

// noEmptyFlags refuses a flag with an empty value, as a variable of a script that
// is not set makes it. It would be taken for a flag that was not given: another
// folder, or another device, than the one that is meant.
func noEmptyFlags(c *cobra.Command, _ []string) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if err == nil && (len(values) == 0 || slices.Contains(values, "")) {
			what, _ := pflag.UnquoteUsage(f)
			err = usagef("--%s is empty: give it its %s, or leave it out.\nRun '%s --help' for its flags.", f.Name, what, c.CommandPath())
		}
	})
	return err
}
