package enroll_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/enroll"
)

func TestTheThreeCallsSayWhatTheProtocolSays(t *testing.T) {
	wire := &scripted{answers: []said{good["capabilities"], good["token"], good["register"]}}
	client := newClient(wire)
	if _, err := client.Discover(t.Context(), theServer(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.IssueToken(t.Context(), theServer(t), credential(t)); err != nil {
		t.Fatal(err)
	}
	if _, settled, err := client.Register(t.Context(), theServer(t), credential(t), registration(t)); err != nil || !settled {
		t.Fatal(settled, err)
	}
	discover, issue, register := wire.requests[0], wire.requests[1], wire.requests[2]

	if discover.method != "GET" || discover.url != "https://sema.example/api/v1/capabilities" || discover.header.Get("Authorization") != "" {
		t.Errorf("discovery: %+v", discover)
	}
	if issue.method != "POST" || issue.url != "https://sema.example/api/v1/devices/enroll-tokens" || issue.body != "" ||
		issue.header.Get("Content-Type") != "" || issue.header.Get("Authorization") != "Bearer "+theCredential {
		t.Errorf("token: %+v", issue)
	}
	if register.method != "POST" || register.url != "https://sema.example/api/v1/devices/enroll" ||
		register.header.Get("Content-Type") != "application/json" || register.header.Get("Authorization") != "Bearer "+theCredential {
		t.Errorf("registration: %+v", register)
	}
	var body map[string]string
	if err := json.Unmarshal([]byte(register.body), &body); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"token": theToken, "pubkey": newKey(t).Public().String(), "platformOs": "linux",
		"platformArch": "amd64", "displayName": "Ada's laptop", "workspaceRoot": "/home/ada/work"}
	for name, value := range want {
		if body[name] != value {
			t.Errorf("%s is %q, want %q", name, body[name], value)
		}
	}
	if len(body) != len(want) {
		t.Errorf("the closed shape has %d members: %s", len(body), register.body)
	}
	for _, r := range wire.requests {
		if r.header.Get("User-Agent") != "sema-device/test" {
			t.Errorf("agent %q", r.header.Get("User-Agent"))
		}
	}
}

func TestOptionalFieldsAreLeftOutWhenEmpty(t *testing.T) {
	wire := &scripted{answers: []said{good["register"]}}
	r := registration(t)
	r.PlatformArch, r.DisplayName = "", ""
	if _, _, err := newClient(wire).Register(t.Context(), theServer(t), credential(t), r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(wire.requests[0].body, "platformArch") || strings.Contains(wire.requests[0].body, "displayName") {
		t.Errorf("sent %s", wire.requests[0].body)
	}
}

func TestFieldsTheServerWouldRefuseAreNotSent(t *testing.T) {
	cases := map[string]func(*enroll.Registration){
		"no token":               func(r *enroll.Registration) { r.Token = enroll.Token{} },
		"a third platform":       func(r *enroll.Registration) { r.PlatformOS = "windows" },
		"no platform":            func(r *enroll.Registration) { r.PlatformOS = "" },
		"33 bytes of arch":       func(r *enroll.Registration) { r.PlatformArch = strings.Repeat("a", 33) },
		"256 bytes of name":      func(r *enroll.Registration) { r.DisplayName = strings.Repeat("n", 254) + "é" },
		"name not UTF-8":         func(r *enroll.Registration) { r.DisplayName = "\xff" },
		"no workspace":           func(r *enroll.Registration) { r.WorkspaceRoot = "" },
		"1025 bytes of root":     func(r *enroll.Registration) { r.WorkspaceRoot = "/" + strings.Repeat("w", 1024) },
		"workspace is not UTF-8": func(r *enroll.Registration) { r.WorkspaceRoot = "/\xff" },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			wire := &scripted{answers: []said{good["register"]}}
			r := registration(t)
			spoil(&r)
			_, settled, err := newClient(wire).Register(t.Context(), theServer(t), credential(t), r)
			var usage *enroll.UsageError
			if !errors.As(err, &usage) || enroll.ExitCode(err) != 2 || !settled {
				t.Errorf("got %v, settled %v", err, settled)
			}
			if len(wire.requests) != 0 {
				t.Error("it was sent")
			}
		})
	}
	t.Run("at their limits they are sent", func(t *testing.T) {
		wire := &scripted{answers: []said{good["register"]}}
		r := registration(t)
		r.PlatformArch, r.DisplayName, r.WorkspaceRoot = strings.Repeat("a", 32), strings.Repeat("n", 255), "/"+strings.Repeat("w", 1023)
		if _, _, err := newClient(wire).Register(t.Context(), theServer(t), credential(t), r); err != nil {
			t.Error(err)
		}
	})
	t.Run("no credential", func(t *testing.T) {
		wire := &scripted{}
		_, _, err := newClient(wire).Register(t.Context(), theServer(t), enroll.Credential{}, registration(t))
		_, tokenErr := newClient(wire).IssueToken(t.Context(), theServer(t), enroll.Credential{})
		if enroll.ExitCode(err) != 2 || enroll.ExitCode(tokenErr) != 2 || len(wire.requests) != 0 {
			t.Errorf("%v, %v", err, tokenErr)
		}
	})
}

