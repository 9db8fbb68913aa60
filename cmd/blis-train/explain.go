package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/trace"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Usage:     "say what a code means and what to do about it",
		ArgsUsage: "[CODE...]",
		Description: "Every drop, warning, finding and rejection has a code. Without an argument all are\nlisted; a part of a code lists " +
			"those that contain it.\n\n" +
			"Example:\n   blis-train explain no_interval",
		Flags: talkFlags(),
		Action: withConsole(func(c *cli.Context, con *console) error {
			return explain(con, c.Args().Slice())
		}),
	}
}

// explain prints the codes asked for; every argument must name at least one.
func explain(con *console, args []string) error {
	all := append(catalogue(), gateReasons()...)
	var found []explained
	if len(args) == 0 {
		found = all
	}
	for _, arg := range args {
		hits := matchingCodes(all, arg)
		if len(hits) == 0 {
			return unknownCode(all, arg)
		}
		found = append(found, hits...)
	}
	if con.json {
		return con.document(found)
	}
	for i, e := range found {
		if i > 0 && len(args) > 0 {
			fmt.Fprintln(con.out)
		}
		if len(args) == 0 {
			fmt.Fprintf(con.out, "%-32s %-8s %s\n", e.Code, e.Kind, e.Meaning)
			continue
		}
		fmt.Fprintf(con.out, "%s (%s, %s)\n  %s\n  %s\n", e.Code, e.Kind, e.Package, e.Meaning, e.Action)
	}
	return nil
}

// matchingCodes are the entries with exactly that code, else those containing it.
func matchingCodes(all []explained, arg string) []explained {
	want := strings.ToLower(strings.ReplaceAll(arg, "-", "_"))
	var exact, part []explained
	for _, e := range all {
		switch {
		case string(e.Code) == want:
			exact = append(exact, e)
		case strings.Contains(string(e.Code), want):
			part = append(part, e)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return part
}

func unknownCode(all []explained, arg string) error {
	var names []string
	for _, e := range all {
		names = append(names, string(e.Code))
	}
	hint := "blis-train explain lists every code"
	if s := nearest(arg, names); s != "" {
		hint = fmt.Sprintf("did you mean %q?", s)
	}
	return (&trace.Error{Msg: fmt.Sprintf("no code %q", arg)}).WithHint(hint)
}
