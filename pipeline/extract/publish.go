package extract

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace/table"
)

// Names in the output folder.
const (
	tablesDir    = "tables"
	rejectedName = "rejected.jsonl"
	documentName = "extract.json"
	stagePrefix  = ".stage-blis-train-"
)

// halfWritten matches what files.Write leaves of our documents when it is killed.
var halfWritten = regexp.MustCompile(`^(\.extract-cache\.json|\.manifest\.json|(extract|fit|validation|inspect|simulation)\.json|` +
	`rejected\.jsonl|coefficients\.yaml|report\.html)\.tmp[0-9a-f]{8}$`)

// cleanStages removes what an interrupted call left behind.
func cleanStages(out string) error {
	tables := filepath.Join(out, tablesDir)
	if there, err := folderOf(tables); err != nil || !there {
		return errors.Join(err, cleanHalves(out))
	}
	entries, err := os.ReadDir(tables)
	if err != nil {
		return err
	}
	err = cleanHalves(out)
	for _, e := range entries {
		switch {
		case !e.IsDir():
		case strings.HasPrefix(e.Name(), stagePrefix):
			err = errors.Join(err, os.RemoveAll(filepath.Join(tables, e.Name())))
		case strings.HasPrefix(e.Name(), runPrefix):
			err = errors.Join(err, cleanHalves(filepath.Join(tables, e.Name())))
		}
	}
	return err
}

// cleanHalves removes half-written documents of a folder.
func cleanHalves(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() && halfWritten.MatchString(e.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// invalidate takes extract.json away before tables change, so that no later
// stage reads it beside tables it does not describe.
func invalidate(out string) error {
	err := os.Remove(filepath.Join(out, documentName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Adopt gives the tables of the entry, which stand in another output folder, their names in
// o.Out as well: links to the same files, or copies where there are no links.
func (e *Entry) Adopt(from string, o Options) error {
	for i := range e.Results {
		if err := adopt(from, &e.Results[i], &o); err != nil {
			return err
		}
	}
	return nil
}

func adopt(from string, r *result.ExtractRun, o *Options) error {
	stage := filepath.Join(o.Out, tablesDir, stagePrefix+r.ID)
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	for _, f := range r.TableFiles {
		if err := linkOrCopy(filepath.Join(table.RunDir(from, r.ID), f.Name), filepath.Join(stage, f.Name)); err != nil {
			return err
		}
	}
	return publish(stage, table.RunDir(o.Out, r.ID), r.TableFiles, o.Force)
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := files.Open(from, false)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := files.Begin(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Abort()
		return err
	}
	return out.Commit()
}

// finish removes the tables of runs that are not part of this call, then writes
// the cache, rejected.jsonl and, last, extract.json.
func finish(out string, doc *result.Extract, fresh, old *cache, rejects *rejects) error {
	tidied, err := removeRuns(out, func(id string) bool { return doc.Run(id) != nil })
	if err != nil {
		return err
	}
	if fresh.Rejected, err = rejects.sum(); err != nil {
		return err
	}
	cached, err := json.Marshal(fresh)
	if err != nil {
		return err
	}
	text, err := result.Marshal(doc)
	if err != nil {
		return err
	}
	if path := filepath.Join(out, rejectedName); rejects == nil && old != nil && old.Rejected != nil && sameFile(path, *old.Rejected) {
		if err := os.Remove(path); err != nil {
			return err
		}
		tidied.removed = append(tidied.removed, path+" (of an earlier call)")
	}
	if err := files.Write(filepath.Join(out, cacheName), cached); err != nil {
		return err
	}
	if err := rejects.close(); err != nil {
		return err
	}
	if err := files.Write(filepath.Join(out, documentName), text); err != nil {
		return err
	}
	doc.Removed, doc.Left = tidied.removed, tidied.left
	return nil
}

// rejects writes rejected.jsonl; a nil one does nothing.
type rejects struct {
	file *files.Pending
	enc  *json.Encoder
}

func openRejects(o *Options) (*rejects, error) {
	if !o.WhyRejected {
		return nil, nil
	}
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return nil, err
	}
	f, err := files.Begin(filepath.Join(o.Out, rejectedName))
	if err != nil {
		return nil, err
	}
	return &rejects{file: f, enc: json.NewEncoder(f)}, nil
}

// sum is what the file holds before it has its name.
func (r *rejects) sum() (*result.Input, error) {
	if r == nil {
		return nil, nil
	}
	in, err := inputOf(r.file.Name(), rejectedName)
	return &in, err
}

func (r *rejects) close() error {
	if r == nil {
		return nil
	}
	return r.file.Commit()
}

func (r *rejects) abort() {
	if r != nil {
		r.file.Abort()
	}
}
