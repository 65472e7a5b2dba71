//go:build faults

package fault_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/sema-agent/device-executor/internal/fault"
)

func TestSetPutsFaultsInForceAndBack(t *testing.T) {
	restore := fault.Set("a: one", "b: two")
	if !fault.On("a: one") || !fault.On("b: two") || fault.On("c: three") {
		t.Error("not exactly those that were set")
	}
	inner := fault.Set("c: three")
	if fault.On("a: one") || !fault.On("c: three") {
		t.Error("Set adds to what was in force")
	}
	inner()
	if !fault.On("a: one") || fault.On("c: three") {
		t.Error("the earlier faults are not back")
	}
	restore()
	if fault.On("a: one") {
		t.Error("still in force")
	}
}

func TestTheEnvironmentPutsFaultsInForce(t *testing.T) {
	if os.Getenv("FAULT_TEST_CHILD") != "" {
		if !fault.On("a: one") || !fault.On("b: two") || fault.On("") {
			t.Fatal("not exactly those of the variable")
		}
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestTheEnvironmentPutsFaultsInForce$")
	child.Env = append(os.Environ(), "FAULT_TEST_CHILD=1", fault.Env+"=a: one, b: two")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
