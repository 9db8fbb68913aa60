package main

// This file turns a panic of the program into an error that a user can report.

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/blis-train/blis-train/internal/par"
)

// bug is a panic of the program as an error. It has the command, the value of the panic and the
// stack.
type bug struct {
	command string
	value   any
	stack   []byte
}

// recovered returns a bug for the value of a panic. A panic in a worker (package par) carries the
// worker's stack, which is the one that shows the place.
func recovered(command string, value any) *bug {
	if p, nested := value.(*par.Panic); nested {
		return &bug{command, p.Value, p.Stack}
	}
	return &bug{command, value, debug.Stack()}
}

// Error returns the value of the panic and where it occurred, in one line.
func (b *bug) Error() string {
	where := strings.Join(b.where(), " < ")
	return fmt.Sprintf("%s: this is our mistake, not yours: %v, in %s", b.command, b.value, where)
}

// reportHint asks the user to report a bug.
const reportHint = "please report it at https://github.com/blis-train/blis-train/issues with this line, `blis-train --version`, " +
	"the command and, if you may, the input that causes it"

// ownFrame is a function of this module in a stack, and the line below it.
var ownFrame = regexp.MustCompile(`(?m)^github\.com/blis-train/blis-train/(\S+)\([^\n]*\)\n\s+\S*/([^/\s]+:\d+)`)

// where returns the innermost functions of this module in the stack with file and line, at most
// three.
func (b *bug) where() []string {
	stack := string(b.stack)
	if _, below, found := strings.Cut(stack, "\npanic("); found { // above are the frames of recovering
		stack = below
	}
	var frames []string
	for _, m := range ownFrame.FindAllStringSubmatch(stack, -1) {
		if !strings.HasPrefix(m[1], "internal/par.") && len(frames) < 3 {
			frames = append(frames, m[1]+" ("+m[2]+")")
		}
	}
	if len(frames) == 0 {
		return []string{"a place unknown"}
	}
	return frames
}
