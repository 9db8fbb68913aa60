package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/trace"
)

// Exit codes (design 06).
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitGate        = 3
	exitInterrupted = 130
)

// usageError is a mistake in how the command was called: exit 2.
type usageError struct{ msg, hint string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &usageError{msg: fmt.Sprintf(format, args...)} }

// gateError is a verdict, not a failure of the tool: exit 3. An empty message
// means the command has already said what failed.
type gateError struct{ msg string }

func (e *gateError) Error() string { return e.msg }

func gatef(format string, args ...any) error { return &gateError{msg: fmt.Sprintf(format, args...)} }

// subcommands lists the commands in the order help shows them; each lives in a file of its own.
func subcommands() []*cli.Command {
	return []*cli.Command{
		runCommand(),
		extractCommand(),
		fitCommand(),
		validateCommand(),
		inspectCommand(),
		simulateCommand(),
		exportCommand(),
		checkCommand(),
		diffCommand(),
		reproduceCommand(),
		featuresCommand(),
		logCommand(),
		initCommand(),
		explainCommand(),
		completionCommand(),
		manCommand(),
	}
}

// run is the whole program: it returns the exit code and touches nothing but
// its arguments and the files they name.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := newApp(stdin, stdout, stderr)
	args = rearrange(app, args)
	err := app.RunContext(ctx, args)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "error: interrupted, temporary files removed")
		return exitInterrupted
	}
	return exitCode(stderr, err)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:                   "blis-train",
		Usage:                  "latency coefficients you can trust, from vLLM traces",
		Version:                versionText(),
		Description:            "Reads OTLP trace dumps of a running vLLM, fits the physics of its step time and\noverheads, validates the fit by replaying the traces, and writes versioned\ncoefficient files.\n\nExample:\n   blis-train run testdata/traces/real -o out",
		Commands:               subcommands(),
		Reader:                 stdin,
		Writer:                 stdout,
		ErrWriter:              stderr,
		Suggest:                true,
		EnableBashCompletion:   true,
		UseShortOptionHandling: false,
		HideHelpCommand:        false,
		ExitErrHandler:         func(*cli.Context, error) {}, // run decides the exit code
		OnUsageError:           onUsageError,
		CommandNotFound:        nil,
	}
	app.Action = func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			return &usageError{msg: fmt.Sprintf("no command %q", name), hint: suggestCommand(app, name)}
		}
		return cli.ShowAppHelp(c)
	}
	for _, cmd := range app.Commands {
		cmd.OnUsageError = onUsageError
		cmd.HelpName = "blis-train " + cmd.Name
	}
	return app
}

// onUsageError turns the flag package's message into ours, with the nearest flag as hint.
func onUsageError(c *cli.Context, err error, _ bool) error {
	msg := err.Error()
	hint := ""
	const undefined = "flag provided but not defined: -"
	if rest, ok := strings.CutPrefix(msg, undefined); ok {
		name := strings.TrimLeft(rest, "-")
		msg = fmt.Sprintf("unknown flag %q", "--"+name)
		if c.Command != nil {
			if s := nearest(name, flagNames(c.Command.Flags)); s != "" {
				hint = fmt.Sprintf("did you mean --%s?", s)
			}
			if hint == "" {
				hint = fmt.Sprintf("see %s --help", c.Command.HelpName)
			}
		}
	}
	return &usageError{msg: msg, hint: hint}
}

func suggestCommand(app *cli.App, name string) string {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Name)
	}
	if s := nearest(name, names); s != "" {
		return fmt.Sprintf("did you mean %q?", s)
	}
	return "see blis-train --help"
}

// exitCode prints err as "error: …" and at most one "hint: …" and picks the exit code.
func exitCode(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var usage *usageError
	var gate *gateError
	switch {
	case errors.As(err, &usage):
		say(stderr, err.Error(), usage.hint)
		return exitUsage
	case errors.As(err, &gate):
		if gate.msg != "" {
			say(stderr, err.Error(), "")
		}
		return exitGate
	}
	say(stderr, err.Error(), hintOf(err))
	return exitFailed
}

func say(stderr io.Writer, msg, hint string) {
	fmt.Fprintf(stderr, "error: %s\n", msg)
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
}

// hinted adds a hint to an error that has none.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

func hintOf(err error) string {
	var h *hinted
	if errors.As(err, &h) {
		return h.hint
	}
	var syntax *trace.SyntaxError
	if errors.As(err, &syntax) && syntax.Hint != "" {
		return syntax.Hint
	}
	var coded *trace.Error
	if errors.As(err, &coded) {
		return coded.Hint
	}
	return ""
}
