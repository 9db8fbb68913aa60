package main

import (
	"cmp"
	"embed"
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result/folder"
)

// roff is a man page in the making (man(7)).
type roff struct{ strings.Builder }

// manual is the man page: every command with its options, exit status, environment and
// files. The library's own page goes by way of Markdown, whose two modules a release leaves out.
func manual(app *cli.App) string {
	var r roff
	fmt.Fprintf(&r, ".TH %s 1 \"\" \"%s %s\"\n", app.Name, app.Name, folder.ToolVersion)
	r.section("NAME")
	r.text(app.Name + " - " + app.Usage)
	r.section("SYNOPSIS")
	r.text(app.Name + " COMMAND [OPTION...] [ARGUMENT...]")
	r.section("DESCRIPTION")
	r.text(app.Description)
	r.section("COMMANDS")
	r.commands(app.Name, app.Commands)
	r.section("EXIT STATUS")
	r.items([2]string{fmt.Sprint(exitOK), "done"}, [2]string{fmt.Sprint(exitFailed), "failed"},
		[2]string{fmt.Sprint(exitUsage), "called wrongly"}, [2]string{fmt.Sprint(exitGate), "ran fine, and a gate failed"},
		[2]string{fmt.Sprint(exitInterrupted), "interrupted"})
	r.section("ENVIRONMENT")
	for _, name := range environmentFlags {
		r.items([2]string{environment(name), "as --" + name})
	}
	r.items([2]string{"HF_HOME, HF_HUB_CACHE", "where init finds a model's config.json"}, [2]string{"NO_COLOR", "tables without colours"})
	r.section("FILES")
	r.items([2]string{"run.yaml", "in a run folder: what was running; init writes it"},
		[2]string{configName, "of the working folder, or --config: options by stage and gate thresholds"},
		[2]string{"OUT/tables/run=ID/*.parquet, OUT/" + folder.ExtractFile, "what extract read, kept and dropped"},
		[2]string{"OUT/" + folder.FitFile, "the fit, with its warnings"},
		[2]string{"OUT/" + folder.CoefficientsFile, "the product: coefficients with everything needed to judge and repeat them"},
		[2]string{"OUT/" + folder.ValidationFile + ", OUT/" + folder.ReportFile, "gates, verdicts and why"},
		[2]string{"OUT/" + folder.SimulationFile + ", OUT/requests.parquet", "what a simulated server did"},
		[2]string{"OUT/.extract-cache.json", "what was extracted from which bytes"})
	return r.String()
}

func (r *roff) section(name string) { fmt.Fprintf(r, ".SH %s\n", name) }

// commands are those below a command, each with its own.
func (r *roff) commands(above string, list []*cli.Command) {
	for _, c := range list {
		if c.Name == "help" {
			continue
		}
		name := above + " " + c.Name
		fmt.Fprintf(r, ".SS %s\n", roffLine(strings.TrimSpace(name+" "+c.ArgsUsage)))
		r.text(c.Usage)
		if c.Description != "" {
			r.WriteString(".PP\n")
			r.text(c.Description)
		}
		for _, f := range c.Flags {
			term, said, _ := strings.Cut(f.String(), "\t") // as --help shows it
			r.items([2]string{term, said})
		}
		r.commands(name, c.Subcommands)
	}
}

func (r *roff) items(list ...[2]string) {
	for _, item := range list {
		fmt.Fprintf(r, ".TP\n.B %s\n%s\n", roffLine(item[0]), roffLine(item[1]))
	}
}

// text is running text; lines that are indented stand as they are, and so does a heading
// that ends in a colon before them.
func (r *roff) text(s string) {
	code := false
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "   "); indented != code {
			r.WriteString(map[bool]string{true: ".EX\n", false: ".EE\n"}[indented])
			code = indented
		}
		if line == "" {
			r.WriteString(".PP\n")
			continue
		}
		r.WriteString(roffLine(line) + "\n")
	}
	if code {
		r.WriteString(".EE\n")
	}
}

// roffLine is a line as roff reads it: no commands, and hyphens that can be copied.
func roffLine(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	return s
}

// completions are the scripts that ask this program for the words that may follow, by shell.
//
//go:embed completion
var completions embed.FS

func completionCommand(string) *cli.Command {
	return &cli.Command{Action: func(c *cli.Context) (err error) {
		whole := newApp("", c.App.Reader, c.App.Writer, c.App.ErrWriter)
		whole.Setup() // the library's own commands
		var script string
		switch shell := strings.Join(c.Args().Slice(), " "); shell {
		case "man":
			script = manual(whole)
		case "fish":
			script, err = whole.ToFishCompletion()
		default:
			text, unknown := completions.ReadFile("completion/" + shell)
			if script = string(text); unknown != nil {
				err = usagef("completion: got %q, want bash, zsh, fish, powershell or man", shell)
			}
		}
		fmt.Fprint(c.App.Writer, script)
		return err
	}}
}

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
