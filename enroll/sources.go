package enroll

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Names of the variables that carry secrets. They are for this process and are
// never passed on.
const (
	CredentialVariable = "SEMA_CREDENTIAL"
	TokenVariable      = "SEMA_ENROLL_TOKEN"
)

// fromStdin stands for standard input in place of a file or a value.
const fromStdin = "-"

// maxSecretBytes is more than any credential or token has.
const maxSecretBytes = 64 << 10

// Sources are the places where a command finds the user's secrets.
type Sources struct {
	CredentialFile string // --credential-file: a path, or "-"; "": SEMA_CREDENTIAL
	Token          string // --token: the token, or "-"; "": SEMA_ENROLL_TOKEN, which may be unset
	Getenv         func(string) string
	Stdin          io.Reader
}

// Read returns the credential, which must be somewhere, and the token, which is
// zero if there is none. A token from standard input is one line; a credential
// is all of it. Errors are *UsageErrors and quote neither.
func (s Sources) Read() (Credential, Token, error) {
	if s.CredentialFile == fromStdin && s.Token == fromStdin {
		return Credential{}, Token{}, &UsageError{What: "standard input", Err: errors.New("it cannot hold both credential and token")}
	}
	credential, err := s.credential()
	if err != nil {
		return Credential{}, Token{}, err
	}
	token, err := s.token()
	if err != nil {
		return Credential{}, Token{}, err
	}
	return credential, token, nil
}

func (s Sources) credential() (Credential, error) {
	text, err := "", error(nil)
	switch s.CredentialFile {
	case "":
		text = s.Getenv(CredentialVariable)
	case fromStdin:
		text, err = readSecret(s.Stdin)
	default:
		var f *os.File
		if f, err = os.Open(s.CredentialFile); err == nil {
			text, err = readSecret(f)
			_ = f.Close() // only read
		}
	}
	if err != nil {
		return Credential{}, &UsageError{What: "credential", Err: err}
	}
	credential, err := NewCredential(text)
	if err == nil && credential.IsZero() {
		err = errNoCredential
	}
	return credential, err
}

func (s Sources) token() (Token, error) {
	text := s.Token
	switch text {
	case "":
		if text = s.Getenv(TokenVariable); text == "" {
			return Token{}, nil
		}
	case fromStdin:
		line, err := bufio.NewReader(io.LimitReader(s.Stdin, maxSecretBytes)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return Token{}, &UsageError{What: "enrollment token", Err: fmt.Errorf("read it from standard input: %w", err)}
		}
		text = line
	}
	return NewToken(text)
}

func readSecret(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSecretBytes+1))
	if err == nil && len(b) > maxSecretBytes {
		err = fmt.Errorf("it has more than %d bytes", maxSecretBytes)
	}
	return string(b), err
}
