package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A session with a keyring of its own: the key goes there, the doctor finds it,
// and names the lock once it is locked.
const lockedKeyring = `
set -eu
"$1" device enroll --server "$2" --workspace "$HOME" --key-store keychain
echo "== unlocked"
"$1" device doctor
dbus-send --session --print-reply --dest=org.freedesktop.secrets /org/freedesktop/secrets \
  org.freedesktop.Secret.Service.Lock array:objpath:/org/freedesktop/secrets/collection/login >/dev/null
echo "== locked, without a desktop"
"$1" device doctor && exit 40
echo "== locked"
DISPLAY=:77 "$1" device doctor && exit 41
exit 0
`

func TestTheDoctorNamesALockedKeyring(t *testing.T) {
	for _, name := range []string{"gnome-keyring-daemon", "dbus-run-session", "dbus-send"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
				t.Fatalf("%s is not installed; scripts/packages installs it", name)
			}
			t.Skipf("%s is not installed; scripts/packages installs it", name)
		}
	}
	m := newMachine(t)
	cmd := exec.Command("../../scripts/with-keyring", "bash", "-c", lockedKeyring, "inside", os.Args[0], m.url)
	cmd.Env = append(os.Environ(), asMain+"=1", "SEMA_CREDENTIAL="+theCredential, "SEMA_HOME="+m.env["SEMA_HOME"])
	var stderr strings.Builder // of the programs around it, too
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	text := strings.Join(strings.Fields(string(out)), " ")
	for _, want := range []string{
		"== unlocked This machine", "the keychain holds it; it is the registered one", "Nothing is in the way of work|All is well",
		"== locked, without a desktop", "there is no desktop to ask on", "gnome-keyring-daemon --unlock",
		"== locked This machine", "the keychain is locked", "Unlock it: sign in to the desktop",
	} {
		found := false
		for alternative := range strings.SplitSeq(want, "|") {
			at := strings.Index(text, alternative)
			if found = at >= 0; found {
				text = text[at:] // in this order
				break
			}
		}
		if !found {
			t.Errorf("without %q, in this order:\n%s", want, out)
		}
	}
	fits(t, "doctor", string(out))
	inPlainWords(t, "doctor", string(out))
	if strings.Contains(string(out)+stderr.String(), theCredential) {
		t.Error("the credential is shown")
	}
}
