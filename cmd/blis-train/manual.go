package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func manCommand() *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the man page",
		Description: "Example:\n   blis-train man > blis-train.1",
		Action: func(c *cli.Context) error {
			page, err := c.App.ToManWithSection(1)
			if err != nil {
				return err
			}
			fmt.Fprint(c.App.Writer, page)
			return nil
		},
	}
}

// completions are the scripts that ask this program for the words that may follow.
var completions = map[string]string{
	"bash": `_blis_train() {
  local cur="${COMP_WORDS[COMP_CWORD]}" words
  words=$("${COMP_WORDS[@]:0:$COMP_CWORD}" ${cur:+"$cur"} --generate-bash-completion 2>/dev/null)
  COMPREPLY=($(compgen -W "${words}" -- "${cur}"))
}
complete -o bashdefault -o default -o nospace -F _blis_train blis-train
`,
	"zsh": `#compdef blis-train
_blis_train() {
  local -a words
  words=("${(@f)$(${words[@]:0:#words[@]-1} ${words[-1]:+"$words[-1]"} --generate-bash-completion 2>/dev/null)}")
  _describe 'values' words
}
compdef _blis_train blis-train
`,
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:        "completion",
		Usage:       "print the completion script of a shell",
		ArgsUsage:   "bash|zsh|fish",
		Description: "Example:\n   source <(blis-train completion bash)",
		Action: func(c *cli.Context) error {
			shell := c.Args().First()
			if shell == "fish" {
				script, err := c.App.ToFishCompletion()
				if err != nil {
					return err
				}
				fmt.Fprint(c.App.Writer, script)
				return nil
			}
			script, ok := completions[shell]
			if !ok || c.NArg() != 1 {
				return usagef("completion: got %q, want bash, zsh or fish", strings.Join(c.Args().Slice(), " "))
			}
			fmt.Fprint(c.App.Writer, script)
			return nil
		},
	}
}
