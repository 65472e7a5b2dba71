package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/wire"
)

// stamped is set by release builds (-ldflags -X main.stamped=v1.2.3); other
// builds say what the Go tool recorded.
var stamped string

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Protocol int    `json:"protocolVersion"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() versionInfo {
	v := versionInfo{
		Version:  "dev",
		Protocol: wire.ProtocolVersion,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if stamped != "" {
		v.Version = stamped
	}
	return v
}

// versionLine tells the version in one line; a terminal gets it folded, since what
// a build between two versions is called is long.
func (a *app) versionLine() string {
	v := buildVersion()
	line := fmt.Sprintf("sema %s, device protocol %d, %s, %s", v.Version, v.Protocol, v.Platform, v.Go)
	if isTerminal(a.stdout) {
		return foldAll(line, "  ", columns-2)
	}
	return line
}

func newVersion(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this executor and of the protocol it speaks",
		Example: "  sema version --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(buildVersion())
			}
			_, err := fmt.Fprintln(a.stdout, a.versionLine())
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
