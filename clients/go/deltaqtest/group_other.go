//go:build !unix

package deltaqtest

import (
	"os"
	"os/exec"
)

// Without groups of processes, only the program itself is ended.

func ownGroup(*exec.Cmd) {}

func interrupt(process int) error {
	found, err := os.FindProcess(process)
	if err != nil {
		return nil
	}
	return found.Signal(os.Interrupt)
}

func killGroup(int) {}

func guard(int) func() { return func() {} }

func waitForGroup(int) {}

func isInterrupt(error) bool { return false }
