package autoscale

// This file cuts recordings into windows: periods of time with the mean latencies, rate and lengths
// of their requests. Times are ns.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// sample is one request with the values from which windows are measured.
type sample struct {
	ArrivedNs, FirstNs, LastNs int64 // arrival, first token, last token
	Prompt, Cached, Output     int64 // tokens
	OK                         bool  // finished and complete; others count as arrivals only
}

// fromRequests returns samples of the engine's requests: from ARRIVED (QUEUED if unknown),
// FIRST_TOKEN and FINISHED of the tracing fork, or from the spans of unmodified vLLM. n is the
// number of requests without an arrival.
func fromRequests(requests []trace.Request) (samples []sample, n int) {
	for i := range requests {
		r := &requests[i]
		if r.Source == trace.SourceStock {
			if s, ok := stockSample(r); ok {
				samples = append(samples, s)
			} else {
				n++
			}
			continue
		}
		at := r.ArrivedNs
		if !at.OK {
			at = r.QueuedNs
		}
		if !at.OK || !r.CoreID.OK {
			n++
			continue
		}
		hasTimes := r.FirstTokenNs.OK && r.FinishedNs.OK
		hasTokens := r.PromptTokens.OK && r.OutputTokens.OK && r.OutputTokens.V > 0
		samples = append(samples, sample{
			ArrivedNs: at.V,
			FirstNs:   r.FirstTokenNs.V,
			LastNs:    r.FinishedNs.V,
			Prompt:    r.PromptTokens.V,
			Cached:    r.CachedTokens.Or(0),
			Output:    r.OutputTokens.V,
			OK:        r.Success.Or(false) && hasTimes && hasTokens,
		})
	}
	return samples, n
}

// stockSample returns a sample of a span of unmodified vLLM, which has a start and durations; false
// without a start.
func stockSample(r *trace.Request) (sample, bool) {
	s := sample{ArrivedNs: r.StartWallNs.V, Prompt: r.PromptTokens.V, Output: r.OutputTokens.V}
	s.FirstNs = s.ArrivedNs + trace.Ns(r.StockTTFTUs.V)
	s.LastNs = s.FirstNs + trace.Ns(r.StockDecodeUs.V)
	s.OK = r.StockTTFTUs.OK && r.StockDecodeUs.OK && r.PromptTokens.OK && r.OutputTokens.OK && s.Output > 0
	return s, r.StartWallNs.OK
}

// fromObserved returns samples of the client's records: request sent, first and last chunk of the
// answer. If a record has only the engine's clock, these are pick-up and tokens in the engine. n is
// the number of records without a start.
func fromObserved(observed []trace.ObservedRequest) (samples []sample, n int) {
	for i := range observed {
		o := &observed[i]
		at := o.SendNs
		first := o.FirstChunkNs
		last := o.LastChunkNs
		if !at.OK || !first.OK && o.EngineFirstNs.OK {
			at = o.QueuedNs
			first = o.EngineFirstNs
			last = o.EngineLastNs
		}
		if !at.OK {
			n++
			continue
		}
		succeeded := o.Success.Or(false) && !o.Aborted.Or(false)
		hasTokens := o.PromptTokens.OK && o.OutputTokens.OK && o.OutputTokens.V > 0
		samples = append(samples, sample{
			ArrivedNs: at.V,
			FirstNs:   first.V,
			LastNs:    last.V,
			Prompt:    o.PromptTokens.V,
			Output:    o.OutputTokens.V,
			OK:        succeeded && first.OK && last.OK && hasTokens,
		})
	}
	return samples, n
}

// window is the averages over one interval of an engine's time, or of one benchmark.
type window struct {
	Name           string // run, or file and benchmark
	Phase          string
	StartNs, EndNs int64
	Requests       int // number of requests in the means
	Arrivals       int
	RateRPS        float64
	Shape          shape
	Limits         Limits
	TTFTMs, ITLMs  float64 // TTFT over requests, ITL over tokens
	TTFTSeMs       float64 // standard errors from blocks of requests; 0 = unknown
	ITLSeMs        float64
}

// Semantics is the rule by which requests belong to a window.
type Semantics string

