package features

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

// Version is a feature-set version (spec#spec-version). It selects derived constants, features,
// input sourcing and the default target together. Amendments may stand behind it, see [Amendment].
type Version = coeff.Version

// The versions there are. V10 is frozen text, known errors included; V11 is
// corrected and the default of new training; V12 is V11 with four more step
// slots, which the library's kernel tables need. Experimental is where new terms
// are tried: its lists change from build to build, its files hold within one.
const (
	V10          Version = "1.0"
	V11          Version = "1.1"
	V12          Version = "1.2"
	Experimental Version = "experimental"
)

// Versions returns every known version, oldest first.
func Versions() []Version { return []Version{V10, V11, V12, Experimental} }

// CheckVersion returns an error with code unknown_spec_version unless v is known, with or without
// amendments.
func CheckVersion(v Version) error {
	for _, known := range Versions() {
		if v.Base() == known {
			return checkAmendments(v)
		}
	}
	return trace.Errorf(UnknownSpecVersion, "spec_version: got %q, want %s", string(v), trace.OneOf(Versions()))
}
