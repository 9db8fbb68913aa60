package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// fewUngrouped is how many flags of a command may stand in no group of their own.
const fewUngrouped = 3

// TestHelpGroups: in a long help nearly every flag stands in a group, short helps have
// none, and the groups name no flag that no command has.
func TestHelpGroups(t *testing.T) {
	app := newApp(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	has := map[string]bool{}
	var walk func([]*cli.Command)
	walk = func(list []*cli.Command) {
		for _, c := range list {
			walk(c.Subcommands)
			rest := 0
			for _, f := range c.Flags {
				name := f.Names()[0]
				has[name] = true
				title := f.(cli.CategorizableFlag).GetCategory()
				if title == groupMore {
					rest++
				}
				if long := len(c.Flags) > longHelp && !slices.Contains(helpFirst, name); long != (title != "") {
					t.Errorf("%s --%s: group %q of %d flags", c.Name, name, title, len(c.Flags))
				}
			}
			if rest > fewUngrouped {
				t.Errorf("%s: %d flags stand in no group of helpGroups, want at most %d", c.Name, rest, fewUngrouped)
			}
		}
	}
	walk(app.Commands)
	for title, names := range helpGroups {
		for _, n := range names {
			if !has[n] {
				t.Errorf("group %q names --%s, which no command has", title, n)
			}
		}
	}
}
