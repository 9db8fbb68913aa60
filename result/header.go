// Package result holds the documents other programs read from us, as structs: extract.json,
// fit.json, validation.json, inspect.json (spec#documents). Keys are a promise: add freely, never
// rename or change a unit without a new schema version. Unknown is null (a nil pointer or an
// unknown trace.Opt), never 0 or -1.
package result

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// SchemaVersion is the version of every document this package writes.
const SchemaVersion = "1"

// Header starts every document.
type Header struct {
	SchemaVersion string  `json:"schema_version"`
	ToolVersion   string  `json:"tool_version"`
	Platform      string  `json:"platform"` // of the build that computed it, see Platform; "" or "any" in older documents
	Command       string  `json:"command"`  // stage and the options that can change the result, sorted
	Inputs        []Input `json:"inputs"`
	Config        *Config `json:"config,omitempty"` // the pipeline.yaml that set options; absent without one
	// Digest binds the document: SHA-256 of its text with this value empty and
	// no space between tokens. Write fills it in; "" in older documents.
	Digest string `json:"document_digest"`
}

// Config is a pipeline.yaml and the flags it set, as they would stand on the
// command line.
type Config struct {
	File Input    `json:"file"`
	Set  []string `json:"set"`
}

// NewHeader starts a document of this build.
func NewHeader(toolVersion, command string) Header {
	return Header{SchemaVersion: SchemaVersion, ToolVersion: toolVersion, Platform: Platform(), Command: command, Inputs: []Input{}}
}

// Platform names the build's operating system, architecture and level, such as "linux/amd64/v1".
// The last digits of a result depend on it: the compiler fuses multiplications with additions
// on some architectures and not on others.
func Platform() string {
	name := runtime.GOOS + "/" + runtime.GOARCH
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "GO"+strings.ToUpper(runtime.GOARCH) {
				name += "/" + s.Value
			}
		}
	}
	return name
}

