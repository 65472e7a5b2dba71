package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/doctor"
)

func TestSeveralDevicesLiveOnOneMachine(t *testing.T) {
	m := newMachine(t)
	first, second := m.enroll(""), m.enroll("")
	if first == second {
		t.Fatal("one device, not two")
	}
	if s := m.run("device", "list"); s.code != 0 || !strings.Contains(s.stdout, first) || !strings.Contains(s.stdout, second) {
		t.Errorf("list: %+v", s)
	}
	for _, command := range []string{"status", "serve", "unenroll", "activity"} {
		if s := m.run("device", command); s.code != exitUsage || !strings.Contains(s.stderr, "--device") {
			t.Errorf("%s without --device: %+v", command, s)
		}
	}
	if s := m.run("device", "status", "--device", second); s.code != 0 || !strings.Contains(s.stdout, second) {
		t.Errorf("status: %+v", s)
	}
	report := m.examine(0)
	if len(report.Devices) != 2 {
		t.Errorf("doctor examined %d devices", len(report.Devices))
	}
	if report := m.examine(0, "--device", second); len(report.Devices) != 1 || report.Devices[0].DeviceID != second {
		t.Errorf("doctor of one: %+v", report.Devices)
	}
	if s := m.run("device", "unenroll", "--device", first, "--yes"); s.code != 0 {
		t.Errorf("unenroll: %+v", s)
	}
	if left := m.devices(); !slices.Equal(left, []string{second}) {
		t.Errorf("left: %v", left)
	}
	if _, err := m.stores().Load(t.Context(), m.record(second)); err != nil {
		t.Errorf("the other's key: %v", err)
	}
}

// examine runs the doctor and reads what it says.
func (m *machine) examine(code int, args ...string) *doctor.Report {
	m.t.Helper()
	s := m.run(append([]string{"device", "doctor", "--json"}, args...)...)
	if s.code != code {
		m.t.Fatalf("doctor: exit %d, want %d\n%s%s", s.code, code, s.stdout, s.stderr)
	}
	var report doctor.Report
	if err := json.Unmarshal([]byte(s.stdout), &report); err != nil {
		m.t.Fatalf("doctor --json: %v\n%s", err, s.stdout)
	}
	return &report
}

func TestEnrollingAgainReplacesARevokedDevice(t *testing.T) {
	m := newMachine(t)
	workspace := t.TempDir()
	old := m.enroll(workspace)
	other := m.enroll("")
	dir := m.record(old).Dir()
	if err := m.home().Revoke(t.Context(), m.record(old), m.stores(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "key")); !os.IsNotExist(err) {
		t.Errorf("the key of the revoked device is there: %v", err)
	}
	if s := m.run("device", "serve", "--device", old); s.code != exitRevoked || !strings.Contains(s.stderr, "sema device enroll") {
		t.Errorf("serve of a revoked device: %+v", s)
	}
	if s := m.run("device", "list"); !strings.Contains(s.stdout, "revoked") {
		t.Errorf("list: %+v", s)
	}
	report := m.examine(exitUnexpected, "--device", old)
	if f := report.Devices[0].Findings; len(f) != 1 || f[0].Check != "revoked" || f[0].Run != "sema device enroll --server "+m.url+" --workspace "+workspace {
		t.Errorf("doctor: %+v", f)
	}
	fresh := m.enroll(workspace)
	if left := m.devices(); len(left) != 2 || !slices.Contains(left, fresh) || !slices.Contains(left, other) {
		t.Errorf("left: %v, enrolled %s, beside %s", left, fresh, other)
	}
	m.examine(0)
}

