package main

import (
	"context"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/holder"
)

// held asks the lock of a device who serves it now; nil: nobody. Where the lock
// cannot be asked, nobody is taken to hold it: `doctor` says why.
func held(deviceDir string) *holder.Holder {
	h, err := holder.Of(deviceDir)
	if err != nil {
		return nil
	}
	return h
}

// leftKey is what the JSON of a revoked device says of its key: nothing once it is
// deleted, as it should be.
type leftKey struct {
	// KeyLeft: the key is still in its store.
	KeyLeft bool `json:"keyLeft,omitempty"`
	// KeyUnsure is why it cannot be told whether it is.
	KeyUnsure string `json:"keyUnsure,omitempty"`

	remains enroll.Remains
}

// keyLeftOf looks what is left of the key of a device, if it is revoked.
func (a *app) keyLeftOf(ctx context.Context, r *enroll.Record) leftKey {
	if !r.Revoked() {
		return leftKey{}
	}
	k := leftKey{remains: a.stores().Left(ctx, r)}
	k.KeyLeft = k.remains.State == enroll.KeyLeft
	if k.remains.State == enroll.KeyUnsure {
		k.KeyUnsure = k.remains.String()
	}
	return k
}
