//go:build !linux

package simulation

// alive knows nothing here: other systems do not show environments to all.
func alive(string) []string { return nil }
