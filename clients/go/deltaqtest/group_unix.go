//go:build unix

package deltaqtest

import (
	"errors"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// groupMax is how long the rest of the group of a program that has ended may take to end, such as a server that a script has started.
const groupMax = 10 * time.Second

// ownGroup makes a command the first of a group of processes, so that what it starts can be ended with it: deltaq in the PATH may be a script.
func ownGroup(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// interrupt asks a whole group to end.
func interrupt(group int) error {
	if err := syscall.Kill(-group, syscall.SIGINT); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// killGroup ends a whole group at once.
func killGroup(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }

// guard ends a group when this process ends without having ended the server, such as by Ctrl-C, which does not reach the group, or by the time limit of go
// test. The function that it returns ends the guard.
func guard(group int) func() {
	command := exec.Command("sh", "-c", `read -r _; kill -s KILL -- "-$0"`, strconv.Itoa(group))
	ownGroup(command)
	input, err := command.StdinPipe()
	if err != nil || command.Start() != nil {
		return func() {}
	}
	return sync.OnceFunc(func() {
		_ = command.Process.Kill()
		_ = input.Close()
		_ = command.Wait()
	})
}

// waitForGroup waits until nothing of a group runs any more, and ends what takes too long.
func waitForGroup(group int) {
	for end := time.Now().Add(groupMax); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if syscall.Kill(-group, 0) != nil {
			return
		}
	}
	killGroup(group)
}

// isInterrupt reports whether a program has ended by the interrupt that it was sent, as a script does that has started the server.
func isInterrupt(err error) bool {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return false
	}
	status, ok := ended.Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() && status.Signal() == syscall.SIGINT || status.ExitStatus() == 128+int(syscall.SIGINT))
}
