//go:build !linux

package deltaq

import "syscall"

func limitSilence(string, string, syscall.RawConn) error { return nil }
