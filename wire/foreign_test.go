package wire_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	"github.com/sema-agent/device-executor/testvectors"
	"github.com/sema-agent/device-executor/wire"
)

// foreign is the part of foreign.json that judges this package. The file was
// made by an implementation that shares no code with this one.
type foreign struct {
	Note           string
	Hellos, Epochs json.RawMessage // judged by package handshake
	Base64         []struct {
		Text      string
		Canonical bool
	}
	DeviceToServer []struct {
		Name, Phase, Text, Verdict string
	}
}

func loadForeign(t testing.TB) foreign {
	var f foreign
	if err := testvectors.Load("foreign.json", &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestForeignVerdictsOnDeviceFrames(t *testing.T) {
	cases := loadForeign(t).DeviceToServer
	if len(cases) != 71 {
		t.Errorf("%d cases, not 71", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			limit, ok := map[string]int{"preAuth": 4096, "established": 1048576}[c.Phase]
			if !ok {
				t.Fatalf("phase %q", c.Phase)
			}
			verdict := "ok"
			if _, err := wire.DecodeDevice([]byte(c.Text), limit); err != nil {
				var reject *wire.RejectError
				if !errors.As(err, &reject) {
					t.Fatalf("%T is no RejectError", err)
				}
				verdict = string(reject.Reason)
			}
			if verdict != c.Verdict {
				t.Errorf("%s, want %s: %s", verdict, c.Verdict, c.Text)
			}
		})
	}
}

func TestForeignVerdictsOnBase64(t *testing.T) {
	cases := loadForeign(t).Base64
	if len(cases) != 17 {
		t.Errorf("%d cases, not 17", len(cases))
	}
	for _, c := range cases {
		data, err := wire.DecodeBase64(nil, c.Text)
		if (err == nil) != c.Canonical {
			t.Errorf("%q: %s, %v; canonical is %v", c.Text, hex.EncodeToString(data), err, c.Canonical)
		}
	}
}
