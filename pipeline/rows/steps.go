package rows

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Tag says where a step's or a row's inputs come from, best first. A row has
// the worst tag of its steps.
type Tag uint8

// The sources of a step's batch (spec#input-table).
const (
	tagUnknown        Tag = iota // no row may use it
	TagRich                      // complete snapshots: exact
	TagJourney                   // rebuilt from journey events: exact
	TagSummary                   // batch totals: approximate (spec#summary-steps)
	tagAggregate                 // sums of a logged pass, some filled in (spec#iteration-fill)
	tagLagApproximate            // features of step i stand for step i-lag (spec#summary-steps)
)

var tagNames = [...]string{"unknown", "rich", "journey", "approximate", "aggregate", "lag_approximate"}

// String returns the tag's name in tables and reports.
func (t Tag) String() string { return tagNames[t] }

// Step is one engine step of a run, recorded or not.
type Step struct {
	ID       int64
	Tag      Tag
	Reason   Reason // why the tag is unknown; empty otherwise
	NoStart  bool   // nobody knows when it began
	Recorded int32  // number of its BATCH_SUMMARY in the run; -1 when no BATCH_SUMMARY exists
	// In holds the step sums without PreemptionEMA; RunningDepth is
	// that of the summary, or the number of members without one.
	In features.StepInput
}

// Reason says why nobody knows the batch of a step.
type Reason string

// The reasons.
const (
	noRequests          Reason = "neither snapshots nor requests in the journeys account for it"
	preemptedRequest    Reason = "what a preempted request recomputed is not recorded"
	inconsistentRequest Reason = "a request's events do not fit one token a step: some were lost, or it was aborted"
	prefillUnknown      Reason = "a prompt cannot be cut into chunks that end in its FIRST_TOKEN step"
	cachedUnknown       Reason = "nothing tells how many prompt tokens of a request were cached"
	unconfirmed         Reason = "requests may be missing from the journeys, and no BATCH_SUMMARY confirms it"
	contradicted        Reason = "as rebuilt it contradicts the BATCH_SUMMARY of the step"
	chunkedTotals       Reason = "totals do not tell the work of chunked prompts"
	recomputedTotals    Reason = "decode tokens differ from decode requests, as when a preempted request is recomputed"
	chunkedNoSnapshots  Reason = "spec 1.0 has no input for chunked prefill without snapshots"
)

// Known reports whether the step's batch may be used.
func (s *Step) Known() bool { return s.Tag != tagUnknown }

// Steps is one engine run with its batches rebuilt.
type Steps struct {
	Run      *trace.Run
	Dep      *deploy.Deployment
	Version  features.Version
	Config   string // key of the configuration (spec#configuration)
	First    int64  // id of the first step
	Quality  Quality
	Findings []trace.Finding
	Wrong    []int64 // rich steps whose reconstruction from journeys differs from the snapshots

	all  []Step // dense by id from First
	plan *plan
	seen *survey
}

// Len is the number of steps, recorded or not; their ids are First and the next.
func (s *Steps) Len() int { return len(s.all) }

// At returns the step with the given id, or nil outside the run.
func (s *Steps) At(id int64) *Step {
	if k := id - s.First; k >= 0 && k < int64(len(s.all)) {
		return &s.all[k]
	}
	return nil
}

// Quality are the reconstruction's figures: those of the documents, and more. Recorded =
// FromSnapshots + Reconstructed + Approximate + Unknown.
type Quality struct {
	result.StepQuality
	Unknown      int // no usable batch
	Unrecorded   int // steps between the first and the last id without a summary
	Rebuilt      int // unrecorded steps rebuilt from journeys
	FromJourneys int // recorded steps that journeys and summaries alone tell, rich or not
	CrossChecked int // rich steps that journeys tell too
	CrossWrong   int // of these, steps where the two differ
}

// codeCount is a number of things with one reason.
type codeCount struct {
	Code trace.Code
	N    int
}

// pass is one iteration with what is found out about it. Times are ns of one
// clock, us for durations.
type pass struct {
	it       *trace.Iteration
	next     bool // follows the pass before it without a lost record
	held     bool // something ran on from the pass before: no idle time lies between
	idle     bool // idle time lies before it
	startNs  int64
	hasStart bool // startNs is known
	endNs    int64
	hasEnd   bool
	tick     bool // its end crosses a second
	tickNs   int64

	constantUs float64 // between this pass and the one before, beside elapsed

	// what ran, exact or filled in
	prefills, decodes, cut           int64
	prefillTokens                    int64
	drafted                          int64 // tokens that decodes verify beside their own
	causal, prefillKV, decodeContext float64
	recompute                        bool
}

// passesOf reads the counts.
func passesOf(its []trace.Iteration, dep *deploy.Deployment, drafts bool) []pass {
	out := make([]pass, len(its))
	budget := dep.Engine.MaxNumBatchedTokens
	for i := range its {
		p, it := &out[i], &its[i]
		p.it = it
		p.prefills = it.ContextReqs
		p.prefillTokens = it.ContextTokens
		p.decodes = it.GenerationReqs
		if drafts {
			p.drafted = max(0, it.GenerationTokens-it.GenerationReqs)
		} else {
			p.recompute = it.GenerationTokens > it.GenerationReqs
		}
		if p.prefills > 0 && it.ContextTokens+it.GenerationTokens >= budget {
			p.cut = 1
		}
		if i == 0 {
			continue
		}
		before := &out[i-1]
		p.next = it.Index == its[i-1].Index+1
		p.held = p.next && (it.GenerationReqs > 0 || before.cut > 0 && p.prefills > 0)
	}
	return out
}

