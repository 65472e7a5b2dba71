package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	TimeoutMs     int64             `json:"timeoutMs"`
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
		return nil, fmt.Errorf("the line begins with { and is no request: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	asked := 0
	for _, there := range []bool{r.Kind != "", r.Cancel != "", r.Server != ""} {
		if there {
			asked++
		}
	}
	if asked != 1 {
		return nil, errors.New(`a request has one of "kind", "cancel" and "server"`)
	}
	return &r, r.fill()
}

// fill completes a write's args with what the content has.
func (r *request) fill() error {
	if r.Content != nil {
		if r.ContentBase64 != nil {
			return errors.New(`a request has one of "content" and "contentBase64"`)
		}
		r.ContentBase64 = []byte(*r.Content)
	}
	if r.Args == nil {
		r.Args = json.RawMessage("{}")
	}
	if !r.Kind.TakesPayload() {
		if r.ContentBase64 != nil {
			return fmt.Errorf("%s takes no content", r.Kind)
		}
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(r.Args, &members) != nil {
		return nil // wrong on purpose: it goes as it is
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
