package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
)

func (a *app) stores() enroll.Stores { return enroll.SystemStores(a.getenv) }

func newKey(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "key",
		Short: "The private key of a device",
		Args:  noArgs,
		RunE:  showHelp,
	}
	c.AddCommand(newKeyMove(a))
	return c
}

func newKeyMove(a *app) *cobra.Command {
	var device string
	var asJSON bool
	c := &cobra.Command{
		Use:   "move keychain|file",
		Short: "Move the private key to another store, never through the terminal",
		Long: `Move the private key of a device to the keychain of your session, or to a file
that only you can read. The key is stored there, read back, checked against the
registered public key, and only then removed from where it was. A running
executor goes on undisturbed.`,
		Example:   "  sema device key move keychain",
		ValidArgs: []string{enroll.StoreKeychain, enroll.StoreFile},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != enroll.StoreKeychain && args[0] != enroll.StoreFile {
				return usagef("say where to: 'sema device key move keychain' or 'sema device key move file'")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			home, record, err := a.chosen(device)
			if err != nil {
				return err
			}
			done, err := enroll.MoveKey(c.Context(), home, record, a.stores(), args[0])
			if err != nil {
				return err
			}
			return a.printMoved(record.DeviceID, done, asJSON)
		},
	}
	c.Flags().StringVar(&device, "device", "", deviceFlagHelp)
	jsonFlag(c, &asJSON)
	return c
}

// movedKey is what `key move --json` prints.
type movedKey struct {
	DeviceID string `json:"deviceId"`
	KeyStore string `json:"keyStore"`
	From     string `json:"from"` // keyStore: it was there already
	// Unsure is why it cannot be told whether the other store has a copy, too.
	Unsure string `json:"unsure,omitempty"`
}

func (a *app) printMoved(deviceID string, m *enroll.Moved, asJSON bool) error {
	result := movedKey{DeviceID: deviceID, KeyStore: m.To, From: m.From}
	words := fmt.Sprintf("The key of %s is in the %s now, and no longer in the %s.", deviceID, storeWords(m.To), storeWords(m.From))
	switch {
	case m.Unsure != nil:
		result.Unsure = m.Unsure.Why()
		words = fmt.Sprintf("The key of %s was in the %s already. Whether the keychain has a copy as well cannot be told: %s.",
			deviceID, storeWords(m.To), m.Unsure.Why())
	case m.From == m.To:
		words = fmt.Sprintf("The key of %s was in the %s already, and is in no other store.", deviceID, storeWords(m.To))
	}
	return a.done(asJSON, result, "%s", words)
}

// storeWords names a key store in a sentence.
func storeWords(store string) string {
	if store == enroll.StoreKeychain {
		return "session's keychain"
	}
	return "device's key file"
}