const (
	// byArrival uses the requests that arrived in the window.
	byArrival Semantics = "arrival"
	// byPrometheus uses the requests that finished in the window, and their number as the rate, as
	// rate(sum)/rate(count) of vLLM's histograms and vllm:request_success_total do.
	byPrometheus Semantics = "prometheus"
)

// Span is an interval [StartNs, EndNs) of a run in which the load was the same.
type Span struct {
	Phase          string
	StartNs, EndNs int64
	Drop           trace.Code // why its windows are not used; "" if they are
}

// cutOptions decide how the requests of a run are cut into windows.
type cutOptions struct {
	WindowNs, HopNs int64
	MinRequests     int
	Semantics       Semantics
	Limits          Limits
	Name            string
}

// defaultCut is the setting of the autoscalers: windows of a minute with at least 20 requests.
var defaultCut = cutOptions{WindowNs: 60e9, HopNs: 60e9, MinRequests: 20, Semantics: byArrival}

// Check returns an error for the first option out of range.
func (o *cutOptions) Check() error {
	switch {
	case o.WindowNs < 1e9 || o.HopNs < 1e6:
		return trace.Errorf(badOption, "window and hop: got %g s and %g s, want >= 1 s and >= 1 ms",
			float64(o.WindowNs)/1e9,
			float64(o.HopNs)/1e9)
	case o.MinRequests < 2:
		return trace.Errorf(badOption, "min-requests: got %d, want >= 2", o.MinRequests)
	case o.Semantics != byArrival && o.Semantics != byPrometheus:
		return trace.Errorf(badOption, "semantics: got %q, want %s", o.Semantics,
			trace.OneOf([]Semantics{byArrival, byPrometheus}))
	}
	return nil
}

// cutting counts the windows that Cut tried: Windows = kept windows + sum of Dropped.
type cutting struct {
	Windows int
	Dropped map[trace.Code]int
}

// Cut cuts a run into windows within its spans and returns them with their counts. The end of a
// span that is shorter than a window is counted as dropped.
func Cut(samples []sample, spans []Span, o cutOptions) ([]window, cutting, error) {
	if err := o.Check(); err != nil {
		return nil, cutting{}, err
	}
	samples = slices.Clone(samples)
	stat.SortStable(samples, func(a, b sample) int {
		return cmp.Compare(o.windowStampNs(&a), o.windowStampNs(&b))
	})
	var out []window
	c := cutting{Dropped: map[trace.Code]int{}}
	for _, s := range spans {
		for at := s.StartNs; at < s.EndNs; at += o.HopNs {
			c.Windows++
			w, why := o.window(samples, s, at)
			if why != "" {
				c.Dropped[why]++
				if at+o.WindowNs > s.EndNs { // the end of the span is shorter than a window
					break
				}
				continue
			}
			out = append(out, w)
		}
	}
	return out, c, nil
}

// windowStampNs returns the time by which a sample belongs to a window, ns: its last token with
// Prometheus semantics, otherwise its arrival.
func (o *cutOptions) windowStampNs(s *sample) int64 {
	if o.Semantics == byPrometheus {
		return s.LastNs
	}
	return s.ArrivedNs
}

// window returns the window of span s that begins at `at`, or the reason for which it is dropped.
// samples are sorted by windowStampNs.
func (o *cutOptions) window(samples []sample, s Span, at int64) (window, trace.Code) {
	w := window{
		Name:    o.Name,
		Phase:   s.Phase,
		StartNs: at,
		EndNs:   at + o.WindowNs,
		Limits:  o.Limits,
	}
	switch {
	case w.EndNs > s.EndNs:
		return w, fewRequests
	case s.Drop != "":
		return w, s.Drop
	}
	var used []*sample
	lo, _ := slices.BinarySearchFunc(samples, w.StartNs, func(s sample, t int64) int {
		return cmp.Compare(o.windowStampNs(&s), t)
	})
	for i := lo; i < len(samples) && o.windowStampNs(&samples[i]) < w.EndNs; i++ {
		if samples[i].OK {
			used = append(used, &samples[i])
		}
		if samples[i].OK || o.Semantics == byArrival {
			w.Arrivals++
		}
	}
	w.Requests = len(used)
	if w.Requests < o.MinRequests {
		return w, fewRequests
	}
	w.RateRPS = float64(w.Arrivals) / float64(o.WindowNs) * 1e9
	w.measure(used)
	if !(w.ITLMs > 0) || !(w.TTFTMs > 0) {
		return w, noLatency
	}
	return w, ""
}

