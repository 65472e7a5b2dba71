package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/link"
)

// network reaches one server over the Internet: discovery as enrollment does it,
// then the device's own connection.
type network struct {
	server    enroll.Server
	client    *enroll.Client
	transport *http.Transport
	dialer    link.Dialer
}

// NewNetwork returns the way to a server over transport, which enroll.NewTransport
// makes. The transport's connections are not kept open between uses.
func NewNetwork(server enroll.Server, transport *http.Transport, userAgent string) (link.Network, error) {
	address, err := url.Parse(server.String())
	if err != nil || server.IsZero() {
		return nil, fmt.Errorf("address of the server %q: %w", server, errors.Join(err, errors.New("not an address")))
	}
	return &network{
		server:    server,
		client:    &enroll.Client{Transport: transport, UserAgent: userAgent, Now: time.Now},
		transport: transport,
		dialer:    link.Dialer{Server: address, Transport: transport, UserAgent: userAgent},
	}, nil
}

// Discover implements link.Network.
func (n *network) Discover(ctx context.Context) (string, error) {
	defer n.transport.CloseIdleConnections()
	lane, err := n.client.Discover(ctx, n.server)
	var answer *enroll.AnswerError
	if errors.As(err, &answer) && answer.Reason == enroll.ReasonNoLane {
		return "", fmt.Errorf("%w (%s)", link.ErrLaneOff, n.server)
	}
	return lane.WSPath, err
}

// Dial implements link.Network.
func (n *network) Dial(ctx context.Context, path string) (link.Socket, error) {
	return n.dialer.DialPath(ctx, path)
}
