package enroll_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/wire"
)

func TestHomeIsWhereTheEnvironmentSays(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	home, err := enroll.OpenHome(func(string) string { return "a/b" })
	if err != nil || home.Dir() != filepath.Join(here, "a/b") {
		t.Errorf("relative: %v, %v", home, err)
	}
	t.Setenv("HOME", here)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(here, "cfg"))
	home, err = enroll.OpenHome(func(string) string { return "" })
	config, configErr := os.UserConfigDir()
	if err != nil || configErr != nil || home.Dir() != filepath.Join(config, "sema") {
		t.Errorf("default: %v, %v, %v", home, err, configErr)
	}
	if _, err := os.Stat(home.Dir()); err == nil {
		t.Error("looking makes the folder")
	}
	sound, broken, err := home.Records()
	if len(sound)+len(broken) != 0 || err != nil {
		t.Errorf("%v, %v, %v", sound, broken, err)
	}
}

func TestHomeMayBeALink(t *testing.T) {
	m := newMachine(t)
	real := filepath.Join(filepath.Dir(m.dir), "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, m.dir); err != nil {
		t.Fatal(err)
	}
	done, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(real, "devices", done.Record.DeviceID, "key")); err != nil {
		t.Error(err)
	}
	if _, err := m.Stores.Load(m.ctx, done.Record); err != nil {
		t.Error(err)
	}
}

