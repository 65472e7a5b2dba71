package link_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestAConnectionGoesThroughItsPhases(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		var got []link.Phase
		for _, s := range w.history() {
			got = append(got, s.Phase)
		}
		want := []link.Phase{link.Starting, link.Discovering, link.Connecting, link.Handshaking, link.Fencing, link.Active}
		if !slices.Equal(got, want) {
			t.Errorf("phases %v, want %v", got, want)
		}
		if n := len(w.sent(wire.TypeGenerationAck)); n != 1 {
			t.Errorf("%d generationAcks", n)
		}
		w.wait(50 * time.Second)
		if n := len(w.sent(wire.TypeHeartbeat)); n != 3 {
			t.Errorf("%d heartbeats in 50 s at one each 15 s", n)
		}
		w.innocent()
	})
}

func TestAnInstructionTravelsAndItsResultIsReleased(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		if err := w.work.say(t.Context(), call.ID(), 300_000); err != nil {
			t.Fatal(err)
		}
		w.succeeds(call)
		w.wait(time.Second)
		if n := w.outbox.Unacked(); n != 0 {
			t.Errorf("%d results are still held", n)
		}
		w.innocent()
	})
}

func TestASilentServerIsGivenUpAfterTheHandshakeDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		faults refserver.Faults
		cause  link.Cause
	}{
		"no challenge": {refserver.Faults{NoChallenge: true}, link.CauseNoChallenge},
		"no answer":    {refserver.Faults{NoHelloAnswer: true}, link.CauseNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			// The server's own deadline would come at the same moment.
			simulate(t, options{server: refserver.Config{HandshakeDeadline: time.Minute}, faults: c.faults}, func(t *testing.T, w *world) {
				w.wait(wire.HandshakeDeadline)
				rests, shakes := w.entries(link.BackingOff), w.entries(link.Handshaking)
				if len(rests) != 1 || rests[0].Cause != c.cause {
					t.Fatalf("causes of back-off: %v", causes(rests))
				}
				if took := rests[0].at - shakes[0].at; took != wire.HandshakeDeadline {
					t.Errorf("it was given up after %v", took)
				}
				w.server.SetFaults(refserver.Faults{})
				w.active()
			})
		})
	}
}

// A socket on which no hello went out is nobody's successor.
func TestASocketWithoutAChallengeExcusesNoSupersedingLater(t *testing.T) {
	simulate(t, options{faults: refserver.Faults{NoChallenge: true}}, func(t *testing.T, w *world) {
		w.wait(8 * time.Second)
		if n := len(w.sent(wire.TypeHello)); n != 0 {
			t.Fatalf("%d hellos without a challenge", n)
		}
		w.server.SetFaults(refserver.Faults{})
		w.active()
		w.server.Supersede(w.device)
		if err := w.end(time.Second); !errors.Is(err, link.ErrSuperseded) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestEachRejectHasItsReaction(t *testing.T) {
	for _, c := range []struct {
		code  wire.HelloRejectCode
		final error
		cause link.Cause
	}{
		{wire.RejectRevoked, link.ErrRevoked, link.CauseRevoked},
		{wire.RejectAuthFailed, nil, link.CauseAuthFailed},
		{wire.RejectDraining, nil, link.CauseDraining},
		{wire.RejectAlreadyConnected, nil, link.CauseConnected},
		{"something_new", nil, link.CauseRejectUnknown},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			simulate(t, options{silent: true}, func(t *testing.T, w *world) {
				w.server.SetFaults(refserver.Faults{RejectHello: c.code})
				done := w.run()
				if c.final != nil {
					if err := <-done; !errors.Is(err, c.final) {
						t.Errorf("Run returned %v", err)
					}
					if s := w.last(); s.Phase != link.Stopped || s.Cause != c.cause {
						t.Errorf("state %s (%s)", s.Phase, s.Cause)
					}
					return
				}
				w.wait(time.Second / 4)
				if s := w.last(); s.Phase != link.BackingOff || s.Cause != c.cause {
					t.Errorf("state %s (%s)", s.Phase, s.Cause)
				}
				w.server.SetFaults(refserver.Faults{})
				w.active()
				w.stop()
				<-done
			})
		})
	}
}

func TestAServerThatWantsANewerExecutorEndsIt(t *testing.T) {
	simulate(t, options{server: refserver.Config{ProtocolVersion: 3, MinProtocolVersion: 2}}, func(t *testing.T, w *world) {
		var old *link.TooOldError
		if err := w.end(time.Minute); !errors.As(err, &old) || old.Min == nil || *old.Min != 2 {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestAuthFailedSeveralTimesCastsDoubtOnTheEnrollment(t *testing.T) {
	simulate(t, options{silent: true}, func(t *testing.T, w *world) {
		w.server.SetFaults(refserver.Faults{RejectHello: wire.RejectAuthFailed})
		done := w.run()
		w.wait(30 * time.Second)
		got := causes(w.entries(link.BackingOff))
		want := []link.Cause{link.CauseAuthFailed, link.CauseAuthFailed, link.CauseEnrollmentGone}
		if len(got) < 4 || !slices.Equal(got[:3], want) || got[3] != link.CauseEnrollmentGone {
			t.Errorf("causes %v", got)
		}
		w.server.SetFaults(refserver.Faults{})
		w.active() // it is doubt, not an end
		w.stop()
		<-done
	})
}

func TestEachByeHasItsReaction(t *testing.T) {
	t.Run("revoked", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			w.server.Revoke(w.device)
			if err := w.end(time.Second); !errors.Is(err, link.ErrRevoked) {
				t.Errorf("Run returned %v", err)
			}
		})
	})
	t.Run("superseded", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			w.server.Supersede(w.device)
			if err := w.end(time.Second); !errors.Is(err, link.ErrSuperseded) {
				t.Errorf("Run returned %v", err)
			}
		})
	})
	t.Run("draining", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			w.server.Drain()
			w.wait(100 * time.Millisecond)
			if s := w.last(); s.Phase != link.BackingOff || s.Cause != link.CauseDraining {
				t.Errorf("state %s (%s)", s.Phase, s.Cause)
			}
			w.wait(10 * time.Second) // upgrades are refused meanwhile
			w.server.Restart()
			w.active()
		})
	})
	t.Run("unknown", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			w.server.Inject(w.device, []byte(`{"t":"bye","gen":"1","reason":"lunch"}`))
			w.wait(100 * time.Millisecond)
			if s := w.last(); s.Phase != link.BackingOff || s.Cause != link.CauseByeUnknown {
				t.Errorf("state %s (%s)", s.Phase, s.Cause)
			}
			w.wait(time.Second)
			w.active()
		})
	})
}

