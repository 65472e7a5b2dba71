package enroll

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/wire"
)

// Enroller makes this machine a device.
type Enroller struct {
	Home   *Home
	Client *Client
	Stores Stores
	Now    func() time.Time
	Rand   io.Reader // of the private key
	Log    *slog.Logger
	// WriteFaces finds out which optional write kinds the file system under a
	// workspace can do atomically (§3.2).
	WriteFaces func(ctx context.Context, workspaceRoot string) ([]wire.Kind, error)
}

// Request is what to enroll, and where.
type Request struct {
	Server     Server
	Credential Credential
	Token      Token  // zero: have the server issue one
	Workspace  string // a folder; "": the current one
	Name       string // "": none is sent
	KeyStore   string // StoreAuto, StoreKeychain or StoreFile
	Platform   wire.Platform
	Supports   []wire.Kind // what this executor implements
}

// Enrolled is a device that is ready to serve.
type Enrolled struct {
	Record *Record
	// KeyStoreReason says why the key is where it is.
	KeyStoreReason string
	// Notes are things the owner should know, each a sentence.
	Notes []string
}

// Enroll takes a machine through discovery, token, key and registration. See
// the package's comment for what a crash or a lost answer on the way leaves.
// Errors: *UsageError before anything was sent, *AnswerError,
// *UnreachableError, *KeyError, the context's.
func (e *Enroller) Enroll(ctx context.Context, q Request) (*Enrolled, error) {
	root, err := e.check(q)
	if err != nil {
		return nil, err
	}
	faces, err := e.WriteFaces(ctx, root)
	if err != nil {
		return nil, &UsageError{What: "workspace", Err: fmt.Errorf("%q cannot be worked in, so choose another with --workspace: %w", root, err)}
	}
	if err := e.Home.mayKeep(); err != nil { // before the server is troubled, or waited for
		return nil, err
	}
	lane, err := e.Client.Discover(ctx, q.Server)
	if err != nil {
		return nil, err
	}
	token := q.Token
	if token.IsZero() {
		if token, err = e.Client.IssueToken(ctx, q.Server, q.Credential); err != nil {
			return nil, err
		}
	}
	done := &Enrolled{}
	r, err := e.prepare(ctx, q, token, root, done)
	if err != nil {
		return nil, err
	}
	r.WSPath, r.WriteFaces = lane.WSPath, faces
	if err := e.register(ctx, q, token, r); err != nil {
		return nil, err
	}
	// What is to be believed later is what can be read now.
	if done.Record, err = e.Home.Record(r.DeviceID); err != nil {
		return nil, err
	}
	if _, err := e.Stores.Load(ctx, done.Record); err != nil {
		return nil, fmt.Errorf("registered as %s, but: %w", r.DeviceID, err)
	}
	if lane.ProtocolVersion > wire.ProtocolVersion {
		done.Notes = append(done.Notes, fmt.Sprintf("The server speaks protocol version %d, this executor %d: update it soon.",
			lane.ProtocolVersion, wire.ProtocolVersion))
	}
	e.tidy(ctx, done)
	e.Log.Info("enrolled", "device", r.DeviceID, "server", r.Server.String(), "keyStore", r.KeyStore)
	return done, nil
}

// check holds the request to its rules and returns the workspace root.
func (e *Enroller) check(q Request) (string, error) {
	if q.Server.IsZero() {
		return "", &UsageError{What: "server", Err: errors.New("no address given: use --server or SEMA_SERVER")}
	}
	if q.Credential.IsZero() {
		return "", errNoCredential
	}
	if q.KeyStore != StoreAuto {
		if _, err := e.Stores.ByName(q.KeyStore); err != nil {
			return "", &UsageError{What: "key store", Err: fmt.Errorf("%q is none of %s, %s, %s", q.KeyStore, StoreAuto, StoreKeychain, StoreFile)}
		}
	}
	root, err := CheckWorkspace(q.Workspace, q.Platform, q.Supports)
	if err != nil {
		return "", err
	}
	r := registration(q, Token{newSecret("-")}, &Record{WorkspaceRoot: root, Name: q.Name})
	return root, r.check()
}

func registration(q Request, token Token, r *Record) Registration {
	return Registration{
		Token:         token,
		PublicKey:     r.PublicKey,
		PlatformOS:    q.Platform.OS,
		PlatformArch:  q.Platform.Arch,
		DisplayName:   r.Name,
		WorkspaceRoot: r.WorkspaceRoot,
	}
}