func TestAHalfFinishedEnrollmentIsFinishedByTheSameToken(t *testing.T) {
	m := newMachine(t)
	workspace := t.TempDir()
	m.env["SEMA_ENROLL_TOKEN"] = m.server.IssueToken(theCredential)
	arguments := []string{"device", "enroll", "--server", m.url, "--workspace", workspace, "--key-store", "file"}
	if s := m.run(arguments...); s.code != 0 {
		t.Fatalf("%+v", s)
	}
	id := m.devices()[0]
	// As a crash leaves it that came before the device id was stored: the folder is
	// still where enrollments in progress are.
	record := m.record(id)
	text, err := os.ReadFile(filepath.Join(record.Dir(), "device.json"))
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "deviceId")
	members["tokenDigest"] = digest(m.env["SEMA_ENROLL_TOKEN"])
	if text, err = json.Marshal(members); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(record.Dir(), "device.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(record.Dir(), filepath.Join(m.env["SEMA_HOME"], "enrolling", "begun")); err != nil {
		t.Fatal(err)
	}
	if left := m.devices(); len(left) != 0 {
		t.Fatalf("half an enrollment counts as a device: %v", left)
	}
	if s := m.run("device", "serve"); s.code != exitNoDevice {
		t.Errorf("serve: %+v", s)
	}
	s := m.run(arguments...)
	if s.code != 0 || !strings.Contains(s.stderr, "had been interrupted") {
		t.Fatalf("%+v", s)
	}
	if left := m.devices(); !slices.Equal(left, []string{id}) {
		t.Errorf("the server repeats the id %s, here is %v", id, left)
	}
	if n := len(m.server.Devices()); n != 1 {
		t.Errorf("the server knows %d devices", n)
	}
	m.examine(0)
}

