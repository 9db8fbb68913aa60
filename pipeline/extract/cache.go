package extract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace/table"
)

const cacheName = ".extract-cache.json"

// cache remembers what was extracted from which bytes, so that unchanged
// inputs are not parsed again.
type cache struct {
	Key  string       `json:"key"` // schema, tool and options that change tables
	Runs []cacheEntry `json:"runs"`
}

// cacheEntry is one run folder.
type cacheEntry struct {
	ID      string              `json:"id"`
	Folder  string              `json:"folder"`
	Stamps  []fileStamp         `json:"stamps"`
	Digest  string              `json:"digest"` // over the names and hashes of all inputs
	Bytes   int64               `json:"bytes"`
	Lines   int64               `json:"lines"`
	Results []result.ExtractRun `json:"results"`
}

// fileStamp is what a file looked like.
type fileStamp struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	ModTime int64  `json:"mod_time_ns"`
}

func newCache(o *Options) *cache {
	return &cache{Key: fmt.Sprintf("%s/%s/%s/%s/%v/%d/%d", table.SchemaVersion, o.ToolVersion, o.Parser, o.Format, o.SplitEngines, o.MaxLine, o.MaxExpansion)}
}

// loadCache reads the cache of an output folder; nil when there is none that fits.
func loadCache(out string, o *Options) *cache {
	if o.Force || o.WhyRejected {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(out, cacheName))
	if err != nil {
		return nil
	}
	var c cache
	if json.Unmarshal(b, &c) != nil || c.Key != newCache(o).Key {
		return nil
	}
	return &c
}

// lookup returns the entry of an unchanged run: same names, sizes and times,
// or, where a time moved, the same hashes; and its tables are still there.
func (c *cache) lookup(run *RunDir, o *Options) *cacheEntry {
	if c == nil {
		return nil
	}
	for i := range c.Runs {
		e := &c.Runs[i]
		if e.ID != run.ID || e.Folder != run.Folder {
			continue
		}
		x := extraction{run: run, o: o}
		set, err := x.open()
		if err != nil || !e.intact(o) {
			return nil
		}
		stamps := set.stamps()
		if !slices.Equal(stamps, e.Stamps) {
			if set.hash() != nil || set.digest() != e.Digest {
				return nil
			}
			e.Stamps = stamps
		}
		return e
	}
	return nil
}

// intact reports whether the tables of the entry exist.
func (e *cacheEntry) intact(o *Options) bool {
	for _, r := range e.Results {
		for name := range r.Tables {
			if !exists(filepath.Join(table.RunDir(o.Out, r.ID), name+"."+string(o.Format))) {
				return false
			}
		}
	}
	return len(e.Results) > 0
}

func (e *cacheEntry) inputs() []result.Input {
	var out []result.Input
	for _, f := range e.Results[0].Files {
		out = append(out, f.Input)
	}
	return out
}

// inputSet is the files of one run folder.
type inputSet struct {
	config, traces, kv, clients []input
}

// open resolves the file names of a run.
func (x *extraction) open() (*inputSet, error) {
	s := &inputSet{}
	var err error
	d := x.run
	if s.traces, err = d.traces(); err != nil {
		return nil, err
	}
	if s.kv, err = d.inputs(d.Deployment.Files.KVEvents); err != nil {
		return nil, err
	}
	if s.clients, err = d.inputs(d.Deployment.Files.ClientRequests); err != nil {
		return nil, err
	}
	for _, name := range []string{deploy.RunFile, "config.json"} {
		if p := filepath.Join(d.Dir, name); exists(p) {
			in := input{path: p, name: d.relative(p)}
			if err := in.hash(); err != nil {
				return nil, err
			}
			s.config = append(s.config, in)
		}
	}
	return s, nil
}

// hash fills size and sum by reading the file.
func (in *input) hash() error {
	f, err := os.Open(in.path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	in.size, err = io.Copy(h, f)
	in.sum = hex.EncodeToString(h.Sum(nil))
	return err
}

// kinds lists the files with what they are, in a fixed order.
func (s *inputSet) kinds() []struct {
	kind string
	list []input
} {
	return []struct {
		kind string
		list []input
	}{{"configuration", s.config}, {"traces", s.traces}, {"kv_events", s.kv}, {"client_requests", s.clients}}
}

func (s *inputSet) files() []result.ExtractFile {
	out := []result.ExtractFile{}
	for _, k := range s.kinds() {
		for _, f := range k.list {
			out = append(out, result.ExtractFile{Kind: k.kind, Input: result.Input{Name: f.name, Bytes: f.size, SHA256: f.sum}})
		}
	}
	return out
}

// hash reads every file to fill its sum.
func (s *inputSet) hash() error {
	for _, k := range s.kinds() {
		for i := range k.list {
			if err := k.list[i].hash(); err != nil {
				return err
			}
		}
	}
	return nil
}

// digest is one hash over names and hashes.
func (s *inputSet) digest() string {
	h := sha256.New()
	for _, f := range s.files() {
		fmt.Fprintf(h, "%s %s %s\n", f.Kind, f.Name, f.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// stamps are the names, sizes and times of the files; standard input has none,
// so that it is always read.
func (s *inputSet) stamps() []fileStamp {
	var out []fileStamp
	for _, k := range s.kinds() {
		for _, f := range k.list {
			st, err := os.Stat(f.path)
			if err != nil {
				out = append(out, fileStamp{Name: f.name, Bytes: -1, ModTime: -1})
				continue
			}
			out = append(out, fileStamp{f.name, st.Size(), st.ModTime().UnixNano()})
		}
	}
	return out
}

// bytes is the size of all files as they stand.
func (s *inputSet) bytes() int64 {
	n := int64(0)
	for _, f := range s.stamps() {
		n += max(0, f.Bytes)
	}
	return n
}
