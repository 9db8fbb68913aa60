package predictor

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// Choices of Options.
const (
	TargetToken = "token"
	TargetE2E   = "e2e"

	featuresLLMD = "llmd"
	featuresFull = "full"

	stateAuto    = "auto"
	stateStep    = "step"
	stateJourney = "journey"

	prefixIndex  = "index"
	prefixActual = "actual"
)

// Options decide what rows hold.
type Options struct {
	Target      string `json:"target"`       // token: TTFT and TPOT; e2e: the whole answer, of servers that do not stream
	Features    string `json:"features"`     // llmd or full: what two of llm-d's columns mean
	State       string `json:"state"`        // auto, step or journey
	StalenessUs int64  `json:"staleness_us"` // age of what is observable at the decision, >= 0
	PrefixScore string `json:"prefix_score"` // index or actual
	// Shared are the first prompt tokens that requests share where nothing records it: RUNGLOB=TOKENS each.
	Shared        []string `json:"shared_prefix_tokens"`
	KeepSaturated bool     `json:"keep_saturated"` // requests that arrived while the run was saturated
}

// DefaultOptions are everything the traces offer, nothing stale, an index.
func DefaultOptions() Options {
	return Options{Target: TargetToken, Features: featuresFull, State: stateAuto, PrefixScore: prefixIndex, Shared: []string{}}
}

// Table is the options as flags and as recorded.
func (o *Options) Table() option.Table {
	shared := option.List("shared-prefix-tokens", &o.Shared, "first prompt tokens that requests share where nothing records it, "+
		"`[RUNGLOB=]TOKENS` (repeatable)")
	shared.Set = func(v any) error { return o.share(v.([]string)) }
	return option.Table{
		option.String("target", &o.Target, "what is predicted, `LATENCY`: token (TTFT and TPOT) or e2e (the whole answer, "+
			"of servers that do not stream)").Recorded().Unless(TargetToken),
		option.String("features", &o.Features, "columns of the models, `SET`: llmd (those of llm-d) or full (what "+
			"traces offer beside them)").Recorded(),
		option.String("state", &o.State, "`SOURCE` of waiting and running: auto, step or journey").Recorded(),
		option.Whole("staleness-us", &o.StalenessUs, "age of what is observable at the decision, `US`").Recorded(),
		option.String("prefix-score", &o.PrefixScore, "`SCORE`: index (known at the decision) or actual (measured "+
			"afterwards)").Recorded(),
		shared.Recorded(),
		option.Switch("keep-saturated", &o.KeepSaturated, "keep requests that arrived while the run was saturated").Recorded(),
	}
}

// Check names the first option out of bounds.
func (o *Options) Check() error {
	for _, of := range []struct {
		name, got string
		want      []string
	}{{"target", o.Target, []string{TargetToken, TargetE2E}}, {"features", o.Features, []string{featuresLLMD, featuresFull}},
		{"state", o.State, []string{stateAuto, stateStep, stateJourney}}, {"prefix-score", o.PrefixScore, []string{prefixIndex, prefixActual}}} {
		if !slices.Contains(of.want, of.got) {
			return option.Misusef("--%s: got %q, want %s", of.name, of.got, trace.OneOf(of.want))
		}
	}
	if o.StalenessUs < 0 {
		return option.Misusef("--staleness-us: got %d us, want >= 0", o.StalenessUs)
	}
	for _, text := range o.Shared {
		if _, _, err := parseShare(text); err != nil {
			return err
		}
	}
	return nil
}

// share takes what requests share, each TOKENS or RUNGLOB=TOKENS.
func (o *Options) share(texts []string) error {
	o.Shared = []string{}
	for _, text := range texts {
		runs, tokens, err := parseShare(text)
		if err != nil {
			return err
		}
		o.Shared = append(o.Shared, fmt.Sprintf("%s=%d", runs, tokens))
	}
	return nil
}

// parseShare reads TOKENS or RUNGLOB=TOKENS: which runs, and how many first prompt tokens their requests share.
func parseShare(text string) (runs string, tokens int64, err error) {
	runs, number := "*", text
	if i := strings.LastIndex(text, "="); i >= 0 {
		runs, number = text[:i], text[i+1:]
	}
	tokens, err = strconv.ParseInt(number, 10, 64)
	if _, bad := path.Match(runs, ""); err != nil || bad != nil || tokens < 0 {
		return "", 0, option.Misusef("--shared-prefix-tokens: got %q, want TOKENS or RUNGLOB=TOKENS with tokens >= 0", text)
	}
	return runs, tokens, nil
}

// source is one recorded run.
type source struct {
	Run        *trace.Run
	Deployment *deploy.Deployment
	Saturated  []rows.Span // requests that arrived inside are dropped as saturated
}

