package extract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace/table"
)

const cacheName = ".extract-cache.json"

// cache remembers what was extracted from which bytes, so that unchanged
// inputs are not parsed again.
type cache struct {
	Key      string        `json:"key"` // program and options that change tables or extract.json
	Rejected *result.Input `json:"rejected,omitempty"`
	Runs     []Entry       `json:"runs"`
}

// Entry is what extracting one run folder gave.
type Entry struct {
	ID         string              `json:"id"`
	Folder     string              `json:"folder"`
	Deployment string              `json:"deployment"` // hash of the deployment as loaded: --set, hardware.json and all
	Stamps     []fileStamp         `json:"stamps"`     // nil where they are too young to tell
	Digest     string              `json:"digest"`     // over the names and hashes of all inputs
	Bytes      int64               `json:"bytes"`
	Lines      int64               `json:"lines"`
	Results    []result.ExtractRun `json:"results"`
}

func newCache(o *Options) *cache {
	return &cache{Key: fmt.Sprintf("%s/%s/%s/%s/%v/%d/%d/%v", table.SchemaVersion, o.ToolVersion, program(),
		o.Format, o.SplitEngines, o.MaxLine, o.MaxExpansion, o.Batches != nil)}
}

// program tells builds of this program apart: another one reads everything again.
func program() string {
	name, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	st, err := os.Stat(name)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d-%d", st.Size(), st.ModTime().UnixNano())
}

// loadCache reads the cache of an output folder; nil without one.
func loadCache(out string) *cache {
	b, err := files.ReadAll(filepath.Join(out, cacheName))
	if err != nil {
		return nil
	}
	var c cache
	if json.Unmarshal(b, &c) != nil {
		return nil
	}
	return &c
}

// lookup returns the entry of an unchanged run: same deployment, and the same
// names, sizes and times of its inputs or, where a time moved, the same hashes;
// and its tables are those that were written.
func (c *cache) lookup(run *RunDir, o *Options) *Entry {
	if c == nil || o.Force || o.WhyRejected || c.Key != newCache(o).Key {
		return nil
	}
	for i := range c.Runs {
		e := &c.Runs[i]
		if e.ID != run.ID || e.Folder != run.Folder {
			continue
		}
		set, err := run.open()
		if err != nil || e.Deployment != deploymentHash(run.Deployment) || !e.intact(o) {
			return nil
		}
		stamps := set.stamps()
		if e.Stamps == nil || !slices.Equal(stamps, e.Stamps) {
			if set.hash() != nil || set.digest() != e.Digest {
				return nil
			}
			e.Stamps = oldEnough(stamps)
		}
		return e
	}
	return nil
}

// deploymentHash is a hash of everything that was said of the deployment.
func deploymentHash(d *deploy.Deployment) string {
	b, err := json.Marshal(d)
	if err != nil {
		return "" // no entry has it
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// intact reports whether the tables of the entry stand as they were written.
func (e *Entry) intact(o *Options) bool {
	for _, r := range e.Results {
		dir := table.RunDir(o.Out, r.ID)
		changed := func(f result.Input) bool { return !sameFile(filepath.Join(dir, f.Name), f) }
		if len(readManifest(dir).Files) > len(r.TableFiles) || slices.ContainsFunc(r.TableFiles, changed) { // a call ended while it wrote
			return false
		}
	}
	return e.Deployment != "" && len(e.Results) > 0
}
