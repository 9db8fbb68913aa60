package features

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// SetOf identifies the feature lists of a version; the zero value for an unknown one.
func SetOf(v Version) coeff.FeatureSet {
	s := coeff.FeatureSet{Beta: digests(BetaFeatures(v)), Alpha: digests(AlphaFeatures(v))}
	if s.Beta != nil {
		s.Hash = digest(16, strings.Join(s.Beta, " "), strings.Join(s.Alpha, " "))
	}
	return s
}

// digest identifies what a coefficient of the feature multiplies: 6 hex digits
// of SHA-256 over name, kind, formula, bound and whether it is prompt work.
func (f *Feature) digest() string {
	return digest(6, f.Name, string(f.Kind), f.Formula, fmt.Sprint(f.Bound), fmt.Sprint(f.Prompt))
}

func digest(digits int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])[:digits]
}

func digests(fs []Feature) []string {
	return stat.Map(fs, func(f Feature) string { return f.digest() })
}

// checkFeatures compares the feature set of a file with this build's for the version. beta and
// alpha are the names of the file's terms, to say which differ; nil alpha: the
// file has none. A file without a set passes. Code: wrong_feature_set.
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

// differences names the terms that two lists of digests do not share. names
// are those of the file, as far as it has them.
func differences(got, names, want []string, fs []Feature) []string {
	var out []string
	ours := Names(fs)
	for i, name := range names {
		k := slices.Index(ours, name)
		switch {
		case k < 0:
			out = append(out, name+" is not in this build")
		case i < len(got) && got[i] != want[k]:
			out = append(out, name+" has another definition")
		}
	}
	for _, name := range ours {
		if len(names) > 0 && !slices.Contains(names, name) {
			out = append(out, name+" is not in the file")
		}
	}
	return out
}
