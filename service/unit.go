package service

import (
	"fmt"
	"strings"
	"text/template"
)

// unitName is the systemd unit of a device. Device ids have only letters that a
// unit's name may have.
func unitName(deviceID string) string { return "sema-device-" + deviceID + ".service" }

// unitText is the unit. Comments in it are for the person who opens the file.
var unitText = template.Must(template.New("unit").Parse(`# Written by 'sema device service install' and removed by '... uninstall'.
# To change something: install again with other flags, or add to it with
# 'systemctl --user edit {{.Name}}'.
# content-sha256: {{.Gap}}
[Unit]
Description=Sema device executor ({{.DeviceID}})
# A locked keychain or a server that is away heals by itself: never give up.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={{.ExecStart}}
{{- range .Environment}}
Environment={{.}}
{{- end}}
# A crash is started again. These ends would only repeat themselves: wrong
# usage, no such device, held by another executor, revoked, superseded, too old.
Restart=on-failure
RestartSec={{.RestartSec}}
RestartPreventExitStatus={{.FinalCodes}}
TimeoutStartSec=60
# A stop lets running commands finish: only the executor hears of it, and what
# is left after its drain and their grace is killed.
KillMode=mixed
TimeoutStopSec={{.StopSec}}
# One command killed for want of memory is no reason to end the others.
OOMPolicy=continue
LimitNOFILE={{.OpenFiles}}:524288
SyslogIdentifier=sema-device

[Install]
WantedBy={{.WantedBy}}
`))

// wantedBy is what brings an enabled unit up: the user's manager itself.
const wantedBy = "default.target"

// unit renders the unit of a checked spec.
func unit(s Spec) ([]byte, error) {
	if strings.ContainsAny(s.Binary, `"'\`) {
		return nil, &ValueError{What: "the program's path", Value: s.Binary, Why: "systemd takes no quotes and no backslashes in it",
			Remedy: "Install the program elsewhere, for example with scripts/install."}
	}
	execStart := []string{programWord(s.Binary)}
	for _, a := range s.arguments() {
		execStart = append(execStart, argumentWord(a))
	}
	var environment []string
	for _, e := range s.environment() {
		environment = append(environment, valueWord(e))
	}
	var final []string
	for _, code := range finalCodes {
		if code != 0 { // no failure, so no restart anyway
			final = append(final, fmt.Sprint(code))
		}
	}
	var b strings.Builder
	err := unitText.Execute(&b, map[string]any{
		"Name":        unitName(s.DeviceID),
		"DeviceID":    s.DeviceID,
		"Gap":         digestGap,
		"ExecStart":   strings.Join(execStart, " "),
		"Environment": environment,
		"RestartSec":  int(restartPause.Seconds()),
		"FinalCodes":  strings.Join(final, " "),
		"StopSec":     int(s.stopTimeout().Seconds()),
		"OpenFiles":   openFiles,
		"WantedBy":    wantedBy,
	})
	if err != nil {
		return nil, err
	}
	return seal(b.String()), nil
}

// A unit's values have three kinds of words. All are split at blanks, unquoted
// and unescaped in the C way, and have their % specifiers expanded. Arguments of
// a command line, but not its program, have $ variables replaced on top.

func programWord(s string) string { return valueWord(s) }

func argumentWord(s string) string { return valueWord(strings.ReplaceAll(s, "$", "$$")) }

func valueWord(s string) string {
	s = strings.ReplaceAll(s, "%", "%%")
	if s != "" && strings.IndexFunc(s, needsQuotes) < 0 {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// needsQuotes is generous: quoting a word that would do without harms nothing.
func needsQuotes(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("/._-+=:,@%$", r)
}
