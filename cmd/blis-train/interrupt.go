package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// What happens at the edge of every command: signals and our own mistakes.

// patience is how long a command has to end by itself once it was interrupted.
const patience = time.Second

// interruptible ends the context at the first interrupt, and the process at the second or
// when its patience is at an end. stop gives the signals back.
func interruptible(last func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan os.Signal, 2)
	done := make(chan struct{})
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