func TestAHomeThatCannotBeMadeIsAnErrorThatNamesIt(t *testing.T) {
	m := newMachine(t)
	if err := os.WriteFile(m.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Enroll(m.ctx, m.request(t)); err == nil || !strings.Contains(err.Error(), m.dir) {
		t.Errorf("got %v", err)
	}
	if m.registry.devices != 0 {
		t.Error("a device was registered that cannot be kept")
	}
}

// enrolled is a machine with one device, and the path of its record.
func enrolled(t *testing.T) (m *machine, r *enroll.Record, path string) {
	t.Helper()
	m = newMachine(t)
	done, err := m.Enroll(m.ctx, m.request(t))
	if err != nil {
		t.Fatal(err)
	}
	return m, done.Record, filepath.Join(done.Record.Dir(), "device.json")
}

func readMembers(t *testing.T, path string) map[string]json.RawMessage {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func writeMembers(t *testing.T, path string, all map[string]json.RawMessage) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(all); err != nil {
		t.Fatal(err)
	}
	write(t, path, b.String())
}

func TestTheRecordHasTheDocumentedMembersAndNoOthers(t *testing.T) {
	_, _, path := enrolled(t)
	var names []string
	for name := range readMembers(t, path) {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"deviceId", "enrolledAt", "keyStore", "name", "publicKey", "server", "workspaceRoot", "writeFaces", "wsPath"}
	if !slices.Equal(names, want) {
		t.Errorf("members %v, want %v", names, want)
	}
}

func TestUnknownMembersOfARecordAreKept(t *testing.T) {
	m, r, path := enrolled(t)
	all := readMembers(t, path)
	strange := map[string]string{"later": `{"b":[1,2.50,1e400,"<&>"],"a":null}`, "DeviceID": `"not ours"`, "number": `12345678901234567890123`, "": `0`}
	for name, value := range strange {
		all[name] = json.RawMessage(value)
	}
	writeMembers(t, path, all)
	if err := m.Home.Update(r, func(r *enroll.Record) { r.WSPath = "/v9/ws" }); err != nil {
		t.Fatal(err)
	}
	now := readMembers(t, path)
	for name, value := range strange {
		var compact strings.Builder
		for _, c := range string(now[name]) {
			if c != ' ' && c != '\n' {
				compact.WriteRune(c)
			}
		}
		if want := strings.ReplaceAll(value, " ", ""); compact.String() != want {
			t.Errorf("%q became %s, was %s", name, compact.String(), want)
		}
	}
	if string(now["wsPath"]) != `"/v9/ws"` || r.WSPath != "/v9/ws" {
		t.Errorf("the change is lost: %s", now["wsPath"])
	}
	if len(now) != len(all) {
		t.Errorf("%d members became %d", len(all), len(now))
	}
}

func TestUpdateStartsFromWhatIsStored(t *testing.T) {
	m, r, _ := enrolled(t)
	stale, err := m.Home.Record(r.DeviceID)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Home.Update(r, func(r *enroll.Record) { r.KeyStore = enroll.StoreKeychain }); err != nil {
		t.Fatal(err)
	}
	if err := m.Home.Update(stale, func(r *enroll.Record) { r.WSPath = "/v9/ws" }); err != nil {
		t.Fatal(err)
	}
	if stale.KeyStore != enroll.StoreKeychain || stale.WSPath != "/v9/ws" {
		t.Errorf("got %+v", stale)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			mine, err := m.Home.Record(r.DeviceID)
			if err == nil {
				err = m.Home.Update(mine, func(r *enroll.Record) { r.Name += string(rune('a' + i)) })
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	now, err := m.Home.Record(r.DeviceID)
	if err != nil || len(now.Name) != len(r.Name)+8 {
		t.Errorf("changes were lost: %q, %v", now.Name, err)
	}
}

func TestABrokenRecordIsNamedAndSpoilsNoOther(t *testing.T) {
	spoil := map[string]func(t *testing.T, path string){
		"empty": func(t *testing.T, path string) { write(t, path, "") },
		"torn":  func(t *testing.T, path string) { write(t, path, `{"deviceId":"dev_000`) },
		"array": func(t *testing.T, path string) { write(t, path, `[]`) },
		"null":  func(t *testing.T, path string) { write(t, path, `null`) },
		"gone": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"a folder": func(t *testing.T, path string) {
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, value := range map[string]string{
		"deviceId": `"dev_other"`, "server": `"sema.example"`, "workspaceRoot": `"relative"`, "publicKey": `"AAAA"`, "keyStore": `"usb"`,
		"enrolledAt": `"yesterday"`, "writeFaces": `["exec"]`, "wsPath": `"wss://elsewhere"`, "revokedAt": `"x"`, "name": `7`,
	} {
		spoil["member "+name] = func(t *testing.T, path string) {
			all := readMembers(t, path)
			all[name] = json.RawMessage(value)
			writeMembers(t, path, all)
		}
	}
	for _, name := range []string{"deviceId", "server", "workspaceRoot", "publicKey", "keyStore", "enrolledAt"} {
		spoil["without "+name] = func(t *testing.T, path string) {
			all := readMembers(t, path)
			delete(all, name)
			writeMembers(t, path, all)
		}
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			m, r, path := enrolled(t)
			other, err := m.Enroll(m.ctx, m.request(t))
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, path)
			sound, broken, err := m.Home.Records()
			if err != nil || len(sound) != 1 || sound[0].DeviceID != other.Record.DeviceID {
				t.Fatalf("%v, %v", sound, err)
			}
			if len(broken) != 1 || broken[0].DeviceID != r.DeviceID || broken[0].Path != path {
				t.Fatalf("broken %v", broken)
			}
			if _, err := m.Home.Record(r.DeviceID); enroll.ExitCode(err) != 3 || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			} else {
				forPeople(t, err)
			}
			if one, err := m.Home.Choose(""); err != nil || one.DeviceID != other.Record.DeviceID {
				t.Errorf("%v, %v", one, err)
			}
			if name == "torn" { // enrolling tidies up, but not this
				if _, err := m.Enroll(m.ctx, m.request(t)); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Stat(filepath.Join(r.Dir(), "key")); err != nil {
				t.Errorf("the key of a broken record: %v", err)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestStrangeEntriesAmongTheDevicesAreIgnored(t *testing.T) {
	m, r, _ := enrolled(t)
	devices := filepath.Dir(r.Dir())
	write(t, filepath.Join(devices, "notes.txt"), "x")
	if err := os.Mkdir(filepath.Join(devices, ".trash"), 0o700); err != nil {
		t.Fatal(err)
	}
	sound, broken, err := m.Home.Records()
	if err != nil || len(sound) != 1 || len(broken) != 0 {
		t.Errorf("%v, %v, %v", sound, broken, err)
	}
	for _, id := range []string{"..", ".", "a/b", "../devices/" + r.DeviceID} {
		if _, err := m.Home.Choose(id); enroll.ExitCode(err) != 3 {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestRecordsOfPlainHTTPServersSayThatThisWasAccepted(t *testing.T) {
	m := newMachine(t)
	q := m.request(t)
	var err error
	if q.Server, err = enroll.ParseServer("http://sema.example/api", true); err != nil {
		t.Fatal(err)
	}
	done, err := m.Enroll(m.ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	if !done.Record.Server.Insecure() || done.Record.Server != q.Server {
		t.Errorf("server %v", done.Record.Server)
	}
	path := filepath.Join(done.Record.Dir(), "device.json")
	all := readMembers(t, path)
	if string(all["allowInsecure"]) != "true" {
		t.Errorf("record %s", all)
	}
	delete(all, "allowInsecure") // then an edit of the address cannot downgrade
	writeMembers(t, path, all)
	if _, err := m.Home.Record(done.Record.DeviceID); err == nil {
		t.Error("a record points to an unencrypted server that nobody accepted")
	}
}

func TestRevocationIsRecordedBeforeTheKeyGoes(t *testing.T) {
	m, r, _ := enrolled(t)
	if err := m.Home.Update(r, func(r *enroll.Record) { r.KeyStore = enroll.StoreKeychain }); err != nil {
		t.Fatal(err)
	}
	var trouble *enroll.KeyError
	if err := m.Home.Revoke(m.ctx, r, m.Stores, time.Unix(1e9, 0)); !errors.As(err, &trouble) {
		t.Errorf("got %v", err)
	}
	now, err := m.Home.Record(r.DeviceID)
	if err != nil || !now.RevokedAt.Equal(time.Unix(1e9, 0)) {
		t.Errorf("%+v, %v", now, err)
	}
	if err := m.Home.Unenroll(m.ctx, r, m.Stores); !errors.As(err, &trouble) {
		t.Errorf("got %v", err)
	}
	if _, err := m.Home.Record(r.DeviceID); err != nil {
		t.Errorf("the record went before the key: %v", err)
	}
}

func TestTheKeyOfARevokedDeviceGoesAtLastThoughItsDeletionWasInterrupted(t *testing.T) {
	m, r, _ := enrolled(t)
	key := filepath.Join(r.Dir(), "key")
	lies := func(store string) {
		err := m.Home.Update(r, func(r *enroll.Record) { r.RevokedAt, r.KeyStore = time.Unix(1e9, 0), store })
		if err != nil {
			t.Fatal(err)
		}
	}
	var revoked *enroll.RevokedError
	lies(enroll.StoreFile)
	for _, want := range []enroll.KeyState{enroll.KeyDeleted, enroll.KeyGone} {
		if _, err := m.Stores.Load(m.ctx, r); !errors.As(err, &revoked) || revoked.Key.State != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := os.Lstat(key); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the key of a revoked device: %v", err)
		}
	}
	lies(enroll.StoreKeychain) // which nobody can reach here
	var trouble *enroll.KeyError
	_, err := m.Stores.Load(m.ctx, r)
	if !errors.As(err, &revoked) || revoked.Key.State != enroll.KeyUnsure || !errors.As(revoked.Key.Err, &trouble) ||
		strings.Contains(err.Error(), "has been deleted") {
		t.Errorf("got %v", err)
	}
}

func TestTheKeyOfARevokedDeviceGoesThoughTheRecordCannotBeWritten(t *testing.T) {
	m, r, _ := enrolled(t)
	if err := os.WriteFile(filepath.Join(r.Dir(), "device.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var broken *enroll.BrokenRecordError
	if err := m.Home.Revoke(m.ctx, r, m.Stores, m.Now()); !errors.As(err, &broken) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(filepath.Join(r.Dir(), "key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key of a revoked device: %v", err)
	}
}

func TestWhatAKilledWriterOfARecordLeftGoesWithTheNextUpdate(t *testing.T) {
	m, r, _ := enrolled(t)
	left := filepath.Join(r.Dir(), ".device.json.123456")
	if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Home.Update(r, func(r *enroll.Record) { r.WSPath = "/other" }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestNoMoreIsExcludedThanTheFileSystemLacks(t *testing.T) {
	for _, c := range []struct{ can, excluded []wire.Kind }{
		{nil, []wire.Kind{wire.KindWriteFileExclusive, wire.KindWriteFileGuarded}},
		{[]wire.Kind{wire.KindWriteFileGuarded}, []wire.Kind{wire.KindWriteFileExclusive}},
		{[]wire.Kind{wire.KindWriteFileGuarded, wire.KindWriteFileExclusive}, nil},
	} {
		if got := (&enroll.Record{WriteFaces: c.can}).Excluded(); !slices.Equal(got, c.excluded) {
			t.Errorf("can %v: excluded %v", c.can, got)
		}
	}
}
