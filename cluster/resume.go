package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/sim"
)

// keptRun is a finished run as the log of an experiment holds it.
type keptRun struct {
	Key                     string
	Goodput                 *Goodput
	Digest                  string
	Rates                   map[string][]float64
	Worst, Slope, LifetimeS float64
	Newcomer                newcomer
	Points                  []pair
}

// runLog keeps finished runs in a file, a line each behind one that says what they are of, so that an interrupted experiment goes on.
type runLog struct {
	mu    sync.Mutex
	file  *os.File
	known map[string]*keptRun
}

// openRuns opens the log of an experiment; runs of another one are dropped, as is a last line that was cut off.
func openRuns(path, of string) (*runLog, error) {
	l, of := &runLog{known: map[string]*keptRun{}}, of+"\n"
	text, err := files.ReadAll(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lines, same := bytes.CutPrefix(text[:bytes.LastIndexByte(text, '\n')+1], []byte(of))
	for line := range bytes.Lines(lines) {
		var r keptRun
		if err := gob.NewDecoder(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(line))).Decode(&r); same && err == nil {
			l.known[r.Key] = &r
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

// once is a run of a cell, or what the log has of it; label names the gate.
func (l *lab) once(label string, c *cell, plant *plant, gate *gate, seed int64, reqs []sim.Request, w window,
	rates map[string][]float64) (*outcome, error) {
	if l.log == nil {
		return l.one(c, plant, gate, seed, reqs, w, rates)
	}
	key := fmt.Sprint(label, "/", c.Name, "/", seed, "/", digestOf(reqs), "/", w)
	l.log.mu.Lock()
	r := l.log.known[key]
	l.log.mu.Unlock()
	if r != nil {
		if r.Rates == nil {
			r.Rates = map[string][]float64{}
		}
		return &outcome{r.Goodput, r.Digest, r.Rates, r.Worst, r.Slope, r.LifetimeS, r.Newcomer, r.Points}, nil
	}
	o, err := l.one(c, plant, gate, seed, reqs, w, rates)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(&keptRun{key, o.Goodput, o.digest, o.rates, o.worst, o.slope, o.lifetimeS, o.newcomer,
		o.points}); err != nil {
		return nil, err
	}
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	_, err = l.log.file.WriteString(base64.StdEncoding.EncodeToString(b.Bytes()) + "\n")
	return o, err
}