// Result is what a run gave.
type Result struct {
	Rows      []Row
	Requests  int            // rows + sum of drops
	Dropped   map[reason]int // by reason
	Agreement stateAgreement
	Warnings  []trace.Finding
}

// Build makes the rows of a run.
func Build(src source, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	b := newBuilder(src, o)
	b.scores()
	b.sweep()
	return b.out, nil
}

// builder builds the rows of one run.
type builder struct {
	src      source
	o        Options
	lives    []life
	complete bool
	steps    *steps
	counts   *counts
	events   []event
	warmUpNs int64 // arrivals before it are warm-up
	blocks   int64 // KV blocks, 0 unknown
	stages   []trace.Opt[int64]
	out      *Result
}

func newBuilder(src source, o Options) *builder {
	d := src.Deployment
	b := &builder{src: src, o: o, out: &Result{Dropped: map[reason]int{}}}
	b.lives, b.complete, b.out.Warnings = livesOf(src.Run, d.Tracing.JourneySampleRate.Or(1), o.Target == TargetE2E)
	b.steps = newSteps(src.Run, d.Tracing.StepSampleRate.Or(1), d.Engine.IsAsync())
	b.counts = newCounts(b.lives, b.steps)
	b.events = eventsOf(b.lives)
	b.out.Requests = len(b.lives)
	b.blocks, _, _ = d.KVBlocks()
	b.stages = stagesOf(b.lives, d)
	b.warmUpNs = math.MinInt64
	const warmUpSteps = 10
	if n := len(src.Run.Steps); n > 0 && !hasWarmUp(d) {
		b.warmUpNs = src.Run.Steps[min(warmUpSteps, n-1)].TsStartNs
	}
	return b
}

func hasWarmUp(d *deploy.Deployment) bool {
	return slices.ContainsFunc(d.Phases, func(p deploy.Phase) bool { return p.Name == deploy.WarmupPhase })
}

// scores says for every request what share of its prompt is expected in the
// cache, and how many tokens that leaves to compute.
func (b *builder) scores() {
	d := b.src.Deployment
	if d.Engine.PrefixCaching && b.shareOut() {
		b.replayIndex()
	}
	for i := range b.lives {
		l := &b.lives[i]
		l.actual = actualScore(l, d.Engine.BlockSize, d.Engine.PrefixCaching)
		if !d.Engine.PrefixCaching {
			l.index = trace.Some(0.0)
		}
		l.score = l.index
		if b.o.PrefixScore == prefixActual {
			l.score = l.actual
		}
		if l.prompt.OK {
			b.counts.uncached[i] = max(1, l.prompt.V-int64(math.Round(l.score.V*float64(l.prompt.V))))
		}
	}
}

// replayIndex scores every request by the blocks that requests scheduled before
// its decision left.
func (b *builder) replayIndex() {
	x := newIndex(b.src.Deployment)
	at := 0
	for i := range b.lives {
		l := &b.lives[i]
		until := l.arrived.V - b.o.StalenessUs*1000
		for ; at < len(b.events) && b.events[at].at <= until; at++ {
			if e := b.events[at]; e.kind == evScheduled && b.lives[e.life].prompt.OK {
				x.scheduled(int(e.life), &b.lives[e.life], b.lives[e.life].cached)
			}
		}
		if l.arrived.OK && l.prompt.OK && l.prompt.V > 0 {
			l.index = trace.Some(x.match(i, l))
		}
	}
}

// shareOut gives requests without a prefix group what --shared-prefix-tokens
// states; false when nothing says what requests share.
func (b *builder) shareOut() bool {
	for i := range b.lives {
		if b.lives[i].group != "" {
			return true // the client said so for all its requests: those without a group share nothing
		}
	}
	for _, text := range b.o.Shared {
		runs, tokens, err := parseShare(text)
		if ok, _ := path.Match(runs, b.src.Run.ID); err != nil || !ok {
			continue
		}
		for i := range b.lives {
			b.lives[i].group, b.lives[i].groupTokens = "shared", trace.Some(tokens)
		}
		return true
	}
	return false
}

// sweep walks through time and judges every request at its decision.
func (b *builder) sweep() {
	at := 0
	for i := range b.lives {
		l := &b.lives[i]
		t := l.arrived.V - b.o.StalenessUs*1000
		for ; at < len(b.events) && before(b.events[at], t, l.arrived.V); at++ {
			b.counts.apply(b.events[at])
		}
		row, reason := b.row(i, t)
		if reason != "" {
			b.out.Dropped[reason]++
			continue
		}
		b.out.Rows = append(b.out.Rows, row)
	}
}

// before reports whether an event is observable: not later than t, and arrivals
// earlier than the decision itself.
func before(e event, t, decision int64) bool {
	return e.at < t || e.at == t && (e.kind != evArrived || t < decision)
}