// attempts registers against a script, in virtual time.
func attempts(t *testing.T, wire *scripted) (id string, settled bool, took time.Duration, waits []time.Duration, err error) {
	client := newClient(wire)
	client.Waiting = func(why string, wait time.Duration) {
		if why == "" {
			t.Error("waits without a reason")
		}
		waits = append(waits, wait)
	}
	began := time.Now()
	id, settled, err = client.Register(t.Context(), theServer(t), credential(t), registration(t))
	return id, settled, time.Since(began), waits, err
}

func same(t *testing.T, wire *scripted) {
	t.Helper()
	for _, r := range wire.requests {
		if r.body != wire.requests[0].body {
			t.Errorf("token or key changed: %s", r.body)
		}
	}
}

func limited(seconds string) said {
	return said{Status: 429, Headers: map[string]string{"Retry-After": seconds}, Body: `{"errorCode":"limit.rate_exceeded","message":"slow down"}`}
}

func TestRateLimitsAreWaitedOutAndCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &scripted{answers: []said{limited("3"), limited("0"), limited("60"), limited("2"), limited("9"), good["register"]}}
		_, settled, took, waits, err := attempts(t, wire)
		var answered *enroll.AnswerError
		if !errors.As(err, &answered) || answered.Reason != enroll.ReasonRateLimited || answered.RetryAfter != 9*time.Second || enroll.ExitCode(err) != 8 {
			t.Errorf("got %v", err)
		}
		if !strings.Contains(enroll.Advice(err), "9s") {
			t.Errorf("advice %q", enroll.Advice(err))
		}
		if len(wire.requests) != 5 || took != 66*time.Second || len(waits) != 4 {
			t.Errorf("%d attempts in %s, waits %v", len(wire.requests), took, waits)
		}
		if !settled {
			t.Error("a 429 is refused before anything is done")
		}
		same(t, wire)
	})
}

func TestAWaitLongerThanAnyClockHoldsEndsTheAttemptToo(t *testing.T) {
	for _, seconds := range []string{"86400", "2147483648", "9300000000", "18446744073709551615", "99999999999999999999999999"} {
		synctest.Test(t, func(t *testing.T) {
			wire := &scripted{answers: []said{limited(seconds)}}
			_, settled, took, waits, err := attempts(t, wire)
			var answered *enroll.AnswerError
			if !errors.As(err, &answered) || answered.Reason != enroll.ReasonRateLimited || answered.RetryAfter < 24*time.Hour || enroll.ExitCode(err) != 8 {
				t.Errorf("%s s: got %v", seconds, err)
			}
			if len(wire.requests) != 1 || took != 0 || len(waits) != 0 || !settled {
				t.Errorf("%s s: %d attempts in %s, waits %v", seconds, len(wire.requests), took, waits)
			}
			if advice := enroll.Advice(err); !strings.Contains(advice, "Try again in ") || len(advice) > 80 {
				t.Errorf("%s s: advice %q", seconds, advice)
			}
		})
	}
}

