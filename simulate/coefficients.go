package simulate

import (
	"fmt"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
)

// LibraryWord in place of the path of a coefficient file means the embedded library.
const LibraryWord = "library"

// CoefficientsFor reads a coefficient file. Where path is LibraryWord or empty, it takes the library's
// coefficients for the deployment, and provenance is a sentence with their version and how far they can
// be trusted. special lets the file be a pipe or a device.
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
