package extract

import (
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// readAll reads every run of an output folder, sorted by id.
func readAll(out string) ([]*trace.Run, error) {
	ids, err := table.RunIDs(out)
	if err != nil {
		return nil, err
	}
	runs := make([]*trace.Run, len(ids))
	for i, id := range ids {
		if runs[i], err = table.Read(table.RunDir(out, id)); err != nil {
			return nil, err
		}
	}
	return runs, nil
}
