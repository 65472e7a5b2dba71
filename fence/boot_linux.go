package fence

import (
	"fmt"
	"os"
	"strings"
)

// BootID names the run of the operating system: it changes with every boot, and
// pids mean nothing across one.
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
