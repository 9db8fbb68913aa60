package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/simulate"
)

// stage is one group of pipeline.yaml: a part of the work, and its options.
type stage struct {
	name  string
	table option.Table
}

// stagesOf are the groups of pipeline.yaml that a command reads, their options at the defaults.
func stagesOf(command string) []stage {
	switch command {
	case "run", "plan":
		o := pipeline.DefaultRunOptions()
		tables := o.Tables()
		if command == "plan" { // these belong to whoever does the tasks
			for i := range tables {
				tables[i] = tables[i].Without("why-rejected", "workers", "force", "figures", "baseline")
			}
		}
		return []stage{{"extract", tables[0]}, {"fit", tables[1]}, {"validate", tables[2]}, {"run", nil}}
	case "extract":
		o := pipeline.DefaultExtractOptions()
		return []stage{{"extract", o.Table()}}
	case "inspect":
		o := pipeline.DefaultInspectOptions()
		return []stage{{"extract", o.Table()}}
	case "fit":
		o := pipeline.DefaultFitOptions()
		return []stage{{"fit", o.Table()}}
	case "validate":
		o := pipeline.DefaultValidateOptions()
		return []stage{{"validate", o.Table()}}
	case "simulate":
		o := cluster.Options{Options: simulate.DefaultOptions()}
		return []stage{{"simulate", o.Table()}}
	case "export":
		o := pipeline.DefaultExportOptions()
		return []stage{{"export", o.Table()}}
	}
	return nil
}

// usual are the options that commands with many have as flags, at most 25 with those of their
// own; the others are keys of pipeline.yaml alone (docs/pipeline-yaml.md). A command that is
// not named here has a flag for every option.
var usual = map[string][]string{
	"run": {"set", "only", "exclude", "max-bad-frac", "workers", "force", "from", "holdout", "prior", "bootstraps", "gate",
		"for", "baseline"},
	"plan": {"set", "only", "exclude", "max-bad-frac", "from", "holdout", "prior", "bootstraps", "max-rows", "gate", "for"},
	"fit": {"from", "holdout", "prior", "spec", "bootstraps", "model", "search", "save-gram", "only", "exclude",
		"without", "workers", "force"},
	"validate": {"fit", "coefficients", "gate", "for", "baseline", "figures", "steps-only", "noise", "overhead-us", "idle-delays", "split",
		"workers", "force"},
	"simulate": {"deployment", "workload", "coefficients", "set", "latency-model", "alpha-coeffs", "beta-coeffs", "input-len", "output-len",
		"num-prompts", "request-rate", "rate-scale", "cluster", "num-instances", "seed", "replications", "workers", "emit-otlp", "force"},
}

// isKey reports that an option is set in pipeline.yaml alone.
func isKey(command, name string) bool {
	flags, limited := usual[command]
	return limited && !slices.Contains(flags, name)
}

// stageFlags are the flags of a command's stages, made from their tables; of a name that
// several tables have, the first.
func stageFlags(command string) []cli.Flag {
	var all option.Table
	for _, s := range stagesOf(command) {
		for _, o := range s.table {
			if !isKey(command, o.Name) && len(all.Only(o.Name)) == 0 {
				all = append(all, o)
			}
		}
	}
	return flagsOf(all)
}

// flagsOf are the options of a table as flags.
func flagsOf(t option.Table) []cli.Flag {
	var all []cli.Flag
	for _, o := range t {
		all = append(all, flagOf(o))
	}
	return all
}

// keysOf are the options that a command has as keys of pipeline.yaml and not as flags, by their
// groups.
func keysOf(command string) []stage {
	var all []stage
	for _, s := range stagesOf(command) {
		keys := stage{name: s.name}
		for _, o := range s.table {
			if isKey(command, o.Name) {
				keys.table = append(keys.table, o)
			}
		}
		all = append(all, keys)
	}
	return all
}

// keyHint says where an option is set that a command has as a key; "" where it has none of
// that name.
func keyHint(command, name string) string {
	for _, s := range keysOf(command) {
		if len(s.table.Only(name)) > 0 {
			return fmt.Sprintf("set %q under %q in a file given by --config", name, s.name)
		}
	}
	return ""
}

// filterFlags are --only and --exclude alone, for commands that read tables.
func filterFlags() []cli.Flag { return flagsOf((&pipeline.Filter{}).Table()) }

// workFlags are those of commands that read many recordings.
func workFlags() []cli.Flag {
	o := pipeline.DefaultExtractOptions()
	return append(flagsOf(o.Table().Only("only", "exclude", "workers", "force")),
		&cli.BoolFlag{Name: "dry-run", Usage: "list what would be read and stop"})
}

func flagOf(o option.Option) cli.Flag {
	switch v := o.Default.(type) {
	case string:
		return &cli.StringFlag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case float64:
		return &cli.Float64Flag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case int64:
		return &cli.Int64Flag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case bool:
		return &cli.BoolFlag{Name: o.Name, Usage: o.Usage, Value: v}
	case []string:
		return &cli.StringSliceFlag{Name: o.Name, Usage: o.Usage}
	}
	panic("option --" + o.Name + ": no flag for its type")
}

// setOptions hands the stages what the command line says, and pipeline.yaml where it does not.
func (con *console) setOptions(c *cli.Context, tables ...option.Table) error {
	for _, t := range tables {
		for _, o := range t {
			var err error
			if c.IsSet(o.Name) {
				err = o.Set(stageValue(c, o))
			} else if words, there := con.settings.keys[o.Name]; there {
				err = o.Read(words)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func stageValue(c *cli.Context, o option.Option) any {
	switch o.Default.(type) {
	case float64:
		return c.Float64(o.Name)
	case int64:
		return c.Int64(o.Name)
	case bool:
		return c.Bool(o.Name)
	case []string:
		return listOf(c, o.Name)
	}
	return c.String(o.Name)
}

// settingFlag is the list whose values are taken as they stand: YAML or JSON.
const settingFlag = "set"

// withoutBlanks is a setting whose value, where it is JSON, has no blanks: recorded
// command lines are cut at blanks.
func withoutBlanks(setting string) string {
	key, value, _ := strings.Cut(setting, "=")
	var b bytes.Buffer
	if strings.ContainsAny(value, " \t\n") && json.Compact(&b, []byte(value)) == nil {
		return key + "=" + b.String()
	}
	return setting
}

// listOf is a list given in several flags, or in one with commas.
func listOf(c *cli.Context, name string) []string { return cutList(name, c.StringSlice(name)) }

func cutList(name string, all []string) (out []string) {
	for _, v := range all {
		if name == settingFlag {
			out = append(out, withoutBlanks(v))
			continue
		}
		for part := range strings.SplitSeq(v, ",") {
			out = append(out, strings.TrimSpace(part))
		}
	}
	return out
}

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
