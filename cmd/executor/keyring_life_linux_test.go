package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// A device's life with its key in a keyring: enrolled, served, moved to a file and
// back, moved both ways at once, served until the server revokes it. secret-tool is another program's word
// on what the keyring holds.
const lifeInAKeyring = `
set -eu
held() { secret-tool search --all service sema-device 2>/dev/null | grep -c '^secret = ' || true; }
file() { find "$SEMA_HOME" -name key -type f | wc -l; }
say() { echo "$1: keyring $(held), file $(file)"; }
serve() { "$sema" device serve --log-level error & pid=$!; }
sema=$1 url=$2

"$sema" device enroll --server "$url" --workspace "$HOME" --key-store keychain >/dev/null
say enrolled
serve; until [ -e "$HOME/went" ]; do sleep 0.05; done; kill -TERM $pid; wait $pid; echo "served: $?"
"$sema" device key move file 2>/dev/null
say 'moved to the file'
"$sema" device key move keychain 2>/dev/null
say 'moved back'
for round in 1 2 3 4 5 6; do
	"$sema" device key move file 2>/dev/null & one=$!
	"$sema" device key move keychain 2>/dev/null & other=$!
	wait $one; wait $other
done
"$sema" device key move keychain 2>/dev/null
say 'moved both ways at once'
serve; rc=0; wait $pid || rc=$?
echo "revoked: $rc"
say after
`

func TestAKeyIsWhereItShouldBeAndNowhereElse(t *testing.T) {
	for _, name := range []string{"gnome-keyring-daemon", "dbus-run-session", "dbus-send", "secret-tool"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
				t.Fatalf("%s is not installed; scripts/packages installs it", name)
			}
			t.Skipf("%s is not installed; scripts/packages installs it", name)
		}
	}
	m := newMachine(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../../scripts/with-keyring", "bash", "-c", lifeInAKeyring, "inside", os.Args[0], m.url)
	cmd.Env = append(os.Environ(), asMain+"=1", "SEMA_CREDENTIAL="+theCredential, "SEMA_HOME="+m.env["SEMA_HOME"])
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The server's part: let the first serve be seen working, then revoke the second.
	steered := make(chan error, 1)
	go func() { steered <- steer(ctx, m.server) }()
	err := cmd.Wait()
	cancel()
	if s := <-steered; s != nil && err == nil {
		err = s
	}
	want := "enrolled: keyring 1, file 0\nserved: 0\nmoved to the file: keyring 0, file 1\nmoved back: keyring 1, file 0\nmoved both ways at once: keyring 1, file 0\nrevoked: 5\nafter: keyring 0, file 0\n"
	if err != nil || stdout.String() != want {
		t.Errorf("%v\ngot\n%swant\n%s%s", err, stdout.String(), want, stderr.String())
	}
	if strings.Contains(stdout.String()+stderr.String(), theCredential) {
		t.Error("the credential is shown")
	}
}

// steer waits for the device to be enrolled and active, has it make the file that
// the script waits for, and revokes it when it has come back a second time.
func steer(ctx context.Context, server *refserver.Server) error {
	var id string
	for id == "" {
		if ids := server.Devices(); len(ids) > 0 {
			id = ids[0]
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := server.WaitActive(ctx, id); err != nil {
		return err
	}
	call, err := server.Dispatch(ctx, id, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: `touch "$HOME/went"`}})
	if err != nil {
		return err
	}
	if _, err := call.Wait(ctx); err != nil {
		return err
	}
	again := func(s refserver.DeviceState) bool { return s.Active && s.Connections >= 2 }
	if err := server.WaitFor(ctx, id, again); err != nil {
		return err
	}
	server.Revoke(id)
	return nil
}
