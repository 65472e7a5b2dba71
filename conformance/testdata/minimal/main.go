// Command minimal is an executor that knows the mandatory kinds of §3.6 and
// nothing else. It shares no code with the executor of this module: the
// conformance suite judges it to show that it judges by the protocol, and it may
// serve as a first draft of an executor in another language.
//
//	minimal enroll SERVER HOME WORKSPACE CREDENTIAL
//	minimal serve HOME
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// identity is what enrollment leaves in HOME/identity.json, readable by its owner
// only.
type identity struct {
	Server    string `json:"server"`
	DeviceID  string `json:"deviceId"`
	Workspace string `json:"workspace"`
	Seed      []byte `json:"seed"`
}

func main() {
	var err error
	switch {
	case len(os.Args) == 6 && os.Args[1] == "enroll":
		err = enroll(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	case len(os.Args) == 3 && os.Args[1] == "run":
		os.Exit(keep(os.Args[2])) // by itself: see exec
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = serve(os.Args[2])
	default:
		err = errors.New("usage: minimal enroll SERVER HOME WORKSPACE CREDENTIAL | minimal serve HOME")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(1)
	}
}

// call makes one HTTP call, waits out a 429 and asks again when an answer is lost.
func call(method, url, credential string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	var last error
	for range 5 {
		wait := time.Second
		req, err := http.NewRequest(method, url, bytes.NewReader(text))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+credential)
		resp, err := (&http.Client{Timeout: 15 * time.Second}).Do(req)
		if err == nil {
			b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
			resp.Body.Close()
			switch {
			case resp.StatusCode == http.StatusOK:
				return json.Unmarshal(b, answer)
			case resp.StatusCode == http.StatusTooManyRequests:
				if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
					wait = max(wait, time.Duration(min(s, 1<<32))*time.Second)
				}
				err = errors.New("too many requests")
			default:
				return fmt.Errorf("%s: %s", resp.Status, b)
			}
		}
		last = err
		time.Sleep(wait)
	}
	return fmt.Errorf("%s: gave up: %v", url, last)
}

func lane(server string) (wsPath string, err error) {
	var c struct {
		DeviceExecutor json.RawMessage `json:"deviceExecutor"`
	}
	if err := call("GET", server+"/v1/capabilities", "", nil, &c); err != nil {
		return "", err
	}
	var l struct {
		Enabled bool   `json:"enabled"`
		WSPath  string `json:"wsPath"`
	}
	if err := json.Unmarshal(c.DeviceExecutor, &l); err != nil || !l.Enabled {
		return "", errors.New("this server has no device lane")
	}
	return l.WSPath, nil
}

func enroll(server, home, workspace, credential string) error {
	if _, err := lane(server); err != nil {
		return err
	}
	var token struct {
		Token string `json:"token"`
	}
	if err := call("POST", server+"/v1/devices/enroll-tokens", credential, nil, &token); err != nil {
		return err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	id := identity{Server: server, Workspace: workspace, Seed: private.Seed()}
	var done struct {
		DeviceID string `json:"deviceId"`
	}
	if err := call("POST", server+"/v1/devices/enroll", credential, map[string]string{
		"token": token.Token, "pubkey": base64.StdEncoding.EncodeToString(public),
		"platformOs": runtime.GOOS, "workspaceRoot": workspace,
	}, &done); err != nil {
		return err
	}
	id.DeviceID = done.DeviceID
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(home, "identity.json"), b, 0o600)
}

func serve(home string) error {
	lock, err := os.OpenFile(filepath.Join(home, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.New("another process serves this device")
	}
	b, err := os.ReadFile(filepath.Join(home, "identity.json"))
	if err != nil {
		return err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return err
	}
	if err := endLeftovers(home); err != nil {
		return err
	}
	return newAgent(home, id).run()
}
