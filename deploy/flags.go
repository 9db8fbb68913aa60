package deploy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// flagText lists the flags of `vllm serve` by release: made by deploy/vllm_flags.py.
//
//go:embed vllm_flags.txt
var flagText string

// serveFlag is one flag of `vllm serve` with the versions that have it; zero
// since and until are unbounded.
type serveFlag struct {
	name         string
	since, until [2]int // first and last minor version
	kind         string // switch, list or value
}

// Kinds of flags.
const (
	flagSwitch = "switch" // takes no value
	flagList   = "list"   // takes several
	flagPlain  = "value"
)

// forkFlags are flags of vLLM builds with journey and step tracing, and of releases
// between those that were read.
var forkFlags = []serveFlag{
	{"enable_journey_tracing", always, always, flagSwitch}, {"enable_response_messages", always, always, flagSwitch},
	{"exclude_log_deltas", always, always, flagSwitch}, {"journey_tracing_sample_rate", always, always, flagPlain},
	{"model_tag", always, always, flagPlain}, {"spec_decoding_acceptance_method", always, always, flagPlain},
	{"step_tracing_closure_interval", always, always, flagPlain}, {"step_tracing_enabled", always, always, flagSwitch},
	{"step_tracing_rich_subsample_rate", always, always, flagPlain}, {"step_tracing_sample_rate", always, always, flagPlain},
}

var always = [2]int{} // an open end

// flagTable is the list of flags: those that run.yaml keeps as provenance, sorted by
// name; every flag's kind; the short names; the newest release that was read.
type flagTable struct {
	flags        []serveFlag
	kinds, short map[string]string
	newest       [2]int
}

var flagsRead = sync.OnceValue(func() *flagTable {
	t := &flagTable{kinds: map[string]string{}, short: map[string]string{}}
	add := func(f serveFlag) {
		t.kinds[f.name] = f.kind
		if target, own := ownFlags[f.name]; !own || strings.HasPrefix(target, "tracing.") {
			t.flags = append(t.flags, f)
		}
	}
	for _, f := range forkFlags {
		add(f)
	}
	for line := range strings.Lines(flagText) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "releases":
			t.newest, _ = parseVersion(words[len(words)-1])
		case len(words) < 4:
			panic(fmt.Sprintf("deploy: vllm_flags.txt: got line %q", line))
		default:
			f := serveFlag{name: words[0], kind: words[3]}
			f.since, _ = parseVersion(words[1])
			f.until, _ = parseVersion(words[2])
			if _, twice := t.kinds[f.name]; !twice {
				add(f)
			}
			for _, s := range words[4:] {
				t.short[s] = f.name
			}
		}
	}
	slices.SortStableFunc(t.flags, func(a, b serveFlag) int { return strings.Compare(a.name, b.name) })
	return t
})

// isServeFlag reports whether the stated vLLM version's `vllm serve` knows the
// flag (in run.yaml's form: underscores, no leading dashes).
func isServeFlag(key, version string) bool {
	for _, f := range flagsRead().flags {
		if f.name == key {
			return f.in(version)
		}
	}
	return false
}

// ServeFlags lists the flags of the stated version, sorted.
func ServeFlags(version string) []string {
	var names []string
	for _, f := range flagsRead().flags {
		if f.in(version) {
			names = append(names, f.name)
		}
	}
	return names
}

func (f serveFlag) in(version string) bool {
	v, ok := parseVersion(version)
	if !ok {
		return true
	}
	return !less(v, f.since) && (f.until == [2]int{} || !less(f.until, v))
}

func less(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }
