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
			fmt.Fprint(c.App.Writer, page+manualEnd())
			return nil
		},
	}
}

// manualEnd is what the library's page lacks: exit status, environment and files.
func manualEnd() string {
	var b strings.Builder
	section := func(name string, items ...[2]string) {
		fmt.Fprintf(&b, "\n.SH %s\n", name)
		for _, item := range items {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fP\n%s\n", strings.ReplaceAll(item[0], "-", "\\-"), item[1])
		}
	}
	section("EXIT STATUS", [2]string{fmt.Sprint(exitOK), "done"}, [2]string{fmt.Sprint(exitFailed), "failed"},
		[2]string{fmt.Sprint(exitUsage), "called wrongly"}, [2]string{fmt.Sprint(exitGate), "ran fine, and a gate failed"},
		[2]string{fmt.Sprint(exitInterrupted), "interrupted"})
	var vars [][2]string
	for _, name := range environmentFlags {
		vars = append(vars, [2]string{environment(name), "as --" + name})
	}
	section("ENVIRONMENT", append(vars, [2]string{"HF_HOME, HF_HUB_CACHE", "where init finds a model's config.json"},
		[2]string{"NO_COLOR", "tables without colours"})...)
	section("FILES", [2]string{"run.yaml", "in a run folder: what was running; init writes it"},
		[2]string{configName, "of the working folder, or --config: options by stage and gate thresholds"},
		[2]string{"OUT/tables/run=ID/*.parquet, OUT/" + extractFile, "what extract read, kept and dropped"},
		[2]string{"OUT/" + fitFile, "the fit, with its doubts"},
		[2]string{"OUT/" + coefficientsFile, "the product: coefficients with everything needed to judge and repeat them"},
		[2]string{"OUT/" + validationFile + ", OUT/" + reportFile, "gates, verdicts and why"},
		[2]string{"OUT/" + simulationFile + ", OUT/requests.parquet", "what a simulated server did"},
		[2]string{"OUT/.extract-cache.json", "what was extracted from which bytes"})
	return b.String()
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
	"powershell": `Register-ArgumentCompleter -Native -CommandName blis-train -ScriptBlock {
  param($word, $line, $position)
  $words = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { $_.ToString() })
  & $line.CommandElements[0].ToString() @words '--generate-bash-completion' 2>$null | Where-Object { $_ -like "$word*" } |
    ForEach-Object { [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_) }
}
`,
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:        "completion",
		Usage:       "print the completion script of a shell",
		ArgsUsage:   "bash|zsh|fish|powershell",
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
				return usagef("completion: got %q, want bash, zsh, fish or powershell", strings.Join(c.Args().Slice(), " "))
			}
			fmt.Fprint(c.App.Writer, script)
			return nil
		},
	}
}
