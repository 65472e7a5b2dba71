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
			if err := enroll.MoveKey(c.Context(), home, record, a.stores(), args[0]); err != nil {
				return err
			}
			fmt.Fprintln(a.stderr, foldAll(fmt.Sprintf("The key of %s is in the %s now, and nowhere else.", record.DeviceID, storeWords(args[0])), "", columns))
			return nil
		},
	}
	c.Flags().StringVar(&device, "device", "", "the device, where more than one is enrolled")
	return c
}

// storeWords names a key store in a sentence.
func storeWords(store string) string {
	if store == enroll.StoreKeychain {
		return "session's keychain"
	}
	return "device's key file"
}
