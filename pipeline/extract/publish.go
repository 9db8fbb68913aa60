package extract

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/account"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace/table"
)

// Names in the output folder.
const (
	tablesDir    = "tables"
	rejectedName = "rejected.jsonl"
	documentName = "extract.json"
	stagePrefix  = ".stage-"
)

// publish puts the finished folder of a run in the place of an older one.
func publish(from, to string) error {
	old := filepath.Join(filepath.Dir(to), stagePrefix+"old-"+filepath.Base(to))
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(to, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// cleanStages removes what an interrupted call left behind.
func cleanStages(out string) error {
	entries, err := os.ReadDir(filepath.Join(out, tablesDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), stagePrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(out, tablesDir, e.Name())))
		}
	}
	return err
}

// finish writes extract.json and the cache, and removes the tables of runs
// that are not part of this call.
func finish(out string, doc *result.Extract, fresh *cache, rejects *rejects) error {
	ids, err := table.RunIDs(out)
	if err == nil {
		for _, id := range ids {
			if doc.Run(id) == nil {
				if err := os.RemoveAll(table.RunDir(out, id)); err != nil {
					return err
				}
			}
		}
	}
	if err := rejects.close(); err != nil {
		return err
	}
	b, err := result.Marshal(doc)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(out, documentName), b); err != nil {
		return err
	}
	b, err = json.Marshal(fresh)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(out, cacheName), b)
}

// writeFile writes under a temporary name and renames.
func writeFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// rejects writes rejected.jsonl; a nil one does nothing.
type rejects struct {
	tmp  *os.File
	path string
	enc  *json.Encoder
}

func openRejects(o *Options) (*rejects, error) {
	path := filepath.Join(o.Out, rejectedName)
	if !o.WhyRejected {
		return nil, nil
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(o.Out, rejectedName+".tmp*")
	if err != nil {
		return nil, err
	}
	return &rejects{tmp: tmp, path: path, enc: json.NewEncoder(tmp)}, nil
}

func (r *rejects) write(line account.Rejected) error { return r.enc.Encode(line) }

func (r *rejects) close() error {
	if r == nil || r.tmp == nil {
		return nil
	}
	err := errors.Join(r.tmp.Chmod(0o644), r.tmp.Close())
	if err == nil {
		err = os.Rename(r.tmp.Name(), r.path)
	}
	if err == nil {
		r.tmp = nil
	}
	return err
}

func (r *rejects) abort() {
	if r != nil && r.tmp != nil {
		r.tmp.Close()
		os.Remove(r.tmp.Name())
	}
}
