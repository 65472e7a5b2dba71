package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/wire"
)

// request is what a line asks for: an instruction, a cancel, or something of the
// server itself.
type request struct {
	DeviceID string `json:"deviceId"`

	Kind          wire.Kind         `json:"kind"`
	Args          json.RawMessage   `json:"args"`
	Cwd           string            `json:"cwd"`
	ShellEnv      map[string]string `json:"shellEnv"`
	TimeoutMs     *int64            `json:"timeoutMs"`
	RootSessionID string            `json:"rootSessionId"`
	Content       *string           `json:"content"`
	ContentBase64 []byte            `json:"contentBase64"`

	Cancel string `json:"cancel"`
	Server string `json:"server"`
}

func parseRequest(text []byte) (*request, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the line is not valid UTF-8, which the protocol needs")
	}
	if text[0] != '{' {
		args, err := wire.AppendArgs(nil, wire.ExecArgs{Command: string(text)})
		return &request{Kind: wire.KindExec, Args: args}, err
	}
	var r request
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&r)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the closing brace")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the line begins with { and is no request: %s", whatIsWrong(err))
	}
	return &r, r.check()
}

// whatIsWrong says it in the terms of the line, not of what read it.
func whatIsWrong(err error) string {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	var corrupt base64.CorruptInputError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON from byte %d on", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends before its closing brace"
	case errors.As(err, &mismatch):
		takes := map[reflect.Kind]string{reflect.String: "a string", reflect.Int64: "a whole number", reflect.Map: "an object of strings",
			reflect.Slice: "a string of base64"}[mismatch.Type.Kind()]
		return fmt.Sprintf("%q takes %s, not a JSON %s", mismatch.Field, takes, mismatch.Value)
	case errors.As(err, &corrupt):
		return `"contentBase64" is not base64, with its padding`
	}
	return strings.Replace(strings.TrimPrefix(err.Error(), "json: "), "unknown field", "there is no member", 1)
}

// check holds a request to what makes sense, and completes a write's args.
func (r *request) check() error {
	asked := 0
	for _, there := range []bool{r.Kind != "", r.Cancel != "", r.Server != ""} {
		if there {
			asked++
		}
	}
	rest := *r
	rest.Cancel, rest.Server, rest.DeviceID = "", "", ""
	switch {
	case asked != 1:
		return errors.New(`a request has one of "kind", "cancel" and "server"`)
	case r.Kind != "":
		return r.fill()
	case !reflect.DeepEqual(rest, request{}):
		return errors.New(`beside "cancel" or "server" there is "deviceId" at most`)
	case r.Cancel != "":
		return nil
	}
	switch r.Server {
	case "drop", "revoke", "supersede":
		return nil
	case "drain", "restart":
		if r.DeviceID != "" {
			return fmt.Errorf(`%q is about no device: leave "deviceId" out`, r.Server)
		}
		return nil
	}
	return fmt.Errorf(`"server" is drop, revoke, supersede, drain or restart, not %q`, r.Server)
}

// fill completes a write's args with what the content has.
func (r *request) fill() error {
	if !r.Kind.Known() {
		return fmt.Errorf("the protocol has no kind %q; it has %s", r.Kind, kindsInWords())
	}
	if r.TimeoutMs != nil && *r.TimeoutMs == 0 {
		return errors.New(`"timeoutMs" cannot be 0 here; below 0 it has run out as well`)
	}
	if r.Content != nil {
		if r.ContentBase64 != nil {
			return errors.New(`a request has one of "content" and "contentBase64"`)
		}
		r.ContentBase64 = []byte(*r.Content)
	}
	if r.Args == nil {
		r.Args = json.RawMessage("{}")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Args, &members); err != nil || members == nil {
		return errors.New(`"args" is an object in every frame`)
	}
	if !r.Kind.TakesPayload() {
		if r.ContentBase64 != nil {
			return fmt.Errorf("%s takes no content", r.Kind)
		}
		return nil
	}
	digest := sha256.Sum256(r.ContentBase64)
	for name, value := range map[string]any{"contentLen": len(r.ContentBase64), "sha256": hex.EncodeToString(digest[:])} {
		if _, there := members[name]; !there {
			text, err := json.Marshal(value)
			if err != nil {
				return err
			}
			members[name] = text
		}
	}
	var err error
	r.Args, err = json.Marshal(members)
	return err
}

// timeoutMs is what Dispatch takes for it: 0 where the line has none.
func (r *request) timeoutMs() int64 {
	if r.TimeoutMs == nil {
		return 0
	}
	return *r.TimeoutMs
}

// kindsInWords lists the protocol's kinds.
func kindsInWords() string {
	var names []string
	for _, k := range wire.Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}
