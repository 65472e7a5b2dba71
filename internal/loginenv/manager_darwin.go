package loginenv

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// underServiceManager reports whether launchd started this process.
func underServiceManager() bool { return os.Getppid() == 1 }

// fromUserDatabase asks the directory service for the shell of a uid, which may be
// known to a server only.
func fromUserDatabase(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	// A directory server that is away must not hold up the start.
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/usr/bin/dscl", "/Search", "-read", "/Users/"+u.Username, "UserShell").Output()
	if err != nil {
		return ""
	}
	_, shell, _ := strings.Cut(strings.TrimSpace(string(out)), ": ")
	return shell
}
