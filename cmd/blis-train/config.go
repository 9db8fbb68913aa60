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

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/option"
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
	Simulate map[string]yaml.Node `yaml:"simulate"`
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
		e := (*trace.SyntaxError)(nil)
		if !errors.As(err, &e) {
			e, _ = trace.YAMLError(path, err)
		}
		e.Hint = "groups are extract, fit, validate, export, simulate, run and gates"
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
	var keys option.Table
	for _, k := range keysOf(c.Command.Name) {
		keys = append(keys, k.table...)
	}
	for _, name := range slices.Sorted(maps.Keys(group)) {
		node := group[name]
		at := &trace.SyntaxError{File: path, Line: int64(node.Line), Col: int64(node.Column)}
		values := []*yaml.Node{&node}
		if node.Kind == yaml.SequenceNode {
			values = node.Content
		}
		var words []string
		for _, v := range values {
			words = append(words, v.Value)
		}
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
			if s := nearest(name, append(flagNames(c.Command.Flags), keys.Names()...)); s != "" {
				at.Hint = fmt.Sprintf("did you mean %q?", s)
			}
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
