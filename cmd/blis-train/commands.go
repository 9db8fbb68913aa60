package main

// This file lists the commands and builds each with its flags.

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/trace"
)

// Headings of help.
const (
	predictCategory   = "Predict and simulate"
	calibrateCategory = "Calibrate"
	moreCategory      = "More"
)

// namedCommand is a command before it is made. Making one may read embedded tables, so a call of
// the program makes only the command that it names.
type namedCommand struct {
	category, name string
	make           func() *cli.Command
}

// allCommands returns the commands in the order and under the headings of help. The file of each is
// named like it.
func allCommands() []namedCommand {
	return []namedCommand{
		{predictCategory, "size", sizeCommand},
		{predictCategory, "predict", predictCommand},
		{predictCategory, "simulate", simulateCommand},
		{calibrateCategory, "run", runCommand},
		{calibrateCategory, "inspect", inspectCommand},
		{calibrateCategory, "extract", extractCommand},
		{calibrateCategory, "fit", fitCommand},
		{calibrateCategory, "validate", validateCommand},
		{calibrateCategory, "export", exportCommand},
		{moreCategory, "predictor", predictorCommand},
		{moreCategory, "experiment", experimentCommand},
		{moreCategory, "check", checkCommand},
		{moreCategory, "diff", diffCommand},
		{moreCategory, "features", featuresCommand},
		{moreCategory, "queue", queueCommand},
		{moreCategory, "plan", planCommand},
		{moreCategory, "task", taskCommand},
		{moreCategory, "collect", collectCommand},
		{moreCategory, "library", libraryCommand},
		{moreCategory, "log", logCommand},
		{moreCategory, "init", initCommand},
		{moreCategory, "explain", explainCommand},
		{moreCategory, "completion", completionCommand},
		{moreCategory, "version", versionCommand},
	}
}

// makeCommands returns the command that word names, or all of them if it names none.
func makeCommands(word string) []*cli.Command {
	var all []*cli.Command
	for _, c := range allCommands() {
		if c.name == word { // its own help has no heading
			return []*cli.Command{c.make()}
		}
	}
	for _, c := range allCommands() {
		cmd := c.make()
		cmd.Category = c.category
		all = append(all, cmd)
	}
	return all
}

// newCommand completes a command and returns it: it adds the flags that every command has, the
// environment variables, and the function run, which gets a console to write to. groups are the
// groups of pipeline.yaml that the command reads.
func newCommand(cmd *cli.Command, groups []group, run func(*cli.Context, *console) error) *cli.Command {
	cmd.Flags = append(cmd.Flags, everywhereFlags()...)
	readEnvironment(cmd.Name, cmd.Flags)
	cmd.BashComplete = completeWords
	cmd.OnUsageError = func(c *cli.Context, err error, _ bool) error { return usageError(c, err, groups) }
	cmd.Action = func(c *cli.Context) error {
		con, err := newConsole(c)
		if err != nil {
			return err
		}
		con.groups = groups
		if err := con.keepInputFolders(c); err != nil {
			return err
		}
		if c.NArg() > 0 && c.Command.ArgsUsage == "" {
			return &option.Misuse{Msg: fmt.Sprintf("%s: got argument %q, want flags only", fullName(c),
				c.Args().First()),
				Hint: "quote a value that holds blanks: --flag 'two words'"}
		}
		return run(c, con)
	}
	return cmd
}

// newParent completes a command that only has subcommands, and returns it. Called without one of
// them it is an error that names them.
func newParent(cmd *cli.Command) *cli.Command {
	cmd.OnUsageError = func(c *cli.Context, err error, _ bool) error { return usageError(c, err, nil) }
	cmd.Action = func(c *cli.Context) error {
		var names []string
		for _, sub := range c.Command.Subcommands {
			if sub.Name != "help" {
				names = append(names, sub.Name)
			}
		}
		name := c.Args().First()
		if name == "" {
			return usagef("%s: got no command, want %s", c.Command.Name, trace.OneOf(names))
		}
		return usagef("%s: got %q, want %s", c.Command.Name, name, trace.OneOf(names))
	}
	return cmd
}
