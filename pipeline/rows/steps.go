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
