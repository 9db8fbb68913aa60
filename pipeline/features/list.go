package features

// This file lists the versions of the features and identifies them by digests, so that coefficients
// are never used with other features than they were fitted to.

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// lists has the slots of one version in order: beta of step times, alpha of queueing delays.
type lists struct{ beta, alpha []Feature }

// experimental has the slots that follow those of 1.3 while they are tried. A new feature is one file
// that declares it and one line at the end of a list here; lengths of all vectors follow from the lists.
var experimental = lists{
	beta: []Feature{
		// new slots of steps
	},
	alpha: []Feature{
		// new slots of queueing delays
	},
}

// versions has the lists of every version, with slot numbers.
var versions = map[Version]*lists{
	V10: numbered(lists10),
	V11: numbered(lists11),
	V12: numbered(lists12),
	V13: numbered(lists13),
	Experimental: numbered(lists{
		beta:  slices.Concat(lists13.beta, experimental.beta),
		alpha: slices.Concat(lists13.alpha, experimental.alpha),
	}),
}

// numbered returns a copy of the lists with slots and single-configuration penalties set.
func numbered(l lists) *lists {
	out := &lists{beta: slices.Clone(l.beta), alpha: slices.Clone(l.alpha)}
	for _, features := range [][]Feature{out.beta, out.alpha} {
		for i := range features {
			features[i].Slot = i + 1
			features[i].PenaltyOne = cmp.Or(features[i].PenaltyOne, features[i].Penalty)
		}
	}
	return out
}

// listsOf returns the lists of a version; nil for an unknown one.
func listsOf(v Version) *lists {
	if CheckVersion(v) != nil {
		return nil
	}
	return versions[v.Base()]
}

// Version is a feature-set version (spec#spec-version). It selects derived constants, features, input
// sourcing and the default target together. [Components] may be appended to all versions but 1.0.
type Version = coeff.Version

// The versions. V10 is frozen, known errors included. V11 corrects it and is the default of new
// training. V12 is V11 with four more step slots, which the library's kernel tables need. V13 has the
// slots of V12 as sums over layers (spec#layer-work). Experimental is for new terms: its lists change
// from build to build, so its files can be used only by the build that wrote them.
const (
	V10          Version = "1.0"
	V11          Version = "1.1"
	V12          Version = "1.2"
	V13          Version = "1.3"
	Experimental Version = "experimental"
)

// Of returns the features of a known version, in order: those of steps, and those of delays.
func Of(v Version) (beta, alpha []Feature) {
	l := listsOf(v)
	return l.beta, l.alpha
}

// Versions returns every known version, oldest first.
func Versions() []Version { return []Version{V10, V11, V12, V13, Experimental} }

// Components is the suffix of a version, "1.1+principal-components", that fits step times in the
// leading principal components of the rows (spec#principal-components). The features are those of
// the version.
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

// DefaultVersion returns the version for a deployment that does not state one: 1.1, or 1.3 if only
// that can represent its layers (spec#default-version).
func DefaultVersion(d *deploy.Deployment) Version {
	if layered, err := d.CheckStepTimes(); layered && err == nil {
		return V13
	}
	return V11
}

// Layered reports whether a version's features are sums over the layers of a model.
func Layered(v Version) bool { return v.Base() == V13 || v.Base() == Experimental }

// SetOf returns digests of the feature lists of a version, by which a file identifies them; the
// zero value for an unknown version.
func SetOf(v Version) coeff.FeatureSet {
	s := coeff.FeatureSet{Beta: digests(BetaFeatures(v)), Alpha: digests(AlphaFeatures(v))}
	if s.Beta != nil {
		s.Hash = digest(16, strings.Join(s.Beta, " "), strings.Join(s.Alpha, " "))
	}
	return s
}

// digest returns the identity of the quantity that a coefficient of the feature multiplies: 6 hex
// digits of SHA-256 over name, kind, formula, bound and whether it is prompt work.
func (f *Feature) digest() string {
	return digest(6, f.Name, string(f.Kind), f.Formula, fmt.Sprint(f.Bound), fmt.Sprint(f.Prompt))
}

// digest returns the first hex digits of SHA-256 over the parts.
func digest(digits int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])[:digits]
}

// digests returns the digests of features.
func digests(fs []Feature) []string {
	var out []string
	for _, f := range fs {
		out = append(out, f.digest())
	}
	return out
}

// checkFeatures compares the feature set of a file with that of this build for the version. beta and alpha
// are the names of the file's terms, for the message; alpha is nil if the file has none. A file without a
// recorded set passes. Code: wrong_feature_set.
func checkFeatures(s coeff.FeatureSet, v Version, beta, alpha []string) error {
	want := SetOf(v)
	if s.Hash == "" || s.Hash == want.Hash {
		return nil
	}
	differ := append(differences(s.Beta, beta, want.Beta, BetaFeatures(v)), differences(s.Alpha, alpha, want.Alpha, AlphaFeatures(v))...)
	if len(differ) == 0 {
		differ = []string{"another order of terms"}
	}
	return trace.Errorf(WrongFeatureSet, "feature_set: got %s, want %s, this build's %s: %s", s.Hash, want.Hash, v,
		strings.Join(differ, "; ")).
		WithHint("use the blis-train that made the file, or fit again")
}

// differences returns a remark on each term by which the features of a file differ from this build's. names
// are the file's terms and got their digests, in the same order; fs are the build's features and want their
// digests. A file without names gives no remark.
func differences(got, names, want []string, fs []Feature) []string {
	var out []string
	own := Names(fs)
	for i, name := range names {
		k := slices.Index(own, name)
		switch {
		case k < 0:
			out = append(out, name+" is not in this build")
		case i < len(got) && got[i] != want[k]:
			out = append(out, name+" has another definition")
		}
	}
	for _, name := range own {
		if len(names) > 0 && !slices.Contains(names, name) {
			out = append(out, name+" is not in the file")
		}
	}
	return out
}

// Hits is the set of slots whose raw value exceeded its bound (spec#bound-hits): bit s-1 belongs to
// slot s.
type Hits uint32

// has reports whether the 1-based slot hit its bound.
func (h Hits) has(slot int) bool { return h>>(slot-1)&1 == 1 }

// count returns the number of slots that hit their bound.
func (h Hits) count() int { return bits.OnesCount32(uint32(h)) }

// Slots returns the 1-based slots that hit their bound, ascending.
func (h Hits) Slots() []int {
	slots := make([]int, 0, h.count())
	for s := 1; s <= 32; s++ {
		if h.has(s) {
			slots = append(slots, s)
		}
	}
	return slots
}
