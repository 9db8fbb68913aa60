package export

import (
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/trace"
)

// Setting is an option of one format: --option KEY=VALUE.
type Setting struct {
	Key, Usage string
	Default    string
	Number     bool     // a number from 0 up
	OneOf      []string // the only values there are; empty: any
}

// Settings are the options of a format by key, every one of them there.
type Settings map[string]string

// ParseSettings reads KEY=VALUE words against what a format has. A key that it lacks, or a
// value that is none, is a misuse.
func ParseSettings(f Format, known []Setting, words []string) (Settings, error) {
	out := Settings{}
	var keys []string
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
			return nil, option.Misusef("--option: got %q, want KEY=VALUE with one of %s (format %s)", word, trace.OneOf(keys), f)
		}
		if known[i].Number {
			if v, err := strconv.ParseFloat(value, 64); err != nil || !(v >= 0 && v <= mostNumber) {
				return nil, option.Misusef("--option %s: got %q, want a number from 0 to %g", key, value, float64(mostNumber))
			}
		}
		if len(known[i].OneOf) > 0 && !slices.Contains(known[i].OneOf, value) {
			return nil, option.Misusef("--option %s: got %q, want %s", key, value, trace.OneOf(known[i].OneOf))
		}
		out[key] = value
	}
	return out, nil
}

// mostNumber is above any price, time or length.
const mostNumber = 1e12

// Float is the value of a number; 0 where the format has none of that key.
func (s Settings) Float(key string) float64 {
	v, _ := strconv.ParseFloat(s[key], 64)
	return v
}
