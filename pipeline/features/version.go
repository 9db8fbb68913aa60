package features

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// Version is a feature-set version (spec#spec-version). It selects derived constants, features,
// input sourcing and the default target together. [Components] may stand behind all but 1.0.
type Version = coeff.Version

// The versions there are. V10 is frozen text, known errors included; V11 is
// corrected and the default of new training; V12 is V11 with four more step
// slots, which the library's kernel tables need. V13 has the slots of V12 as sums over layers
// (spec#layer-work). Experimental is where new terms are tried: its lists change from build to build, its files hold
// within one.
const (
	V10          Version = "1.0"
	V11          Version = "1.1"
	V12          Version = "1.2"
	V13          Version = "1.3"
	Experimental Version = "experimental"
)

// Versions returns every known version, oldest first.
func Versions() []Version { return []Version{V10, V11, V12, V13, Experimental} }

// Components behind a version, "1.1+principal-components", fits its step times in the leading principal components of
// the rows (spec#principal-components). The features are those of the version.
const Components = "+principal-components"

// CheckVersion returns an error with code unknown_spec_version unless v is known.
func CheckVersion(v Version) error {
	for _, known := range Versions() {
		if v == known || v == known+Components && known != V10 {
			return nil
		}
	}
	if v.InComponents() {
		return trace.Errorf(UnknownSpecVersion, "spec_version: got %q, want 1.1, 1.2, 1.3 or experimental, alone or with %s", string(v),
			Components)
	}
	return trace.Errorf(UnknownSpecVersion, "spec_version: got %q, want %s", string(v), trace.OneOf(Versions()))
}

// DefaultVersion is what a deployment's steps are read with when nobody says: the oldest of 1.1 and 1.3 that can say it
// (spec#default-version).
func DefaultVersion(d *deploy.Deployment) Version {
	if layered, err := d.CheckStepTimes(); layered && err == nil {
		return V13
	}
	return V11
}

// Layered reports a version that adds up layers, whatever they are.
func Layered(v Version) bool { return v.Base() == V13 || v.Base() == Experimental }
