package extract

// This file remembers in the output folder what was extracted from which inputs, so that a later call
// does not parse unchanged inputs again.

import (
	"bytes"
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

// cache is the content of that file: a line with the SHA-256 of the rest, and this as JSON.
type cache struct {
	Key      string        `json:"key"`                // the program and the options that affect tables or extract.json
	Rejected *result.Input `json:"rejected,omitempty"` // the rejected.jsonl that the call wrote; nil if it wrote none
	Runs     []Entry       `json:"runs"`
}

// Entry is the result of extracting one run folder, with what is needed to find out later whether
// its inputs changed.
type Entry struct {
	ID     string `json:"id"`     // of the run
	Folder string `json:"folder"` // as in RunDir
	// Deployment is a hash of the deployment as loaded, with --set and hardware.json.
	Deployment string              `json:"deployment"`
	Stamps     []fileStamp         `json:"stamps"`  // of the inputs; nil where they are too recent to be relied on
	Digest     string              `json:"digest"`  // over the names and hashes of all inputs
	Bytes      int64               `json:"bytes"`   // of the inputs as stored
	Lines      int64               `json:"lines"`   // read from them
	Results    []result.ExtractRun `json:"results"` // one for each engine run; the first has the account of records
}

// newCache returns an empty cache with the key of this program and these options.
func newCache(o *Options) *cache {
	return &cache{Key: fmt.Sprintf("%s/%s/%s/%s/%v/%d/%d/%v", table.SchemaVersion, o.ToolVersion, program(),
		o.Format, o.SplitEngines, o.MaxLine, o.MaxExpansion, o.Batches != nil)}
}

// program returns an identity of this build of the program. After a new build everything is
// extracted again.
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

// loadCache returns the cache of an output folder; nil if there is none.
func loadCache(out string) *cache {
	b, err := files.ReadAll(filepath.Join(out, cacheName))
	if err != nil {
		return nil
	}
	var c cache
	sum, text, _ := bytes.Cut(b, []byte("\n"))
	if string(sum) != sumOf(text) || json.Unmarshal(text, &c) != nil {
		return nil // an edited cache is not trusted
	}
	return &c
}

// lookup returns the entry of a run folder that has not changed: its deployment is the same, its
// tables are as they were written, and its inputs have the same names, sizes and times, or the same
// hashes if a time differs. For a changed folder, and where standard input or a pipe is read, it
// returns nil, and the inputs if it had to find them.
func (c *cache) lookup(run *RunDir, o *Options) (*Entry, *inputSet) {
	if c == nil || o.Force || o.WhyRejected || c.Key != newCache(o).Key {
		return nil, nil
	}
	i := slices.IndexFunc(c.Runs, func(e Entry) bool { return e.ID == run.ID && e.Folder == run.Folder })
	if i < 0 {
		return nil, nil
	}
	e := &c.Runs[i]
	set, err := run.findInputs()
	if err != nil {
		return nil, nil // reading the run will report the error
	}
	if e.Deployment != deploymentHash(run.Deployment) || !e.intact(o) || !set.canBeReadAgain() {
		return nil, set
	}
	// Equal stamps prove that nothing changed. Otherwise the hashes decide: a copied file has another
	// time.
	stamps := set.stamps()
	if e.Stamps == nil || !slices.Equal(stamps, e.Stamps) {
		if set.hashFiles() != nil || set.digest() != e.Digest {
			return nil, set
		}
		e.Stamps = oldEnough(stamps)
	}
	return e, set
}

// deploymentHash returns a hash of the whole deployment.
func deploymentHash(d *deploy.Deployment) string {
	b, err := json.Marshal(d)
	if err != nil {
		return "" // differs from the hash of every entry, so the run is extracted again
	}
	return sumOf(b)
}

// sumOf returns the SHA-256 of a text in hexadecimal.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// intact reports whether the tables of the entry are as they were written.
func (e *Entry) intact(o *Options) bool {
	for _, r := range e.Results {
		dir := table.RunDir(o.Out, r.ID)
		if len(readManifest(dir).Files) > len(r.TableFiles) {
			return false // a call was interrupted while it replaced tables
		}
		for _, f := range r.TableFiles {
			if !sameFile(filepath.Join(dir, f.Name), f) {
				return false
			}
		}
	}
	return e.Deployment != "" && len(e.Results) > 0
}
