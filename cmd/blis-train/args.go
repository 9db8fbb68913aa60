package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
)

// rearrange moves the flags of a subcommand before its arguments, so that
// flags may stand anywhere (the library stops at the first argument). Whatever
// follows "--" is an argument. Unknown flags move too, so that the library
// reports them.
func rearrange(app *cli.App, args []string) []string {
	if len(args) < 2 {
		return args
	}
	cmd, depth := commandOf(app, args)
	if cmd == nil || strings.HasSuffix(args[len(args)-1], "generate-bash-completion") {
		return args
	}
	takesValue := map[string]bool{}
	for _, f := range cmd.Flags {
		_, isBool := f.(*cli.BoolFlag)
		for _, n := range f.Names() {
			takesValue[n] = !isBool
		}
	}
	var flags, rest []string
	head, in := args[:depth:depth], args[depth:]
	for i := 0; i < len(in); i++ {
		a := in[i]
		if a == "--" {
			rest = append(rest, in[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		flags = append(flags, a)
		name, _, hasValue := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if hasValue || !takesValue[name] {
			continue
		}
		if i+1 == len(in) { // nothing may follow, so that the library misses the value
			return append(head, flags...)
		}
		i++
		flags = append(flags, in[i])
	}
	out := append(head, flags...)
	if len(rest) > 0 {
		out = append(out, "--")
	}
	return append(out, rest...)
}

// commandOf is the command that the first words name, a subcommand where there is one, and
// how many words that took; nil when there is none.
func commandOf(app *cli.App, args []string) (cmd *cli.Command, depth int) {
	named := func(list []*cli.Command, word string) *cli.Command {
		for _, c := range list {
			if c.HasName(word) {
				return c
			}
		}
		return nil
	}
	if cmd = named(app.Commands, args[1]); cmd == nil || len(args) == 2 {
		return cmd, 2
	}
	if sub := named(cmd.Subcommands, args[2]); sub != nil {
		return sub, 3
	}
	return cmd, 2
}

func flagNames(flags []cli.Flag) []string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	return names
}

// goesWith refuses the flags that mean something together with what is named only.
func goesWith(c *cli.Context, what string, names ...string) error {
	for _, name := range names {
		if c.IsSet(name) {
			return usagef("--%s: goes with %s only", name, what)
		}
	}
	return nil
}

// nearest returns the candidate with the smallest edit distance to name, or ""
// when none is close.
func nearest(name string, candidates []string) string {
	best, bestDist := "", 1+len(name)/2
	for _, c := range candidates {
		if len(c) < 2 {
			continue
		}
		if d := deploy.EditDistance(name, c); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}
