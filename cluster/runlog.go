package cluster

// This file keeps the finished runs of an experiment in a log file, so that an interrupted
// experiment continues with those that are missing.

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/sim"
)

// keptRun is a line of the log: a finished run and its key. It is encoded as YAML because outcomes
// contain NaN and infinities, which JSON cannot express; [files.DecodeYAML] refuses them too, so
// lines are read without it.
type keptRun struct {
	Key     string
	Outcome outcome
}

// runLog stores finished runs in a file, so that an interrupted experiment can continue. The first
// line identifies the experiment, and each further line is one run.
type runLog struct {
	mu    sync.Mutex // of file and known: cells run in parallel
	file  *os.File
	known map[string]*outcome // by the key of runOnce
}

// openRuns opens the log at path for the experiment that the text `of` identifies, and reads the
// runs it has. Runs of another experiment and an incomplete last line are removed from the file.
func openRuns(path, of string) (*runLog, error) {
	l := &runLog{known: map[string]*outcome{}}
	of += "\n"
	text, err := files.ReadAll(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lines, same := bytes.CutPrefix(text[:bytes.LastIndexByte(text, '\n')+1], []byte(of))
	for line := range bytes.Lines(lines) {
		var r keptRun
		text, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(line)))
		if same && err == nil && yaml.Unmarshal(text, &r) == nil {
			l.known[r.Key] = &r.Outcome
		}
	}
	if l.file, err = files.Append(path); err != nil {
		return nil, err
	}
	whole := int64(len(lines) + len(of))
	if !same {
		whole = 0
	}
	if err = l.file.Truncate(whole); err == nil && !same {
		_, err = l.file.WriteString(of)
	}
	return l, err
}

// runOnce returns the outcome of a cell with a seed: from the log if it has it, otherwise by
// simulating it (runCell) and adding it to the log.
func (l *lab) runOnce(c *cell, r *rival, seed int64, reqs []sim.Request, w window,
	rates map[string][]float64) (*outcome, error) {
	if l.log == nil {
		return l.runCell(c, r, seed, reqs, w, rates)
	}
	key := fmt.Sprint(r.Label, "/", c.Name, "/", seed, "/", digestOf(reqs), "/", w)
	l.log.mu.Lock()
	o := l.log.known[key]
	l.log.mu.Unlock()
	if o != nil {
		if o.Rates == nil { // runCell takes nil rates for those of a cell that copies none
			o.Rates = map[string][]float64{}
		}
		return o, nil
	}
	o, err := l.runCell(c, r, seed, reqs, w, rates)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(&keptRun{Key: key, Outcome: *o})
	if err != nil {
		return nil, err
	}
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	_, err = l.log.file.WriteString(base64.StdEncoding.EncodeToString(text) + "\n")
	return o, err
}
