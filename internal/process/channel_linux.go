package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What travels between the executor, its keeper and the supervisors. Each
// message is one byte of kind, a length, and a payload of fields.
const (
	// executor → supervisor
	msgStart byte = 's' // request; descriptors: stdout, stderr, and the script if it is a large one
	msgEnd   byte = 'e' // serial of the command, grace in ns

	// supervisor → executor
	msgReady   byte = 'i' // waiting for a request
	msgStarted byte = 'p' // pid of the shell
	msgRefused byte = 'r' // stage, errno
	msgEnding  byte = 'a' // the order to end arrived
	msgExited  byte = 'x' // exit code of the shell
	msgGone    byte = 'g' // processes ended after the shell, 1 if the command changed its supervisor; nothing is alive

	// executor → keeper
	msgSpawn byte = 'n' // descriptor: the supervisor's end of its channel
	msgKill  byte = 'k' // pid of a supervisor that does not answer

	// keeper → executor
	msgBorn    byte = 'b' // pid and start time of the supervisor
	msgUnborn  byte = 'f' // errno
	msgDied    byte = 'd' // pid and wait status of any child of the keeper
	msgSettled byte = 'c' // no child of the keeper is an orphan any more
)

const (
	headerBytes     = 5
	maxMessageBytes = 64 << 20
	maxDescriptors  = 3
)

// channel is one end of a connected pair of sockets. Sending is safe from
// several goroutines, receiving is for one.
type channel struct {
	f    *os.File
	raw  syscall.RawConn
	send sync.Mutex
}

// newChannelPair returns our end and the descriptor of the other one.
func newChannelPair() (*channel, int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("socketpair: %w", err)
	}
	ch, err := newChannel(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, -1, err
	}
	return ch, fds[1], nil
}

// newChannel takes over a non-blocking socket.
func newChannel(fd int) (*channel, error) {
	f := os.NewFile(uintptr(fd), "channel")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &channel{f: f, raw: raw}, nil
}

func (c *channel) close() { c.f.Close() }

// put sends one message. The descriptors stay the caller's.
func (c *channel) put(kind byte, payload []byte, fds ...int) error {
	c.send.Lock()
	defer c.send.Unlock()
	// The other end may be stopped, never us for ever.
	if err := c.f.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	b := make([]byte, headerBytes, headerBytes+len(payload))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	b = append(b, payload...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var n int
	var sendErr error
	err := c.raw.Write(func(fd uintptr) bool {
		n, sendErr = unix.SendmsgN(int(fd), b, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sendErr, unix.EAGAIN) && !errors.Is(sendErr, unix.EINTR)
	})
	if err == nil {
		err = sendErr
	}
	if err != nil || n == len(b) {
		return err // a write of nothing would fail if the other end has closed since
	}
	_, err = c.f.Write(b[n:])
	return err
}

// get receives one message. The descriptors that came with it are the
// caller's. io.EOF: the other end is gone.
func (c *channel) get() (kind byte, payload []byte, fds []int, err error) {
	var header [headerBytes]byte
	var oob [256]byte
	got := 0
	for got < headerBytes {
		var n, oobn int
		var recvErr error
		err = c.raw.Read(func(fd uintptr) bool {
			n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), header[got:], oob[:], unix.MSG_CMSG_CLOEXEC)
			return !errors.Is(recvErr, unix.EAGAIN) && !errors.Is(recvErr, unix.EINTR)
		})
		if err == nil {
			err = recvErr
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err == nil && oobn > 0 {
			fds, err = appendRights(fds, oob[:oobn])
		}
		if err != nil {
			closeAll(fds)
			return 0, nil, nil, err
		}
		got += n
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > maxMessageBytes || len(fds) > maxDescriptors {
		closeAll(fds)
		return 0, nil, nil, fmt.Errorf("message of %d bytes and %d descriptors refused", size, len(fds))
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(c.f, payload); err != nil {
		closeAll(fds)
		return 0, nil, nil, err
	}
	return header[0], payload, fds, nil
}

func appendRights(fds []int, oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fds, err
	}
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// numbers and the request are the two payloads there are.

func numbers(ns ...int64) []byte {
	var b []byte
	for _, n := range ns {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// number takes the next number off a payload; 0 when there is none.
func number(b *[]byte) int64 {
	n, size := binary.Varint(*b)
	if size <= 0 {
		*b = nil
		return 0
	}
	*b = (*b)[size:]
	return n
}

// request is what a supervisor needs to start a command.
type request struct {
	serial  uint64 // which command of this supervisor; orders for another one are stale
	shell   string
	command string // "" when the script came as a descriptor
	dir     string
	env     []string
}

func (r *request) encode() []byte {
	size := 80 + len(r.shell) + len(r.command) + len(r.dir)
	for _, v := range r.env {
		size += len(v) + 4
	}
	b := binary.AppendUvarint(make([]byte, 0, size), r.serial)
	for _, s := range []string{r.shell, r.command, r.dir} {
		b = appendString(b, s)
	}
	for _, v := range r.env {
		b = appendString(b, v)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func decodeRequest(b []byte) (*request, error) {
	serial, size := binary.Uvarint(b)
	if size <= 0 {
		return nil, errors.New("torn request")
	}
	b = b[size:]
	var all []string
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, errors.New("torn request")
		}
		all = append(all, string(b[size:size+int(n)]))
		b = b[size+int(n):]
	}
	if len(all) < 3 {
		return nil, errors.New("torn request")
	}
	return &request{serial: serial, shell: all[0], command: all[1], dir: all[2], env: all[3:]}, nil
}
