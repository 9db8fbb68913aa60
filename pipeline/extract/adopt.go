package extract

// This file moves tables that another process extracted into the output folder, for extractions of
// several processes (Assemble).

import (
	"io"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace/table"
)

// Adopt puts the tables of the entry, which another process wrote into the output folder from, into
// o.Out under their final names. They are hard links, or copies where the file system has no links.
func (e *Entry) Adopt(from string, o Options) error {
	for i := range e.Results {
		if err := adopt(from, &e.Results[i], &o); err != nil {
			return err
		}
	}
	return nil
}

// adopt puts the tables of one engine run into o.Out: first into a temporary folder, from which
// publish moves them to their final names.
func adopt(from string, r *result.ExtractRun, o *Options) error {
	stage := filepath.Join(o.Out, tablesDir, stagePrefix+r.ID)
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	for _, f := range r.TableFiles {
		if err := linkOrCopy(filepath.Join(table.RunDir(from, r.ID), f.Name),
			filepath.Join(stage, f.Name)); err != nil {
			return err
		}
	}
	return publish(stage, table.RunDir(o.Out, r.ID), r.TableFiles, o.Force)
}

// linkOrCopy makes a hard link, or a copy where the file system does not allow one.
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
