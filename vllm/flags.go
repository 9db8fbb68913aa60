package vllm

// This file has the flags of `vllm serve` by release.

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/stat"
)

// shortFlags are short names that some releases have and flags.txt lacks.
var shortFlags = map[string]string{
	"-ep": "enable_expert_parallel",
	"-sc": "speculative_config",
	"-cc": "compilation_config",
	"-ac": "attention_config",
}

// FlagName returns the name of a flag as run.yaml spells it: "max_num_seqs" for "--max-num-seqs".
// Short names become the long ones.
func FlagName(flag string) string {
	for _, names := range []map[string]string{flagsRead().short, shortFlags} {
		if long, ok := names[flag]; ok {
			return long
		}
	}
	return strings.ReplaceAll(strings.TrimLeft(flag, "-"), "-", "_")
}

// IsSwitch reports whether a flag takes no value.
func IsSwitch(key string) bool { return flagsRead().kinds[key] == flagSwitch }

// IsList reports whether a flag takes several words. The lists of the web server (allowed origins,
// middleware) are one word of JSON and do not count.
func IsList(key string) bool {
	return flagsRead().kinds[key] == flagList && !strings.HasPrefix(key, "allowed_") && key != "middleware"
}

// flagText lists the flags of `vllm serve` by release, one a line: name, first and last release ("-": open), kind, short
// names. vllm/flags.py makes it from vLLM's source.
//
//go:embed flags.txt
var flagText string

// forkFlags lists flags of builds with journey and step tracing, and of releases that flags.txt does not
// cover.
//
//go:embed fork_flags.txt
var forkFlags string

// Flag is one flag of `vllm serve` with the releases that have it.
type Flag struct {
	Name  string  // as run.yaml spells it
	Since Release // the first release; zero: before the first that was read
	Until Release // the last release; zero: the newest that was read has it
	Kind  string  // switch, list or value
}

// Kinds of flags.
const (
	flagSwitch = "switch" // takes no value
	flagList   = "list"   // takes several
)

// flagTable is the content of flags.txt and fork_flags.txt.
type flagTable struct {
	flags  []Flag            // sorted by name
	kinds  map[string]string // by name
	short  map[string]string // long name by short name: "tensor_parallel_size" by "-tp"
	newest Release           // that was read
}

// flagsRead returns the two files, parsed once.
var flagsRead = sync.OnceValue(func() *flagTable {
	t := &flagTable{kinds: map[string]string{}, short: map[string]string{}}
	for line := range strings.Lines(forkFlags + flagText) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "releases":
			t.newest, _ = ParseRelease(words[len(words)-1])
		case len(words) < 4:
			panic(fmt.Sprintf("vllm: flags.txt: got line %q", line))
		default:
			f := Flag{Name: words[0], Kind: words[3]}
			f.Since, _ = ParseRelease(words[1])
			f.Until, _ = ParseRelease(words[2])
			if _, twice := t.kinds[f.Name]; !twice {
				t.flags = append(t.flags, f)
			}
			t.kinds[f.Name] = f.Kind
			for _, s := range words[4:] {
				t.short[s] = f.Name
			}
		}
	}
	stat.SortStable(t.flags, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) })
	return t
})

// AllFlags returns the flags of every known release and of the tracing fork, sorted.
func AllFlags() []Flag { return flagsRead().flags }

// IsFlag reports whether `vllm serve` of a version has a flag, named as in run.yaml.
func IsFlag(key, version string) bool {
	return slices.ContainsFunc(flagsRead().flags, func(f Flag) bool { return f.Name == key && f.isIn(version) })
}

// NewestFlags returns the newest release whose flags are known.
func NewestFlags() Release { return flagsRead().newest }

// Flags returns the names of the flags of a version, sorted.
func Flags(version string) []string {
	var names []string
	for _, f := range flagsRead().flags {
		if f.isIn(version) {
			names = append(names, f.Name)
		}
	}
	return names
}

// isIn reports whether the release of a version has the flag. A version that is not a release number
// has every flag.
func (f Flag) isIn(version string) bool {
	v, ok := ParseRelease(version)
	if !ok {
		return true
	}
	return !v.Before(f.Since) && (f.Until == Release{} || !f.Until.Before(v))
}

// IsSecret reports whether the value of a flag must not be written to run.yaml.
func IsSecret(key string) bool { return key == "api_key" || key == "hf_token" }
