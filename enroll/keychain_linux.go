package enroll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/godbus/dbus/v5"
)

// Names of the Secret Service on the bus.
const (
	secretsName       = "org.freedesktop.secrets"
	secretsPath       = dbus.ObjectPath("/org/freedesktop/secrets")
	secretsInterface  = "org.freedesktop.Secret.Service"
	collectionLocked  = "org.freedesktop.Secret.Collection.Locked"
	loginCollection   = dbus.ObjectPath("/org/freedesktop/secrets/collection/login")
	noCollection      = dbus.ObjectPath("/")
	busInterface      = "org.freedesktop.DBus"
	errServiceUnknown = "org.freedesktop.DBus.Error.ServiceUnknown"
	errIsLocked       = "org.freedesktop.Secret.Error.IsLocked"
)

// keychainReady asks, without ever making the keychain prompt, whether the
// collection that the library uses is there and unlocked.
func keychainReady(ctx context.Context, getenv func(string) string) error {
	fail := func(kind KeyTrouble, err error) error {
		return &KeyError{Store: StoreKeychain, Trouble: kind, Err: err}
	}
	asked := func(err error) error { // a call on the bus failed
		if ctx.Err() != nil {
			return fail(KeychainSilent, nil)
		}
		return fail(keychainTrouble(err), err)
	}
	address := sessionBus(getenv)
	if address == "" {
		return fail(KeychainNoBus, nil)
	}
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		if ctx.Err() != nil {
			return fail(KeychainSilent, nil)
		}
		var number syscall.Errno
		if errors.As(err, &number) {
			err = number // without the socket's kind and the call's name
		}
		return fail(KeychainNoBus, err)
	}
	defer conn.Close()

	// Asking a name that nobody can own would only end with the deadline on
	// some buses; see whether it is there or can be started.
	bus := conn.BusObject()
	var owned bool
	if err := bus.CallWithContext(ctx, busInterface+".NameHasOwner", 0, secretsName).Store(&owned); err != nil {
		return asked(err)
	}
	desktop := getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != ""
	if !owned {
		var startable []string
		if err := bus.CallWithContext(ctx, busInterface+".ListActivatableNames", 0).Store(&startable); err != nil {
			return asked(err)
		}
		if !slices.Contains(startable, secretsName) {
			return fail(KeychainAbsent, nil)
		}
		// One that is woken now is locked, and would stay, with a folder in the
		// user's home, though nobody can unlock it.
		if !desktop {
			return fail(KeychainHeadless, errors.New("it is not running"))
		}
	}

	service := conn.Object(secretsName, secretsPath)
	var all dbus.Variant
	if err := property(ctx, service, secretsInterface, "Collections").Store(&all); err != nil {
		return asked(err)
	}
	collection := loginCollection
	if paths, _ := all.Value().([]dbus.ObjectPath); !slices.Contains(paths, loginCollection) {
		if err := service.CallWithContext(ctx, secretsInterface+".ReadAlias", 0, "default").Store(&collection); err != nil {
			return asked(err)
		}
	}
	if collection == noCollection {
		if !desktop {
			return fail(KeychainHeadless, errors.New("it has no default keyring yet"))
		}
		return fail(KeychainAbsent, errors.New("it has no default keyring yet"))
	}
	var value dbus.Variant
	if err := property(ctx, conn.Object(secretsName, collection), "org.freedesktop.Secret.Collection", "Locked").Store(&value); err != nil {
		return asked(err)
	}
	switch locked, ok := value.Value().(bool); {
	case !ok:
		return fail(KeychainRefused, fmt.Errorf("%s is not a boolean", collectionLocked))
	case locked && desktop:
		return fail(KeychainLocked, nil)
	case locked:
		return fail(KeychainHeadless, errors.New("it is locked"))
	}
	return nil
}

func property(ctx context.Context, object dbus.BusObject, iface, name string) *dbus.Call {
	return object.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, iface, name)
}

// sessionBus returns the address of the session's bus where the library looks
// for it, short of starting one: "" if there is none.
func sessionBus(getenv func(string) string) string {
	if a := getenv("DBUS_SESSION_BUS_ADDRESS"); a != "" && !strings.HasPrefix(a, "autolaunch:") {
		return a
	}
	runtime := fmt.Sprintf("/run/user/%d", os.Getuid())
	if _, err := os.Stat(runtime + "/bus"); err == nil {
		return "unix:path=" + runtime + "/bus"
	}
	if text, err := os.ReadFile(runtime + "/dbus-session"); err == nil {
		if address, ok := strings.CutPrefix(string(text), "DBUS_SESSION_BUS_ADDRESS="); ok {
			return strings.TrimRight(address, "\r\n")
		}
	}
	return ""
}

// keychainTrouble names an error of the bus or of the library.
func keychainTrouble(err error) KeyTrouble {
	var e dbus.Error
	if errors.As(err, &e) {
		switch e.Name {
		case errServiceUnknown:
			return KeychainAbsent
		case errIsLocked:
			return KeychainLocked
		}
	}
	return KeychainRefused
}
