package main

// This file prints flags in help texts.

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// libraryFlagLine is how urfave/cli prints a flag: names, a tab, meaning and default.
var libraryFlagLine = cli.FlagStringer

func init() { cli.FlagStringer = flagLine }

// unsetValue finds the value that means "not set" in a flag's text, with its meaning, followed by the
// default: "...; 0: every core (default: 0)".
var unsetValue = regexp.MustCompile(`; (0|-1): ([^;()]+?) \(default: (0|-1)\)`)

// repeatedFlag finds the second naming of a flag that takes several values: "--price X [ --price X ]".
var repeatedFlag = regexp.MustCompile(` \[ --[^\t]* \]\t`)

// flagLine prints a flag for help, the man page and docs/commands.md. A default of zero that means
// "not set" is replaced by what happens then; one whose text gives it no meaning is omitted, as are
// switches that are off.
func flagLine(f cli.Flag) string {
	line := repeatedFlag.ReplaceAllString(libraryFlagLine(f), "\t")
	if m := unsetValue.FindStringSubmatch(line); m != nil && m[1] == m[3] {
		return strings.Replace(line, m[0], fmt.Sprintf(" (default: %s)", m[2]), 1)
	}
	for _, unset := range []string{"false", "0", `""`} {
		line = strings.Replace(line, fmt.Sprintf(" (default: %s)", unset), "", 1)
	}
	return line
}
