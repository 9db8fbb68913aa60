package result

// This file is the document extract.json.

import (
	"reflect"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// Extract is extract.json: what was read, kept and dropped, and why.
type Extract struct {
	Header
	Runs   []ExtractRun  `json:"runs"`
	Totals ExtractTotals `json:"totals"`
	// LeftOut are run folders without any usable record, by id.
	LeftOut []string `json:"left_out,omitempty"`
	// Seconds and PeakRSSBytes are printed on the terminal and with --json only, so that the bytes of the file
	// depend on the inputs alone.
	Seconds *float64 `json:"seconds,omitempty"`
	// Removed are files below tables/ that an earlier extraction wrote and this one removed. Left are files
	// of other programs, which stay. Both are printed like Seconds.
	Removed      []string `json:"removed,omitempty"`
	Left         []string `json:"left,omitempty"`
	PeakRSSBytes *int64   `json:"peak_rss_bytes,omitempty"`
}

// CachedTokens returns the sums over the phases of runs without engine spans. CounterTokens.OK is
// set if any phase has the counter; its value is not summed.
func (e *Extract) CachedTokens() CachedTokens {
	var sum CachedTokens
	for i := range e.Runs {
		if e.Runs[i].Requests.Engine > 0 {
			continue
		}
		for k := range e.Runs[i].CachedTokens {
			sum.Add(&e.Runs[i].CachedTokens[k])
		}
	}
	return sum
}

// Add adds the counts of another phase.
func (c *CachedTokens) Add(o *CachedTokens) {
	c.Requests += o.Requests
	c.PromptTokens += o.PromptTokens
	c.HitTokens += o.HitTokens
	c.CounterTokens.OK = c.CounterTokens.OK || o.CounterTokens.OK
	c.Chains += o.Chains
	c.Usage += o.Usage
	c.Exact += o.Exact
	c.Bounded += o.Bounded
	c.Unpaired += o.Unpaired
}

// Run returns the run with the id, or nil.
func (e *Extract) Run(id string) *ExtractRun {
	for i := range e.Runs {
		if e.Runs[i].ID == id {
			return &e.Runs[i]
		}
	}
	return nil
}

// ExtractRun is one engine run.
type ExtractRun struct {
	ID      string           `json:"id"`
	Folder  string           `json:"folder"` // relative to the RUNDIR or PARENT of the command line
	Engine  ExtractEngine    `json:"engine"`
	Records Records          `json:"records"`
	Tables  map[string]int64 `json:"tables"` // rows by table
	// TableFiles are the files of tables/run=<id>/ as they were written.
	TableFiles []Input         `json:"table_files"`
	Steps      ExtractSteps    `json:"steps"`
	Requests   ExtractRequests `json:"requests"`
	Losses     Losses          `json:"losses"`
	Scopes     []ScopeCount    `json:"scopes"`
	Files      []ExtractFile   `json:"files"`
	Clock      ExtractClock    `json:"clock"`
	// CachedTokens are the prompt tokens from the prefix cache in each phase, if the passes of a log or the
	// server's usage show them.
	CachedTokens []CachedTokens `json:"cached_tokens,omitempty"`
	// Drafts are the tokens that speculative decoding proposed, if the server counted them.
	Drafts *DraftCounts `json:"drafts,omitempty"`
	// Counted are the tokens that the server's log counts every ten seconds, beside those of the recorded requests.
	Counted  []ServerCount   `json:"counted,omitempty"`
	Examples []Example       `json:"examples"` // the first drops of each reason
	Warnings []trace.Finding `json:"warnings"`
	// Deployment is the resolved run.yaml. It is here so that later stages need only the output folder.
	Deployment *deploy.Deployment `json:"deployment"`
}

// CachedTokens counts the prompt tokens of a phase that came from the prefix cache (hits). If every
// pass is paired with requests, prompt tokens = computed tokens + hits.
type CachedTokens struct {
	Phase         string           `json:"phase"`
	Requests      int              `json:"requests"`
	PromptTokens  int64            `json:"prompt_tokens"`
	HitTokens     int64            `json:"hit_tokens"`               // of requests whose hits are known
	CounterTokens trace.Opt[int64] `json:"counter_tokens,omitempty"` // vllm:prefix_cache_hits over the phase, if /metrics was recorded
	Chains        int              `json:"chains"`                   // passes joined by prompts that were cut between them
	Usage         int              `json:"usage"`                    // requests whose hits the server's usage reports
	Exact         int              `json:"exact"`                    // requests whose hits follow from the passes
	Bounded       int              `json:"bounded"`                  // requests whose prompt ended in one pass with others, so that only the sum of their hits is exact
	Unpaired      int              `json:"unpaired"`                 // requests of which nothing is known
}

// Requests of a ServerCount.
const (
	CountSpans   = "spans"   // of an unmodified vLLM
	CountClients = "clients" // their files
)

// ServerCount is what a server's log counts every ten seconds, beside the tokens of recorded requests in the same time.
type ServerCount struct {
	Of      string       `json:"of"`    // spans or clients
	Lines   int          `json:"lines"` // of the log, whose ten seconds lie within the time of the requests
	Prompts TokensBeside `json:"prompts"`
	Outputs TokensBeside `json:"outputs"`
	HitFrac float64      `json:"hit_frac"` // largest hit rate of the prefix cache; releases differ in whether such tokens count in prompts
}

// TokensBeside are tokens as the server counts them, and the least and the most that the requests can have in the same time.
type TokensBeside struct {
	Server float64 `json:"server"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// DraftCounts counts the tokens that the drafter of a server proposed and the model accepted, over
// all of its engines.
type DraftCounts struct {
	DraftedTokens  int64  `json:"drafted_tokens"`
	AcceptedTokens int64  `json:"accepted_tokens"`
	Source         string `json:"source"` // the log, or the name of the file with the answer of /metrics
}

// ExtractEngine is the engine that was recorded.
type ExtractEngine struct {
	InstanceID  string `json:"instance_id"` // 1, 2, ... of the engine runs in one dump
	VLLMVersion string `json:"vllm_version"`
	Model       string `json:"model"`
	Hardware    string `json:"hardware"`
	TP          int64  `json:"tp"`
}

// Records counts the records of an input: read = kept + the sum of dropped.
type Records struct {
	Read    int64            `json:"read"`
	Kept    int64            `json:"kept"`
	Dropped map[string]int64 `json:"dropped"` // by reason
	// BadFrac is the share that is damaged, of bytes or of records, whichever is larger.
	BadFrac float64 `json:"bad_frac"`
}

// Balanced reports whether read = kept + the sum of dropped.
func (r Records) Balanced() bool {
	n := r.Kept
	for _, d := range r.Dropped {
		n += d
	}
	return n == r.Read
}

// ExtractSteps summarises the steps of a run.
type ExtractSteps struct {
	FirstID trace.Opt[int64] `json:"first_id"`
	LastID  trace.Opt[int64] `json:"last_id"`
	StepTotals
}

// StepTotals counts the steps of a run, or of all runs. The last three are from rebuilt batches;
// they are null, with a warning, if the batches of a run could not be rebuilt.
type StepTotals struct {
	Summaries      int64            `json:"summaries"`
	Missing        int64            `json:"missing"` // ids between first and last without a summary
	WithSnapshots  int64            `json:"with_snapshots"`
	Reconstructed  trace.Opt[int64] `json:"reconstructed"`  // batch rebuilt from the journeys of requests
	Unknown        trace.Opt[int64] `json:"unknown"`        // batch not known
	Contradictions trace.Opt[int64] `json:"contradictions"` // rebuilt batch contradicts the summary
}

// ExtractRequests counts the rows of `requests` by kind.
type ExtractRequests struct {
	Engine      int64 `json:"engine"`       // core spans
	APILinked   int64 `json:"api_linked"`   // core spans with their API span
	APIUnlinked int64 `json:"api_unlinked"` // core spans without it
	APIOnly     int64 `json:"api_only"`     // API spans without a core span
	Stock       int64 `json:"stock"`        // spans of an unmodified vLLM
	Finished    int64 `json:"finished"`     // success
	Aborted     int64 `json:"aborted"`      // api.ABORTED, or finish status aborted without an API span
	Failed      int64 `json:"failed"`       // not a success, aborts included
	Open        int64 `json:"open"`         // no end was recorded
	StopString  int64 `json:"stop_string"`  // ended at a stop string
}

// Losses counts what is missing or repeated in the recording.
type Losses struct {
	DroppedSpanEvents int64 `json:"dropped_span_events"` // by the SDK while recording (OTEL_SPAN_EVENT_COUNT_LIMIT)
	TruncatedMessages int64 `json:"truncated_messages"`  // messages and lines that cannot be read, most often cut off
	OrphanSnapshots   int64 `json:"orphan_snapshots"`    // snapshots of requests without the summary of their step
	DuplicateSpans    int64 `json:"duplicate_spans"`
}

// ScopeCount counts the spans (empty event name) or events of one instrumentation scope as read,
// before duplicates were dropped.
type ScopeCount struct {
	Scope string `json:"scope"`
	Event string `json:"event"`
	Count int64  `json:"count"`
}

// ExtractFile is one input file of a run.
type ExtractFile struct {
	Input
	Kind  string `json:"kind"` // traces, kv_events, client_requests, iterations (a log), passes
	Lines int64  `json:"lines"`
}

// ExtractClock is the offset wall clock - monotonic clock of the engine.
type ExtractClock struct {
	OffsetNs trace.Opt[int64] `json:"offset_ns"` // median over journey events
	SpreadNs trace.Opt[int64] `json:"spread_ns"` // 90th - 10th percentile
}

// Example is one dropped record.
type Example struct {
	Reason trace.Code `json:"reason"`
	Place  string     `json:"place"` // file:line:col
	What   string     `json:"what"`
}

// ExtractTotals sums all runs.
type ExtractTotals struct {
	Records   Records          `json:"records"`
	Tables    map[string]int64 `json:"tables"`
	Steps     StepTotals       `json:"steps"`
	Requests  ExtractRequests  `json:"requests"`
	Losses    Losses           `json:"losses"`
	Summaries int64            `json:"step_summaries"` // = steps.summaries
	BytesRead int64            `json:"bytes_read"`
	LinesRead int64            `json:"lines_read"`
}

// SumRuns sets the totals to the sums of the runs' counts, and BadFrac to the largest of the runs.
// Bytes and lines read are those of the files and do not change.
func (e *Extract) SumRuns() {
	zero := trace.Some[int64](0)
	t := &e.Totals
	t.Records = Records{Dropped: map[string]int64{}}
	t.Tables = map[string]int64{}
	t.Requests = ExtractRequests{}
	t.Losses = Losses{}
	t.Steps = StepTotals{Reconstructed: zero, Unknown: zero, Contradictions: zero}
	for i := range e.Runs {
		r := &e.Runs[i]
		t.Records.addRecords(&r.Records)
		for name, rows := range r.Tables {
			t.Tables[name] += rows
		}
		addCounts(&t.Steps, &r.Steps.StepTotals)
		addCounts(&t.Requests, &r.Requests)
		addCounts(&t.Losses, &r.Losses)
	}
	t.Summaries = t.Steps.Summaries
}

// addRecords adds the counts of r, and raises BadFrac to that of r if it is larger.
func (t *Records) addRecords(r *Records) {
	t.Read += r.Read
	t.Kept += r.Kept
	for reason, n := range r.Dropped {
		t.Dropped[reason] += n
	}
	t.BadFrac = max(t.BadFrac, r.BadFrac)
}

// addCounts adds every field of a struct of counts to that of another. A sum with an unknown count
// is unknown.
func addCounts[T any](to, from *T) {
	a := reflect.ValueOf(to).Elem()
	b := reflect.ValueOf(from).Elem()
	for i := range a.NumField() {
		switch x := a.Field(i).Addr().Interface().(type) {
		case *int64:
			*x += b.Field(i).Int()
		case *trace.Opt[int64]:
			*x = sumOfKnown(*x, b.Field(i).Interface().(trace.Opt[int64]))
		}
	}
}

// sumOfKnown returns a + b; unknown if either is.
func sumOfKnown(a, b trace.Opt[int64]) trace.Opt[int64] {
	if !a.OK || !b.OK {
		return trace.Opt[int64]{}
	}
	return trace.Some(a.V + b.V)
}
