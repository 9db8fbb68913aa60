package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestHelpGroups: in a long help every flag stands in a group but what is written
// where, and help itself; the groups name no flag that no command has.
func TestHelpGroups(t *testing.T) {
	app := newApp(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	has := map[string]bool{}
	var walk func([]*cli.Command)
	walk = func(list []*cli.Command) {
		for _, c := range list {
			walk(c.Subcommands)
			for _, f := range c.Flags {
				name := f.Names()[0]
				has[name] = true
				title := f.(cli.CategorizableFlag).GetCategory()
				first := name == "out" || name == "help" || name == "format" || name == "version"
				switch {
				case len(c.Flags) <= longHelp && title != "":
					t.Errorf("%s --%s: a short help has the group %q", c.Name, name, title)
				case len(c.Flags) > longHelp && (title == "") != first:
					t.Errorf("%s --%s: group %q", c.Name, name, title)
				}
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
