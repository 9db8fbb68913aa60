package coeff

import (
	"slices"
	"strings"
)

// Version names the specification that coefficients belong to (spec#spec-version), amendments behind plus
// signs: "1.1", "1.1+queue-pole". Which versions there are is the features' matter.
type Version string

// flatVersion is the one version whose files may hold bare lists of values.
const flatVersion Version = "1.0"

// Base is the version without its amendments.
func (v Version) Base() Version {
	base, _, _ := strings.Cut(string(v), "+")
	return Version(base)
}

// Amendments are the names behind the version (spec#amendments).
func (v Version) Amendments() []string { return strings.Split(string(v), "+")[1:] }

// Has reports an amendment of the version.
func (v Version) Has(name string) bool { return slices.Contains(v.Amendments(), name) }

// With is the version with one more amendment.
func (v Version) With(name string) Version {
	names := append(v.Amendments(), name)
	slices.Sort(names)
	return Version(strings.Join(append([]string{string(v.Base())}, slices.Compact(names)...), "+"))
}

// FeatureSet identifies the features behind coefficients beyond their version's name. It is written into
// every fit and artifact and compared when they are read.
type FeatureSet struct {
	Hash  string   `json:"hash" yaml:"hash"`        // of both lists, 16 hex digits; "" in files older than it
	Beta  []string `json:"beta" yaml:"beta,flow"`   // a digest of each step term, by slot
	Alpha []string `json:"alpha" yaml:"alpha,flow"` // of each delay term
}