// seBlocks is the number of blocks of requests from whose means the standard errors of a window are
// computed.
const seBlocks = 5

// measure sets the means of the window. Standard errors come from the means of blocks of
// consecutive requests, because requests that waited for the same step are not independent.
func (w *window) measure(used []*sample) {
	requests := float64(len(used))
	var prompt, cached, output, prompt2, output2 float64
	for _, s := range used {
		promptTokens, outputTokens := float64(s.Prompt), float64(s.Output)
		prompt += promptTokens
		cached += float64(s.Cached)
		output += outputTokens
		prompt2, output2 = prompt2+promptTokens*promptTokens, output2+outputTokens*outputTokens
	}
	cv2 := func(sum, squares float64) float64 {
		if sum == 0 {
			return 0
		}
		return math.Max(0, squares*requests/(sum*sum)-1)
	}
	w.Shape = shape{
		Prompt:    prompt / requests,
		Cached:    math.Min(cached, prompt) / requests,
		Output:    output / requests,
		PromptCV2: cv2(prompt, prompt2),
		OutputCV2: cv2(output, output2),
	}
	w.TTFTMs, w.ITLMs = meansOf(used)
	blocks := min(seBlocks, len(used)/2)
	if blocks < 2 {
		return
	}
	ttft := make([]float64, blocks)
	itl := make([]float64, blocks)
	for b := range blocks {
		ttft[b], itl[b] = meansOf(used[b*len(used)/blocks : (b+1)*len(used)/blocks])
	}
	w.TTFTSeMs = stat.StdErr(ttft)
	w.ITLSeMs = stat.StdErr(itl)
}

// meansOf returns the mean TTFT over requests and the mean gap between tokens over tokens, ms.
func meansOf(used []*sample) (ttftMs, itlMs float64) {
	var ttft, decode, gaps float64
	for _, s := range used {
		ttft += float64(s.FirstNs - s.ArrivedNs)
		decode += float64(s.LastNs - s.FirstNs)
		gaps += float64(s.Output - 1)
	}
	return ttft / float64(len(used)) / 1e6, decode / gaps / 1e6
}

// windowsTable is the name of the table with the windows behind queue.json.
const windowsTable = "windows"

// WindowRow is a row of windows.parquet: one window with the prediction of one estimator. The
// prediction of an online estimator is that of the parameters it had before the window.
type WindowRow struct {
	Server    string             `col:"server" doc:"id in queue.json"`
	Window    int64              `col:"window" doc:"position among the server's kept windows"`
	Name      string             `col:"name" doc:"run, or sweep"`
	Phase     string             `col:"phase" doc:"phase of run.yaml, or the benchmark's strategy"`
	StartNs   int64              `col:"start_ns" unit:"ns" doc:"start, monotonic; 0 for a benchmark"`
	EndNs     int64              `col:"end_ns" unit:"ns" doc:"end, monotonic"`
	HoldOut   bool               `col:"hold_out" doc:"not fitted when scores were made"`
	Speed     trace.Opt[float64] `col:"machine_speed" doc:"measured over predicted step time, over its median in training windows; above 1 is slower"`
	Requests  int64              `col:"requests" doc:"behind the means"`
	RateRPS   float64            `col:"rate_rps" unit:"1/s" doc:"arrivals, or completions with --semantics prometheus"`
	Prompt    float64            `col:"prompt_tokens" unit:"tokens" doc:"mean"`
	Cached    float64            `col:"cached_tokens" unit:"tokens" doc:"mean"`
	Output    float64            `col:"output_tokens" unit:"tokens" doc:"mean"`
	PromptCV2 float64            `col:"prompt_cv2" doc:"variance / mean^2"`
	OutputCV2 float64            `col:"output_cv2" doc:"variance / mean^2"`
	TTFTMs    float64            `col:"ttft_ms" unit:"ms" doc:"measured mean over requests; of a sweep as --ttft says"`
	TTFTSeMs  trace.Opt[float64] `col:"ttft_se_ms" unit:"ms" doc:"standard error from five blocks of requests"`
	ITLMs     float64            `col:"itl_ms" unit:"ms" doc:"measured mean over tokens"`
	ITLSeMs   trace.Opt[float64] `col:"itl_se_ms" unit:"ms" doc:"standard error from five blocks of requests"`
	Estimator string             `col:"estimator" doc:"effective, physical, replica:..., robust or sliding"`
	Verdict   string             `col:"verdict" doc:"what an online estimator did with the window; empty for a fit"`
	TTFTPred  trace.Opt[float64] `col:"ttft_pred_ms" unit:"ms" doc:"with the parameters held before the window"`
	ITLPred   trace.Opt[float64] `col:"itl_pred_ms" unit:"ms" doc:"with the parameters held before the window"`
	NIS       trace.Opt[float64] `col:"nis" doc:"normalised innovation squared"`
	Names     []string           `col:"names" doc:"of the parameters"`
	X         []float64          `col:"x" unit:"ms" doc:"parameters after the window"`
	P         []float64          `col:"p" unit:"ms^2" doc:"their covariance, row by row; empty without one"`
}

