package export

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// Inputs is what became of the files that coefficients were made from.
type Inputs struct {
	Verified int `json:"verified"` // there, and the same bytes
	Changed  int `json:"changed"`
	Absent   int `json:"absent"`
}

// CheckInputs looks for the recorded inputs below a folder and compares their digests. A file
// that is not there is counted, and is no mismatch.
func CheckInputs(inputs []coeff.Input, dir string) (n Inputs, changed []trace.Finding, err error) {
	for _, in := range inputs {
		path := filepath.Join(dir, filepath.FromSlash(in.Name))
		st, err := os.Stat(path)
		switch {
		case !filepath.IsLocal(filepath.FromSlash(in.Name)), errors.Is(err, fs.ErrNotExist), err == nil && !st.Mode().IsRegular():
			n.Absent++
			continue
		case err != nil:
			return n, nil, err
		}
		_, sum, err := files.Hash(path)
		switch {
		case err != nil:
			return n, nil, err
		case sum == in.SHA256:
			n.Verified++
		default:
			n.Changed++
			changed = append(changed, trace.Findingf(inputChanged, "%s: sha256 %.12s, the coefficients were made from %.12s", path, sum, in.SHA256))
		}
	}
	return n, changed, nil
}
