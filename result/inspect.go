package result

// This file is the document inspect.json.

import (
	"github.com/blis-train/blis-train/trace"
)

// Inspect is inspect.json: the quality of the data, before any fit.
type Inspect struct {
	Header
	Runs []InspectRun `json:"runs"`
	// Identify states which terms these data determine; null without --identify.
	Identify *Identify       `json:"identify"`
	Unfit    []string        `json:"unfit"` // ids of unfit runs
	Pass     bool            `json:"pass"`  // no run is unfit
	Warnings []trace.Finding `json:"warnings"`
}

// InspectRun is the data quality of one run.
type InspectRun struct {
	ID       string          `json:"id"`
	Config   string          `json:"config"`
	Model    string          `json:"model"`
	Hardware string          `json:"hardware"`
	TP       int64           `json:"tp"`
	Unfit    bool            `json:"unfit"`
	Reason   string          `json:"reason"` // one sentence; empty when fit
	SpanS    *float64        `json:"span_s"` // first to last stamp, seconds
	Requests InspectRequests `json:"requests"`
	Losses   InspectLosses   `json:"losses"`
	Clocks   InspectClocks   `json:"clocks"`
	// Saturated and the five checks are about the whole run; Phases has them for each phase.
	Saturated  bool              `json:"saturated"`
	Saturation []SaturationCheck `json:"saturation"`
	Phases     []InspectPhase    `json:"phases"`
	Steps      StepQuality       `json:"steps"`
	Coverage   []Histogram       `json:"coverage"`
	Audit      *TargetAudit      `json:"target_audit"`
	// LagEvidence and Lag are those of the fit; without a fit they are measured.
	LagEvidence []LagEvidence   `json:"lag_evidence"`
	Lag         *RunLag         `json:"lag"`
	Series      *LoadSeries     `json:"series,omitempty"`
	Findings    []trace.Finding `json:"findings"`
	// Identities are what must hold between the streams of the run, and whether it does (spec#identities).
	Identities []Identity `json:"identities,omitempty"`
	// Usable is what follows from them for each purpose, before any fit.
	Usable []PurposeUse `json:"usable,omitempty"`
	// Sources lists what was recorded and what is missing.
	Sources []InspectSource `json:"sources,omitempty"`
	// Tier to Planned are about runs whose steps were not traced: what was recorded, and which
	// coefficients it determines.
	Tier       string               `json:"tier,omitempty"` // steps, chunks, spans, requests or points
	Points     int                  `json:"points,omitempty"`
	Learnable  []LearnableDirection `json:"learnable,omitempty"`
	NoiseFloor *RequestNoise        `json:"noise_floor,omitempty"`
	Planned    []PlannedPoint       `json:"planned_points,omitempty"` // --points: the most informative first
}

// PlannedPoint is a load level that is worth measuring: a closed loop of clients with constant
// lengths.
type PlannedPoint struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	Clients      int   `json:"clients"`
}

// InspectSource is one source of evidence: what of it was recorded, what a fit learns from it, and
// what another recording option would add.
type InspectSource struct {
	Source  string `json:"source"`
	Found   bool   `json:"found"`
	Got     string `json:"got,omitempty"` // how much of it
	Teaches string `json:"teaches"`
	Adds    string `json:"adds,omitempty"` // what another option of the recording would add
}

// LearnableDirection is one combination of coefficients, and whether the recorded requests
// determine it.
type LearnableDirection struct {
	Direction string `json:"direction"`
	ShownBy   string `json:"shown_by"`
	Shown     bool   `json:"shown"`
	Got       string `json:"got,omitempty"`  // how much of ShownBy these data have
	Adds      string `json:"adds,omitempty"` // the measurement that would determine it; empty if Shown
}

// RequestNoise is the median difference of a request's times between two replays whose requests are
// sent up to a millisecond apart. No fit can predict single requests better.
type RequestNoise struct {
	TTFTFrac float64 `json:"ttft_frac"`
	SpanFrac float64 `json:"span_frac"`
}

