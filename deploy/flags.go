package deploy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/stat"
)

// flagText lists the flags of `vllm serve` by release: made by deploy/vllm_flags.py.
//
//go:embed vllm_flags.txt
var flagText string

//go:embed fork_flags.txt
var forkFlags string

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
)

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
	for line := range strings.Lines(forkFlags + flagText) {
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
			target, own := ownFlags[f.name]
			if _, twice := t.kinds[f.name]; !twice && (!own || strings.HasPrefix(target, "tracing.")) {
				t.flags = append(t.flags, f)
			}
			t.kinds[f.name] = f.kind
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
	return slices.ContainsFunc(flagsRead().flags, func(f serveFlag) bool { return f.name == key && f.in(version) })
}

// ServeFlags lists the flags of the stated version, sorted.
func ServeFlags(version string) []string {
	known := stat.Filter(flagsRead().flags, func(f serveFlag) bool { return f.in(version) })
	return stat.Map(known, func(f serveFlag) string { return f.name })
}

func (f serveFlag) in(version string) bool {
	v, ok := parseVersion(version)
	if !ok {
		return true
	}
	return !less(v, f.since) && (f.until == [2]int{} || !less(f.until, v))
}

func less(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }
