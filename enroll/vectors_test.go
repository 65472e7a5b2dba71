package enroll_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/testvectors"
)

// said is one answer of a server.
type said struct {
	Status  int
	Headers map[string]string
	Body    string
}

type answerVector struct {
	Name, Proves string
	Input        struct {
		Step string
		said
	}
	Expect struct {
		Outcome         string // ok, retry or end
		DeviceID        string
		WSPath          string
		ProtocolVersion int64
		WaitMs          int64
		Reason          string
		ExitCode        int
	}
}

func loadAnswers(t *testing.T) []answerVector {
	t.Helper()
	var file struct {
		Version int
		About   string
		Cases   []answerVector
	}
	if err := testvectors.Load("enrollment.json", &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 60 {
		t.Fatalf("only %d cases", len(file.Cases))
	}
	return file.Cases
}

// good is the answer that ends each step well.
var good = map[string]said{
	"capabilities": {Status: 200, Body: `{"deviceExecutor":{"enabled":true,"protocolVersion":1,"maxInflightPerDevice":4,"wsPath":"/v1/device/ws","management":true}}`},
	"token":        {Status: 200, Body: `{"token":"` + theToken + `","expiresAt":"x","ttlSec":900}`},
	"register":     {Status: 200, Body: `{"deviceId":"dev_01J8ZQ4T9X0000000000000000"}`},
}

func TestEveryAnswerIsMetAsTheVectorsSay(t *testing.T) {
	reasons := map[enroll.Reason]bool{}
	for _, v := range loadAnswers(t) {
		t.Run(v.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := []said{v.Input.said}
				if v.Expect.Outcome == "retry" {
					answers = append(answers, good[v.Input.Step])
				}
				wire := &scripted{answers: answers}
				client := newClient(wire)
				began := time.Now()
				var err error
				var lane enroll.Lane
				var id string
				switch v.Input.Step {
				case "capabilities":
					lane, err = client.Discover(t.Context(), theServer(t))
				case "token":
					_, err = client.IssueToken(t.Context(), theServer(t), credential(t))
				case "register":
					id, _, err = client.Register(t.Context(), theServer(t), credential(t), registration(t))
				default:
					t.Fatalf("step %q", v.Input.Step)
				}
				took := time.Since(began)
				if len(wire.requests) != len(answers) {
					t.Fatalf("%d requests, want %d (%v)", len(wire.requests), len(answers), err)
				}
				switch v.Expect.Outcome {
				case "ok", "retry":
					if err != nil {
						t.Fatalf("%s: %v", v.Proves, err)
					}
					if want := time.Duration(v.Expect.WaitMs) * time.Millisecond; took != want {
						t.Errorf("%s: waited %s, want %s", v.Proves, took, want)
					}
					if v.Expect.Outcome == "retry" && wire.requests[0].body != wire.requests[1].body {
						t.Error("the second attempt says something else")
					}
					if v.Expect.Outcome == "ok" && (id != v.Expect.DeviceID || lane.WSPath != v.Expect.WSPath || lane.ProtocolVersion != v.Expect.ProtocolVersion) {
						t.Errorf("got %q, %+v", id, lane)
					}
				case "end":
					var answered *enroll.AnswerError
					if !errors.As(err, &answered) {
						t.Fatalf("got %v", err)
					}
					reasons[answered.Reason] = true
					if string(answered.Reason) != v.Expect.Reason || enroll.ExitCode(err) != v.Expect.ExitCode {
						t.Errorf("%s: %s, exit %d; want %s, exit %d", v.Proves, answered.Reason, enroll.ExitCode(err), v.Expect.Reason, v.Expect.ExitCode)
					}
					if took != 0 {
						t.Errorf("waited %s for nothing", took)
					}
					if answered.Status != v.Input.Status {
						t.Errorf("status %d became %d", v.Input.Status, answered.Status)
					}
					forPeople(t, err)
				default:
					t.Fatalf("outcome %q", v.Expect.Outcome)
				}
			})
		})
	}
	for _, r := range enroll.Reasons() {
		if !reasons[r] {
			t.Errorf("no vector ends with %s", r)
		}
	}
}
