package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// listenAt takes an address to listen on, as HOST:PORT.
func listenAt(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usagef("--listen: %q is not of the form HOST:PORT, such as 127.0.0.1:8080 or [::1]:0", address)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return nil, usagef("--listen: %q is not a port; take a number up to 65535, or 0 for a free one", port)
	}
	listener, err := net.Listen("tcp", address)
	var unknown *net.DNSError
	var number syscall.Errno
	switch {
	case err == nil:
		return listener, nil
	case errors.As(err, &unknown):
		return nil, fmt.Errorf("--listen: the host %q is not known.\nName an address of this machine, such as 127.0.0.1", host)
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--listen: something else listens on %s.\nTake another port, or 0 for a free one", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--listen: this machine does not have the address %s.\nName one that it has, such as 127.0.0.1", host)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("--listen: this user may not listen on port %s.\nTake a port above 1023, or 0 for a free one", port)
	case errors.As(err, &number):
		return nil, fmt.Errorf("--listen %s: %w.\nTake another address", address, number)
	}
	return nil, fmt.Errorf("--listen %s: %w", address, err)
}

// reach is how widely a server can be reached.
type reach int

const (
	hereAlone  reach = iota // from this machine
	byAddress               // by one address of this machine
	everywhere              // by every address of it
)

// addressOf is where a server is found that listens on an address, and from where.
func addressOf(at net.Addr) (url string, from reach) {
	tcp, ok := at.(*net.TCPAddr)
	switch {
	case !ok:
		return "http://" + at.String(), byAddress
	case tcp.IP.IsUnspecified():
		return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port)), everywhere
	case tcp.IP.IsLoopback():
		return "http://" + tcp.String(), hereAlone
	}
	return "http://" + tcp.String(), byAddress
}
