package main

// This file has the flags that several commands have. The options of a stage are flags of its
// package, because pipeline.yaml sets them as well.

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
)

// everywhereFlags returns the flags of every command.
func everywhereFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print one JSON document on stdout and nothing else"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress, no tables"},
		&cli.BoolFlag{Name: "allow-special",
			Usage: "read pipes and devices given as files; without it they are refused"},
		&cli.StringFlag{Name: "log-format", Value: "text", Usage: "`FORMAT` of messages on stderr: text or json"},
	}
}

// outFlag returns the flag -o with the usage.
func outFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: usage}
}

// outFolderFlag returns -o of commands that write a folder of their own, which is stored in to.
func outFolderFlag(to *string) cli.Flag {
	return &cli.StringFlag{Name: "out", Aliases: []string{"o"}, Destination: to, Usage: "output `FOLDER`"}
}

// resultsFlag returns -o of commands that write to their input folder if it is not given. It is stored in to, unless
// that is nil.
func resultsFlag(to *string) cli.Flag {
	return &cli.StringFlag{Name: "out", Aliases: []string{"o"}, Destination: to, Usage: "`FOLDER` of the results (default: OUT itself)"}
}

// configFlag returns --config.
func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config",
		Usage: "`FILE` with options by stage and gate thresholds (default: pipeline.yaml of the working folder, " +
			"unless that holds the data)"}
}

// verboseFlag returns -v.
func verboseFlag() cli.Flag {
	return &cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "print every table and every warning in full"}
}

// ledgerFlag returns --ledger.
func ledgerFlag() cli.Flag {
	return &cli.StringFlag{Name: "ledger", Usage: "append one JSON line about this run to `FILE` (see log)"}
}

// dryRunFlag returns --dry-run.
func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "list the run folders that would be read and stop"}
}

// forceFlag returns --force.
func forceFlag() cli.Flag {
	return &cli.BoolFlag{Name: "force", Usage: "accept an output folder that holds files of other programs"}
}

// workersFlag returns --workers, which is stored in to, unless that is nil.
func workersFlag(to *int) cli.Flag {
	return &cli.IntFlag{Name: "workers", Destination: to, Usage: "`N` workers; 0: every core"}
}

// tasksDirFlag returns --tasks-dir of plan and collect.
func tasksDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "tasks-dir",
		Usage: "also write the open tasks to `DIR`, as files 0, 1, 2, ... with one id each"}
}

// verdictFlags returns the flags that decide which verdicts end a command with exit status 0.
func verdictFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "allow-insufficient", Usage: "exit 0 also when there are too few data to decide the gates"},
		&cli.BoolFlag{Name: "ignore-verdict", Usage: "exit 0 whatever the verdict"},
	}
}

// ciFlags returns the flags that print the verdict for continuous integration.
func ciFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "summary",
			Usage: "print the verdict in this `FORMAT` on stdout and nothing else there: markdown"},
		&cli.StringFlag{Name: "junit", Usage: "also write the gates to `FILE` as a JUnit report"},
	}
}

// environmentFlags are the flags that the environment may set, as CI does. The command line takes
// precedence over the environment, and the environment over pipeline.yaml.
var environmentFlags = []string{"json", "quiet", "log-format", "workers", "config", "ledger", "max-bad-frac",
	"bootstraps", "for"}

// environment returns the name of the environment variable of a flag.
func environment(flag string) string {
	return "BLIS_TRAIN_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readEnvironment makes the flags of a command that are in environmentFlags read their environment
// variables.
func readEnvironment(command string, flags []cli.Flag) {
	for _, f := range flags {
		name := f.Names()[0]
		if !slices.Contains(environmentFlags, name) {
			continue
		}
		if name == "config" && command == "export" { // there it names a configuration
			continue
		}
		variables := []string{environment(name)}
		switch f := option.Plain(f).(type) {
		case *cli.BoolFlag:
			f.EnvVars = variables
		case *cli.StringFlag:
			f.EnvVars = variables
		case *cli.IntFlag:
			f.EnvVars = variables
		case *cli.Float64Flag:
			f.EnvVars = variables
		}
	}
}

// flagNames returns the names of flags, short ones included.
func flagNames(flags []cli.Flag) []string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	return names
}

// goesWith returns an error if one of the named flags is set. A command calls it where what is missing, without which
// these flags have no meaning: another flag, or a kind of input.
func goesWith(c *cli.Context, what string, names ...string) error {
	for _, name := range names {
		if c.IsSet(name) {
			return usagef("--%s: goes with %s only", name, what)
		}
	}
	return nil
}

// dashed returns a flag as the user writes it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
