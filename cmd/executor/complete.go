package main

import (
	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/internal/loginenv"
	"github.com/sema-agent/device-executor/wire"
)

// completeFlags tells shells what the values of flags can be, for a command and
// those below it.
func (a *app) completeFlags(c *cobra.Command) {
	words := func(values ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	var kinds []string
	for _, k := range wire.Kinds() {
		kinds = append(kinds, string(k))
	}
	folder := func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	for flag, values := range map[string]cobra.CompletionFunc{
		"device":     a.completeDevice,
		"key-store":  words(enroll.StoreAuto, enroll.StoreKeychain, enroll.StoreFile),
		"env":        words(string(loginenv.Inherit), string(loginenv.Login), string(loginenv.Auto)),
		"log-format": words("text", "json"),
		"log-level":  words("debug", "info", "warn", "error"),
		"kind":       words(kinds...),
		"outcome":    words(activity.Outcomes()...),
		"workspace":  folder,
		"allow-root": folder,
	} {
		if c.Flags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, values) // fails for flags that are not there
		}
	}
	for _, sub := range c.Commands() {
		a.completeFlags(sub)
	}
}

// completeDevice gives the ids that are enrolled, each with what it is for.
func (a *app) completeDevice(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	home, err := enroll.OpenHome(a.getenv)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	records, _, _ := home.Records() // who completes a word is not the one to tell
	var ids []cobra.Completion
	for _, r := range records {
		ids = append(ids, cobra.CompletionWithDesc(r.DeviceID, shown(r.WorkspaceRoot)))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