// prepare returns the record to register: the one that this token was used for
// before, or a new one, in either case durable and with its key in its store.
func (e *Enroller) prepare(ctx context.Context, q Request, token Token, root string, done *Enrolled) (*Record, error) {
	if r := e.Home.begun(q.Server, token); r != nil {
		if r.WorkspaceRoot != root {
			return nil, &UsageError{What: "workspace", Err: fmt.Errorf("an enrollment with this token began for %q and may have reached the server; "+
				"finish it with that workspace, or get a new token for %q", r.WorkspaceRoot, root)}
		}
		// Another command with this token may be storing the key right now.
		err := alone(ctx, r, "read", func() error {
			_, err := e.Stores.load(ctx, r.orRenewed())
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("take up the enrollment that was interrupted: %w", err)
		}
		done.KeyStoreReason = "where the interrupted enrollment had put it"
		done.Notes = append(done.Notes, "This finished an enrollment that had been interrupted.")
		return r, nil
	}

	key, err := handshake.GenerateKey(e.Rand)
	if err != nil {
		return nil, err
	}
	r := &Record{
		Server:        q.Server,
		WorkspaceRoot: root,
		PublicKey:     key.Public(),
		Name:          q.Name,
		EnrolledAt:    e.Now(),
		tokenDigest:   token.digest(),
	}
	if err := e.Home.begin(r); err != nil {
		return nil, err
	}
	err = alone(ctx, r, "store", func() (err error) {
		r.KeyStore, done.KeyStoreReason, err = e.Stores.place(ctx, q.KeyStore, r.Key(), key, func(name string) error {
			r.KeyStore = name
			return r.save()
		})
		return err
	})
	if err != nil {
		// A store that failed kept nothing, so the folder is all there is.
		if after := os.RemoveAll(r.dir); after != nil {
			e.Log.Warn("what was prepared for the enrollment could not be removed", "folder", r.dir, "error", after)
		}
		return nil, err
	}
	return r, nil
}

// register makes the device known to the server and its record final. After a
// refusal nothing stays of what was prepared. If the device may be registered
// all the same, it stays for the same token to come again, unless nobody but
// us has that token.
func (e *Enroller) register(ctx context.Context, q Request, token Token, r *Record) error {
	id, settled, err := e.Client.Register(ctx, q.Server, q.Credential, registration(q, token, r))
	if err == nil {
		err = e.Home.complete(context.WithoutCancel(ctx), r, id)
		var taken *TakenError
		if !errors.As(err, &taken) {
			return err
		}
		settled = true // it is known what the server did, if not why
	}
	var answered *AnswerError
	if errors.As(err, &answered) && answered.Reason == ReasonTokenRefused {
		settled = true // our key would have been recognized
	}
	again := !settled && !q.Token.IsZero()
	if !again {
		if after := e.Home.abandon(context.WithoutCancel(ctx), r, e.Stores); after != nil {
			e.Log.Warn("what was prepared for the enrollment could not be removed", "folder", r.dir, "error", after)
		}
	}
	if settled {
		return err
	}
	return &UnfinishedError{Err: err, Again: again}
}

// tidy removes what the new enrollment replaces: revoked devices of the same
// server and workspace, and interrupted enrollments of long ago.
func (e *Enroller) tidy(ctx context.Context, done *Enrolled) {
	e.Home.sweep(ctx, e.Stores, e.Now())
	others, _, err := e.Home.Records()
	if err != nil {
		return // the records were just read; the next command will report it
	}
	for _, r := range others {
		if r.DeviceID == done.Record.DeviceID || r.Server != done.Record.Server || r.WorkspaceRoot != done.Record.WorkspaceRoot {
			continue
		}
		if !r.Revoked() {
			done.Notes = append(done.Notes, fmt.Sprintf("This workspace is also enrolled with this server as %s: `serve` needs --device now.", r.DeviceID))
			continue
		}
		if err := e.Home.Unenroll(ctx, r, e.Stores); err != nil {
			done.Notes = append(done.Notes, fmt.Sprintf("The record of the revoked device %s could not be removed: %v", r.DeviceID, err))
		}
	}
}

// DisplayName cuts a name, such as the machine's own, to what the server takes.
func DisplayName(name string) string {
	name = strings.ToValidUTF8(name, "")
	for len(name) > maxNameBytes {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}
