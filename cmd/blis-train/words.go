package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/option"
)

// commandText has the words of every command and of its flags; it begins with how they are written.
//
//go:embed commands.txt
var commandText string

// moreWords are descriptions that the program makes.
var moreWords = map[string]func() string{"export": exportWords, "queue validate": validateWords}

// wordsOf is what commandText says of a command; of "" the flags of several commands.
func wordsOf(command string) string {
	text, known := commandText, true
	if command != "" {
		_, text, known = strings.Cut(text, "== "+command+": ")
	}
	if !known {
		panic("commands.txt: no words for " + command)
	}
	text, _, _ = strings.Cut(text, "\n\n== ")
	return text
}

// describe gives a command its last word as name, and what commandText says of it.
func describe(cmd *cli.Command, name string) *cli.Command {
	head, description, _ := strings.Cut(wordsOf(name), "\n\n")
	cmd.Name = name[strings.LastIndexByte(name, ' ')+1:]
	cmd.ArgsUsage, head, _ = strings.Cut(head, "\n")
	cmd.Usage, _, _ = strings.Cut(head, "\n")
	cmd.Description = strings.TrimSpace(description)
	if more := moreWords[name]; more != nil {
		cmd.Description = more()
	}
	return cmd
}

// newCommand is a command of a name: what it does, with a console to talk on, and its flags, among them those of its options.
func newCommand(do func(*cli.Context, *console) error, options ...func(command string) option.Table) func(name string) *cli.Command {
	return func(name string) *cli.Command {
		var all option.Table
		for _, of := range options {
			all = append(all, of(name)...)
		}
		return &cli.Command{Flags: flagsOf(append(flagLines(name), everywhere), all, flagLines("")), Action: func(c *cli.Context) error {
			con, err := newConsole(c)
			if err != nil {
				return err
			}
			if c.NArg() > 0 && c.Command.ArgsUsage == "" {
				return &option.Misuse{Msg: fmt.Sprintf("%s: got argument %q, want flags only", fullName(c), c.Args().First()),
					Hint: "quote a value that holds blanks: --flag 'two words'"}
			}
			return do(c, con)
		}}
	}
}

// allOthers stands for the options that no line of a command names.
const allOthers = "..."

// flagLine is a line of commandText: the names of flags, or one with its kind and usage.
type flagLine struct {
	names []string
	usage string
}

// flagLines are those of a command, or of "".
func flagLines(command string) (lines []flagLine) {
	head, _, _ := strings.Cut(wordsOf(command), "\n\n")
	for i, line := range strings.Split(strings.ReplaceAll(head, "\n   ", " "), "\n") {
		if i > 1 { // behind arguments and usage
			names, usage, _ := strings.Cut(line, ": ")
			lines = append(lines, flagLine{strings.Fields(names), usage})
		}
	}
	return lines
}

// everywhere are the flags of every command.
var everywhere = flagLine{names: []string{"--json", "--quiet", "--allow-special", "--log-format"}}

// flagsOf are the flags that lines name, with the options and the shared lines that they stand for.
func flagsOf(lines []flagLine, options option.Table, shared []flagLine) (all []cli.Flag) {
	var named []string
	for _, line := range lines {
		named = append(named, line.names...)
	}
	for _, line := range lines {
		for _, word := range line.names {
			name, isName := strings.CutPrefix(word, "--")
			switch {
			case word == allOthers:
				others := stat.Filter(options, func(o option.Option) bool { return !slices.Contains(named, "--"+o.Name) })
				all = append(all, stat.Map(others, flagOf)...)
			case isName:
				o := option.Option{Name: name}
				if own := options.Only(name); len(own) > 0 {
					o = own[0]
				}
				if line.usage == "" && o.Usage == "" {
					i := slices.IndexFunc(shared, func(l flagLine) bool { return l.names[0] == word })
					all = append(all, flagsOf(shared[i:i+1], options, nil)...)
					continue
				}
				if o.Usage = cmp.Or(line.usage, o.Usage); o.Default == nil {
					o.Default = defaultOf(line.names[len(line.names)-1])
				}
				all = append(all, flagOf(o))
			case word[0] == '-':
				reflect.ValueOf(all[len(all)-1]).Elem().FieldByName("Aliases").Set(reflect.ValueOf([]string{word[1:]}))
			}
		}
	}
	return all
}

// defaultOf is the default of a KIND or KIND=DEFAULT.
func defaultOf(kind string) any {
	kind, text, _ := strings.Cut(kind, "=")
	whole, _ := strconv.ParseInt(text, 10, 64)
	switch kind {
	case "text":
		return text
	case "switch":
		return false
	case "list":
		return []string(nil)
	case "whole":
		return whole
	case "natural":
		return uint64(whole)
	case "real":
		return float64(whole)
	case "time":
		return time.Duration(whole)
	}
	panic("commands.txt: no kind of a flag: " + kind)
}

// defaults are options of which commandText says all else.
func defaults(of map[string]any) (all option.Table) {
	for name, v := range of {
		all = append(all, option.Option{Name: name, Default: v})
	}
	return all
}

func flagOf(o option.Option) cli.Flag {
	switch v := o.Default.(type) {
	case string:
		return &cli.StringFlag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case float64:
		return &cli.Float64Flag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case int64:
		return &cli.Int64Flag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case uint64:
		return &cli.Uint64Flag{Name: o.Name, Usage: o.Usage, Value: v}
	case bool:
		return &cli.BoolFlag{Name: o.Name, Usage: o.Usage, Value: v}
	case time.Duration:
		return &cli.DurationFlag{Name: o.Name, Usage: o.Usage, Value: v}
	case []string:
		return &cli.StringSliceFlag{Name: o.Name, Usage: o.Usage}
	}
	panic("option --" + o.Name + ": no flag for its type")
}
