package extract

import (
	"fmt"
	"path/filepath"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// This file reads extract.json for the stages after extraction.

// ReadDocument returns extract.json of an output folder, after it has compared the tables of the
// folder with it. warn, unless nil, is called with a document that was changed, and with tables
// that another program has rewritten; both are used as they are. Codes: those of CheckTables.
func ReadDocument(dir string, warn func([]trace.Finding)) (*result.Extract, error) {
	doc := &result.Extract{}
	if err := folder.ReadDocument(filepath.Join(dir, folder.ExtractFile), doc, warn); err != nil {
		hint := fmt.Sprintf("blis-train extract RUNDIR -o %s", dir)
		// The folder of recordings was given in place of the output folder.
		if runs, _ := Discover([]string{dir}); len(runs) > 0 {
			hint = fmt.Sprintf("%s holds recordings: blis-train extract %s -o OUT", dir, dir)
		}
		return nil, trace.Hinted(err, hint)
	}
	warnings, err := CheckTables(dir, doc)
	if warn != nil && len(warnings) > 0 {
		warn(warnings)
	}
	return doc, err
}
