package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
)

// pipelineConfig is pipeline.yaml: long flag names grouped by stage, and gate
// thresholds. Flags on the command line win.
type pipelineConfig struct {
	Extract  map[string]yaml.Node `yaml:"extract"`
	Fit      map[string]yaml.Node `yaml:"fit"`
	Validate map[string]yaml.Node `yaml:"validate"`
	Export   map[string]yaml.Node `yaml:"export"`
	Simulate map[string]yaml.Node `yaml:"simulate"`
	Run      map[string]yaml.Node `yaml:"run"`
	Gates    map[string]float64   `yaml:"gates"`
}

const configName = "pipeline.yaml"

// settings is what pipeline.yaml sets for a command.
type settings struct {
	gates  map[string]float64
	keys   map[string][]string // of options that are no flags of the command
	record *result.Config      // for the documents; nil: no file
}

// configure sets what pipeline.yaml says for the stages of the command and the command line
// does not, and says what it set. given is the file of --config, "" for that of the working
// folder; inputs are what the command reads.
func (con *console) configure(c *cli.Context, given string, inputs []string) error {
	path := given
	if path == "" {
		var err error
		if path, err = workingConfig(con, inputs); path == "" || err != nil {
			return err
		}
	}
	data, in, err := con.readInput(path)
	if err != nil {
		return err
	}
	var cfg pipelineConfig
	if err := files.DecodeYAML(data, path, &cfg); err != nil {
		e, ok := errors.AsType[*trace.SyntaxError](err)
		if !ok {
			e, _ = trace.YAMLError(path, err)
		}
		e.Hint = cmp.Or(e.Hint, "groups are extract, fit, validate, export, simulate, run and gates")
		return e
	}
	s := settings{gates: cfg.Gates, keys: map[string][]string{}, record: &result.Config{File: in, Set: []string{}}}
	groups := map[string]map[string]yaml.Node{"extract": cfg.Extract, "fit": cfg.Fit, "validate": cfg.Validate, "export": cfg.Export,
		"simulate": cfg.Simulate, "run": cfg.Run}
	stages := stagesOf(c.Command.Name)
	for _, stage := range stages {
		if err := s.applyGroup(c, path, stage.name, groups[stage.name]); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(stages, func(s stage) bool { return s.name == "validate" }) {
		for _, name := range slices.Sorted(maps.Keys(cfg.Gates)) {
			s.record.Set = append(s.record.Set, fmt.Sprintf("--gate %s=%g", name, cfg.Gates[name]))
		}
	}
	if len(s.record.Set) > 0 {
		con.line("info", fmt.Sprintf("%s sets %s", path, strings.Join(s.record.Set, " ")))
	}
	con.settings = s
	return nil
}

// applyGroup sets the options of one stage, and records those it set as they would stand on the
// command line. A flag is set as one; another option waits in keys.
func (s *settings) applyGroup(c *cli.Context, path, of string, group map[string]yaml.Node) error {
	keys := slices.Concat(stat.Map(keysOf(c.Command.Name), func(k stage) option.Table { return k.table })...)
	for _, name := range slices.Sorted(maps.Keys(group)) {
		node := group[name]
		at := &trace.SyntaxError{File: path, Line: int64(node.Line), Col: int64(node.Column)}
		values := []*yaml.Node{&node}
		if node.Kind == yaml.SequenceNode {
			values = node.Content
		}
		words := stat.Map(values, func(v *yaml.Node) string { return v.Value })
		var err error
		switch key := keys.Only(name); {
		case slices.Contains(flagNames(c.Command.Flags), name):
			if c.IsSet(name) {
				continue
			}
			for _, w := range words {
				err = errors.Join(err, c.Set(name, w))
			}
		case len(key) > 0:
			s.keys[name] = words
			if _, isList := key[0].Default.([]string); isList {
				s.keys[name] = cutList(name, words)
			}
			err = key[0].Read(s.keys[name]) // the place of a mistake is known here
		default:
			at.Msg = fmt.Sprintf("%s: unknown option %q", of, name)
			at.Hint = meant(name, append(flagNames(c.Command.Flags), keys.Names()...))
			return at
		}
		if err != nil {
			at.Msg = fmt.Sprintf("%s: %s: %v", of, name, err)
			return at
		}
		for _, w := range words {
			s.record.Set = append(s.record.Set, fmt.Sprintf("--%s %s", name, w))
		}
	}
	return nil
}

// workingConfig is pipeline.yaml of the working folder, "" where there is none
// or where an input of the command is that folder or holds it: data folders
// carry data, not options. Files that stand with the data are named and ignored.
func workingConfig(con *console, inputs []string) (string, error) {
	found := ""
	if isFile(configName) {
		found = configName
	}
	ignored := map[string]bool{}
	for _, input := range inputs {
		st, err := os.Stat(input)
		if err != nil {
			continue // a glob or -, or for the command to complain about
		}
		if !st.IsDir() {
			input = filepath.Dir(input)
		}
		holdsUs, err := isWithin(".", input)
		if err != nil {
			return "", err
		}
		if holdsUs && found != "" {
			ignored[found], found = true, ""
		}
		beside, err := filepath.Glob(filepath.Join(input, "*", configName))
		if err != nil { // a folder whose name is no pattern
			beside = nil
		}
		for _, path := range append(beside, filepath.Join(input, configName)) {
			if isFile(path) && path != configName {
				ignored[path] = true
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(ignored)) {
		con.line("warning", fmt.Sprintf("%s is ignored: it stands with the data; --config %s reads it", path, path))
	}
	return found, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// isWithin reports whether dir is parent or lies below it, links resolved.
func isWithin(dir, parent string) (bool, error) {
	var real [2]string
	for i, p := range []string{dir, parent} {
		abs, err := filepath.Abs(p)
		if err != nil {
			return false, err
		}
		if real[i], err = filepath.EvalSymlinks(abs); err != nil {
			return false, err
		}
	}
	rel, err := filepath.Rel(real[1], real[0])
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)), nil
}

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

// isKey reports that an option is set in pipeline.yaml alone: commands.txt names it not.
func isKey(command, name string) bool {
	var named []string
	for _, line := range flagLines(command) {
		named = append(named, line.names...)
	}
	return !slices.Contains(named, allOthers) && !slices.Contains(named, "--"+name)
}

// stageOptions are those of a command's stages; of a name that several stages have, the first counts.
func stageOptions(command string) (all option.Table) {
	for _, s := range stagesOf(command) {
		all = append(all, s.table...)
	}
	return all
}

// keysOf are the options that a command has as keys of pipeline.yaml and not as flags, by their
// groups.
func keysOf(command string) []stage {
	return stat.Map(stagesOf(command), func(s stage) stage {
		return stage{s.name, stat.Filter(s.table, func(o option.Option) bool { return isKey(command, o.Name) })}
	})
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

// workOptions are those of commands that read many recordings.
func workOptions(string) option.Table {
	o := pipeline.DefaultExtractOptions()
	return o.Table().Only("only", "exclude", "workers", "force")
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
	return slices.Concat(stat.Map(flags, cli.Flag.Names)...)
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
