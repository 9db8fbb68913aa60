package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

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
	return &cli.StringFlag{Name: "config", Usage: "options by stage and gate thresholds, `FILE` (default: pipeline.yaml beside the run folders)"}
}

// applyConfig sets every flag named in pipeline.yaml for the given stages that
// the command line has not set, and returns the gate thresholds.
func applyConfig(c *cli.Context, stages ...string) (map[string]float64, error) {
	path := c.String("config")
	if path == "" {
		path = findConfig(c.Args().Slice())
	}
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var cfg pipelineConfig
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil && !errors.Is(err, io.EOF) {
		e, _ := trace.YAMLError(path, err)
		e.Hint = "groups are extract, fit, validate, export, run and gates"
		return nil, e
	}
	groups := map[string]map[string]yaml.Node{"extract": cfg.Extract, "fit": cfg.Fit, "validate": cfg.Validate, "export": cfg.Export, "run": cfg.Run}
	known := map[string]bool{}
	for _, f := range c.Command.Flags {
		known[f.Names()[0]] = true
	}
	for _, stage := range stages {
		if err := applyGroup(c, path, stage, groups[stage], known); err != nil {
			return nil, err
		}
	}
	return cfg.Gates, nil
}

func applyGroup(c *cli.Context, path, stage string, group map[string]yaml.Node, known map[string]bool) error {
	names := make([]string, 0, len(group))
	for name := range group {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		node := group[name]
		if !known[name] {
			hint := ""
			if s := nearest(name, flagNames(c.Command.Flags)); s != "" {
				hint = fmt.Sprintf("did you mean %q?", s)
			}
			return &trace.SyntaxError{File: path, Line: int64(node.Line), Col: int64(node.Column), Msg: fmt.Sprintf("%s: unknown option %q", stage, name), Hint: hint}
		}
		if c.IsSet(name) {
			continue
		}
		values := []yaml.Node{node}
		if node.Kind == yaml.SequenceNode {
			values = values[:0]
			for _, n := range node.Content {
				values = append(values, *n)
			}
		}
		for _, v := range values {
			if err := c.Set(name, v.Value); err != nil {
				return &trace.SyntaxError{File: path, Line: int64(node.Line), Col: int64(node.Column), Msg: fmt.Sprintf("%s: %s: %v", stage, name, err)}
			}
		}
	}
	return nil
}

// findConfig looks for pipeline.yaml in each argument that is a folder.
func findConfig(args []string) string {
	for _, a := range args {
		p := filepath.Join(a, configName)
		if st, err := os.Stat(p); err == nil && !st.IsDir() {
			return p
		}
	}
	return ""
}
