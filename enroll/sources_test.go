package enroll_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
)

// sentSecrets returns what a server is sent of the secrets from these sources.
func sentSecrets(t *testing.T, s enroll.Sources) (credential, token string, err error) {
	t.Helper()
	c, k, err := s.Read()
	if err != nil {
		return "", "", err
	}
	network := &scripted{answers: []said{good["register"]}}
	r := registration(t)
	if r.Token = k; k.IsZero() {
		r.Token, err = enroll.NewToken("none")
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := newClient(network).Register(t.Context(), theServer(t), c, r); err != nil {
		t.Fatal(err)
	}
	got := network.requests[0]
	_, rest, _ := strings.Cut(got.body, `"token":"`)
	token, _, _ = strings.Cut(rest, `"`)
	return strings.TrimPrefix(got.header.Get("Authorization"), "Bearer "), token, nil
}

func TestSecretsComeFromWhereTheUserSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credential")
	write(t, file, "from-file\r\n")
	set := map[string]string{"SEMA_CREDENTIAL": "from-env", "SEMA_ENROLL_TOKEN": "token-env"}
	cases := []struct {
		name                    string
		sources                 enroll.Sources
		env                     map[string]string
		stdin                   string
		wantCredential, wantTok string
	}{
		{"variables", enroll.Sources{}, set, "", "from-env", "token-env"},
		{"no token", enroll.Sources{}, map[string]string{"SEMA_CREDENTIAL": "c"}, "", "c", "none"},
		{"file before variable", enroll.Sources{CredentialFile: file}, set, "", "from-file", "token-env"},
		{"flag before variable", enroll.Sources{Token: "token-flag"}, set, "", "from-env", "token-flag"},
		{"credential on stdin", enroll.Sources{CredentialFile: "-"}, set, "from-stdin\n", "from-stdin", "token-env"},
		{"token on stdin: one line", enroll.Sources{Token: "-"}, set, "token-stdin\r\nnot this\n", "from-env", "token-stdin"},
		{"token on stdin, no line end", enroll.Sources{Token: "-"}, set, "token-stdin", "from-env", "token-stdin"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.sources.Getenv, c.sources.Stdin = env(c.env), strings.NewReader(c.stdin)
			credential, token, err := sentSecrets(t, c.sources)
			if err != nil || credential != c.wantCredential || token != c.wantTok {
				t.Errorf("%q, %q, %v", credential, token, err)
			}
		})
	}
}

func TestSecretsThatCannotBeHadAreUsageErrors(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, []byte(strings.Repeat("x", 70000)), 0o600); err != nil {
		t.Fatal(err)
	}
	set := map[string]string{"SEMA_CREDENTIAL": "c"}
	for name, c := range map[string]struct {
		sources enroll.Sources
		env     map[string]string
		stdin   string
	}{
		"none":              {enroll.Sources{}, nil, ""},
		"no such file":      {enroll.Sources{CredentialFile: big + ".missing"}, set, ""},
		"too large":         {enroll.Sources{CredentialFile: big}, set, ""},
		"empty file":        {enroll.Sources{CredentialFile: os.DevNull}, set, ""},
		"both on stdin":     {enroll.Sources{CredentialFile: "-", Token: "-"}, set, "a\nb\n"},
		"empty token line":  {enroll.Sources{Token: "-"}, set, "\n"},
		"no token on stdin": {enroll.Sources{Token: "-"}, set, ""},
		"token too long":    {enroll.Sources{Token: strings.Repeat("t", 257)}, set, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.sources.Getenv, c.sources.Stdin = env(c.env), strings.NewReader(c.stdin)
			if _, _, err := c.sources.Read(); enroll.ExitCode(err) != 2 {
				t.Errorf("got %v", err)
			}
		})
	}
}
