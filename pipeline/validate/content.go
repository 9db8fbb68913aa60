package validate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Content tells a replay which prompt tokens a recorded request found in the prefix cache or
// shares with others: it fills CachedTokens, Group, Hashes or the like. Nil means no two
// prompts share any.
type Content func(o *Request, r *sim.Request)

// Shared is what is known about shared prompts, request by request.
type Shared struct {
	Content  Content
	Findings []trace.Finding
	unknown  func(o *Request) bool // nothing says what it shares, and nothing was assumed
}

// sharedGroup is the content group of requests that share what the options say; the client's
// own groups follow it.
const sharedGroup = 1

// ContentOf tells what the requests obs of a run share, best source first: the engine's own
// journeys, the cached tokens of the client's row (usage, or found from the passes), the
// prefix group that the client names. All others share their first sharedPrefix tokens;
// 0: nothing, and that is said.
func ContentOf(run *trace.Run, dep *deploy.Deployment, obs []Request, sharedPrefix int64) Shared {
	if !dep.Engine.PrefixCaching {
		return Shared{}
	}
	var s Shared
	engine := map[string]*sim.Request{}
	if w, err := workload.FromRun(run, dep, workload.RunOptions{}); err == nil {
		for i := range w.Requests {
			engine[w.Requests[i].ID] = &w.Requests[i]
		}
		for _, n := range w.Notes {
			if n.Code == workload.CodePrefixUnknown {
				s.Findings = append(s.Findings, trace.Findingf(ReplayAssumes, "run %s: %s", run.ID, n.Message))
			}
		}
	}
	groups := map[string]uint64{}
	journey := func(o *Request) *sim.Request {
		if o.Row != nil && o.Row.CoreID.OK {
			return engine[o.Row.CoreID.V]
		}
		return engine[o.ID]
	}
	s.unknown = func(o *Request) bool {
		return sharedPrefix == 0 && journey(o) == nil && (o.Row == nil || !o.Row.CachedTokens.OK && !o.Row.PrefixGroup.OK)
	}
	s.Content = func(o *Request, r *sim.Request) {
		row := o.Row
		from := journey(o)
		switch {
		case from != nil:
			r.Group, r.GroupTokens, r.Hashes, r.HashTokens = from.Group, from.GroupTokens, from.Hashes, from.HashTokens
			r.CachedTokens = from.CachedTokens
		case row != nil && row.CachedTokens.OK:
			r.CachedTokens = trace.Some(min(row.CachedTokens.V, r.PromptTokens))
		}
		switch {
		case r.Group != 0 || len(r.Hashes) > 0:
		case row != nil && row.PrefixGroup.OK:
			if groups[row.PrefixGroup.V] == 0 {
				groups[row.PrefixGroup.V] = uint64(len(groups) + sharedGroup + 1)
			}
			r.Group, r.GroupTokens = groups[row.PrefixGroup.V], min(row.PrefixTokens.V, r.PromptTokens)
		case from == nil && !r.CachedTokens.OK && sharedPrefix > 0:
			r.Group, r.GroupTokens = sharedGroup, min(sharedPrefix, r.PromptTokens)
		}
	}
	s.assumed(run, obs, sharedPrefix, journey)
	return s
}

// assumed says what stands for what nobody recorded.
func (s *Shared) assumed(run *trace.Run, obs []Request, sharedPrefix int64, journey func(*Request) *sim.Request) {
	unknown, shares, assumed := 0, 0, 0
	for i := range obs {
		o := &obs[i]
		switch {
		case s.unknown(o):
			unknown++
		case journey(o) != nil:
		case o.Row != nil && (o.Row.CachedTokens.OK || o.Row.PrefixGroup.OK):
			if o.Row.CachedMin.V != o.Row.CachedMax.V {
				shares++
			}
		default:
			assumed++
		}
	}
	say := func(n int, format string, args ...any) {
		if n > 0 {
			s.Findings = append(s.Findings, trace.Findingf(ReplayAssumes, "run %s: "+format, append([]any{run.ID}, args...)...))
		}
	}
	say(shares, "the cached tokens of %d of %d prompts are shares of what passes, counters or hit rates say of several", shares, len(obs))
	say(assumed, "%d of %d requests are taken to share their first %d prompt tokens", assumed, len(obs), sharedPrefix)
	say(unknown, "prefix caching is on and nothing says what %d of %d requests share; replayed uncached: %s", unknown, len(obs), tellsCached)
}

const tellsCached = "keep /metrics before and after each load, log the iterations (--enable-logging-iteration-details), have the " +
	"client keep usage (--enable-prompt-tokens-details), or set the key shared-prefix-tokens"

// undecided says why the replay of a phase cannot be judged for want of cached tokens.
func (s *Shared) undecided(obs []Request, p *deploy.Phase) string {
	if s.unknown == nil {
		return ""
	}
	n, all := 0, 0
	for i := range obs {
		if o := &obs[i]; o.ArrivalNs >= p.StartNs && o.ArrivalNs < p.EndNs {
			all++
			if s.unknown(o) || o.Row != nil && o.Row.CachedTokens.OK && !o.Row.KnowsCached() {
				n++
			}
		}
	}
	if float64(n) <= trace.MostGuessed*float64(all) {
		return ""
	}
	return fmt.Sprintf("nobody recorded what %d of %d prompts found in the prefix cache: %s", n, all, tellsCached)
}

