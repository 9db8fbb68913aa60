package main

// This file detects a standard output that was closed before the program started, so that results do
// not vanish unnoticed.

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
)

// standardOutput returns os.Stdout, or a writer that always fails if the program was started with its
// standard output closed (>&- in a shell).
//
// Go opens /dev/null for reading and writing in place of a closed stream before main runs
// (runtime/fds_unix.go: checkfds()), so that every write succeeds and is lost. A shell's
// redirection to /dev/null opens it for writing only; other programs, such as Python with
// subprocess.DEVNULL, open it for both and mean it. So the stream counts as closed where a shell
// started the program and does not itself write to such a /dev/null.
func standardOutput() io.Writer {
	if isOwnNull("self") && !isOwnNull(fmt.Sprint(os.Getppid())) && startedByShell() {
		return closedStream{}
	}
	return os.Stdout
}

// isOwnNull reports whether a process's standard output is /dev/null, open for reading and writing.
func isOwnNull(process string) bool {
	to, err := os.Readlink("/proc/" + process + "/fd/1")
	if err != nil || to != os.DevNull {
		return false
	}
	info, err := os.ReadFile("/proc/" + process + "/fdinfo/1")
	if err != nil {
		return false
	}
	_, text, _ := strings.Cut(string(info), "flags:")
	flags := 0
	_, err = fmt.Sscanf(text, "%o", &flags)
	return err == nil && flags&syscall.O_ACCMODE == syscall.O_RDWR
}

// startedByShell reports whether the parent process is a shell.
func startedByShell() bool {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid()))
	return slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "busybox", "ash"},
		strings.TrimSpace(string(name)))
}
