package pipeline

// This file chooses runs by their ids.

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Filter chooses runs by id.
type Filter struct {
	Only    []string // globs; none: every run
	Exclude []string // globs
}

// checkGlobs returns an error for a malformed glob.
func (f *Filter) checkGlobs() error {
	for _, glob := range slices.Concat(f.Only, f.Exclude) {
		if _, err := path.Match(glob, ""); err != nil {
			return option.Misusef("--only, --exclude: got %q, want a glob over run ids such as 'h100-*'", glob)
		}
	}
	return nil
}

// anyMatches reports whether any glob matches the id.
func anyMatches(globs []string, id string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, id); return ok })
}

// warnUnmatched warns about the globs that match no run. warn may be nil.
func (f *Filter) warnUnmatched(ids []string, warn func([]trace.Finding)) {
	if warn == nil {
		return
	}
	for _, glob := range slices.Concat(f.Only, f.Exclude) {
		if slices.ContainsFunc(ids, func(id string) bool { return anyMatches([]string{glob}, id) }) {
			continue
		}
		warn([]trace.Finding{trace.Findingf(extract.CodeNoRuns,
			"--only, --exclude: no run is named %q; there are %s", glob, firstIDs(ids))})
	}
}

// Rejected returns the ids of the runs of an extracted folder that the filter rejects, and an error
// if it rejects all of them. warn, which may be nil, gets a warning for each glob that matches no
// run.
func (f *Filter) Rejected(ext *result.Extract, warn func([]trace.Finding)) ([]string, error) {
	if err := f.checkGlobs(); err != nil {
		return nil, err
	}
	var out, all []string
	for i := range ext.Runs {
		id := ext.Runs[i].ID
		all = append(all, id)
		if anyMatches(f.Exclude, id) || len(f.Only) > 0 && !anyMatches(f.Only, id) {
			out = append(out, id)
		}
	}
	if len(out) > 0 && len(out) == len(all) {
		return nil, trace.Errorf(extract.CodeNoRuns, "--only and --exclude leave no run; there are %s", firstIDs(all))
	}
	f.warnUnmatched(all, warn)
	return out, nil
}

// firstIDs returns the first eight ids and the number of the others, as text.
func firstIDs(ids []string) string {
	const most = 8
	if n := len(ids) - most; n > 0 {
		return strings.Join(ids[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(ids, ", ")
}