// uncounted says why the load that a log's passes ran is not that of the clients' results.
func uncounted(a *trace.Aggregate, obs []Request, p *deploy.Phase) string {
	n, all := 0, 0
	for i := range obs {
		if o := &obs[i]; o.Row != nil && o.ArrivalNs >= p.StartNs && o.ArrivalNs < p.EndNs {
			if all++; o.Row.Uncounted() && o.Row.LastChunkNs.OK {
				n++
			}
		}
	}
	switch {
	case a == nil:
	case float64(n) > trace.MostGuessed*float64(all):
		return fmt.Sprintf("%d of %d requests have several answers or were left early, and nothing says when the engine ran them: let clients "+
			"ask for one answer each, to its end", n, all)
	case a.Others > trace.MostGuessed:
		return fmt.Sprintf("no client's result shows %.0f %% of the decodes that ran: keep the results of every client", 100*a.Others)
	}
	return ""
}

// Run is cut in three, so that runs may be judged by many processes: StoreSteps of each,
// OutlierLimits of them all, StoreReplay of each, and Run on what those two wrote.

// Files of a stored run: what is no table, the tables, the replay.
const (
	storedSteps  = "steps.json"
	storedTables = "steps.bin"
	storedReplay = "replay.json"
)

// replayed are the entries of a run and, by scope of a gate, what its requests waited for.
type replayed struct {
	Entries []result.ValidationRun `json:"entries"`
	Starved map[string]starved     `json:"starved"`
}

// StoreSteps makes the rows of one run as Run does and writes them to a folder that
// Source.Steps may name.
func StoreSteps(ctx context.Context, set *coeff.Set, fit *result.Fit, src Source, o Options, dir string) error {
	j, err := newJob(ctx, set, fit, []Source{src}, o)
	if err == nil {
		err = j.each(ctx, "steps", j.loadSteps)
	}
	if err != nil {
		return err
	}
	t := j.all[0]
	err = files.WriteJSON(filepath.Join(dir, storedSteps), t.stored)
	if err != nil || t.beta == nil {
		return err
	}
	w, err := rows.CreateTables(filepath.Join(dir, storedTables))
	if err != nil {
		return err
	}
	for _, t := range append([]*rows.Table{t.beta}, t.alpha...) {
		err = errors.Join(err, w.Encode(t))
	}
	return errors.Join(err, w.Close())
}

func restoreSteps(src *Source, set *coeff.Set) (*judgedRun, error) {
	t := &judgedRun{id: src.ID, informs: src.Informs, training: src.Training}
	if err := files.ReadJSON(filepath.Join(src.Steps, storedSteps), &t.stored); err != nil {
		return nil, err
	}
	t.under(set)
	path := filepath.Join(src.Steps, storedTables)
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return t, nil
	}
	_, err := rows.RestoreTables(path, func(i int, table *rows.Table) {
		if i == 0 {
			t.beta = table
		} else {
			t.alpha = append(t.alpha, table)
		}
	})
	return t, err
}

// OutlierLimits are those over all runs, whose steps are stored.
func OutlierLimits(ctx context.Context, set *coeff.Set, fit *result.Fit, sources []Source, o Options) ([]Limits, error) {
	j, err := newJob(ctx, set, fit, sources, o)
	if err == nil {
		err = j.each(ctx, "limits", func(i int) error {
			if err := j.loadSteps(i); err != nil || j.all[i].beta == nil {
				return err
			}
			for _, t := range append([]*rows.Table{j.all[i].beta}, j.all[i].alpha...) {
				*t = rows.Table{Config: t.Config, Target: t.Target, Kept: t.Kept, Y: t.Y, Steps: t.Steps, Regime: t.Regime} // limits are of times
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return j.limits(), nil
}

// StoreReplay replays one run, whose steps are stored, as Run does and writes the result to
// a folder that Source.Replay may name; limits are those of all runs.
func StoreReplay(ctx context.Context, set *coeff.Set, fit *result.Fit, src Source, o Options, limits []Limits, dir string) error {
	j, err := newJob(ctx, set, fit, []Source{src}, o)
	if err == nil {
		err = j.each(ctx, "steps", j.loadSteps)
	}
	if err == nil {
		err = j.clean(limits)
	}
	if err == nil {
		err = j.each(ctx, "replay", func(i int) error { return j.replay(ctx, i) })
	}
	if err != nil {
		return err
	}
	return files.WriteJSON(filepath.Join(dir, storedReplay), replayed{j.entries[0], j.all[0].starved})
}

func restoreReplay(dir string) ([]result.ValidationRun, map[string]starved, error) {
	var r replayed
	err := files.ReadJSON(filepath.Join(dir, storedReplay), &r)
	return r.Entries, r.Starved, err
}
