//go:build !linux

package logind

import "context"

// Connect always fails: there is no login manager on this system.
func Connect(context.Context) (Manager, error) { return nil, ErrUnavailable }
