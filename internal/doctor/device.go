package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/holder"
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/wire"
)

func record(r *enroll.Record) []Finding {
	what := "enrolled on " + r.EnrolledAt.Local().Format("2006-01-02")
	if r.Name != "" {
		what += fmt.Sprintf(" as %q", r.Name)
	}
	return []Finding{{Check: "record", Level: OK, What: what}}
}

// revoked looks what is left of a device that the server has ended.
func (d *Doctor) revoked(ctx context.Context, r *enroll.Record) []Finding {
	left := d.Stores.Left(ctx, r)
	f := Finding{
		Check: "revoked", Level: Fail,
		What: fmt.Sprintf("the server revoked this device on %s; %s", r.RevokedAt.Local().Format("2006-01-02 15:04"), left),
		Why:  "That is for good. Enrolling again makes a new device.",
		Mend: left.Advice(r.DeviceID),
		Run:  r.Server.EnrollCommand(r.WorkspaceRoot),
	}
	if f.Mend != "" {
		f.Mend += "\nEnroll again:"
	}
	return []Finding{f}
}

// key reads the private key and holds it against the registered public one, and
// says why it is where it is.
func (d *Doctor) key(ctx context.Context, r *enroll.Record) []Finding {
	if _, err := d.Stores.Load(ctx, r); err != nil {
		f := Finding{
			Check: "key", Level: Fail, What: err.Error(), Mend: enroll.Advice(err),
			Why: "The server knows this device by its key alone.",
		}
		var trouble *enroll.KeyError
		if errors.As(err, &trouble) {
			switch trouble.Trouble {
			case enroll.KeyExposed:
				f.Mend = "If others may have read it, revoke the device at the server and enroll again. If not, take their rights away:"
				f.Run = "chmod go= " + remedy.Quote(trouble.Path)
			case enroll.KeyMissing, enroll.KeyDamaged, enroll.KeyMismatch:
				f.Run = r.Server.EnrollCommand(r.WorkspaceRoot)
			}
		}
		return []Finding{f}
	}
	f := Finding{Check: "key", Level: OK, What: "the keychain holds it; it is the registered one"}
	if r.KeyStore == enroll.StoreFile {
		f.What = "a file that only you can read holds it; it is the registered one"
		_, err := d.Stores.Keychain.Load(ctx, r.Key())
		var trouble *enroll.KeyError
		switch {
		case err == nil:
			f.What += "; the keychain has a copy, as an interrupted move leaves it"
			f.Level, f.Why = Warn, "A key should be in one place."
			f.Run = remedy.For(r.DeviceID, "key", "move", "file")
		case errors.As(err, &trouble) && trouble.Trouble == enroll.KeyMissing:
			f.What += "; the keychain of this session could hold it"
			f.Run = remedy.For(r.DeviceID, "key", "move", "keychain")
		case errors.As(err, &trouble):
			f.What += "; " + trouble.Why()
		}
	}
	return []Finding{f}
}

// lock says who serves the device now.
func (d *Doctor) lock(r *enroll.Record) []Finding {
	path := filepath.Join(r.Dir(), "lock")
	h, err := holder.Of(r.Dir())
	switch {
	case err != nil:
		return []Finding{{
			Check: "lock", Level: Fail, What: fmt.Sprintf("it cannot be asked whether an executor runs: %v", plain(err)),
			Why:  "An executor that cannot take its lock does not start.",
			Mend: "Mend what the system names: the owner and the mode of this file.", Run: "ls -l " + remedy.Quote(path),
		}}
	case h == nil:
		return []Finding{{Check: "lock", Level: OK, What: "free: no executor serves this device now"}}
	case h.Says == nil:
		return []Finding{{
			Check: "lock", Level: Warn, What: h.String() + " holds this device and does not say what it does",
			Why:  "While it holds the lock, no other executor can serve this device (exit code 4).",
			Mend: "If that is not an executor at work, end it.", Run: h.Command(),
		}}
	}
	f := Finding{Check: "lock", Level: OK, What: fmt.Sprintf("%s serves this device now: %s", h, strings.ReplaceAll(h.Says.State.Phase, "_", " "))}
	if e := h.Says.LastError; e != nil && h.Says.State.Phase == "backing_off" {
		f.Level = Warn
		f.What = fmt.Sprintf("%s holds this device and has no connection: %s", h, e.Text)
		f.Mend, f.Run = e.Remedy, e.Run
		if f.Run == remedy.For(r.DeviceID, "doctor") {
			f.Mend = "The findings about the server, below, may say why." // this is the doctor
			f.Run = ""
		}
		if f.Run == "" {
			f.Run = remedy.For(r.DeviceID, "status")
		}
	}
	return []Finding{f}
}

