package clients

// This file reads profile_export.jsonl of AIPerf: one request a line, with its own stamps and metrics. Lines of the
// raw export begin alike (aiperfraw.go).

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// sniffAIPerf reports whether a file is profile_export.jsonl of AIPerf.
func sniffAIPerf(head []byte) bool { return containsAll(head, `"request_start_ns"`, `"metadata"`) }

// readAIPerf reads one request a line, of the export or of the raw export. Of the export it also notes
// what is compared later: the figures that AIPerf derived for each request, and the sums over all
// requests, which its summary in another file states too.
func (c *Reader) readAIPerf(f *clientFile) error {
	load := c.newLoad(f.src.Name)
	before := len(c.Requests)
	var sums requestSums
	isRaw := false // the raw export has no derived figures
	err := c.readLines(f.src, func(line []byte) (trace.ObservedRequest, error) {
		var parsed aiperfLine
		if err := trace.UnmarshalJSON(line, &parsed); err != nil {
			return trace.ObservedRequest{}, err
		}
		r, err := parsed.request()
		if err == nil {
			load.extend(&r)
			isRaw = isRaw || parsed.StartPerf.OK
			parsed.addTo(&sums, &r)
		}
		return r, err
	})
	c.addLoad(load)
	if !isRaw {
		c.stated = append(c.stated, statedLoad{name: load.Name, totals: sums.contradictions()})
		c.beside = append(c.beside, besideFile{
			name:  f.src.Name,
			form:  "genai-perf", // AIPerf's summary has the form of its predecessor's
			sums:  sums,
			sends: sendsOf(c.Requests[before:]),
		})
	}
	return err
}

// addTo adds what the line states of a request that succeeded (r, without warm-up) to sums, and compares
// each figure that AIPerf derives from others with what these give.
func (j *aiperfLine) addTo(sums *requestSums, r *trace.ObservedRequest) {
	if !r.Success.V || r.LoadOnly.V {
		return
	}
	number := func(key string) float64 { // 0 without the metric
		var v trace.Opt[float64]
		if m, ok := j.Metrics[key]; ok && json.Unmarshal(m.Value, &v) == nil {
			return v.V
		}
		return 0
	}
	prompt := number("input_sequence_length")
	output := number("output_sequence_length")
	ttftS := nanOr(r.TTFTUs) / 1e6
	endS := nanOr(r.E2EUs) / 1e6
	sums.add(prompt, output, ttftS, endS)
	var figures []derivedFigure
	if us, err := j.timeUs("inter_token_latency"); err == nil && output > 1 {
		figures = append(figures, derivedFigure{
			key:      "inter_token_latency",
			stated:   us / 1e3,
			computed: 1e3 * (endS - ttftS) / (output - 1),
		})
	}
	figures = append(figures,
		derivedFigure{
			key:      "prefill_throughput_per_user",
			stated:   number("prefill_throughput_per_user"),
			computed: prompt / ttftS,
		},
		derivedFigure{
			key:      "e2e_output_token_throughput",
			stated:   number("e2e_output_token_throughput"),
			computed: output / endS,
		})
	sums.derive("request "+r.ID, figures)
}

