package handshake_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/testvectors"
)

type epochVector struct {
	Epoch    string
	BytesHex *string // nil: refused
}

func loadEpochs(t testing.TB) []epochVector {
	t.Helper()
	var file struct {
		Version int
		About   string
		Cases   []struct {
			Name, Proves string
			Input        struct{ Epoch string }
			Expect       struct{ BytesHex *string }
		}
	}
	if err := testvectors.Load("epochs.json", &file); err != nil {
		t.Fatal(err)
	}
	var foreign struct {
		Note                           string
		Epochs                         []epochVector
		Hellos, Base64, DeviceToServer json.RawMessage
	}
	if err := testvectors.Load("foreign.json", &foreign); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 44 || len(foreign.Epochs) != 20 {
		t.Fatalf("%d and %d vectors, not 44 and 20", len(file.Cases), len(foreign.Epochs))
	}
	all := foreign.Epochs
	for _, c := range file.Cases {
		all = append(all, epochVector{c.Input.Epoch, c.Expect.BytesHex})
	}
	return all
}

func TestEpochsAreAcceptedAndRefusedAsTheVectorsSay(t *testing.T) {
	for _, v := range loadEpochs(t) {
		epoch, err := handshake.ParseEpoch(v.Epoch)
		if (err == nil) != (v.BytesHex != nil) {
			t.Errorf("%q: %v; vector %v", v.Epoch, err, v.BytesHex)
			continue
		}
		if err != nil {
			if epoch != "" {
				t.Errorf("%q is refused and returned", v.Epoch)
			}
			if b := handshake.Epoch(v.Epoch).Bytes(); b != [16]byte{} {
				t.Errorf("%q is refused and has bytes %x", v.Epoch, b)
			}
			continue
		}
		b := epoch.Bytes()
		if got := hex.EncodeToString(b[:]); got != *v.BytesHex {
			t.Errorf("%q: %s, want %s", v.Epoch, got, *v.BytesHex)
		}
	}
}

func TestNewEpochIsCanonicalAndCarriesTheTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)
	epoch, err := handshake.NewEpoch(now, bytes.NewReader([]byte("0123456789")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake.ParseEpoch(string(epoch)); err != nil {
		t.Error(err)
	}
	b := epoch.Bytes()
	id := ulid.ULID(b)
	if got := ulid.Time(id.Time()); !got.Equal(now) {
		t.Errorf("time %v, want %v", got, now)
	}
	if string(b[6:]) != "0123456789" {
		t.Errorf("random half %q", b[6:])
	}
}

func TestNewEpochFailsWithoutRandomness(t *testing.T) {
	if epoch, err := handshake.NewEpoch(time.Now(), iotest.ErrReader(iotest.ErrTimeout)); err == nil {
		t.Errorf("made %q of nothing", epoch)
	}
}

func TestEpochOfEveryBitStandsForItself(t *testing.T) {
	for bit := range 128 {
		var want [16]byte
		want[15-bit/8] = 1 << (bit % 8)
		text := ulid.ULID(want).String()
		epoch, err := handshake.ParseEpoch(text)
		if err != nil {
			t.Fatalf("bit %d: %v", bit, err)
		}
		if got := epoch.Bytes(); got != want {
			t.Errorf("bit %d: %x, want %x", bit, got, want)
		}
	}
}

// FuzzParseEpoch holds the decoder against arithmetic: 26 digits of the
// alphabet, in the value of a big integer, below 2^128.
func FuzzParseEpoch(f *testing.F) {
	for _, v := range loadEpochs(f) {
		f.Add(v.Epoch)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
		value, valid := new(big.Int), len(s) == 26
		for i := 0; valid && i < len(s); i++ {
			digit := strings.IndexByte(alphabet, s[i])
			valid = digit >= 0
			value.Add(value.Lsh(value, 5), big.NewInt(int64(max(digit, 0))))
		}
		valid = valid && value.BitLen() <= 128

		epoch, err := handshake.ParseEpoch(s)
		if (err == nil) != valid {
			t.Fatalf("%q: %v; arithmetic says %v", s, err, valid)
		}
		if !valid {
			return
		}
		b := epoch.Bytes()
		if new(big.Int).SetBytes(b[:]).Cmp(value) != 0 {
			t.Fatalf("%q: %x, want %x", s, b, value)
		}
		if ulid.ULID(b).String() != s {
			t.Fatalf("%q is not the only spelling of %x", s, b)
		}
	})
}
