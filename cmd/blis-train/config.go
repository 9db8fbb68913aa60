package main

// This file reads pipeline.yaml, in which a user keeps options of several commands.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// pipelineConfig is the content of pipeline.yaml: options by stage, under the names of their flags,
// and thresholds of gates. Flags on the command line take precedence.
type pipelineConfig struct {
	Extract  map[string]yaml.Node `yaml:"extract"`
	Fit      map[string]yaml.Node `yaml:"fit"`
	Validate map[string]yaml.Node `yaml:"validate"`
	Export   map[string]yaml.Node `yaml:"export"`
	Simulate map[string]yaml.Node `yaml:"simulate"`
	Run      map[string]yaml.Node `yaml:"run"`
	Gates    map[string]float64   `yaml:"gates"`
}

// group returns the options of a stage. It panics for an unknown name, which is a bug.
func (p *pipelineConfig) group(name string) map[string]yaml.Node {
	switch name {
	case "extract":
		return p.Extract
	case "fit":
		return p.Fit
	case "validate":
		return p.Validate
	case "export":
		return p.Export
	case "simulate":
		return p.Simulate
	case "run":
		return p.Run
	}
	panic("pipeline.yaml has no group " + name)
}

// configName is the file of options that commands read from the working folder.
const configName = "pipeline.yaml"

// group is a group of pipeline.yaml that a command reads: a stage, and its options. The command
// has some of them as flags; the others are keys of the file alone. An option that several stages
// have under one name is one option of the command.
type group struct {
	name    string     // in pipeline.yaml: extract, fit, ...
	options []cli.Flag // all options of the stage, by which the stage reads them
	// refused are the keys of the stage that the command does not take, with the reason.
	refused map[string]string
}

// flagsOf returns the named options of groups, which a command adds to its flags.
func flagsOf(groups []group, names ...string) []cli.Flag {
	var all []cli.Flag
	for _, g := range groups {
		all = append(all, g.options...)
	}
	return option.Only(all, names...)
}

// settings are what pipeline.yaml sets for a command besides the options: thresholds of gates.
type settings struct {
	gates  map[string]float64
	record *result.Config // for the documents; nil: no file
}

// configure sets the options of the command's stages that pipeline.yaml has and the command line
// does not, and prints what it set. given is the file of --config, or "" for pipeline.yaml of the
// working folder. inputs are the paths that the command reads.
func (con *console) configure(c *cli.Context, given string, inputs []string) error {
	path := given
	if path == "" {
		var err error
		if path, err = workingConfig(con, inputs); err != nil {
			return err
		}
	}
	if path != "" {
		if err := con.readConfig(c, path); err != nil {
			return err
		}
	}
	if err := con.shareOptions(c); err != nil {
		return err
	}
	return con.keepInputFolders(c) // of what the file has set
}

// readConfig reads the file path and sets the options in it.
func (con *console) readConfig(c *cli.Context, path string) error {
	data, in, err := folder.ReadYAML(path, con.special)
	if err != nil {
		return err
	}
	var cfg pipelineConfig
	if err := files.DecodeYAML(data, path, &cfg); err != nil {
		e, ok := errors.AsType[*trace.SyntaxError](err)
		if !ok {
			return err
		}
		e.Hint = cmp.Or(e.Hint, "groups are extract, fit, validate, export, simulate, run and gates")
		return misuseAt(e)
	}
	record := &result.Config{File: in, Set: []string{}}
	for _, g := range con.groups {
		set, err := con.applyGroup(c, path, g.name, cfg.group(g.name))
		if err != nil {
			return err
		}
		record.Set = append(record.Set, set...)
	}
	if slices.ContainsFunc(con.groups, func(g group) bool { return g.name == "validate" }) {
		for _, name := range slices.Sorted(maps.Keys(cfg.Gates)) {
			record.Set = append(record.Set, fmt.Sprintf("--gate %s=%g", name, cfg.Gates[name]))
		}
	}
	if len(record.Set) > 0 {
		con.message("info", fmt.Sprintf("%s sets %s", path, strings.Join(record.Set, " ")))
	}
	con.settings = settings{gates: cfg.Gates, record: record}
	return nil
}

