package export

// This file checks the options that one format of an export has (--option KEY=VALUE).

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/trace"
)

// Setting is an option of one format: --option KEY=VALUE.
type Setting struct {
	Key, Usage string // Usage is for people
	Default    string
	Number     bool // a number from Least up
	Least      float64
	OneOf      []string // the only values there are; empty: any
	// Resource: the name of a Kubernetes resource; Label: one without dots, such as that of a namespace (RFC 1123).
	Resource, Label bool
}

// Names that Kubernetes takes (RFC 1123).
var (
	labelForm    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	resourceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// mostNameLength is the longest name of a resource.
const mostNameLength = 253

// Settings are the values of a format's options by key, including those at their default.
type Settings map[string]string

// readerVersions are, by format, the only versions or commits of its reader that the format is known to
// suit; --option version=V accepts one of them. Formats that are not listed have no such option.
var readerVersions = map[Format][]string{
	FormatScenario:      {"v0.4.0", "070f510"},
	FormatRegistryHost:  {"v0.2.2", "1dd3dc7"},
	FormatKEDA:          {"947b3d6"},
	FormatEPP:           {"ebab687"},
	"vllm-sim":          {"02b4cb9"},
	"aic-fpm":           {"0.12.0", "095f58a", "0.13", "0e20230"},
	"predictor-xgboost": {"04e44cd"},
	"llmd-bulk":         {"04e44cd"},
}

// ParseSettings returns the values in words KEY=VALUE for the options of a format, those that are
// not given at their default. An unknown key or a bad value is an error of usage.
func ParseSettings(f Format, known []Setting, words []string) (Settings, error) {
	out := Settings{}
	var keys []string
	if versions := readerVersions[f]; versions != nil {
		known = append(slices.Clip(known), Setting{Key: "version", OneOf: versions})
	}
	for _, k := range known {
		out[k.Key] = k.Default
		keys = append(keys, k.Key)
	}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		i := slices.Index(keys, key)
		if i < 0 && len(keys) == 0 {
			return nil, option.Misusef("--option %s: format %s has no options", word, f)
		}
		if i < 0 || !ok {
			return nil, option.Misusef("--option: got %q, want KEY=VALUE with one of %s (format %s)", word,
				trace.OneOf(keys), f)
		}
		if known[i].Number {
			if v, err := strconv.ParseFloat(value, 64); err != nil || !(v >= known[i].Least && v <= mostNumber) {
				return nil, option.Misusef("--option %s: got %q, want a number from %g to %g", key, value,
					known[i].Least, float64(mostNumber))
			}
		}
		if len(known[i].OneOf) > 0 && !slices.Contains(known[i].OneOf, value) {
			return nil, option.Misusef("--option %s: got %q, want %s", key, value, trace.OneOf(known[i].OneOf))
		}
		if k := &known[i]; value != k.Default && (k.Label && !labelForm.MatchString(value) ||
			k.Resource && !(resourceForm.MatchString(value) && len(value) <= mostNameLength)) {
			return nil, option.Misusef("--option %s: got %q, want a name that Kubernetes takes: lower case letters, digits and -", key, value)
		}
		out[key] = value
	}
	return out, nil
}

// mostNumber is a bound of numeric options, above any sensible price, time or length.
const mostNumber = 1e12

// Float returns the value of a numeric option; 0 for a key that the format does not have.
func (s Settings) Float(key string) float64 {
	v, _ := strconv.ParseFloat(s[key], 64)
	return v
}
