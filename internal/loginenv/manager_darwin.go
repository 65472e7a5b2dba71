package loginenv

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// underServiceManager reports whether launchd started this process.
func underServiceManager() bool { return os.Getppid() == 1 }

// fromUserDatabase asks the directory service for the shell of a uid.
func fromUserDatabase(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	out, err := exec.Command("/usr/bin/dscl", ".", "-read", "/Users/"+u.Username, "UserShell").Output()
	if err != nil {
		return ""
	}
	_, shell, _ := strings.Cut(strings.TrimSpace(string(out)), ": ")
	return shell
}