// InspectRequests counts requests by outcome.
type InspectRequests struct {
	Total           int  `json:"total"`
	Engine          int  `json:"engine"`       // with a core span, or stock
	Finished        int  `json:"finished"`     // success
	Failed          int  `json:"failed"`       // neither success nor a client abort
	Aborted         int  `json:"aborted"`      // client gave up
	Unknown         int  `json:"unknown"`      // no end seen
	APIUnlinked     int  `json:"api_unlinked"` // core span without an API span
	CoreMissing     int  `json:"core_missing"` // API span without a core span
	StopStringEnds  int  `json:"stop_string_ends"`
	Preempted       int  `json:"preempted"`
	Observed        int  `json:"observed"`         // client-side rows
	MultiSample     int  `json:"multi_sample"`     // samples of requests with n > 1
	JourneysSampled bool `json:"journeys_sampled"` // sample rate below 1
}

// InspectLosses counts what is missing in the recording.
type InspectLosses struct {
	DroppedSpanEvents int      `json:"dropped_span_events"`
	OrphanSnapshots   int      `json:"orphan_snapshots"`
	MissingSteps      int      `json:"missing_steps"`
	RecordedStepShare *float64 `json:"recorded_step_share"`
	AdjacentShare     *float64 `json:"adjacent_share"`  // recorded steps whose successor is recorded too
	DuplicateSpans    *int     `json:"duplicate_spans"` // from extract.json, as the next three; null without it
	TruncatedMessages *int     `json:"truncated_messages"`
	RecordsRead       *int     `json:"records_read"`
	RecordsDropped    *int     `json:"records_dropped"`
}

// InspectClocks compares the monotonic and the wall clock.
type InspectClocks struct {
	OffsetS           *float64 `json:"offset_s"`         // median wall - monotonic of the steps
	OffsetSpreadMs    *float64 `json:"offset_spread_ms"` // P95 - P5
	NegativeIntervals int      `json:"negative_intervals"`
	Engines           int      `json:"engines"` // engine runs seen in this table run
}

// SaturationCheck is one of the five checks whether the server was saturated (spec#saturation).
type SaturationCheck struct {
	Name      string   `json:"name"`
	Value     *float64 `json:"value"` // null: not measurable on this run
	Threshold float64  `json:"threshold"`
	Hit       bool     `json:"hit"`
	Doc       string   `json:"doc"`
}

// InspectPhase is one phase of the run.
type InspectPhase struct {
	Name       string            `json:"name"`
	Load       string            `json:"load"`
	SpanS      float64           `json:"span_s"`
	Requests   int               `json:"requests"`
	Steps      int               `json:"steps"`
	RateRPS    *float64          `json:"rate_rps"`
	Saturated  bool              `json:"saturated"`
	Saturation []SaturationCheck `json:"saturation"`
}

// Histogram counts steps of one quantity in bins [Edges[i], Edges[i+1]); the last
// bin has no upper end.
type Histogram struct {
	Name   string    `json:"name"` // prefill_tokens | decode_batch | context_tokens | kv_usage
	Unit   string    `json:"unit"`
	Edges  []float64 `json:"edges"`
	Counts []int     `json:"counts"`
	Rows   int       `json:"rows"`
}

// LoadSeries is the load of a run over time in at most 200 bins of equal length.
type LoadSeries struct {
	BinS    float64    `json:"bin_s"`
	Running []*float64 `json:"running"` // mean running requests
	Waiting []*float64 `json:"waiting"`
	KVUsage []*float64 `json:"kv_usage"`
	TTFTMs  []*float64 `json:"ttft_ms_p50"` // of requests arriving in the bin
}

// Identify states which step-time terms the data determine, which kinds of steps are missing, and
// which experiments would help most.
type Identify struct {
	Terms          []IdentifyTerm  `json:"terms"`
	NullDirections []string        `json:"null_directions"`
	MissingRegimes []string        `json:"missing_regimes"`
	Experiments    []Experiment    `json:"experiments"`
	Warnings       []trace.Finding `json:"warnings"`
}

// IdentifyTerm is how well the data determine one term.
type IdentifyTerm struct {
	Name       string   `json:"name"`
	Identified string   `json:"identified"` // within | between-configs | prior-only
	DF         *float64 `json:"df"`
	VIF        *float64 `json:"vif"`
	HalfWidth  *float64 `json:"relative_half_width"` // of the 95 % interval
}

// Experiment is a proposed measurement and how much it would narrow the interval of a term.
type Experiment struct {
	Description string   `json:"description"`
	Term        string   `json:"term"`
	HalfWidth   *float64 `json:"relative_half_width_now"`
	After       *float64 `json:"relative_half_width_after"`
	GainLogDet  float64  `json:"gain_log_det"`
}
