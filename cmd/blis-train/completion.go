package main

// This file is the command completion: scripts by which shells complete words, and the words that may
// follow.

import (
	"embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/simulate"
)

// completions are the scripts that ask this program for the words that may follow, by shell.
//
//go:embed completion
var completions embed.FS

// completionCommand returns the command completion.
func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		ArgsUsage: "bash|zsh|fish|powershell|man",
		Usage:     "print the completion script of a shell, or the man page",
		Description: `Example:
   source <(blis-train completion bash)
   blis-train completion man > blis-train.1`,
		OnUsageError: func(c *cli.Context, err error, _ bool) error { return usageError(c, err, nil) },
		BashComplete: completeWords,
		Action:       printCompletion,
	}
}

// printCompletion prints the completion script of the shell in the argument, or the man page.
func printCompletion(c *cli.Context) (err error) {
	whole := newApp("", c.App.Reader, c.App.Writer, c.App.ErrWriter)
	whole.Setup() // the library's own commands
	var script string
	switch shell := strings.Join(c.Args().Slice(), " "); shell {
	case "man":
		script, err = manual(whole)
	case "fish":
		script, err = whole.ToFishCompletion()
	default:
		text, unknown := completions.ReadFile("completion/" + shell)
		if script = string(text); unknown != nil {
			err = usagef("completion: got %q, want bash, zsh, fish, powershell or man", shell)
		}
	}
	fmt.Fprint(c.App.Writer, script)
	return err
}

// completedFlags are the flags whose values can be completed.
var completedFlags = map[string]func(c *cli.Context) []string{
	"model":         func(*cli.Context) []string { return model.BuiltInIDs() },
	"hardware":      func(*cli.Context) []string { return gpuNames() },
	"router":        func(*cli.Context) []string { return cluster.Routes },
	"latency-model": func(*cli.Context) []string { return simulate.LatencyModels },
	"format":        formatNames,
	"f":             formatNames,
}

// gpuNames returns the names of all GPUs with a datasheet, as people write them (shortGPU), for shell
// completion.
func gpuNames() []string {
	var names []string
	for _, h := range deploy.Datasheets() {
		names = append(names, shortGPU(h.Name))
	}
	return names
}

// shortGPU returns the name of a GPU without memory size and form factor, where that is enough to find it.
func shortGPU(name string) string {
	i := strings.LastIndex(name, "-")
	if i < 0 {
		return name
	}
	short := strings.TrimSuffix(name[:i], "-SXM")
	if found, _ := deploy.Datasheet(short); found.Name == name {
		return short
	}
	return name
}

// formatNames returns the values of --format, which is that of a table for extract and inspect.
func formatNames(c *cli.Context) []string {
	if c.Command.Name != "export" {
		return []string{"parquet", "arrow"}
	}
	names := []string{string(export.FormatNative)}
	for _, w := range fitFormats() {
		names = append(names, string(w.Format))
	}
	for _, f := range autoscale.Formats {
		names = append(names, string(f))
	}
	return append(names, predictor.Formats...)
}

// isCompletion reports whether a shell asks for the words that may follow.
func isCompletion(args []string) bool {
	return strings.HasSuffix(args[len(args)-1], "generate-bash-completion")
}

// completeWords prints the words that may follow on the command line: the values of the flag before the cursor,
// the codes of explain, the shells of completion, or the flags and commands that the command-line
// library has. The shell omits those that do not begin like the word at the cursor.
func completeWords(c *cli.Context) {
	words := os.Args[:len(os.Args)-1] // without --generate-bash-completion
	last := words[len(words)-1]
	// The flag is the last word, or the one before it if its value has been begun.
	for _, flag := range []string{last, words[max(0, len(words)-2)]} {
		values := completedFlags[strings.TrimLeft(flag, "-")]
		if !strings.HasPrefix(flag, "-") || values == nil || !hasFlag(c.Command, strings.TrimLeft(flag, "-")) {
			continue
		}
		// Of a list, such as H100,B200, the last value is completed.
		before := ""
		if i := strings.LastIndex(last, ","); flag != last && i >= 0 {
			before = last[:i+1]
		}
		for _, v := range values(c) {
			fmt.Fprintln(c.App.Writer, before+v)
		}
		return
	}
	switch {
	case c.Command.Name == "explain" && !strings.HasPrefix(last, "-"):
		var codes []string
		for _, e := range append(catalogue(), gateReasons()...) {
			codes = append(codes, string(e.Code))
		}
		slices.Sort(codes)
		for _, code := range slices.Compact(codes) {
			fmt.Fprintln(c.App.Writer, code)
		}
	case c.Command.Name == "completion" && !strings.HasPrefix(last, "-"):
		fmt.Fprintln(c.App.Writer, strings.Join([]string{"bash", "zsh", "fish", "powershell", "man"}, "\n"))
	default:
		cli.DefaultCompleteWithFlags(c.Command)(c)
	}
}

// hasFlag reports whether a command has a flag of this name.
func hasFlag(cmd *cli.Command, name string) bool {
	return slices.ContainsFunc(cmd.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}
