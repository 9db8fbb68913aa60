package main

// This file keeps output files from replacing what a command reads.

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract"
)

// outputKeys are the options that name an output file: flags, and keys of pipeline.yaml.
var outputKeys = append(slices.Clone(outputFiles), "out", "emit-kv-events", "event-log")

// keepInputFolders returns an error for an output file that exists inside of a folder that the command reads, unless it is a
// document of the same kind: an earlier result. It looks at flags and at keys of pipeline.yaml.
func (con *console) keepInputFolders(c *cli.Context) error {
	for _, name := range outputKeys {
		path := c.String(name)
		for _, g := range con.groups {
			if f := option.Find(g.options, name); f != nil && path == "" {
				path = firstOf(option.Values(f))
			}
		}
		if path == "" {
			continue
		}
		if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
			continue
		}
		for _, f := range inputFolders(c) {
			inside, err := isWithin(filepath.Dir(path), f.dir)
			if err != nil || !inside {
				continue
			}
			isRecorded := f.flag == "workload" // a simulation reads the recording in it
			if name == "emit-kv-events" && isRecorded || name == "emit-otlp" && isRecorded || !isEarlier(name, path) {
				return usagef("--%s: got %s, a file in %s, which the command reads, want another file", name, path, f.dir)
			}
		}
	}
	return nil
}

// firstOf returns the first of texts; "" for none.
func firstOf(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

// inputFolder is a folder that a command reads, and the flag that names it; "" for an argument.
type inputFolder struct{ dir, flag string }

// inputFolders returns the folders that the arguments and flags of a command name, and those of the run.yaml that belongs to a
// file which they name.
func inputFolders(c *cli.Context) (out []inputFolder) {
	add := func(path, flag string) {
		st, err := os.Stat(path)
		if path == "" || err != nil {
			return
		}
		if !st.IsDir() {
			if path = filepath.Dir(path); !isFile(filepath.Join(path, runYAMLFile)) {
				return
			}
		}
		out = append(out, inputFolder{path, flag})
	}
	for _, arg := range c.Args().Slice() {
		add(arg, "")
		matches, _ := filepath.Glob(arg)
		for _, m := range matches {
			add(m, "")
		}
	}
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if slices.Contains(outputKeys, name) {
			continue
		}
		for _, path := range append(c.StringSlice(name), c.String(name)) {
			add(path, name)
		}
	}
	return out
}

// isEarlier reports whether a file may be replaced by the output of an option: it is one that the option wrote before or, where
// an option writes documents of many kinds, no recording and no config.json.
func isEarlier(name, path string) bool {
	switch name {
	case "emit-otlp":
		return extract.KindOf(path) == extract.KindSpans
	case "emit-kv-events":
		return extract.KindOf(path) == extract.KindKVEvents
	case "out", "event-log":
		return extract.KindOf(path) == "" && filepath.Base(path) != "config.json"
	}
	head := beginningOf(path)
	switch name {
	case "junit":
		return bytes.Contains(head, []byte("<testsuite"))
	case "ledger":
		return bytes.HasPrefix(head, []byte(`{"schema_version":`)) && bytes.Contains(head, []byte(`"stage":`))
	case "save-gram":
		return bytes.HasPrefix(head, []byte(`{"format":"blis-train gram `))
	}
	return false
}

// beginningOf returns the first bytes of a file; none if it cannot be read.
func beginningOf(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(f, 4096))
	return head
}
