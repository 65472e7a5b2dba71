package service

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Somebody may remove the file of a service by hand. The manager then goes on
// running what it has read, and for systemd a link stays that had it start by itself.

// orphanGone is what is to be known of an uninstallation after that.
const orphanGone = "Its file had been removed already; what was left of the service is gone now, too."

// danglingLinks are the links that had a device's unit start by itself, and lead
// nowhere.
func (m *Systemd) danglingLinks(deviceID string) (links []string) {
	for _, dir := range m.folders() {
		link := filepath.Join(dir, wantedBy+".wants", unitName(deviceID))
		info, err := os.Lstat(link)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if _, err := os.Stat(link); errors.Is(err, fs.ErrNotExist) {
			links = append(links, link)
		}
	}
	return links
}

// uninstallOrphan removes what is left of a service whose file is gone; where there
// is nothing left either, the error is absent.
func (m *Systemd) uninstallOrphan(ctx context.Context, deviceID string, absent *NotInstalledError) (*Removed, error) {
	links := m.danglingLinks(deviceID)
	env, err := m.reach(deviceID)
	var none *NoManagerError
	unreached := errors.As(err, &none)
	switch {
	case unreached && len(links) == 0:
		return nil, absent
	case unreached && none.Never: // nobody is there to be told
		return m.removed(absent.File, links)
	case err != nil:
		return nil, err
	}
	now, err := m.show(ctx, env, deviceID)
	if err != nil {
		return nil, err
	}
	if !now.active && len(links) == 0 {
		return nil, absent
	}
	if now.active {
		if err := m.halt(ctx, env, deviceID); err != nil {
			return nil, err
		}
	}
	done, err := m.removed(absent.File, links)
	if err != nil {
		return nil, err
	}
	if _, err := m.systemctl(ctx, env, deviceID, "daemon-reload"); err != nil {
		return nil, err
	}
	_, _ = m.systemctl(ctx, env, deviceID, "reset-failed", unitName(deviceID)) // it may be remembered as failed; most are not
	return done, nil
}

func (m *Systemd) removed(file string, links []string) (*Removed, error) {
	for _, link := range links {
		if err := remove(link, m.configFolder(filepath.Dir(link))); err != nil {
			return nil, err
		}
	}
	return &Removed{File: file, Notes: []string{orphanGone}}, nil
}

// known is installed for what can be done without the unit's file as well.
func (m *Systemd) known(ctx context.Context, deviceID string) ([]string, error) {
	env, err := m.installed(ctx, deviceID)
	var absent *NotInstalledError
	if !errors.As(err, &absent) {
		return env, err
	}
	if env, err = m.reach(deviceID); err != nil {
		return nil, err
	}
	now, err := m.show(ctx, env, deviceID)
	if err == nil && !now.active {
		err = absent
	}
	return env, err
}
