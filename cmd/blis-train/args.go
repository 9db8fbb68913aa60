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
	var cmd *cli.Command
	for _, c := range app.Commands {
		if c.HasName(args[1]) {
			cmd = c
		}
	}
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
	in := args[2:]
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
			return append([]string{args[0], args[1]}, flags...)
		}
		i++
		flags = append(flags, in[i])
	}
	out := append([]string{args[0], args[1]}, flags...)
	if len(rest) > 0 {
		out = append(out, "--")
	}
	return append(out, rest...)
}

func flagNames(flags []cli.Flag) []string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	return names
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
