package enroll

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Lane is what a server says about its device lane in GET /v1/capabilities.
type Lane struct {
	ProtocolVersion      int64
	MaxInflightPerDevice int64  // 0: not said
	WSPath               string // absolute path to connect at, below the server's prefix
	// ServerTime is the server's clock when it answered, to the second; zero if
	// it did not say.
	ServerTime time.Time
}

const discovering = "look for the device lane"

// Discover asks a server, once, whether and how it takes devices. A server
// that does not is an *AnswerError with ReasonNoLane; one that speaks only
// versions below ours, with ReasonTooOld. A newer one is no error: only the
// handshake can tell whether it still takes our version.
func (c *Client) Discover(ctx context.Context, server Server) (Lane, error) {
	a, err := c.send(ctx, call{doing: discovering, method: http.MethodGet, server: server, path: "/v1/capabilities"})
	if err != nil {
		return Lane{}, err
	}
	return a.lane()
}

func (a *answer) lane() (Lane, error) {
	fail := func(r Reason) (Lane, error) {
		return Lane{}, &AnswerError{Doing: discovering, URL: a.url, Status: a.status, Reason: r}
	}
	all, err := a.members(discovering)
	if err != nil {
		return Lane{}, err
	}
	raw, ok := all["deviceExecutor"]
	if !ok || string(raw) == "false" || string(raw) == "null" {
		return fail(ReasonNoLane)
	}
	var said map[string]json.RawMessage
	if json.Unmarshal(raw, &said) != nil {
		return fail(ReasonNotTheAPI)
	}
	lane := Lane{WSPath: wire.WSPath}
	enabled := true
	for name, into := range map[string]any{
		"enabled":              &enabled,
		"protocolVersion":      &lane.ProtocolVersion,
		"maxInflightPerDevice": &lane.MaxInflightPerDevice,
		"wsPath":               &lane.WSPath,
	} {
		if value, ok := said[name]; ok && json.Unmarshal(value, into) != nil {
			return fail(ReasonNotTheAPI)
		}
	}
	switch {
	case !enabled:
		return fail(ReasonNoLane)
	case !validWSPath(lane.WSPath) || said["protocolVersion"] == nil:
		return fail(ReasonNotTheAPI)
	case lane.ProtocolVersion < wire.ProtocolVersion:
		return fail(ReasonTooOld)
	}
	if at, err := http.ParseTime(a.header.Get("Date")); err == nil {
		lane.ServerTime = at
	}
	return lane, nil
}

// validWSPath accepts absolute paths, which stay on the server that was named.
// A wsPath that names another host is refused with everything else.
func validWSPath(p string) bool {
	return strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "//") && !strings.ContainsAny(p, "#\\ \t\r\n\x00")
}
