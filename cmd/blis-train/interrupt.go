package main

// This file ends a command in order after an interrupt.

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// patience is the time that a command has to end by itself after an interrupt.
const patience = time.Second

// interruptible returns a context that is cancelled at the first interrupt. The process ends at the
// second interrupt, or if the command has not ended by itself within patience; before that it calls
// farewell. stop restores the signals.
func interruptible(farewell func()) (ctx context.Context, stop func()) {
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
		// farewell writes to stderr, which may block for ever.
		time.AfterFunc(patience/4, func() { os.Exit(exitInterrupted) })
		farewell()
		os.Exit(exitInterrupted)
	}()
	return ctx, func() {
		signal.Stop(got)
		close(done)
		cancel()
	}
}
