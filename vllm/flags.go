package vllm

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/stat"
)

// shortFlags are aliases that one release or another has beside those of its list.
var shortFlags = map[string]string{"-ep": "enable_expert_parallel", "-sc": "speculative_config", "-cc": "compilation_config",
	"-ac": "attention_config"}

// secrets never enter run.yaml.
var secrets = []string{"api_key", "hf_token"}

// FlagName is a flag's name in run.yaml's spelling.
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

// IsList reports whether a flag takes several values. Those of the web server are
// one word of JSON.
func IsList(key string) bool {
	return flagsRead().kinds[key] == flagList && !strings.HasPrefix(key, "allowed_") && key != "middleware"
}

// flagText lists the flags of `vllm serve` by release: made by vllm/flags.py.
//
//go:embed flags.txt
var flagText string

//go:embed fork_flags.txt
var forkFlags string

// Flag is one flag of `vllm serve` with the versions that have it; zero
// since and until are unbounded.
type Flag struct {
	Name         string
	Since, Until Release // first and last minor version
	Kind         string  // switch, list or value
}

// Kinds of flags.
const (
	flagSwitch = "switch" // takes no value
	flagList   = "list"   // takes several
)

// flagTable is the list of flags, sorted by
// name; every flag's kind; the short names; the newest release that was read.
type flagTable struct {
	flags        []Flag
	kinds, short map[string]string
	newest       Release
}

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

// AllFlags are the flags of every release that was read and of the tracing fork, sorted.
func AllFlags() []Flag { return flagsRead().flags }

// IsFlag reports whether `vllm serve` of the stated version knows the
// flag (underscores, no leading dashes).
func IsFlag(key, version string) bool {
	return slices.ContainsFunc(flagsRead().flags, func(f Flag) bool { return f.Name == key && f.in(version) })
}

// NewestFlags is the newest release whose flags were read.
func NewestFlags() Release { return flagsRead().newest }

// Flags lists the flags of the stated version, sorted.
func Flags(version string) []string {
	known := stat.Filter(flagsRead().flags, func(f Flag) bool { return f.in(version) })
	return stat.Map(known, func(f Flag) string { return f.Name })
}

func (f Flag) in(version string) bool {
	v, ok := ParseRelease(version)
	if !ok {
		return true
	}
	return !v.Before(f.Since) && (f.Until == Release{} || !f.Until.Before(v))
}

func IsSecret(key string) bool { return slices.Contains(secrets, key) }
