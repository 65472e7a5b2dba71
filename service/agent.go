package service

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// agentLabel is the launchd name of a device's service.
func agentLabel(deviceID string) string { return "io.github.sema-agent.device." + deviceID }

// agentOpenFiles is as many of openFiles as macOS gives with 8 GB of memory
// (kern.maxfilesperproc). A limit above what the machine gives is not cut down but
// refused, and commands would start with 256.
const agentOpenFiles = 24576

// agent renders the LaunchAgent of a checked spec. It logs to logFile, which
// serve keeps small: launchd's own log files grow without bound.
func agent(s Spec, logFile string) []byte {
	args := append([]string{s.Binary}, s.arguments()...)
	args = append(args, "--"+ZeroWhenFinalFlag, "--"+LogFileFlag, logFile)

	var p list
	p.line(`<?xml version="1.0" encoding="UTF-8"?>`)
	p.line(`<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">`)
	p.line(`<!-- Written by 'sema device service install' and removed by '... uninstall'. -->`)
	p.line(`<!-- To change something, install again with other flags. -->`)
	p.line(`<!-- ` + digestLabel + digestGap + ` -->`)
	p.line(`<plist version="1.0">`)
	p.line(`<dict>`)
	p.text("Label", agentLabel(s.DeviceID))
	p.key("ProgramArguments")
	p.line(`	<array>`)
	for _, a := range args {
		p.line(`		<string>` + escape(a) + `</string>`)
	}
	p.line(`	</array>`)
	p.key("EnvironmentVariables")
	p.line(`	<dict>`)
	for _, pair := range s.environment() {
		name, value, _ := strings.Cut(pair, "=")
		p.line(`		<key>` + escape(name) + `</key>`)
		p.line(`		<string>` + escape(value) + `</string>`)
	}
	p.line(`	</dict>`)
	p.key("RunAtLoad")
	p.line(`	<true/>`)
	// Start it again after a failure only; serve turns the ends that are final
	// into successes.
	p.key("KeepAlive")
	p.line(`	<dict>`)
	p.line(`		<key>SuccessfulExit</key>`)
	p.line(`		<false/>`)
	p.line(`	</dict>`)
	p.number("ThrottleInterval", int(restartPause.Seconds()))
	p.number("ExitTimeOut", int(s.stopTimeout().Seconds()))
	// What it runs, somebody waits for: no throttling of processor and disk.
	p.text("ProcessType", "Interactive")
	p.key("SoftResourceLimits")
	p.line(`	<dict>`)
	p.line(`		<key>NumberOfFiles</key>`)
	p.line(fmt.Sprintf(`		<integer>%d</integer>`, agentOpenFiles))
	p.line(`	</dict>`)
	p.line(`</dict>`)
	p.line(`</plist>`)
	return seal(p.b.String())
}

// list writes the lines of a property list.
type list struct{ b strings.Builder }

func (p *list) line(s string) { p.b.WriteString(s + "\n") }

func (p *list) key(name string) { p.line(`	<key>` + name + `</key>`) }

func (p *list) text(name, value string) {
	p.key(name)
	p.line(`	<string>` + escape(value) + `</string>`)
}

func (p *list) number(name string, value int) {
	p.key(name)
	p.line(fmt.Sprintf(`	<integer>%d</integer>`, value))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