// Rules of the labels (spec#iteration-fill): prompts of one token are rare.
const (
	labelPasses = 5   // whose prompts all end
	labelExact  = 0.1 // of them are followed by as many context requests of one token
)

// labels corrects the phases of recordings in which a request counts as context
// until its first token came back: under asynchronous scheduling its first decode
// is planned before. In such recordings the next pass has as many context requests
// of one token, where none is new.
func (f *filler) labels() {
	ended, exact := 0, 0
	for i := 1; i < len(f.passes); i++ {
		a, b := &f.passes[i-1], &f.passes[i]
		if !b.next || a.prefills == 0 || a.cut > 0 || a.prefillTokens < 2*a.prefills {
			continue
		}
		ended++
		if b.prefills == a.prefills && b.prefillTokens == a.prefills {
			exact++
		}
	}
	if ended < labelPasses || float64(exact) < labelExact*float64(ended) {
		return
	}
	for i := 1; i < len(f.passes); i++ {
		a, b := &f.passes[i-1], &f.passes[i]
		if !b.next {
			continue
		}
		n := min(a.prefills-a.cut, b.prefills, b.prefillTokens)
		b.prefills = b.prefills - n
		b.prefillTokens = b.prefillTokens - n
		b.decodes += n
		if b.prefills == 0 {
			b.decodes += b.prefillTokens
			b.prefillTokens = 0
			b.cut = 0
		}
		b.held = b.held || b.decodes > 0
	}
	f.finding(codeFilledIn, "first decodes stand among the context requests; they are taken for decodes")
}

// mostLost bounds the steps that stand for lost records, beside eight for every record that is there.
const mostLost = 1 << 20

// steps makes the steps of the run from its passes: one for each, an empty one
// where the engine was idle, unknown ones for lost records. Between ticks only the
// passes that cross a second are recorded ones.
func (f *filler) steps(a *audit) {
	id := int64(0)
	ticks := 0
	every := f.tickEvery()
	spare := int64(mostLost + 8*len(f.passes))
	add := func(t trace.StepTotals) int64 {
		f.out.Totals = append(f.out.Totals, t)
		id++
		return id
	}
	for i := range f.passes {
		p := &f.passes[i]
		if i > 0 {
			before := &f.passes[i-1]
			switch lost := p.it.Index - before.it.Index - 1; {
			case lost > 0:
				for range min(lost, max(1, spare)) {
					add(trace.StepTotals{})
				}
				spare -= lost
			case p.idle && before.hasEnd:
				n := add(trace.StepTotals{Known: true})
				f.record(a, trace.Step{ID: n, TsStartNs: before.endNs})
			}
		}
		t := p.totals()
		t.NoStart = !p.hasStart
		n := add(t)
		if a.time == timeTicks {
			if !p.tick {
				continue
			}
			if ticks++; ticks%every == 0 {
				s := p.step(n, f.dep.Engine.KVBlocksGPU.Or(0))
				s.TsStartNs, s.TsEndNs = p.tickNs, p.tickNs
				f.out.Totals[n-1].NoStart = false
				f.run.Steps = append(f.run.Steps, s)
			}
			continue
		}
		if p.hasEnd {
			f.record(a, p.step(n, f.dep.Engine.KVBlocksGPU.Or(0)))
		}
	}
	if p := &f.passes[len(f.passes)-1]; p.hasEnd {
		f.record(a, trace.Step{ID: add(trace.StepTotals{Known: true}), TsStartNs: p.endNs})
	}
	f.out.First = 1
}

// coarseRows is how many times their stamps' resolution rows are long at least.
const coarseRows = 20

// record adds a recorded step; stamps never run back.
func (f *filler) record(a *audit, s trace.Step) {
	if a.time == timeTicks {
		return
	}
	if n := len(f.run.Steps); n > 0 {
		s.TsStartNs = max(s.TsStartNs, f.run.Steps[n-1].TsStartNs)
	}
	if n := len(f.run.Steps); a.coarse && a.time == timeCadence && n > 0 && s.ScheduledTokens > 0 {
		last := &f.run.Steps[n-1]
		if last.ScheduledTokens > 0 && s.TsStartNs-last.TsStartNs < coarseRows*f.passes[0].it.StampStepNs.Or(second) {
			return // the row that began there goes on
		}
	}
	s.TsEndNs = s.TsStartNs
	f.run.Steps = append(f.run.Steps, s)
}

// step is the pass as a step summary would have told it.
func (p *pass) step(id, blocks int64) trace.Step {
	it := p.it
	s := trace.Step{ID: id, TsStartNs: p.startNs, RunningDepth: p.prefills + p.decodes,
		WaitingDepth:   it.QueuedContext.Or(0) + it.QueuedDecode.Or(0),
		NumPrefillReqs: p.prefills, NumDecodeReqs: p.decodes, PrefillTokens: p.prefillTokens, DecodeTokens: p.decodes,
		ScheduledTokens: p.prefillTokens + p.decodes, KVUsage: it.KVUsage.Or(0), BlocksTotal: blocks}
	s.BlocksFree = int64(float64(blocks) * (1 - s.KVUsage))
	if it.StampWall {
		s.WallNs = it.StampNs.V
	}
	if it.Dummy {
		s.RunningDepth = 0
		s.ScheduledTokens = 0
		s.PrefillTokens = 0
		s.DecodeTokens = 0
	}
	return s
}