// Write encodes a document: two-space indent, no HTML escaping, final newline; lists
// of numbers of a validation, which are long, on one line. A document with a [Header]
// gets its digest.
func Write(w io.Writer, doc any) error {
	b, err := Marshal(doc)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// Marshal is Write into memory.
func Marshal(doc any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	text := b.Bytes()
	if _, long := doc.(*Validation); long {
		text = onLines(text)
	}
	return sealed(text)
}

// digestLine is where the digest stands in what Marshal encodes. Text of two
// spaces' indentation is the document's own: line breaks within values are escaped.
var digestLine = regexp.MustCompile(`\n  "document_digest": "([0-9a-f]*)"`)

// sealed is the text with its digest; a text without a place for it stays.
func sealed(text []byte) ([]byte, error) {
	at := digestLine.FindSubmatchIndex(text)
	if at == nil {
		return text, nil
	}
	blank := slices.Concat(text[:at[2]], text[at[3]:])
	sum, err := digest(blank)
	if err != nil {
		return nil, err
	}
	return slices.Concat(blank[:at[2]], []byte(sum), blank[at[2]:]), nil
}

// digest is the SHA-256 of a JSON text without the space between its tokens.
func digest(text []byte) (string, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return "", err
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

// Intact reports whether the values of a document are those it was written with:
// the digest in it is that of the text around it. A document without a digest is
// of an older version or another program, and counts as intact.
func Intact(text []byte) bool {
	var head Header
	if json.Unmarshal(text, &head) != nil || head.Digest == "" {
		return true
	}
	sum, err := digest(bytes.Replace(text, []byte(head.Digest), nil, 1))
	return err == nil && sum == head.Digest
}

// Read decodes a document strictly: another schema version and unknown keys are errors.
func Read(text []byte, doc any) error {
	var head struct {
		SchemaVersion string `json:"schema_version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	if head.SchemaVersion != SchemaVersion {
		return fmt.Errorf("schema_version: got %q, want %q", head.SchemaVersion, SchemaVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(doc); err != nil {
		return err
	}
	return trace.UnmarshalJSON(text, &head)
}

// OrNull is a number of a document: nil, which is written as null, for what is
// unknown (NaN) or infinite.
func OrNull(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// Share is part of whole, nil for nothing of nothing.
func Share(part, whole int) *float64 {
	if whole == 0 {
		return nil
	}
	return new(float64(part) / float64(whole))
}

// TextOrNull is a text that may not be.
func TextOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// onLines is an indented JSON text with every list of numbers, and of lists of
// numbers, on one line: the curves of a validation are most of it otherwise.
func onLines(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		n := 0
		switch text[i] {
		case '"':
			n = stringEnd(text[i:])
		case '[':
			if n = numbersEnd(text[i:]); n > 0 {
				out = appendLine(out, text[i:i+n])
				i += n
				continue
			}
		}
		n = max(1, n)
		out = append(out, text[i:i+n]...)
		i += n
	}
	return out
}

// stringEnd is the length of the string that the text begins with.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// numbersEnd is the length of the list that the text begins with, 0 for one that
// holds a string or an object, or nothing.
func numbersEnd(text []byte) int {
	depth, numbers := 0, false
	for i, c := range text {
		switch c {
		case '[':
			depth++
		case '"', '{':
			return 0
		case ']':
			if depth--; depth == 0 {
				if !numbers {
					return 0
				}
				return i + 1
			}
		case ' ', '\n', ',':
		default:
			numbers = true
		}
	}
	return 0
}

// appendLine appends a list without its line breaks.
func appendLine(to, list []byte) []byte {
	for _, c := range list {
		switch c {
		case ' ', '\n':
		case ',':
			to = append(to, ", "...)
		default:
			to = append(to, c)
		}
	}
	return to
}

// Inspect is inspect.json: what is known about the data before any fit.
type Inspect struct {
	Header
	Runs []InspectRun `json:"runs"`
	// Identify says what these data can tell apart; null without --identify.
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
	// Saturated and the five checks are of the whole run; Phases repeats them per phase.
	Saturated  bool              `json:"saturated"`
	Saturation []SaturationCheck `json:"saturation"`
	Phases     []InspectPhase    `json:"phases"`
	Steps      StepQuality       `json:"steps"`
	Coverage   []Histogram       `json:"coverage"`
	Audit      *TargetAudit      `json:"target_audit"`
	// LagEvidence comes from the fit stage; empty before it ran.
	LagEvidence []LagEvidence   `json:"lag_evidence"`
	Lag         *RunLag         `json:"lag"`
	Series      *LoadSeries     `json:"series,omitempty"`
	Findings    []trace.Finding `json:"findings"`
	// Sources are what was recorded, and what would teach more.
	Sources []InspectSource `json:"sources,omitempty"`
	// Of runs whose steps nobody traced: what was recorded, and what it teaches.
	Tier       string               `json:"tier,omitempty"` // steps, chunks, spans, requests or points
	Points     int                  `json:"points,omitempty"`
	Learnable  []LearnableDirection `json:"learnable,omitempty"`
	NoiseFloor *RequestNoise        `json:"noise_floor,omitempty"`
	Planned    []PlannedPoint       `json:"planned_points,omitempty"` // --points: the most telling first
}

// PlannedPoint is a load level worth measuring: a closed loop of clients.
type PlannedPoint struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	Clients      int   `json:"clients"`
}

// InspectSource is a source of a recording, or one that is missing.
type InspectSource struct {
	Source  string `json:"source"`
	Found   bool   `json:"found"`
	Got     string `json:"got,omitempty"` // how much of it
	Teaches string `json:"teaches"`
	Adds    string `json:"adds,omitempty"` // what one flag more would add
}

// LearnableDirection is one combination of costs that requests may teach.
type LearnableDirection struct {
	Direction string `json:"direction"`
	ShownBy   string `json:"shown_by"`
	Shown     bool   `json:"shown"`
	Got       string `json:"got,omitempty"`  // of what shows it, in these data
	Adds      string `json:"adds,omitempty"` // the measurement that would show it
}

// RequestNoise is the median difference of one request between two replays whose sends
// differ by a millisecond.
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
	Observed        int  `json:"observed"` // client-side rows
	MultiSample     int  `json:"multi_sample"`
	JourneysSampled bool `json:"journeys_sampled"` // sample rate below 1
}

// InspectLosses counts what is known to be missing.
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

// SaturationCheck is one of the five checks of the load (spec#saturation).
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

// LoadSeries is the run over time in at most 200 equal bins.
type LoadSeries struct {
	BinS    float64    `json:"bin_s"`
	Running []*float64 `json:"running"` // mean running requests
	Waiting []*float64 `json:"waiting"`
	KVUsage []*float64 `json:"kv_usage"`
	TTFTMs  []*float64 `json:"ttft_ms_p50"` // of requests arriving in the bin
}

// Identify is the identifiability summary made by the fit stage from the tables alone.
type Identify struct {
	Terms          []IdentifyTerm  `json:"terms"`
	NullDirections []string        `json:"null_directions"`
	MissingRegimes []string        `json:"missing_regimes"`
	Experiments    []Experiment    `json:"experiments"`
	Warnings       []trace.Finding `json:"warnings"`
}

// IdentifyTerm says how well one term is known.
type IdentifyTerm struct {
	Name       string   `json:"name"`
	Identified string   `json:"identified"` // within | between-configs | prior-only
	DF         *float64 `json:"df"`
	VIF        *float64 `json:"vif"`
	HalfWidth  *float64 `json:"relative_half_width"` // of the 95 % interval
}

// Experiment is one further measurement and what it would shrink.
type Experiment struct {
	Description string   `json:"description"`
	Term        string   `json:"term"`
	HalfWidth   *float64 `json:"relative_half_width_now"`
	After       *float64 `json:"relative_half_width_after"`
	GainLogDet  float64  `json:"gain_log_det"`
}
