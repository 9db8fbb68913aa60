package cluster

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

// keptRun is a finished run in the log of an experiment. The log is YAML without the checks of
// [files.DecodeYAML], which refuses NaN and infinity: outcomes have both.
type keptRun struct {
	Key     string
	Outcome outcome
}

// runLog stores finished runs in a file, so that an interrupted experiment can continue. The first
// line identifies the experiment, and each further line is one run.
type runLog struct {
	mu    sync.Mutex
	file  *os.File
	known map[string]*outcome
}

// openRuns opens the log. It drops the runs of another experiment, and an incomplete last line.
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

// runOnce returns the run of a cell, from the log if it has it.
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
		if o.Rates == nil {
			o.Rates = map[string][]float64{}
		}
		return o, nil
	}
	o, err := l.runCell(c, r, seed, reqs, w, rates)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(&keptRun{key, *o})
	if err != nil {
		return nil, err
	}
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	_, err = l.log.file.WriteString(base64.StdEncoding.EncodeToString(text) + "\n")
	return o, err
}
