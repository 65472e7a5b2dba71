package enroll

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/regular"
	"github.com/sema-agent/device-executor/wire"
)

// Record is what this machine keeps about one device: device.json. It holds no
// secret. Its zero value is not a record.
type Record struct {
	DeviceID      string
	Server        Server
	WSPath        string // the last wsPath that discovery named; "": none yet
	WorkspaceRoot string
	PublicKey     handshake.PublicKey
	KeyStore      string // StoreFile or StoreKeychain
	Name          string
	EnrolledAt    time.Time
	// WriteFaces are the optional write kinds that the workspace's file system
	// can do atomically, found at enrollment. A device never declares others
	// (§3.2).
	WriteFaces []wire.Kind
	// RevokedAt is when the server said that this device is revoked; zero
	// while it is not. The key of a revoked device is deleted then, or later if
	// its store is out of reach: see Stores.Left.
	RevokedAt time.Time

	dir         string // where device.json and the key file are
	tokenDigest string // only while the enrollment is under way
	unknown     map[string]json.RawMessage
}

// OptionalWriteFaces returns the write kinds that depend on the file system.
func OptionalWriteFaces() []wire.Kind {
	return []wire.Kind{wire.KindWriteFileExclusive, wire.KindWriteFileGuarded}
}

// Excluded returns the optional write kinds this device must not declare.
func (r *Record) Excluded() []wire.Kind {
	return slices.DeleteFunc(OptionalWriteFaces(), func(k wire.Kind) bool { return slices.Contains(r.WriteFaces, k) })
}

// Dir returns the device's folder.
func (r *Record) Dir() string { return r.dir }

// Key returns where the device's private key is filed.
func (r *Record) Key() KeyRef { return KeyRef{DeviceID: r.DeviceID, Dir: r.dir, Public: r.PublicKey} }

// Revoked reports whether the server has revoked the device.
func (r *Record) Revoked() bool { return !r.RevokedAt.IsZero() }

// recordFile is the record's name in the device's folder.
const recordFile = "device.json"

// maxRecordBytes is the largest record that is read. None comes near it.
const maxRecordBytes = 1 << 20

func readRecord(path string) ([]byte, error) { return regular.Read(path, maxRecordBytes) }

// members are the names this version writes, in the order of the file.
var members = []string{"deviceId", "server", "allowInsecure", "wsPath", "workspaceRoot", "publicKey", "keyStore",
	"name", "enrolledAt", "writeFaces", "revokedAt", "tokenDigest"}

// encode returns the file's bytes: our members in their order, then those that
// a newer version left, by name.
func (r *Record) encode() ([]byte, error) {
	values := map[string]any{
		"deviceId":      r.DeviceID,
		"server":        r.Server.String(),
		"allowInsecure": r.Server.Insecure(),
		"wsPath":        r.WSPath,
		"workspaceRoot": r.WorkspaceRoot,
		"publicKey":     r.PublicKey,
		"keyStore":      r.KeyStore,
		"name":          r.Name,
		"enrolledAt":    r.EnrolledAt.UTC().Format(time.RFC3339),
		"writeFaces":    append([]wire.Kind{}, r.WriteFaces...),
		"revokedAt":     "",
		"tokenDigest":   r.tokenDigest,
	}
	if r.Revoked() {
		values["revokedAt"] = r.RevokedAt.UTC().Format(time.RFC3339)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	open := byte('{')
	put := func(name string, value any) error {
		b.WriteByte(open)
		open = ','
		if err := enc.Encode(name); err != nil {
			return err
		}
		b.WriteByte(':')
		return enc.Encode(value)
	}
	for _, name := range members {
		if v := values[name]; v == "" || v == false {
			continue
		}
		if err := put(name, values[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.unknown)) {
		if err := put(name, r.unknown[name]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	var out bytes.Buffer
	if err := json.Indent(&out, b.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// decodeRecord reads a file's bytes. Member names match exactly, members it
// does not know are kept, and each value must make sense: a record is either
// sound or an error, never half of each.
func decodeRecord(data []byte, dir string) (*Record, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, notJSON(err)
	}
	if all == nil {
		return nil, errors.New("it is not a JSON object")
	}
	r := &Record{dir: dir}
	var server, enrolledAt, revokedAt string
	var allowInsecure bool
	for name, into := range map[string]any{
		"deviceId": &r.DeviceID, "server": &server, "allowInsecure": &allowInsecure, "wsPath": &r.WSPath,
		"workspaceRoot": &r.WorkspaceRoot, "publicKey": &r.PublicKey, "keyStore": &r.KeyStore, "name": &r.Name,
		"enrolledAt": &enrolledAt, "writeFaces": &r.WriteFaces, "revokedAt": &revokedAt, "tokenDigest": &r.tokenDigest,
	} {
		value, ok := all[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(value, into); err != nil {
			return nil, fmt.Errorf("member %q is not of its form", name)
		}
		delete(all, name)
	}
	r.unknown = all

	var err error
	if server == "" {
		return nil, errors.New(`member "server" is missing`)
	}
	if r.Server, err = parseServer(server, allowInsecure); err != nil {
		return nil, fmt.Errorf("member %q: %w", "server", err)
	}
	if r.WSPath != "" && !validWSPath(r.WSPath) {
		return nil, fmt.Errorf("member %q: %q is not an absolute path", "wsPath", r.WSPath)
	}
	if r.DeviceID != "" && !idForm.MatchString(r.DeviceID) {
		return nil, fmt.Errorf("member %q: %q is not a device id", "deviceId", r.DeviceID)
	}
	if r.WorkspaceRoot == "" {
		return nil, errors.New(`member "workspaceRoot" is missing`)
	}
	if !filepath.IsAbs(r.WorkspaceRoot) {
		return nil, fmt.Errorf("member %q: %q is not an absolute path", "workspaceRoot", r.WorkspaceRoot)
	}
	if r.PublicKey == (handshake.PublicKey{}) {
		return nil, errors.New(`member "publicKey" is missing`)
	}
	if r.KeyStore == "" {
		return nil, errors.New(`member "keyStore" is missing`)
	}
	if r.KeyStore != StoreFile && r.KeyStore != StoreKeychain {
		return nil, fmt.Errorf("member %q: %q is neither %s nor %s", "keyStore", r.KeyStore, StoreFile, StoreKeychain)
	}
	for _, k := range r.WriteFaces {
		if !slices.Contains(OptionalWriteFaces(), k) {
			return nil, fmt.Errorf("member %q: %q is not an optional write kind", "writeFaces", k)
		}
	}
	if enrolledAt == "" {
		return nil, errors.New(`member "enrolledAt" is missing`)
	}
	if r.EnrolledAt, err = time.Parse(time.RFC3339, enrolledAt); err != nil {
		return nil, notATime("enrolledAt", enrolledAt)
	}
	if revokedAt != "" {
		if r.RevokedAt, err = time.Parse(time.RFC3339, revokedAt); err != nil {
			return nil, notATime("revokedAt", revokedAt)
		}
	}
	return r, nil
}

// notJSON says what is wrong with a text, for somebody who has it in an editor.
func notJSON(err error) error {
	var bad *json.SyntaxError
	if errors.As(err, &bad) {
		return fmt.Errorf("it is not JSON from byte %d on", bad.Offset)
	}
	return errors.New("it is not a JSON object")
}

func notATime(member, value string) error {
	return fmt.Errorf("member %q: %q is not a time like 2026-03-04T12:00:00Z", member, value)
}