// applyGroup sets the options that the group name of the file at path has, and returns those it set
// in the form of the command line. What the command line sets stays.
func (con *console) applyGroup(c *cli.Context, path, name string, keys map[string]yaml.Node) ([]string, error) {
	var set []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		node := keys[key]
		at := &trace.SyntaxError{File: path, Line: int64(node.Line), Col: int64(node.Column)}
		values := []string{node.Value}
		if node.Kind == yaml.SequenceNode {
			values = nil
			for _, item := range node.Content {
				values = append(values, item.Value)
			}
		}
		flag := option.Find(c.Command.Flags, key)
		if flag != nil && c.IsSet(key) {
			continue
		}
		known, err := con.setKey(c, flag, key, values)
		switch why := con.whyRefused(name, key); {
		case !known && why != "":
			at.Msg = fmt.Sprintf("%s: %s has no option %q: %s", name, c.Command.Name, key, why)
			return nil, misuseAt(at)
		case !known:
			at.Msg = fmt.Sprintf("%s: unknown option %q", name, key)
			at.Hint = didYouMean(key, con.keys(c.Command))
			return nil, misuseAt(at)
		case err != nil:
			at.Msg = fmt.Sprintf("%s: %s: %v", name, key, err)
			return nil, misuseAt(at)
		}
		for _, value := range values {
			set = append(set, fmt.Sprintf("--%s %s", key, value))
		}
	}
	return set, nil
}

// misuseAt returns an error at a place of the file as one of usage: an option of the file is refused as its flag is.
func misuseAt(at *trace.SyntaxError) error { return &option.Misuse{Msg: at.Error(), Hint: at.Hint} }

// whyRefused returns why the command does not take a key of a group; "" if it takes it, or the key does not exist.
func (con *console) whyRefused(name, key string) string {
	for _, g := range con.groups {
		if g.name == name {
			return g.refused[key]
		}
	}
	return ""
}

// setKey sets an option: the flag of the command or, if the command has no such flag, all options
// of that name in its groups. known is false if there is neither.
func (con *console) setKey(c *cli.Context, flag cli.Flag, key string, values []string) (known bool, err error) {
	for _, value := range values {
		if err := cmp.Or(option.CheckCount(key, value), option.CheckSign(key, value)); err != nil {
			return true, err
		}
	}
	if flag != nil {
		for _, value := range values {
			if err := c.Set(key, value); err != nil {
				wanted := wantedValue(c.Command.Flags, key, err.Error())
				return true, option.Misusef("--%s: got %q, %s", key, value, wanted)
			}
		}
		return true, nil
	}
	for _, g := range con.groups {
		if f := option.Find(g.options, key); f != nil {
			known = true
			err = cmp.Or(err, option.Set(f, values...))
		}
	}
	return known, err
}

// keys returns the names of all options of the command, those of its groups included.
func (con *console) keys(cmd *cli.Command) []string {
	names := flagNames(cmd.Flags)
	for _, g := range con.groups {
		names = append(names, flagNames(g.options)...)
	}
	return names
}

// shareOptions sets each option of a group to the value of the command's flag of the same name, if
// the flag is set.
func (con *console) shareOptions(c *cli.Context) error {
	for _, g := range con.groups {
		for _, f := range g.options {
			name := f.Names()[0]
			flag := option.Find(c.Command.Flags, name)
			if flag == nil || option.Plain(flag) == option.Plain(f) || !c.IsSet(name) {
				continue
			}
			if err := option.Set(f, option.Values(flag)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// workingConfig returns pipeline.yaml of the working folder; "" if there is none, or if an input of
// the command is that folder or contains it, because options must not come with the data. A
// pipeline.yaml in a folder of the data is ignored with a warning.
func workingConfig(con *console, inputs []string) (string, error) {
	found := ""
	if isFile(configName) {
		found = configName
	}
	// Look for files in the folder of each input and in its subfolders, the runs.
	ignored := map[string]bool{}
	for _, input := range inputs {
		st, err := os.Stat(input)
		if err != nil {
			continue // a glob, -, or a mistake that the command reports
		}
		if !st.IsDir() {
			input = filepath.Dir(input)
		}
		containsWorkingFolder, err := isWithin(".", input)
		if err != nil {
			return "", err
		}
		if containsWorkingFolder && found != "" {
			ignored[found] = true
			found = ""
		}
		inSubfolders, err := filepath.Glob(filepath.Join(input, "*", configName))
		if err != nil { // a folder whose name is no pattern
			inSubfolders = nil
		}
		for _, path := range append(inSubfolders, filepath.Join(input, configName)) {
			if isFile(path) && path != configName {
				ignored[path] = true
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(ignored)) {
		con.message("warning",
			fmt.Sprintf("%s is ignored, because it is in a folder of the data; --config %s reads it", path, path))
	}
	return found, nil
}

// isFile reports whether there is a regular file at the path.
func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// isWithin reports whether dir is parent or is below it. It resolves symbolic links.
func isWithin(dir, parent string) (bool, error) {
	realPath := func(path string) (string, error) {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		return filepath.EvalSymlinks(abs)
	}
	realDir, err := realPath(dir)
	if err != nil {
		return false, err
	}
	realParent, err := realPath(parent)
	if err != nil {
		return false, err
	}
	rel, err := filepath.Rel(realParent, realDir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)), nil
}