// Rows returns the windows of a server with the predictions of its effective and physical
// parameters.
func (f *Calibrated) Rows(flavour Flavour) []WindowRow {
	var out []WindowRow
	for _, e := range []struct {
		name string
		x    []float64
	}{{estEffective, f.X}, {estPhysical, f.Physical.vector(flavour)}} {
		if e.x == nil {
			continue
		}
		for i := range f.Windows {
			r := f.measuredRow(i, flavour, e.name)
			r.X = e.x
			if ttft, itl, ok := predictWindow(flavour, &f.Windows[i], e.x, asSized); ok {
				r.TTFTPred = trace.Some(ttft)
				r.ITLPred = trace.Some(itl)
			}
			out = append(out, r)
		}
	}
	return out
}

// measuredRow returns the measured part of the row of window i.
func (f *Calibrated) measuredRow(i int, flavour Flavour, estimator string) WindowRow {
	w := &f.Windows[i]
	var speed trace.Opt[float64]
	if f.speed != nil {
		speed = trace.Some(f.speed[i])
	}
	known := func(v float64) trace.Opt[float64] { return trace.Opt[float64]{V: v, OK: v > 0} }
	return WindowRow{
		Server:    f.ID,
		Window:    int64(i),
		Name:      w.Name,
		Phase:     w.Phase,
		StartNs:   w.StartNs,
		EndNs:     w.EndNs,
		HoldOut:   i >= f.Split,
		Speed:     speed,
		Requests:  int64(w.Requests),
		RateRPS:   w.RateRPS,
		Prompt:    w.Shape.Prompt,
		Cached:    w.Shape.Cached,
		Output:    w.Shape.Output,
		PromptCV2: w.Shape.PromptCV2,
		OutputCV2: w.Shape.OutputCV2,
		TTFTMs:    w.TTFTMs,
		TTFTSeMs:  known(w.TTFTSeMs),
		ITLMs:     w.ITLMs,
		ITLSeMs:   known(w.ITLSeMs),
		Estimator: estimator,
		Names:     flavour.Parameters(),
	}
}

// stepRows returns the rows of an online estimator.
func (f *Calibrated) stepRows(flavour Flavour, estimator string, steps []step) []WindowRow {
	out := make([]WindowRow, len(steps))
	for k := range steps {
		s := &steps[k]
		r := f.measuredRow(s.Window, flavour, estimator)
		r.Verdict = string(s.Verdict)
		r.X = s.X
		r.NIS = trace.Opt[float64]{V: s.NIS, OK: !math.IsNaN(s.NIS)}
		if s.Innovation != [2]float64{} {
			r.TTFTPred, r.ITLPred = trace.Some(r.TTFTMs-s.Innovation[0]), trace.Some(r.ITLMs-s.Innovation[1])
		}
		for _, row := range s.P {
			r.P = append(r.P, row...)
		}
		out[k] = r
	}
	return out
}

// WriteRows writes windows.parquet in dir.
func WriteRows(dir string, rows []WindowRow) error {
	return table.Write(dir, windowsTable, table.Parquet, rows)
}
