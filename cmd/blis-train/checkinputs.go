package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/trace"
)

// inputsCheck is what became of the files that coefficients were made from.
type inputsCheck struct {
	Verified int `json:"verified"` // there, and the same bytes
	Changed  int `json:"changed"`
	Absent   int `json:"absent"`
}

// line is the check in words; empty where none of the files is there.
func (n inputsCheck) line() string {
	if n.Verified+n.Changed == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of %d inputs are there and unchanged", n.Verified, n.Verified+n.Changed+n.Absent)
}

// checkInputs looks for the recorded inputs below the folders, in that order, and compares their
// digests. A file that is in none is counted, and is no mismatch.
func checkInputs(inputs []coeff.Input, folders []string) (inputsCheck, []trace.Finding, error) {
	var n inputsCheck
	var out []trace.Finding
	for _, in := range inputs {
		if !filepath.IsLocal(filepath.FromSlash(in.Name)) {
			n.Absent++
			continue
		}
		path, sum, err := digestBelow(in.Name, folders)
		switch {
		case err != nil:
			return n, nil, err
		case path == "":
			n.Absent++
		case sum == in.SHA256:
			n.Verified++
		default:
			n.Changed++
			out = append(out, trace.Findingf(export.InputChanged, "%s: sha256 %.12s, the coefficients were made from %.12s", path, sum, in.SHA256))
		}
	}
	return n, out, nil
}

// digestBelow reads the first file of that name; an empty path says that there is none.
func digestBelow(name string, folders []string) (path, sum string, err error) {
	for _, folder := range folders {
		path = filepath.Join(folder, filepath.FromSlash(name))
		if st, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !st.Mode().IsRegular() {
			continue
		} else if err != nil {
			return "", "", err
		}
		f, err := os.Open(path)
		if err != nil {
			return "", "", err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", "", err
		}
		return path, hex.EncodeToString(h.Sum(nil)), nil
	}
	return "", "", nil
}
