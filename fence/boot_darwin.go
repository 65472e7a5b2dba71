package fence

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// BootID names the run of the operating system: it changes with every boot, and
// pids mean nothing across one.
func BootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return id, nil
}