// A server that says bye and closes makes the frame under way fail. If that were all
// that counted, a superseded executor would take the lease back from its successor.
func TestAByeIsHeardThoughAWriteFailsBeforeItIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(*refserver.Server, string)
		want error
	}{
		"superseded": {(*refserver.Server).Supersede, link.ErrSuperseded},
		"revoked":    {(*refserver.Server).Revoke, link.ErrRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, options{}, func(t *testing.T, w *world) {
				w.active()
				call := w.exec()
				pair := w.net.last()
				pair.toDevice.set(func(q *pipe) { q.stalled = true })
				c.say(w.server, w.device)
				w.wait(10 * time.Second) // the server has closed
				if err := w.work.say(t.Context(), call.ID(), 1000); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				pair.toDevice.set(func(q *pipe) { q.stalled = false })
				if err := w.end(time.Second); !errors.Is(err, c.want) {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

func TestNothingAfterAByeIsActedOn(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.server.Inject(w.device, []byte(`{"t":"bye","gen":"1","reason":"draining"}`))
		w.server.Inject(w.device, []byte(`{"t":"instruction","gen":"1","instructionId":"ins_late","rootSessionId":"s","issuedSeq":9,"kind":"exec","args":{"command":"x"},"timeoutMs":1000}`))
		w.wait(time.Second / 4)
		if w.work.Seen("ins_late") {
			t.Error("an instruction that followed a bye was taken")
		}
	})
}

func TestFramesOfOtherGenerationsAreDroppedUnread(t *testing.T) {
	simulate(t, options{server: refserver.Config{FirstGeneration: 18446744073709551614}}, func(t *testing.T, w *world) {
		w.active()
		for _, raw := range []string{
			`{"t":"instruction","gen":"7","instructionId":"ins_old","rootSessionId":"s","issuedSeq":1,"kind":"exec","args":{"command":"x"},"timeoutMs":1000}`,
			`{"t":"cancel","gen":"18446744073709551613","instructionId":"ins_old"}`,
			`{"t":"bye","gen":"1","reason":"revoked"}`,
		} {
			w.server.Inject(w.device, []byte(raw))
		}
		w.wait(time.Second)
		if w.work.Seen("ins_old") || len(w.work.cancels) > 0 {
			t.Error("a frame of another generation was acted on")
		}
		if n := w.link.Counters().OtherGen; n != 3 {
			t.Errorf("%d frames counted", n)
		}
		if s := w.last(); s.Phase != link.Active || s.Gen != "18446744073709551614" {
			t.Errorf("state %s, generation %s", s.Phase, s.Gen)
		}
	})
}

func TestWhatIsNotKnownIsIgnoredAndCounted(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		for _, raw := range []string{
			`{"t":"weather","gen":"1","sunny":true}`,
			`{"t":"ping"}`,
			`{"t":"challenge","nonce":"x","protocolVersion":1}`,
			`not json`,
			`[]`,
			`{"t":"cancel","gen":"1","instructionId":"ins_x","more":1}`,
			`{"t":"cancel","gen":"0","instructionId":"ins_y","more":1}`,
		} {
			w.server.Inject(w.device, []byte(raw))
		}
		w.server.InjectBinary(w.device, []byte{0, 1})
		w.wait(time.Second)
		c := w.link.Counters()
		if c.UnknownFrames != 2 || c.UnknownMembers != 1 || c.Malformed != 2 || !slices.Equal(w.work.cancels, []string{"ins_x"}) {
			t.Errorf("counters %+v, cancels %v", c, w.work.cancels)
		}
		call := w.exec()
		w.succeeds(call)
		w.innocent()
	})
}

