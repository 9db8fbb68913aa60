package extract

// This file checks, before later stages use them, that the tables of an output folder are those that
// its extract.json describes.

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// CheckTables compares the tables of an output folder with its extract.json. Missing tables, tables
// of another run, other numbers of rows, and tables that extract.json does not list are errors. For
// a table that another program has rewritten it returns a warning, because its values can be used.
// Code of the errors: that of a damaged table.
func CheckTables(out string, doc *result.Extract) ([]trace.Finding, error) {
	owner := map[string]string{} // hash of a table -> the name under which it was written
	for i := range doc.Runs {
		for _, f := range doc.Runs[i].TableFiles {
			owner[f.SHA256] = filepath.Join(runPrefix+doc.Runs[i].ID, f.Name)
		}
	}
	var warnings []trace.Finding
	if len(doc.LeftOut) > 0 {
		warnings = append(warnings, trace.Findingf(codeNoInput,
			"%d runs could not be extracted and are missing: %s", len(doc.LeftOut),
			strings.Join(doc.LeftOut, ", ")))
	}
	for i := range doc.Runs {
		for _, t := range table.Tables {
			w, err := checkTable(out, &doc.Runs[i], t.Name, owner)
			if err != nil {
				return nil, err
			}
			warnings = append(warnings, w...)
		}
	}
	return warnings, nil
}

// checkTable returns the warnings and the error of CheckTables for one table of a run. owner maps the
// hash of every table of the document to the name under which it was written, to recognise a table
// of another run.
func checkTable(out string, run *result.ExtractRun, name string, owner map[string]string) ([]trace.Finding, error) {
	dir := table.RunDir(out, run.ID)
	want := run.Tables[name]
	file := "" // the table; "" if there is none
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		if path := filepath.Join(dir, name+"."+string(format)); file == "" && exists(path) {
			file = path
		}
	}
	hint := fmt.Sprintf("blis-train extract RUNDIR -o %s --force", out)
	switch {
	case file == "" && want == 0:
		return nil, nil
	case file == "":
		return nil, trace.Errorf(table.CodeDamaged, "%s: missing, %s counts %d rows in it",
			filepath.Join(dir, name+"."+string(table.Parquet)), documentName, want).WithHint(hint)
	case want == 0:
		return nil, trace.Errorf(table.CodeDamaged, "%s: %s knows no such table of run %s", file, documentName,
			run.ID).WithHint("remove the file, or " + hint)
	}
	in, err := inputOf(file, filepath.Base(file))
	if err != nil || slices.Contains(run.TableFiles, in) { // it is as extract wrote it
		return nil, err
	}
	if was := owner[in.SHA256]; was != "" {
		return nil, trace.Errorf(table.CodeDamaged, "%s: this is %s", file, was).WithHint(hint)
	}
	// Another program wrote the file. It is used if it has as many rows.
	n, err := table.CountRows(file, name)
	if err != nil {
		return nil, err
	}
	if n != want {
		return nil, trace.Errorf(table.CodeDamaged, "%s: got %d rows, %s counts %d", file, n, documentName,
			want).WithHint(hint)
	}
	return []trace.Finding{trace.Findingf(table.CodeDamaged,
		"%s is not the file that extract wrote; its values are used as they stand",
		path.Join(tablesDir, runPrefix+run.ID, in.Name))}, nil
}