func TestABrokenRecordSpoilsNoOther(t *testing.T) {
	m := newMachine(t)
	broken, sound := m.enroll(""), m.enroll("")
	path := filepath.Join(m.record(broken).Dir(), "device.json")
	if err := os.WriteFile(path, []byte(`{"deviceId":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := m.run("device", "list"); s.code != 0 || !strings.Contains(s.stdout, sound) || !strings.Contains(s.stdout, "unreadable record") {
		t.Errorf("list: %+v", s)
	}
	if s := m.run("device", "status"); s.code != 0 || !strings.Contains(s.stdout, sound) {
		t.Errorf("status: %+v", s)
	}
	if s := m.run("device", "serve", "--device", broken); s.code != exitNoDevice || !strings.Contains(s.stderr, "Mend the file") {
		t.Errorf("serve: %+v", s)
	}
	report := m.examine(exitUnexpected)
	for _, d := range report.Devices {
		for _, f := range d.Findings {
			if f.Level == doctor.Fail && d.DeviceID != broken {
				t.Errorf("%s: %+v", d.DeviceID, f)
			}
		}
	}
	if report.Count(doctor.Fail) != 1 {
		t.Errorf("%+v", report)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "key")); err != nil {
		t.Errorf("its key: %v", err)
	}
}

func TestADeviceThatIsServedIsNotUnenrolled(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	l, err := fence.Lock(filepath.Join(m.record(id).Dir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if s := m.run("device", "unenroll", "--yes"); s.code != exitHeld || !strings.Contains(s.stderr, "End that process first") {
		t.Errorf("while it is served: %+v", s)
	}
	if s := m.run("device", "serve"); s.code != exitHeld {
		t.Errorf("a second serve: %+v", s)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if s := m.run("device", "unenroll"); s.code == 0 || !strings.Contains(s.stderr, "--yes") {
		t.Errorf("with nobody to answer: %+v", s)
	}
	m.stdin = strings.NewReader("no\n")
	if s := m.run("device", "unenroll"); s.code == 0 || len(m.devices()) != 1 {
		t.Errorf("answered no: %+v", s)
	}
	m.stdin = strings.NewReader("yes\n")
	if s := m.run("device", "unenroll"); s.code != 0 || len(m.devices()) != 0 {
		t.Errorf("answered yes: %+v", s)
	}
}

func TestADeviceWhoseKeychainIsGoneCanBeForgotten(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	if err := m.home().Update(m.record(id), func(r *enroll.Record) { r.KeyStore = enroll.StoreKeychain }); err != nil {
		t.Fatal(err)
	}
	if s := m.run("device", "unenroll", "--yes"); s.code != exitKeyUnusable || !strings.Contains(s.stderr, "\n  sema device unenroll --keep-key\n") || len(m.devices()) != 1 {
		t.Errorf("with a key that cannot be deleted: %+v", s)
	}
	m.stdin = strings.NewReader("yes\n")
	if s := m.run("device", "unenroll", "--keep-key"); s.code != 0 || !strings.Contains(s.stderr, "but not the key") || len(m.devices()) != 0 {
		t.Errorf("forgotten: %+v", s)
	}
}

func TestUnenrollingSaysHowToRemoveTheService(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("places a systemd unit")
	}
	m := newMachine(t)
	m.services = serviceHost{} // this machine's own, which looks for the unit
	id := m.enroll("")
	m.env["XDG_CONFIG_HOME"] = t.TempDir()
	units := filepath.Join(m.env["XDG_CONFIG_HOME"], "systemd", "user")
	if err := os.MkdirAll(units, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(units, "sema-device-"+id+".service"), []byte("[Unit]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := m.run("device", "unenroll", "--yes"); s.code != 0 || !strings.Contains(s.stderr, "service uninstall") || !strings.Contains(s.stderr, id) {
		t.Errorf("with a service: %+v", s)
	}
	m.enroll("")
	if s := m.run("device", "unenroll", "--yes"); s.code != 0 || strings.Contains(s.stderr, "service uninstall") {
		t.Errorf("without a service: %+v", s)
	}
}

// What is said to be next can be pasted, however many devices there are.
func TestTheNextStepsAfterEnrollingNameTheDeviceWhereThereAreOthers(t *testing.T) {
	m := newMachine(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("long-name-", 12))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, workspace := range []string{long, t.TempDir()} {
		s := m.run("device", "enroll", "--server", m.url, "--workspace", workspace, "--key-store", "file")
		fits(t, "enroll", s.stdout)
		id := strings.Fields(strings.TrimPrefix(s.stdout, "Enrolled as "))[0]
		for _, step := range []string{"sema device serve", "sema device service install"} {
			named := strings.Contains(s.stdout, step+" --device "+id+"\n")
			if alone := strings.Contains(s.stdout, step+"\n"); alone != (i == 0) || named != (i == 1) {
				t.Errorf("device %d:\n%s", i+1, s.stdout)
			}
		}
	}
}

func TestWhatWasDoneIsSaidThoughTheAnswerIsLost(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no device that is always full here")
	}
	defer full.Close()
	m := newMachine(t)
	cmd := m.command("device", "enroll", "--server", m.url, "--workspace", t.TempDir(), "--key-store", "file")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitUnexpected || !strings.Contains(stderr.String(), m.devices()[0]+" is enrolled") {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
}

func TestAnAnswerThatNobodyTypesEndsItsLine(t *testing.T) {
	m := newMachine(t)
	m.enroll("")
	m.stdin = strings.NewReader("no\n")
	s := m.run("device", "unenroll")
	if s.code != exitUnexpected || !strings.HasSuffix(s.stderr, "[y/N] \nsema: nothing was changed: not confirmed\n") {
		t.Errorf("%+v", s)
	}
	m.stdin = strings.NewReader("yes\n")
	s = m.run("device", "unenroll")
	if s.code != 0 || !strings.Contains(s.stderr, "[y/N] \n") {
		t.Errorf("%+v", s)
	}
	fits(t, "unenroll", s.stderr)
}

func TestADeviceThatIsUnenrolledMeanwhileIsNoDevice(t *testing.T) {
	m := newMachine(t)
	r := m.record(m.enroll(""))
	if err := m.home().Unenroll(t.Context(), r, m.stores()); err != nil {
		t.Fatal(err)
	}
	err := (&app{}).ended(t.Context(), m.home(), r, slog.New(slog.DiscardHandler), errors.New("lock: no such file or directory"))
	if exitCode(err) != exitNoDevice {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
}
