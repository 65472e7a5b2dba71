package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func aPack() pack {
	return pack{Program: []byte("#!/bin/sh\necho packed\n#"), Pages: map[string][]byte{"sema.1": []byte(".TH SEMA 1\n"), "sema-device.1": []byte(".TH X 1\n")}, Version: "v1.2.3-rc.1", Arch: "amd64", Time: time.Unix(1700000000, 0)}
}

func TestAPackageIsTheSameEachTime(t *testing.T) {
	one, err := aPack().bytes()
	if err != nil {
		t.Fatal(err)
	}
	other := aPack()
	other.Time = other.Time.In(time.FixedZone("elsewhere", 3600))
	two, err := other.bytes()
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("two packages of the same differ (%v)", err)
	}
}

func TestAPackageNeedsItsParts(t *testing.T) {
	for _, p := range []pack{{}, {Version: "v1", Arch: "amd64"}, {Program: []byte("x"), Arch: "amd64"}, {Program: []byte("x"), Version: "v1"}} {
		if _, err := p.bytes(); err == nil {
			t.Errorf("%+v made a package", p)
		}
	}
}

// Debian's own tools read it.
func TestDebianTakesThePackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		if os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip("needs dpkg-deb")
	}
	p := aPack()
	data, err := p.bytes()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	deb := filepath.Join(dir, "x.deb")
	if err := os.WriteFile(deb, data, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) string {
		out, err := exec.Command("dpkg-deb", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("dpkg-deb %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	for field, want := range map[string]string{"Package": "sema-device-executor", "Version": "1.2.3~rc.1", "Architecture": "amd64", "Installed-Size": "1"} {
		if got := strings.TrimSpace(dpkg("--field", deb, field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	list := dpkg("--contents", deb)
	if !strings.Contains(list, "-rwxr-xr-x root/root") || !strings.Contains(list, "./usr/bin/sema") || !strings.Contains(list, "./usr/share/man/man1/sema-device.1.gz") || !strings.Contains(list, "2023-11-14") {
		t.Errorf("contents:\n%s", list)
	}
	dpkg("--extract", deb, dir)
	dpkg("--control", deb, filepath.Join(dir, "control"))
	program := filepath.Join(dir, programPath)
	if got, err := os.ReadFile(program); err != nil || !bytes.Equal(got, p.Program) {
		t.Errorf("the program is %q, %v", got, err)
	}
	sums := exec.Command("md5sum", "--check", "--quiet", filepath.Join(dir, "control", "md5sums"))
	sums.Dir = dir
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("checksums: %v\n%s", err, out)
	}
}
