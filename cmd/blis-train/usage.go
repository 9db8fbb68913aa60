package main

// This file explains mistakes in a command line, with the word that was probably meant.

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/vllm"
)

// usageError returns the flag package's error about a command line in this program's words, with
// the nearest flag as a hint. groups are the groups of pipeline.yaml that the command reads.
func usageError(c *cli.Context, err error, groups []group) error {
	usage := &option.Misuse{Msg: err.Error()}
	if c.Command != nil && c.Command.HelpName != "" {
		usage.Hint = fmt.Sprintf("see %s --help", c.Command.HelpName)
	}
	if rest, ok := strings.CutPrefix(usage.Msg, "flag provided but not defined: -"); ok {
		name := strings.TrimLeft(rest, "-")
		usage.Msg = fmt.Sprintf("unknown flag %q", dashed(name))
		if hint := unknownFlagHint(c, name, groups); hint != "" {
			usage.Hint = hint
		}
	}
	if name, ok := strings.CutPrefix(usage.Msg, "flag needs an argument: -"); ok {
		usage.Msg = fmt.Sprintf("%s: got nothing, want a value", dashed(strings.TrimLeft(name, "-")))
	}
	if m := badFlagValue.FindStringSubmatch(usage.Msg); m != nil {
		usage.Msg = fmt.Sprintf("%s: got %s, %s", dashed(m[2]), m[1], wantedValue(c.Command.Flags, m[2], m[3]))
		// m is the quoted value, the flag, and the reason. People write thousands as 2,000, 2_000 or 2k.
		plain := strings.NewReplacer(`"`, "", ",", "", "_", "", "k", "000", "K", "000").Replace(m[1])
		if _, err := strconv.Atoi(plain); err == nil && strings.HasSuffix(usage.Msg, "number") {
			usage.Hint = "did you mean " + plain + "?"
		}
	}
	if m := badEnvironment.FindStringSubmatch(usage.Msg); m != nil { // the quoted value, the variable, the flag, the reason
		usage.Msg = fmt.Sprintf("%s: got %s, %s", m[2], m[1], wantedValue(c.Command.Flags, m[3], m[4]))
	}
	return usage
}

// unknownFlagHint returns what is probably meant by a flag that the command does not have; "" if no
// name is near.
func unknownFlagHint(c *cli.Context, name string, groups []group) string {
	known := flagNames(c.Command.Flags)
	for _, g := range groups {
		known = append(known, flagNames(g.options)...)
	}
	if own := otherNames[name]; slices.Contains(known, own) {
		return fmt.Sprintf("did you mean --%s?", own)
	}
	near := files.Nearest(name, slices.Concat(known, slices.Sorted(maps.Keys(soughtFlags))))
	path := deploy.ServePath(name) // the key of run.yaml, if it is a flag of vllm serve
	key := keyHint(c.Command, groups, near)
	sought := soughtFlags[near]
	switch {
	case path != "" && slices.Contains(known, "vllm"):
		return fmt.Sprintf("give it inside --vllm \"%s ...\"", dashed(name))
	case path != "" && slices.Contains(known, "set"):
		return fmt.Sprintf("--set %s=VALUE sets what run.yaml does not", path)
	case key != "":
		return key
	case sought != "" && near == name:
		return sought
	case near != "":
		return strings.TrimSpace(fmt.Sprintf("did you mean --%s? %s", near, sought))
	case c.Command.Name == "init":
		return "quote the server's command: --from-cmdline 'vllm serve ...'"
	}
	return ""
}

// keyHint returns a hint for an unknown flag, of which name is the nearest known name. Some options of the command's
// stages have no flag: they are keys of a file given by --config, which has a part for each group of options. If name is
// such a key the hint states in which part it is set. It is "" if the command has a flag of that name, or no option has
// it.
func keyHint(cmd *cli.Command, groups []group, name string) string {
	if option.Find(cmd.Flags, name) != nil {
		return ""
	}
	for _, g := range groups {
		if option.Find(g.options, name) != nil {
			return fmt.Sprintf("set %q under %q in a file given by --config", name, g.name)
		}
	}
	return ""
}

// badEnvironment matches the library's message about the value of an environment variable.
var badEnvironment = regexp.MustCompile(`^could not parse ("(?:[^"\\]|\\.)*") (?:as \w+ value )?from environment variable "(\w+)"(?: as value)? for flag ([a-z-]+): (.*)$`)

// badFlagValue matches the flag package's message about the value of a flag.
var badFlagValue = regexp.MustCompile(`^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-+([a-z-]+): (.*)$`)

// wantedValue returns what values the named flag takes; reason is what the flag's own type
// reported.
func wantedValue(flags []cli.Flag, name, reason string) string {
	f := option.Find(flags, name)
	if _, isGeneric := option.Plain(f).(*cli.GenericFlag); isGeneric {
		return reason
	}
	return "want " + option.Wanted(f)
}

// soughtFlags are flags that people look for and that do not exist, with what to use in their
// place.
var soughtFlags = map[string]string{
	"gamma":    "fit chooses it by cross-validation; -v prints it, and fit.json has it",
	"hardware": "run.yaml has it; --set hardware.name=H100 overrides it where a command has --set",
	"lambda":   "fit chooses it by cross-validation; -v prints it, and fit.json has it",
	"output":   "-o names the output",
}

