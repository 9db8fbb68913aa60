package extract

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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
		set, err := run.open()
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