func TestWaitingSaysWhatTheServerDid(t *testing.T) {
	for want, lose := range map[string]func(*scripted){
		"too many enrollment attempts": func(s *scripted) { s.answers[0] = limited("3") },
		"the server failed":            func(s *scripted) { s.answers[0] = said{Status: 503, Body: "busy"} },
		"no answer from the server":    func(s *scripted) { s.errs = map[int]error{0: &net.OpError{Op: "read", Err: syscall.ECONNRESET}} },
	} {
		synctest.Test(t, func(t *testing.T) {
			wire := &scripted{answers: []said{good["register"], good["register"]}}
			lose(wire)
			client := newClient(wire)
			var got string
			client.Waiting = func(why string, _ time.Duration) { got = why }
			if _, _, err := client.Register(t.Context(), theServer(t), credential(t), registration(t)); err != nil || got != want {
				t.Errorf("waits because of %q, want %q (%v)", got, want, err)
			}
		})
	}
}

func TestALostAnswerIsAskedForAgainWithTheSameTokenAndKey(t *testing.T) {
	lost := map[string]func(*scripted){
		"no answer in 15 s": func(s *scripted) { s.hang = map[int]bool{0: true} },
		"reset":             func(s *scripted) { s.errs = map[int]error{0: &net.OpError{Op: "read", Err: syscall.ECONNRESET}} },
		"gateway":           func(s *scripted) { s.answers[0] = said{Status: 502, Body: "<html>"} },
	}
	for name, lose := range lost {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wire := &scripted{answers: []said{{}, good["register"]}}
				lose(wire)
				id, settled, took, _, err := attempts(t, wire)
				if err != nil || id == "" || !settled {
					t.Fatalf("%q, %v, %v", id, settled, err)
				}
				want := time.Second
				if wire.hang != nil {
					want += 15 * time.Second
				}
				if took != want || len(wire.requests) != 2 {
					t.Errorf("%d attempts in %s, want %s", len(wire.requests), took, want)
				}
				same(t, wire)
			})
		})
	}
}

func TestAServerThatNeverAnswersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &scripted{hang: map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true}}
		_, settled, took, waits, err := attempts(t, wire)
		var silent *enroll.UnreachableError
		if !errors.As(err, &silent) || silent.Layer != enroll.LayerHTTP || enroll.ExitCode(err) != 1 {
			t.Fatalf("got %v", err)
		}
		forPeople(t, err)
		if settled {
			t.Error("the device may be registered")
		}
		if len(wire.requests) != 5 || took != (5*15+1+2+4+8)*time.Second {
			t.Errorf("%d attempts in %s, waits %v", len(wire.requests), took, waits)
		}
	})
}

func TestAfterALostAnswerARefusalIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &scripted{answers: []said{{Status: 504}, {Status: 401}}}
		_, settled, _, _, err := attempts(t, wire)
		if settled || enroll.ExitCode(err) != 8 {
			t.Errorf("settled %v, %v", settled, err)
		}
	})
}

func TestFailuresNameTheirLayer(t *testing.T) {
	cases := []struct {
		name     string
		err      error
		layer    enroll.Layer
		requests int
		settled  bool
	}{
		{"dns", &net.OpError{Op: "dial", Err: &net.DNSError{Name: "sema.example", Err: "no such host", IsNotFound: true}}, enroll.LayerDNS, 5, true},
		{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, enroll.LayerConnect, 5, true},
		{"proxy", &net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, enroll.LayerProxy, 5, true},
		{"certificate", x509.UnknownAuthorityError{}, enroll.LayerTLS, 1, true},
		{"name of the certificate", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, enroll.LayerTLS, 1, true},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, enroll.LayerHTTP, 5, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wire := &scripted{errs: map[int]error{0: c.err, 1: c.err, 2: c.err, 3: c.err, 4: c.err}}
				_, settled, _, _, err := attempts(t, wire)
				var silent *enroll.UnreachableError
				if !errors.As(err, &silent) || silent.Layer != c.layer || !errors.Is(err, c.err) {
					t.Fatalf("got %v", err)
				}
				if len(wire.requests) != c.requests || settled != c.settled {
					t.Errorf("%d attempts, settled %v", len(wire.requests), settled)
				}
				forPeople(t, err)
			})
		})
	}
}

func TestALateAnswerOfTheCallerStopsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		wire := &scripted{answers: []said{limited("60")}}
		time.AfterFunc(10*time.Second, func() { cancel(stop) })
		began := time.Now()
		_, settled, err := newClient(wire).Register(ctx, theServer(t), credential(t), registration(t))
		if !errors.Is(err, stop) || time.Since(began) != 10*time.Second || !settled {
			t.Errorf("%v after %s, settled %v", err, time.Since(began), settled)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		wire := &scripted{hang: map[int]bool{0: true}}
		time.AfterFunc(time.Second, func() { cancel(stop) })
		_, settled, err := newClient(wire).Register(ctx, theServer(t), credential(t), registration(t))
		if !errors.Is(err, stop) || settled || len(wire.requests) != 1 {
			t.Errorf("%v, settled %v", err, settled)
		}
	})
}

func TestTheServersWordsAreShownSafely(t *testing.T) {
	cases := map[string]struct{ body, code, message string }{
		"plain":          {`{"errorCode":"request.field_invalid","message":"displayName is too long"}`, "request.field_invalid", "displayName is too long"},
		"inside error":   {`{"error":{"errorCode":"x.y","message":"m"}}`, "x.y", "m"},
		"error is text":  {`{"error":"boom","message":"m"}`, "", "m"},
		"no message":     {`{"errorCode":"x.y"}`, "x.y", ""},
		"other types":    {`{"errorCode":7,"message":["a"]}`, "", ""},
		"not JSON":       {`oops`, "", ""},
		"an array":       {`["a"]`, "", ""},
		"terminal codes": {`{"message":"a\u001b[31mred\u0007\nnext\u202eline\u0000"}`, "", "a[31mred nextline"},
		"very long":      {`{"message":"` + strings.Repeat("é", 1000) + `"}`, "", strings.Repeat("é", 300) + "…"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			wire := &scripted{answers: []said{{Status: 400, Body: c.body}}}
			_, _, err := newClient(wire).Register(t.Context(), theServer(t), credential(t), registration(t))
			var answered *enroll.AnswerError
			if !errors.As(err, &answered) || answered.Code != c.code || answered.Message != c.message {
				t.Errorf("got %q, %q", answered.Code, answered.Message)
			}
			if !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), c.code) {
				t.Errorf("%v does not show them", err)
			}
			forPeople(t, err)
		})
	}
}

func TestAnAnswerWithoutEndIsNotReadToIt(t *testing.T) {
	wire := &scripted{answers: []said{{Status: 200, Body: `{"deviceId":"` + strings.Repeat("d", 1<<20) + `"}`}}}
	_, _, err := newClient(wire).Register(t.Context(), theServer(t), credential(t), registration(t))
	var answered *enroll.AnswerError
	if !errors.As(err, &answered) || answered.Reason != enroll.ReasonNotTheAPI || len(err.Error()) > 500 {
		t.Errorf("got %.200v", err)
	}
}

func TestDiscoveryTellsTheServersClock(t *testing.T) {
	answer := good["capabilities"]
	answer.Headers = map[string]string{"Date": "Sun, 01 Mar 2026 12:00:00 GMT"}
	lane, err := newClient(&scripted{answers: []said{answer}}).Discover(t.Context(), theServer(t))
	if err != nil || !lane.ServerTime.Equal(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)) || lane.MaxInflightPerDevice != 4 {
		t.Errorf("%+v, %v", lane, err)
	}
	lane, err = newClient(&scripted{answers: []said{good["capabilities"]}}).Discover(t.Context(), theServer(t))
	if err != nil || !lane.ServerTime.IsZero() {
		t.Errorf("%+v, %v", lane, err)
	}
}
