package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/strictyaml"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// pipelineConfig is pipeline.yaml: long flag names grouped by stage, and gate
// thresholds. Flags on the command line win.
type pipelineConfig struct {
	Extract  map[string]yaml.Node `yaml:"extract"`
	Fit      map[string]yaml.Node `yaml:"fit"`
	Validate map[string]yaml.Node `yaml:"validate"`
	Export   map[string]yaml.Node `yaml:"export"`
	Run      map[string]yaml.Node `yaml:"run"`
	Gates    map[string]float64   `yaml:"gates"`
}

const configName = "pipeline.yaml"

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Usage: "options by stage and gate thresholds, `FILE` (default: pipeline.yaml of the working " +
		"folder, unless that holds the data)"}
}

// settings is what pipeline.yaml sets for a command.
type settings struct {
	gates  map[string]float64
	record *result.Config // for the documents; nil: no file
}

// applyConfig sets every flag named in pipeline.yaml for the given stages that
// the command line has not set, and says what it set. given is the file of
// --config, "" for that of the working folder.
func applyConfig(c *cli.Context, con *console, given string, stages ...string) (settings, error) {
	path := given
	if path == "" {
		var err error
		if path, err = workingConfig(con, c.Args().Slice()); path == "" || err != nil {
			return settings{}, err
		}
	}
	data, in, err := con.readInput(path)
	if err != nil {
		return settings{}, err
	}
	var cfg pipelineConfig
	if err := strictyaml.Decode(data, path, &cfg); err != nil {
		e := (*trace.SyntaxError)(nil)
		if !errors.As(err, &e) {
			e, _ = trace.YAMLError(path, err)
		}
		e.Hint = "groups are extract, fit, validate, export, run and gates"
		return settings{}, e
	}
	s := settings{gates: cfg.Gates, record: &result.Config{File: in, Set: []string{}}}
	groups := map[string]map[string]yaml.Node{"extract": cfg.Extract, "fit": cfg.Fit, "validate": cfg.Validate, "export": cfg.Export,
		"run": cfg.Run}
	for _, stage := range stages {
		set, err := applyGroup(c, path, stage, groups[stage])
		if err != nil {
			return settings{}, err
		}
		s.record.Set = append(s.record.Set, set...)
	}
	if slices.Contains(stages, "validate") {
		for _, name := range slices.Sorted(maps.Keys(cfg.Gates)) {
			s.record.Set = append(s.record.Set, fmt.Sprintf("--gate %s=%g", name, cfg.Gates[name]))
		}
	}
	if len(s.record.Set) > 0 {
		con.line("info", fmt.Sprintf("%s sets %s", path, strings.Join(s.record.Set, " ")))
	}
	return s, nil
}

// applyGroup sets the flags of one stage and returns those it set, as they
// would stand on the command line.
func applyGroup(c *cli.Context, path, stage string, group map[string]yaml.Node) ([]string, error) {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(group)) {
		node := group[name]
		at := &trace.SyntaxError{File: path, Line: int64(node.Line), Col: int64(node.Column)}
		if !slices.ContainsFunc(c.Command.Flags, func(f cli.Flag) bool { return f.Names()[0] == name }) {
			at.Msg = fmt.Sprintf("%s: unknown option %q", stage, name)
			if s := nearest(name, flagNames(c.Command.Flags)); s != "" {
				at.Hint = fmt.Sprintf("did you mean %q?", s)
			}
			return nil, at
		}
		if c.IsSet(name) {
			continue
		}
		values := []*yaml.Node{&node}
		if node.Kind == yaml.SequenceNode {
			values = node.Content
		}
		for _, v := range values {
			if err := c.Set(name, v.Value); err != nil {
				at.Msg = fmt.Sprintf("%s: %s: %v", stage, name, err)
				return nil, at
			}
			set = append(set, fmt.Sprintf("--%s %s", name, v.Value))
		}
	}
	return set, nil
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
