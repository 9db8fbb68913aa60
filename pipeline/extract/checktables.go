package extract

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// CheckTables compares the tables of an output folder with its extract.json.
// Missing tables, tables of another run, other numbers of rows and tables that
// extract.json does not know are errors; a table that another program wrote
// anew is a warning, and its values are used. Codes: table_missing,
// table_foreign, table_rows, table_rewritten.
func CheckTables(out string, doc *result.Extract) ([]trace.Finding, error) {
	owner := map[string]string{} // hash of a table -> the table it was written as
	for i := range doc.Runs {
		for _, f := range doc.Runs[i].TableFiles {
			owner[f.SHA256] = filepath.Join(runPrefix+doc.Runs[i].ID, f.Name)
		}
	}
	var warnings []trace.Finding
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

// checkTable compares one table of a run: the file that will be read.
func checkTable(out string, run *result.ExtractRun, name string, owner map[string]string) ([]trace.Finding, error) {
	dir, want := table.RunDir(out, run.ID), run.Tables[name]
	in := source.Input{}
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		file := filepath.Join(dir, name+"."+string(format))
		if _, err := os.Stat(file); err == nil {
			in = source.Input{Path: file, Name: filepath.Base(file)}
			break
		}
	}
	hint := fmt.Sprintf("blis-train extract RUNDIR -o %s --force", out)
	switch {
	case in.Path == "" && want == 0:
		return nil, nil
	case in.Path == "":
		return nil, trace.Errorf(table.CodeDamaged, "%s: missing, %s counts %d rows in it",
			filepath.Join(dir, name+"."+string(table.Parquet)), documentName, want).WithHint(hint)
	case want == 0:
		return nil, trace.Errorf(table.CodeDamaged, "%s: %s knows no such table of run %s", in.Path, documentName,
			run.ID).WithHint("remove the file, or " + hint)
	}
	if err := hashFile(&in); err != nil {
		return nil, err
	}
	if slices.Contains(run.TableFiles, result.Input{Name: in.Name, Bytes: in.Size, SHA256: in.Sum}) {
		return nil, nil
	}
	if was := owner[in.Sum]; was != "" {
		return nil, trace.Errorf(table.CodeDamaged, "%s: this is %s", in.Path, was).WithHint(hint)
	}
	n, err := table.CountRows(in.Path, name)
	if err != nil {
		return nil, err
	}
	if n != want {
		return nil, trace.Errorf(table.CodeDamaged, "%s: got %d rows, %s counts %d", in.Path, n, documentName, want).WithHint(hint)
	}
	return []trace.Finding{trace.Findingf(table.CodeDamaged, "%s is not the file that extract wrote; its values are used as they stand",
		path.Join(tablesDir, runPrefix+run.ID, in.Name))}, nil
}