// otherNames are the names that other tools have for our flags.
var otherNames = map[string]string{
	"clients":              "concurrency",
	"device":               "hardware",
	"gpu":                  "hardware",
	"gpus":                 "hardware",
	"isl":                  "input-len",
	"num-prompts":          "requests",
	"osl":                  "output-len",
	"qps":                  "rate",
	"request-rate":         "rate",
	"rps":                  "rate",
	"sla":                  "slo",
	"target":               "slo",
	"tensor-parallel-size": "tp",
	"tp-size":              "tp",
	"users":                "concurrency",
}

// didYouMean returns a hint with the legal word nearest to word; "" if none is near.
func didYouMean(word string, legal []string) string {
	if near := files.Nearest(word, legal); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// flagsFirst returns the arguments with the flags of a command before its other arguments, so that
// flags may follow them (the library stops at the first argument). What follows "--" is an
// argument. Unknown flags move too, so that the library reports them.
func flagsFirst(app *cli.App, args []string) []string {
	cmd, depth := commandOf(app, args)
	if cmd == nil || isCompletion(args) {
		return args
	}
	var flags, rest []string
	head := args[:depth:depth] // the program and the command
	in := args[depth:]
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
		if f := option.Find(cmd.Flags, name); hasValue || f == nil || !option.TakesValue(f) {
			continue
		}
		if i+1 == len(in) {
			// The flag's value is missing. The arguments are dropped, so that the library does not take one for it.
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

// checkNumbers returns an error for a numeric flag whose value Go would read otherwise than it
// looks (010 as eight, 0x10 as sixteen, 1_000 as a thousand), for a count that no machine could
// serve, and for a flag with an empty text. in are the words behind the command.
func checkNumbers(cmd *cli.Command, in []string) error {
	for i := 0; i < len(in) && in[i] != "--"; i++ {
		if len(in[i]) < 2 || in[i][0] != '-' {
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(in[i], "-"), "=")
		f := option.Find(cmd.Flags, name)
		if f == nil || !option.TakesValue(f) {
			continue
		}
		if !hasValue {
			if i++; i == len(in) {
				return nil
			}
			value = in[i]
		}
		if value == "" && f.Names()[0] != "vllm" { // of a shell's variable that is not set; further arguments may be none
			return usagef("%s: got an empty text, want a value, or leave the flag out", dashed(name))
		}
		if _, isRelease := vllm.ParseRelease(value); f.Names()[0] == "vllm-version" && !isRelease && !strings.Contains(value, "dev") {
			return usagef("--vllm-version: got %q, want a release such as %s", value, predict.AssumedVersion)
		}
		if !isNumeric(f) {
			continue
		}
		if err := checkThousands(name, value); err != nil {
			return err
		}
		for _, part := range strings.Split(value, ",") { // some flags take a list
			if err := checkNumber(name, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// isNumeric reports whether the values of a flag are numbers, or a list of them.
func isNumeric(f cli.Flag) bool {
	switch plain := option.Plain(f).(type) {
	case *cli.IntFlag, *cli.Int64Flag, *cli.UintFlag, *cli.Uint64Flag, *cli.Float64Flag:
		return true
	case *cli.GenericFlag:
		return option.IsNumber(plain.Value)
	case *cli.StringFlag: // counts with a largest value, and rates, may be lists
		name := f.Names()[0]
		return option.HasMost(name) || name == "rate"
	}
	return false
}

// groupedThousands matches a number with commas between its thousands, such as 2,000. 2,500 may be a list; 000 is
// no number of a list.
var groupedThousands = regexp.MustCompile(`^[1-9][0-9]{0,2}(,[0-9]{3})*,0[0-9]{2}(,[0-9]{3})*$`)

// checkThousands returns an error for a number with commas between its thousands, which would be
// read as a list.
func checkThousands(name, value string) error {
	if !groupedThousands.MatchString(value) {
		return nil
	}
	return &option.Misuse{Msg: fmt.Sprintf("%s: got %q, want a number without commas", dashed(name), value),
		Hint: "did you mean " + strings.ReplaceAll(value, ",", "") + "?"}
}

// checkNumber returns an error for a number that is not decimal, and for a count that is too large, or that is negative
// where that means nothing.
func checkNumber(name, value string) error {
	if err := cmp.Or(option.CheckCount(name, value), option.CheckSign(name, value)); err != nil {
		return err
	}
	number, notFloat := strconv.ParseFloat(value, 64)
	if notFloat == nil && math.IsNaN(number) {
		return &option.Misuse{Msg: fmt.Sprintf("%s: got %q, want a number", dashed(name), value)}
	}
	_, notInt := strconv.ParseInt(value, 0, 64)
	isNumber := notFloat == nil || notInt == nil
	if isNumber && !files.IsDecimal(value) && strings.ContainsAny(value, "0123456789") {
		return &option.Misuse{Msg: fmt.Sprintf("%s: got %q, want a decimal number", dashed(name), value),
			Hint: "write it without leading zeros, underscores and prefixes"}
	}
	return nil
}

// commandOf returns the command or subcommand that the first words after the program name, and how many words that
// took, the program included; nil if there is none.
func commandOf(app *cli.App, args []string) (cmd *cli.Command, depth int) {
	named := func(list []*cli.Command, word string) *cli.Command {
		for _, c := range list {
			if c.HasName(word) {
				return c
			}
		}
		return nil
	}
	if len(args) < 2 {
		return nil, 0
	}
	if cmd = named(app.Commands, args[1]); cmd == nil || len(args) == 2 {
		return cmd, 2
	}
	if sub := named(cmd.Subcommands, args[2]); sub != nil {
		return sub, 3
	}
	return cmd, 2
}
