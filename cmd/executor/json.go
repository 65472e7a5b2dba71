package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// jsonFlag gives a command the flag that has it answer programs.
func jsonFlag(c *cobra.Command, asJSON *bool) {
	c.Flags().BoolVar(asJSON, "json", false, "print as JSON")
}

// done tells what a command did: programs as JSON on stdout, people in a line.
// The topic "json" lists the members that there are.
func (a *app) done(asJSON bool, result any, format string, args ...any) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(result)
	}
	_, err := fmt.Fprintln(a.stderr, foldAll(fmt.Sprintf(format, args...), "", columns))
	return err
}
