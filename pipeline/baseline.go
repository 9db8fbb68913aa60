package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// ReadBaseline reads what Baseline names before anything is written: it may be the very
// folder whose files are to be replaced. nil: it names nothing.
func (o *ValidateOptions) ReadBaseline() (*export.Old, error) {
	if o.Baseline == "" {
		return nil, nil
	}
	return oldOf(o.Baseline, o.Special, o.Warn)
}

// oldOf reads a validation.json, a coefficient file, or a folder with either or both.
func oldOf(path string, special bool, warn func([]trace.Finding)) (*export.Old, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return oldFolder(path, special, warn)
	}
	if strings.HasSuffix(path, ".json") {
		old := &export.Old{Name: path}
		return old, addOldValidation(old, path, warn)
	}
	set, _, err := folder.LoadCoefficients(path, special)
	if err != nil {
		return nil, err
	}
	return export.OldSet(path, set), nil
}

func oldFolder(dir string, special bool, warn func([]trace.Finding)) (*export.Old, error) {
	old := &export.Old{Name: dir}
	set, _, setErr := folder.LoadCoefficients(filepath.Join(dir, folder.CoefficientsFile), special)
	switch {
	case setErr == nil:
		old = export.OldSet(dir, set)
	case !errors.Is(setErr, fs.ErrNotExist):
		return nil, setErr
	}
	err := addOldValidation(old, filepath.Join(dir, folder.ValidationFile), warn)
	if errors.Is(err, fs.ErrNotExist) {
		if err = nil; setErr != nil {
			err = trace.Hinted(fmt.Errorf("%s: got neither %s nor %s, want what an older validation left", dir, folder.ValidationFile,
				folder.CoefficientsFile), "blis-train validate "+dir)
		}
	}
	return old, err
}

func addOldValidation(old *export.Old, path string, warn func([]trace.Finding)) error {
	v := &result.Validation{}
	if err := folder.ReadDocument(path, v, warn); err != nil {
		return err
	}
	old.AddValidation(v)
	return nil
}

// changes compares with the baseline; nil without one.
func (o *ValidateOptions) changes(in Judged, val *result.Validation) (*result.Changes, error) {
	if in.Old == nil {
		return nil, nil
	}
	if o.Coefficients != "" {
		set, _, err := folder.LoadCoefficients(o.Coefficients, o.Special)
		return export.Since(in.Old, val, set), err
	}
	set, err := fit.Native(in.Fit, val)
	return export.Since(in.Old, val, set), err
}
