// Command blis-train turns trace dumps of a running vLLM into versioned
// latency coefficients. Flags in, exit code out: 0 done, 1 failed, 2 usage,
// 3 ran fine but a gate failed, 130 interrupted. stdout is data, stderr is talk.
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

Predict and simulate:{{range .VisibleCategories}}{{if eq .Name "Predict and simulate"}}{{range .VisibleCommands}}
   {{printf "%-10s" .Name}}{{.Usage}}{{end}}{{end}}{{end}}

Calibrate:{{range .VisibleCategories}}{{if eq .Name "Calibrate"}}{{range .VisibleCommands}}
   {{printf "%-10s" .Name}}{{.Usage}}{{end}}{{end}}{{end}}

More: blis-train help all     One command: blis-train COMMAND --help     A word it printed: blis-train explain WORD

Example:
   blis-train run testdata/traces/demo -o out
`

// run is the whole program: it returns the exit code and touches nothing but
// its arguments and the files they name.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := newOutput(stdout)
	talk := newOutput(stderr)
	held := &session{}
	defer held.release()
	interrupted := func() {
		files.Sweep()
		held.say(talk, "interrupted, temporary files removed", "")
	}
	ctx, stop := interruptible(interrupted)
	defer stop()
	word := ""
	if len(args) > 1 {
		word = args[1]
	}
	app := newApp(word, stdin, out, talk)
	if slices.Equal(args[1:], []string{"help", "all"}) {
		app.CustomAppHelpTemplate, args = "", args[:2]
	}
	app.Metadata = map[string]any{sessionKey: held}
	if cmd, depth := commandOf(app, args); cmd != nil {
		held.command = strings.Join(args[1:depth], " ")
	}
	args = flagsFirst(app, args)
	err := attempt(ctx, app, args)
	if ctx.Err() != nil {
		interrupted()
		return exitInterrupted
	}
	files.Sweep()
	code := held.exitCode(talk, err)
	if lost := out.failure(); lost != nil {
		held.say(talk, lost.Error(), "")
		if code == exitOK || code == exitGate { // nobody read the verdict
			code = exitFailed
		}
	}
	if err != nil && wantsJSON(args) && !out.isUsed() {
		held.errorDocument(out, err, code)
	}
	return code
}

// wantsJSON reports whether the call asks for one JSON document, also where its
// flags could not be read.
func wantsJSON(args []string) bool {
	on, err := strconv.ParseBool(os.Getenv(environment("json")))
	return err == nil && on || slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// attempt runs the command; a panic comes back as an error.
func attempt(ctx context.Context, app *cli.App, args []string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = recovered(strings.Join(args[:min(2, len(args))], " "), v)
		}
	}()
	return app.RunContext(ctx, args)
}

// sessionKey is where commands find their session.
const sessionKey = "session"

// newApp is the program with the command that word names, with all of them where it names none.
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

func suggestCommand(name string) string {
	var names []string
	for _, c := range allCommands() {
		names = append(names, c.name)
	}
	return cmp.Or(didYouMean(name, names), "see blis-train --help")
}

//go:generate go test -run TestPagesAreGenerated . -update
//go:generate go test -run TestCodesPageIsCurrent . -update-codes

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
