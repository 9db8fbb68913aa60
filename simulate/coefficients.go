package simulate

// This file finds the coefficients of a simulation: a file's, or the library's.

import (
	"fmt"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
)

// LibraryWord means the coefficients of the embedded library where the path of a coefficient
// file is expected.
const LibraryWord = "library"

// CoefficientsFor returns the coefficients of a file and the file's description. If path is
// LibraryWord or empty, it returns the library's coefficients for the deployment, and provenance is
// a sentence with their version and how they were validated. special allows a pipe or a device.
func CoefficientsFor(path string, d *deploy.Deployment, special bool) (set *coeff.Set, in result.Input, provenance string, err error) {
	if path != "" && path != LibraryWord {
		set, in, err = folder.LoadCoefficients(path, special)
		return set, in, "", err
	}
	set, err = fit.LibraryFor(d)
	if err != nil {
		return nil, in, "", err
	}
	text, err := folder.SetBytes(set)
	provenance = fmt.Sprintf("coefficients: library %s; %s", set.Library.Version, set.Library.Judged)
	return set, folder.InputOf(LibraryWord, text), provenance, err
}