func TestAnUpgradeRefusedIsNeverFinal(t *testing.T) {
	simulate(t, options{silent: true}, func(t *testing.T, w *world) {
		answers := make(chan http.HandlerFunc, 1)
		n := newMemNet()
		front := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { (<-answers)(rw, r) })}
		served := make(chan error, 1)
		go func() { served <- front.Serve(n) }()
		defer func() { _ = front.Close(); <-served }()
		d := dialer(n)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for name, c := range map[string]struct {
			answer http.HandlerFunc
			status int
		}{
			"unavailable": {func(rw http.ResponseWriter, _ *http.Request) {
				http.Error(rw, "draining", http.StatusServiceUnavailable)
			}, 503},
			"forbidden": {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(403) }, 403},
			"a page":    {func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>sign in</html>")) }, 200},
			"elsewhere": {func(rw http.ResponseWriter, r *http.Request) {
				http.Redirect(rw, r, "https://elsewhere.example/ws", http.StatusFound)
			}, 302},
		} {
			answers <- c.answer
			_, err := d.DialPath(ctx, "/v1/device/ws")
			var refused *link.UpgradeError
			if !errors.As(err, &refused) || refused.Status != c.status {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestADrainingReplicaIsTriedAgain(t *testing.T) {
	simulate(t, options{silent: true}, func(t *testing.T, w *world) {
		w.server.Drain()
		done := w.run()
		w.wait(5 * time.Second)
		for _, s := range w.entries(link.BackingOff) {
			if s.Cause != link.CauseUpgradeRefused {
				t.Errorf("cause %s", s.Cause)
			}
		}
		w.server.Restart()
		w.active()
		w.stop()
		<-done
	})
}

func TestA404SendsTheLinkBackToDiscovery(t *testing.T) {
	path := "/v1/old"
	asked := 0
	simulate(t, options{link: func(w *world, c *link.Config) {
		n := c.Network.(*network)
		n.find = func(context.Context) (string, error) {
			asked++
			found := path
			path = wire.WSPath
			return found, nil
		}
	}}, func(t *testing.T, w *world) {
		w.active()
		if got := causes(w.entries(link.BackingOff)); !slices.Equal(got, []link.Cause{link.CauseUpgradeMissing}) {
			t.Errorf("back-offs %v", got)
		}
		if asked != 2 {
			t.Errorf("discovery was asked %d times", asked)
		}
		w.net.cutAll()
		w.wait(2 * time.Second)
		w.active()
		if asked != 2 {
			t.Errorf("discovery was asked again after a mere disconnect")
		}
	})
}

func TestTheLastGoodPathStandsInForDiscovery(t *testing.T) {
	var found []string
	simulate(t, options{
		server: refserver.Config{WSPath: "/lane/7"},
		link: func(w *world, c *link.Config) {
			c.LastPath = "/lane/7"
			c.OnPath = func(p string) { found = append(found, p) }
			real := c.Network.(*network).find
			down := true
			c.Network.(*network).find = func(ctx context.Context) (string, error) {
				if down {
					down = false
					return "", errors.New("the name cannot be resolved")
				}
				return real(ctx)
			}
		}}, func(t *testing.T, w *world) {
		w.active()
		if s := w.entries(link.Connecting)[0]; s.Cause != link.CausePathKept {
			t.Errorf("cause %s", s.Cause)
		}
		w.net.cutAll()
		w.wait(2 * time.Second)
		w.active()
		if !slices.Equal(found, []string{"/lane/7"}) {
			t.Errorf("paths found: %v", found)
		}
	})
}

func TestADeploymentWithoutTheLaneIsAskedAgain(t *testing.T) {
	simulate(t, options{server: refserver.Config{Disabled: true}}, func(t *testing.T, w *world) {
		w.wait(10 * time.Second)
		rests := w.entries(link.BackingOff)
		if len(rests) < 3 || len(w.entries(link.Connecting)) > 0 {
			t.Errorf("%d back-offs, %d attempts to connect", len(rests), len(w.entries(link.Connecting)))
		}
		for _, s := range rests {
			if s.Cause != link.CauseLaneOff {
				t.Errorf("cause %s", s.Cause)
			}
		}
	})
}

func TestAnIdentityThatMakesNoHelloEndsTheLinkAtOnce(t *testing.T) {
	simulate(t, options{link: func(_ *world, c *link.Config) {
		c.Identity.WorkspaceRoot = string(make([]byte, 5000))
	}}, func(t *testing.T, w *world) {
		if err := w.end(time.Second); err == nil {
			t.Error("no error")
		}
		if s := w.last(); s.Cause != link.CauseBadIdentity {
			t.Errorf("cause %s", s.Cause)
		}
	})
}
