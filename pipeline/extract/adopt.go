package extract

import (
	"io"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace/table"
)

// Adopt gives the tables of the entry, which are in another output folder, their names in o.Out: as
// hard links, or as copies where the file system has none.
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
		if err := linkOrCopy(filepath.Join(table.RunDir(from, r.ID), f.Name),
			filepath.Join(stage, f.Name)); err != nil {
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
