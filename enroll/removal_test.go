package enroll_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
)

func TestADeviceIsSeenWholeUntilItIsGone(t *testing.T) {
	m, r, _ := enrolled(t)
	for i := range 3000 { // so that it takes a while
		if err := os.WriteFile(filepath.Join(r.Dir(), fmt.Sprintf("file-%d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := make(chan error, 1)
	go func() { gone <- m.Home.Forget(m.ctx, r) }()
	for {
		_, err := m.Home.Record(r.DeviceID)
		var none *enroll.NoDeviceError
		if errors.As(err, &none) {
			break
		}
		if err != nil {
			t.Errorf("a part of it is seen: %v", err)
			break
		}
	}
	if err := <-gone; err != nil {
		t.Error(err)
	}
	if left := m.files(t); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if err := m.Home.Forget(m.ctx, r); err != nil {
		t.Errorf("what is gone already: %v", err)
	}
}

func TestWhatAnInterruptedRemovalLeftGoesWithTheNextLook(t *testing.T) {
	m, r, _ := enrolled(t)
	aside := filepath.Join(filepath.Dir(r.Dir()), ".removed-"+r.DeviceID)
	if err := os.Rename(r.Dir(), aside); err != nil {
		t.Fatal(err)
	}
	sound, broken, err := m.Home.Records()
	if len(sound)+len(broken) != 0 || err != nil {
		t.Errorf("%v, %v, %v", sound, broken, err)
	}
	if left := m.files(t); len(left) != 0 {
		t.Errorf("left %v, the key among it", left)
	}
}