// workspace looks at the folder of work, and at what its file system can do.
func workspace(ctx context.Context, r *enroll.Record) []Finding {
	root := r.WorkspaceRoot
	bad := func(level Level, what, mend, run string) []Finding {
		return []Finding{{
			Check: "workspace", Level: level, What: what, Mend: mend, Run: run,
			Why: "Commands start in it, and what the agent reads and writes is there.",
		}}
	}
	const orElse = "Mend it, or enroll again with another --workspace."
	info, err := os.Stat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bad(Fail, root+" is not there", "Make it, or enroll again with another --workspace.", "mkdir -p "+remedy.Quote(root))
	case err != nil:
		return bad(Fail, fmt.Sprintf("%s cannot be looked at: %v", root, plain(err)), orElse, "ls -ld "+remedy.Quote(root))
	case !info.IsDir():
		return bad(Fail, root+" is not a folder", orElse, "ls -ld "+remedy.Quote(root))
	}
	if err := unix.Access(root, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return bad(Fail, fmt.Sprintf("%s cannot be written to: %v", root, err),
			"Give yourself the right to, or enroll again with another --workspace.", "ls -ld "+remedy.Quote(root))
	}
	layer, err := files.New(files.Config{})
	if err != nil {
		return bad(Fail, fmt.Sprintf("files cannot be served: %v", err), "Mend the folder that is named.", "")
	}
	can, err := layer.Probe(ctx, root)
	if err != nil {
		return bad(Fail, fmt.Sprintf("no file can be made in %s: %v", root, err), "Mend what the system names.", "df -h "+remedy.Quote(root))
	}
	return []Finding{{Check: "workspace", Level: OK, What: root}, faces(r, can)}
}

// faces compares what the file system does in one step now with what the device
// declares, which is settled at enrollment.
func faces(r *enroll.Record, can files.Faces) Finding {
	f := Finding{Check: "writes", Level: OK, What: "every kind of write can be done in one step"}
	able := map[wire.Kind]bool{wire.KindWriteFileExclusive: can.Exclusive, wire.KindWriteFileGuarded: can.Guarded}
	var lost, unused, missing []string
	for _, kind := range enroll.OptionalWriteFaces() {
		declared := slices.Contains(r.WriteFaces, kind)
		switch {
		case declared && !able[kind]:
			lost = append(lost, string(kind))
		case !declared && able[kind]:
			unused = append(unused, string(kind))
		case !declared:
			missing = append(missing, string(kind))
		}
	}
	switch {
	case len(lost) > 0:
		f.Level = Warn
		f.What = "the workspace's file system can do no longer what this device declares: " + strings.Join(lost, ", ")
		f.Why = "Such writes fail; the agent counts on what was declared when this device was enrolled."
		f.Mend = "Put the workspace back on the file system it was on, or enroll again to declare less."
		f.Run = fileSystemOf(r.WorkspaceRoot)
	case len(unused) > 0:
		f.What = "the file system could do more than this device declares: " + strings.Join(unused, ", ")
		f.Mend = "Enroll again to declare it."
	case len(missing) > 0:
		f.What = "this file system has no " + strings.Join(missing, ", ") + "; this device does not declare it"
	}
	return f
}

func (d *Doctor) service(ctx context.Context, r *enroll.Record) []Finding {
	s, err := d.Service(ctx, r.DeviceID)
	f := Finding{Check: "service", Level: Warn}
	switch {
	case err != nil:
		f.What, f.Mend = err.Error(), enroll.Advice(err)
		f.Why = "Without a service manager the executor runs only as long as you let it run."
	case s.Barred != nil:
		// Nothing is out of order: an executor needs no service manager.
		f.Level, f.What, f.Mend = OK, "none is installed; "+s.Barred.Error(), enroll.Advice(s.Barred)
	case s.Orphaned:
		f.What = "its file is gone, and the service manager still has it"
		f.Why = "It does not start by itself any more, and what runs is not what a start would run."
		f.Mend = remedy.Step("Remove what is left", remedy.For(r.DeviceID, "service", "uninstall")) + "\nOr put the file back:"
		f.Run = remedy.For(r.DeviceID, "service", "install")
	case !s.Installed:
		f.Level, f.What = OK, "none is installed, so this device works only while 'serve' runs"
		f.Run = remedy.For(r.DeviceID, "service", "install")
	default:
		if troubles := serviceTroubles(s, r.DeviceID); len(troubles) > 0 {
			return troubles
		}
		f.Level, f.What = OK, "running, and starts by itself"
		if s.Edited {
			f.What = "running and enabled; its file was edited since it was installed"
		}
	}
	return []Finding{f}
}

// serviceTroubles are what an installed service lacks, the present before the
// future.
func serviceTroubles(s ServiceState, deviceID string) (found []Finding) {
	add := func(what, why, mend, run string) {
		found = append(found, Finding{Check: "service", Level: Warn, What: what, Why: why, Mend: mend, Run: run})
	}
	const offline = "This device is offline meanwhile."
	if s.Masked {
		add("it is masked, so the service manager does not start it", offline, "Lift that, and install it again:", remedy.Unmask(s.Unit))
		return found
	}
	switch {
	case s.Restarting:
		add("it ended and will be started again by itself; last time: "+s.LastExit, offline,
			"See why it ended:", remedy.For(deviceID, "service", "logs"))
	case !s.Running && s.LastExit != "":
		add("it is not running; last time: "+s.LastExit, offline,
			remedy.Step("Once it is known why, start it", remedy.For(deviceID, "service", "start"))+"\nSee why it ended:", remedy.For(deviceID, "service", "logs"))
	case !s.Running:
		add("it is not running", offline, "", remedy.For(deviceID, "service", "start"))
	}
	switch {
	case !s.Enabled:
		add("it does not start by itself", "After the next start of the machine this device stays offline.",
			"", remedy.For(deviceID, "service", "install"))
	case s.Lingering != nil && !*s.Lingering:
		add("it ends when you sign out", "Without lingering, user services live as long as your last session.", "", "sudo loginctl enable-linger $USER")
	}
	return found
}
