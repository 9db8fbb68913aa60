package clients

// This file notes how a client offered its requests: when it sent the first and got the last answer,
// and whether it bounded the requests in flight.

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Load is how the client of one file offered its requests. Where run.yaml names no phases, each
// load is a phase.
type Load struct {
	Name     string // of the file, without its extension, or of the strategy
	StartNs  int64  // first send, client's clock
	EndNs    int64  // 1 ns after the last chunk that came last; 0: no request yet
	IsClosed bool   // the client bounded its concurrent requests

	file string
}

// newLoad returns the load of a file, without requests yet. It is named like the file, and like its folder too where
// a client file of another folder has the same name; with its extension where a load of another file has this name
// (bench.json and bench.jsonl): a phase is of one file.
func (c *Reader) newLoad(file string) *Load {
	name, _ := stemOf(path.Base(file))
	for i := range c.Names {
		other := c.Names[i].Name
		if otherName, _ := stemOf(path.Base(other)); otherName == name && path.Dir(other) != path.Dir(file) {
			whole, _ := stemOf(file)
			name = strings.ReplaceAll(whole, "/", "-")
			break
		}
	}
	isTaken := func(l Load) bool { return l.Name == name && l.file != file }
	if slices.ContainsFunc(c.Loads, isTaken) {
		_, ext := stemOf(file)
		name += ext
	}
	return &Load{Name: name, file: file}
}

// extend widens the load's time to include a request.
func (l *Load) extend(r *trace.ObservedRequest) {
	if !r.SendNs.OK {
		return
	}
	if l.EndNs == 0 || r.SendNs.V < l.StartNs {
		l.StartNs = r.SendNs.V
	}
	l.EndNs = max(l.EndNs, r.LastChunkNs.Or(r.SendNs.V)+1)
}

// addLoad adds the load of a file whose requests have stamps.
func (c *Reader) addLoad(l *Load) {
	if l.EndNs > 0 {
		c.Loads = append(c.Loads, *l)
	}
}

// stemOf returns the stem and the extension of a file name, without the suffix of its compression.
func stemOf(path string) (stem, ext string) {
	path = strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst")
	ext = filepath.Ext(path)
	return strings.TrimSuffix(path, ext), ext
}