// aiperfLine is one request. Stamps of Metadata are ns of the wall clock, metrics as they are displayed.
type aiperfLine struct {
	Metadata struct {
		ID        string           `json:"x_request_id"`
		Session   int64            `json:"session_num"`
		Turn      int64            `json:"turn_index"`
		Credit    trace.Opt[int64] `json:"credit_issued_ns"` // when the load's plan released the request
		Start     trace.Opt[int64] `json:"request_start_ns"`
		End       trace.Opt[int64] `json:"request_end_ns"`
		Phase     string           `json:"benchmark_phase"`
		Cancelled bool             `json:"was_cancelled"`
	} `json:"metadata"`
	Metrics   map[string]aiperfMetric `json:"metrics"`
	StartPerf trace.Opt[int64]        `json:"start_perf_ns"` // send, monotonic; the raw export alone has it, Status and Responses
	Status    trace.Opt[int64]        `json:"status"`        // of HTTP
	Responses aiperfMessages          `json:"responses"`
	Error     *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// aiperfMetric is a metric of one request, a number or a list, in a unit of its own.
type aiperfMetric struct {
	Value json.RawMessage `json:"value"`
	Unit  string          `json:"unit"`
}

// tokens returns a metric that counts tokens. If it is not a number the result is NaN, which no range
// allows.
func (j *aiperfLine) tokens(key string) trace.Opt[int64] {
	var v trace.Opt[float64]
	if m, ok := j.Metrics[key]; ok && json.Unmarshal(m.Value, &v) != nil {
		v = trace.Some(math.NaN())
	}
	return tokenCount(v)
}

// times decodes a metric into values, a number or a list, and returns the factor from its unit to us.
// If the line does not have the metric, values stay as they are.
func (j *aiperfLine) times(key string, values any) (toUs float64, err error) {
	m, ok := j.Metrics[key]
	if !ok {
		return 1, nil
	}
	if err := json.Unmarshal(m.Value, values); err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	toMs, ok := unitMs[m.Unit]
	if !ok {
		return 0, fmt.Errorf("%s: got the unit %q, want ns, us, ms or sec", key, m.Unit)
	}
	return toMs * 1e3, nil
}

// timeUs returns a metric of the line that is a single time, us; NaN if the line lacks it.
func (j *aiperfLine) timeUs(key string) (float64, error) {
	v := math.NaN()
	toUs, err := j.times(key, &v)
	return v * toUs, err
}

// request returns the request in a line of either export. The server's counts of tokens take precedence
// over those that AIPerf makes of the texts.
func (j *aiperfLine) request() (trace.ObservedRequest, error) {
	if !j.Metadata.Start.OK {
		return trace.ObservedRequest{}, errors.New("got no request_start_ns")
	}
	r := trace.ObservedRequest{
		ID:           j.Metadata.ID,
		Source:       sourceAIPerf,
		Aborted:      trace.Some(j.Metadata.Cancelled),
		Success:      trace.Some(j.Error == nil && !j.Metadata.Cancelled),
		SendWallNs:   j.Metadata.Start,
		EndNs:        j.Metadata.End,
		PromptTokens: firstKnown(j.tokens("usage_prompt_tokens"), j.tokens("input_sequence_length")),
		OutputTokens: firstKnown(j.tokens("usage_completion_tokens"), j.tokens("output_sequence_length")),
		CachedTokens: j.tokens("usage_prompt_cache_read_tokens"),
		Reasoning:    j.tokens("usage_reasoning_tokens"),
	}
	if credit := j.Metadata.Credit; credit.OK && credit.V <= j.Metadata.Start.V {
		r.ClientWaitUs = trace.Some(float64(j.Metadata.Start.V-credit.V) / 1e3)
	}
	if r.ID == "" { // AIPerf's own numbers of the request
		r.ID = fmt.Sprintf("%d-%d", j.Metadata.Session, j.Metadata.Turn)
	}
	if !r.PromptTokens.OK {
		r.PromptTokens = j.tokens("error_isl") // the metric's name for failed requests
	}
	if !r.OutputTokens.OK {
		r.OutputTokens = j.tokens("output_token_count")
	}
	if j.Error != nil {
		r.Error = trace.Some(j.Error.Type + ": " + j.Error.Message)
	}
	if j.Metadata.Phase == deploy.WarmupPhase {
		r.LoadOnly = trace.Some(true)
	}
	if j.StartPerf.OK { // the raw export: times follow from the messages. Status marks such a record for joinRaw.
		r.Status = trace.Some(j.Status.Or(0))
		j.Responses.applyTo(&r, j.StartPerf)
		return r, nil
	}
	ttftUs, err := j.timeUs("time_to_first_token")
	if err != nil {
		return r, err
	}
	visibleUs, err := j.timeUs("time_to_first_output_token")
	if err != nil {
		return r, err
	}
	if !math.IsNaN(visibleUs) {
		r.VisibleUs = trace.Some(visibleUs)
	}
	e2eUs, err := j.timeUs("request_latency")
	if err != nil {
		return r, err
	}
	toUs, err := j.times("inter_chunk_latency", (*numberList)(&r.ChunkGapsUs))
	if err != nil {
		return r, err
	}
	for i := range r.ChunkGapsUs {
		r.ChunkGapsUs[i] *= toUs
	}
	if r.ChunkGapsUs != nil {
		r.Chunks = trace.Some(int64(len(r.ChunkGapsUs) + 1))
	}
	r.Streaming = trace.Some(!math.IsNaN(ttftUs))
	setTimes(&r, j.Metadata.Start, ttftUs, e2eUs)
	return r, nil
}
