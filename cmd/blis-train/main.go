// Command blis-train turns trace dumps of a running vLLM into versioned latency coefficients,
// validates them, and simulates and predicts with them.
//
// Each command is made in a file of its own: run in run.go, predict in predict.go, and so on;
// commands.go lists them. A command checks its arguments, calls a stage (package pipeline and its
// neighbours) and prints what the stage returns. Data go to stdout, messages to stderr. The exit
// status is 0 when done, 1 when failed, 2 when called wrongly, 3 when a gate failed, and 130 when
// interrupted.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
)

// firstHelp shows the commands most people need; help all shows every one.
var firstHelp = `blis-train - {{.Usage}}

` + helpOfCategory(predictCategory) + `

` + helpOfCategory(calibrateCategory) + `

More: blis-train help all     One command: blis-train COMMAND --help     A word it printed: blis-train explain WORD

Example:
   blis-train run testdata/traces/demo -o out
`

// helpOfCategory returns the part of a help template that lists the commands of a category under its name.
func helpOfCategory(name string) string {
	return name + `:{{range .VisibleCategories}}{{if eq .Name "` + name + `"}}{{range .VisibleCommands}}
   {{printf "%-10s" .Name}}{{.Usage}}{{end}}{{end}}{{end}}`
}

// run runs the program and returns the exit status. It uses nothing global but the files that its
// arguments name, the environment and signals.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := newOutput(stdout)
	messages := newOutput(stderr)
	s := &session{args: args[min(1, len(args)):]}
	defer s.releaseFolders()
	interrupted := func() {
		files.Sweep()
		s.printError(messages, "interrupted, temporary files removed", "")
	}
	ctx, stop := interruptible(interrupted)
	defer stop()
	command := ""
	if len(args) > 1 {
		command = args[1]
	}
	app := newApp(command, stdin, out, messages)
	if slices.Equal(args[1:], []string{"help", "all"}) {
		app.CustomAppHelpTemplate = "" // the library's own lists every command
		args = args[:2]
	}
	if n := len(args); n > 2 && args[n-2] == "--" && isCompletion(args) {
		args = slices.Concat(args[:n-2], []string{"-"}, args[n-1:]) // "--" before the cursor is the beginning of a flag
	}
	app.Metadata = map[string]any{sessionKey: s}
	var err error
	// Numbers are checked as they were written, before the library reads them.
	if cmd, depth := commandOf(app, args); cmd != nil && !isCompletion(args) {
		s.command = strings.Join(args[1:depth], " ")
		err = checkNumbers(cmd, args[depth:])
	}
	if err == nil {
		args = flagsFirst(app, args)
		err = runRecovered(ctx, app, args)
	}
	if ctx.Err() != nil {
		interrupted()
		return exitInterrupted
	}
	files.Sweep()
	code := s.exitCode(messages, err)
	if lost := out.failure(); lost != nil {
		if !isBrokenPipe(lost) || columns(messages) == 0 { // at a terminal a user who pipes to head expects it
			s.printError(messages, lost.Error(), "")
		}
		if code == exitOK || code == exitGate { // what was asked for was not printed in full
			code = exitFailed
		}
	}
	if err != nil && wantsJSON(args) && !out.isUsed() {
		s.errorDocument(out, err, code)
	}
	return code
}

// wantsJSON reports whether the call asks for one JSON document, also if its flags could not be
// read.
func wantsJSON(args []string) bool {
	on, err := strconv.ParseBool(os.Getenv(environment("json")))
	return err == nil && on || slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// runRecovered runs the command. It returns a panic as an error.
func runRecovered(ctx context.Context, app *cli.App, args []string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = recovered(strings.Join(args[:min(2, len(args))], " "), v)
		}
	}()
	return app.RunContext(ctx, args)
}

// sessionKey is the key under which commands find their session in the metadata of the app.
const sessionKey = "session"

// newApp returns the program with the command that word names, or with all of them if it names
// none.
func newApp(word string, stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:    "blis-train",
		Usage:   "latency coefficients you can trust, from vLLM traces",
		Version: versionText(),
		Description: `Reads OTLP trace dumps of a running vLLM, fits the physics of its step time and
overheads, validates the fit by replaying the traces, and writes versioned
coefficient files.

Example:
   blis-train run testdata/traces/demo -o out`,
		Commands:              makeCommands(word),
		Reader:                stdin,
		Writer:                stdout,
		ErrWriter:             stderr,
		Suggest:               true,
		CustomAppHelpTemplate: firstHelp,
		EnableBashCompletion:  true,
		ExitErrHandler:        func(*cli.Context, error) {}, // run decides the exit code
		OnUsageError:          func(c *cli.Context, err error, _ bool) error { return usageError(c, err, nil) },
	}
	app.Action = func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			return &option.Misuse{Msg: fmt.Sprintf("no command %q", name), Hint: suggestCommand(name)}
		}
		return cli.ShowAppHelp(c)
	}
	return app
}

// suggestCommand returns the hint for an unknown command: the nearest one.
func suggestCommand(name string) string {
	var names []string
	for _, c := range allCommands() {
		names = append(names, c.name)
	}
	return cmp.Or(didYouMean(name, names), "see blis-train --help")
}

//go:generate go test -run TestPagesAreGenerated . -update
//go:generate go test -run TestCodesArePacked . -update-codes
//go:generate go test -run TestCodesPageIsCurrent . -update-codes

func main() { os.Exit(run(os.Args, os.Stdin, standardOutput(), os.Stderr)) }
