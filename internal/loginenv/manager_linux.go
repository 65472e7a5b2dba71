package loginenv

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// underServiceManager reports whether systemd started this process. The variables
// that it sets are no proof: terminals started by it hand them on.
func underServiceManager() bool {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid()))
	return err == nil && strings.TrimSpace(string(comm)) == "systemd"
}

// fromUserDatabase reads the shell of a uid from /etc/passwd.
func fromUserDatabase(uid int) string { return shellOf(uid, "/etc/passwd") }

func shellOf(uid int, file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) >= 7 && fields[2] == strconv.Itoa(uid) {
			return fields[6]
		}
	}
	return ""
}
