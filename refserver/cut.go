package refserver

import (
	"io"
	"net"
	"sync/atomic"
)

// cutKey finds a request's connection in its context.
type cutKey struct{}

// cutListener makes every connection one that can be cut.
type cutListener struct{ net.Listener }

func (l cutListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: c}, nil
}

// cutConn is a connection that closes itself once a budget of bytes is used up.
type cutConn struct {
	net.Conn
	armed atomic.Bool
	left  atomic.Int64
	ended atomic.Bool // the peer has closed: nothing more will arrive
}

func (c *cutConn) arm(n int64) {
	c.left.Store(n)
	c.armed.Store(true)
	if n <= 0 {
		_ = c.Conn.Close()
	}
}

// spend takes n bytes off the budget and closes the connection at its end.
func (c *cutConn) spend(n int) {
	if c.armed.Load() && c.left.Add(-int64(n)) <= 0 {
		_ = c.Conn.Close()
	}
}

// allowed is how many of n bytes may still pass.
func (c *cutConn) allowed(n int) int {
	if !c.armed.Load() {
		return n
	}
	return int(min(int64(n), max(0, c.left.Load())))
}

func (c *cutConn) Read(p []byte) (int, error) {
	if n := c.allowed(len(p)); n > 0 {
		p = p[:n]
	}
	n, err := c.Conn.Read(p)
	c.spend(n)
	if err == io.EOF { // a deadline, which net/http sets on hijacking, is no end
		c.ended.Store(true)
	}
	return n, err
}

func (c *cutConn) Write(p []byte) (int, error) {
	k := c.allowed(len(p))
	n, err := c.Conn.Write(p[:k])
	c.spend(n)
	if err == nil && n < len(p) {
		err = net.ErrClosed
	}
	return n, err
}
