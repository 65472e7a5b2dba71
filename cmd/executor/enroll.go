package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/wire"
)

type enrollFlags struct {
	server         string
	token          string
	workspace      string
	name           string
	keyStore       string
	credentialFile string
	allowInsecure  bool
	json           bool
}

// enrolledDevice is what `enroll --json` prints.
type enrolledDevice struct {
	DeviceID      string `json:"deviceId"`
	Server        string `json:"server"`
	WorkspaceRoot string `json:"workspaceRoot"`
	KeyStore      string `json:"keyStore"`
	PublicKey     string `json:"publicKey"`
}

func newEnroll(a *app) *cobra.Command {
	var f enrollFlags
	c := &cobra.Command{
		Use:   "enroll",
		Short: "Make this machine a device of a server",
		Long: `Make this machine a device of a server, once.

A key pair is made here; only its public half is sent. The server needs your
credential for the two calls: put it in SEMA_CREDENTIAL or in a file named by
--credential-file ('-' reads it from stdin). It is not stored. If somebody gave
you an enrollment token, pass it by SEMA_ENROLL_TOKEN or '--token -'; otherwise
one is issued.

If an answer gets lost, run the same command with the same token again: it
finishes what was begun.`,
		Example: "  SEMA_CREDENTIAL=… sema device enroll --server https://sema.example.com \\\n    --workspace ~/code",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.enroll(c, f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.server, "server", "", "the address `URL` of the server (or SEMA_SERVER)")
	flags.StringVar(&f.token, "token", "", "enrollment `TOKEN`; '-' reads a line of stdin (or SEMA_ENROLL_TOKEN)")
	flags.StringVar(&f.workspace, "workspace", "", "the folder `DIR` that work happens in (default: the current one)")
	flags.StringVar(&f.name, "name", "", "the `NAME` of this device (default: the host's)")
	flags.StringVar(&f.keyStore, "key-store", enroll.StoreAuto, "the `STORE` of the private key: auto, keychain or file")
	flags.StringVar(&f.credentialFile, "credential-file", "", "the `FILE` with your credential; '-' reads stdin (or SEMA_CREDENTIAL)")
	flags.BoolVar(&f.allowInsecure, "allow-insecure", false, "take an http:// address that is not on this machine")
	jsonFlag(c, &f.json)
	return c
}

func (a *app) enroll(c *cobra.Command, f enrollFlags) error {
	if f.server == "" {
		f.server = a.getenv("SEMA_SERVER")
	}
	if f.server == "" {
		return usagef("say which server: --server URL, or SEMA_SERVER")
	}
	server, err := enroll.ParseServer(f.server, f.allowInsecure)
	if err != nil {
		return err
	}
	credential, token, err := enroll.Sources{
		CredentialFile: f.credentialFile,
		Token:          f.token,
		Getenv:         a.getenv,
		Stdin:          a.stdin,
	}.Read()
	if err != nil {
		return err
	}
	home, err := enroll.OpenHome(a.getenv)
	if err != nil {
		return err
	}
	transport, err := enroll.NewTransport(a.getenv)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	if server.Insecure() {
		fmt.Fprintln(a.stderr, foldAll(fmt.Sprintf("Warning: %s is not encrypted: whoever is on the way reads your credential.", server), "", columns))
	}
	name := f.name
	if !c.Flags().Changed("name") {
		host, _ := os.Hostname() // a machine without a name enrolls without one
		name = enroll.DisplayName(host)
	}

	progress := newProgress(a, "Talking to "+server.String())
	stores := a.stores()
	stores.Keychain = awaited{stores.Keychain, progress, "Waiting for the keychain"}
	enroller := &enroll.Enroller{
		Home: home,
		Client: &enroll.Client{
			Transport: transport,
			UserAgent: userAgent(),
			Now:       a.now,
			Waiting: func(why string, wait time.Duration) {
				progress.note(fmt.Sprintf("%s; trying again in %s", why, wait.Round(time.Second)))
			},
		},
		Stores: stores,
		Now:    a.now,
		Rand:   a.random,
		Log:    slog.New(slog.DiscardHandler),
		WriteFaces: func(ctx context.Context, workspace string) ([]wire.Kind, error) {
			defer progress.turn(progress.turn("Trying the workspace's file system"))
			return writeFaces(ctx, workspace)
		},
	}
	done, err := enroller.Enroll(c.Context(), enroll.Request{
		Server:     server,
		Credential: credential,
		Token:      token,
		Workspace:  f.workspace,
		Name:       name,
		KeyStore:   f.keyStore,
		Platform:   platform(),
		Supports:   implemented(),
	})
	progress.stop()
	if err != nil {
		return err
	}
	if err := a.printEnrolled(c.Context(), done, f.json); err != nil {
		return fmt.Errorf("%s is enrolled, but that could not be told: %w", done.Record.DeviceID, err)
	}
	return nil
}

// enrolledIndent stands below the names of what printEnrolled tells.
const enrolledIndent = "             "

func (a *app) printEnrolled(ctx context.Context, done *enroll.Enrolled, asJSON bool) error {
	r := done.Record
	for _, note := range done.Notes {
		fmt.Fprintln(a.stderr, foldAll("Note: "+note, "", columns))
	}
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(enrolledDevice{
			DeviceID:      r.DeviceID,
			Server:        r.Server.String(),
			WorkspaceRoot: r.WorkspaceRoot,
			KeyStore:      r.KeyStore,
			PublicKey:     r.PublicKey.String(),
		})
	}
	about := a.named(r.DeviceID)
	next := remedy.Step("Serve it now", remedy.For(about, "serve"))
	if barred(a.serviceBeside(ctx, r.DeviceID)) == nil {
		next += "\n" + remedy.Step("Or in the background, from now on", remedy.For(about, "service", "install"))
	}
	_, err := fmt.Fprintf(a.stdout, `Enrolled as %s
  server     %s
  workspace  %s
  key        %s
%s
`, r.DeviceID, r.Server, foldAll(shown(r.WorkspaceRoot), enrolledIndent, columns-len(enrolledIndent)),
		foldAll("in the "+storeWords(r.KeyStore)+": "+done.KeyStoreReason, enrolledIndent, columns-len(enrolledIndent)), foldAll(next, "", columns))
	return err
}

func userAgent() string { return "sema-device-executor/" + buildVersion().Version }
