package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
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
