package deltaq

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT of Linux, which package syscall does not name.
const tcpUserTimeout = 0x12

// limitSilence sets how long the peer may leave sent bytes without an acknowledgement: keep-alive probes find only peers of idle connections.
func limitSilence(_, _ string, connection syscall.RawConn) error {
	return connection.Control(func(descriptor uintptr) {
		// Without the option, the timeout of the call ends the wait.
		_ = syscall.SetsockoptInt(int(descriptor), syscall.IPPROTO_TCP, tcpUserTimeout, 30_000)
	})
}
