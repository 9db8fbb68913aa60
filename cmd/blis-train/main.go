// Command blis-train turns trace dumps of a running vLLM into versioned
// latency coefficients. Flags in, exit code out: 0 done, 1 failed, 2 usage,
// 3 ran fine but a gate failed, 130 interrupted. stdout is data, stderr is talk.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
)

//go:generate go test -run TestPagesAreGenerated . -update
//go:generate go test -run TestCodesPageIsCurrent . -update-codes

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// What happens at the edge of every command: signals and our own mistakes.

// patience is how long a command has to end by itself once it was interrupted.
const patience = time.Second

// interruptible ends the context at the first interrupt, and the process at the second or
// when its patience is at an end. stop gives the signals back.
func interruptible(last func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	got, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	ignoreBrokenPipes()
	go func() {
		select {
		case <-done:
			return
		case <-got:
			cancel()
		}
		select {
		case <-done:
			return
		case <-got:
		case <-time.After(patience):
		}
		time.AfterFunc(patience/4, func() { os.Exit(exitInterrupted) }) // nobody may read what last says
		last()
		os.Exit(exitInterrupted)
	}()
	return ctx, func() {
		signal.Stop(got)
		close(done)
		cancel()
	}
}

// bug is a panic of ours, as an error.
type bug struct {
	command string
	value   any
	stack   []byte
}

// recovered turns the value of a panic into a bug.
func recovered(command string, value any) *bug {
	if p, nested := value.(*par.Panic); nested {
		return &bug{command, p.Value, p.Stack}
	}
	return &bug{command, value, debug.Stack()}
}

func (b *bug) Error() string {
	return fmt.Sprintf("%s: this is our mistake, not yours: %v, in %s", b.command, b.value, strings.Join(b.where(), " < "))
}

const reportHint = "please report it at https://github.com/blis-train/blis-train/issues with this line, `blis-train --version`, " +
	"the command and, if you may, the input that causes it"

// ownFrame is a function of this module in a stack, and the line below it.
var ownFrame = regexp.MustCompile(`(?m)^github\.com/blis-train/blis-train/(\S+)\([^\n]*\)\n\s+\S*/([^/\s]+:\d+)`)

// where are the innermost functions of ours, without the machinery around them.
func (b *bug) where() []string {
	stack := string(b.stack)
	if _, below, found := strings.Cut(stack, "\npanic("); found {
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

// A release is stamped with these (-ldflags -X); go build inside a checkout knows them too.
var releaseCommit, releaseDate string

// versionText is the version with commit, date, compiler and platform: what a report of
// a fault needs.
func versionText() string {
	commit, date, goVersion := releaseCommit, releaseDate, runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		built := stat.Keyed(info.Settings, func(s debug.BuildSetting) (string, string) { return s.Key, s.Value })
		if commit == "" {
			commit, date = built["vcs.revision"], built["vcs.time"]
			if built["vcs.modified"] == "true" {
				commit += ", changed"
			}
		}
		if v := info.Main.Version; commit == "" && strings.HasPrefix(v, "v") { // go install PATH@VERSION
			commit = "of " + v
		}
	}
	if commit == "" {
		commit = "unknown"
	}
	if date != "" {
		date = ", " + date
	}
	specs := stat.Map(features.Versions(), func(v features.Version) string { return string(v) })
	return fmt.Sprintf("%s (commit %s%s, %s, %s/%s, specs %s)", folder.ToolVersion, commit, date, goVersion, runtime.GOOS, runtime.GOARCH,
		strings.Join(specs, ", "))
}
