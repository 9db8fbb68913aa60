package autoscale

// This file cuts recordings into windows: periods of time with the mean latencies, rate and lengths
// of their requests. Times are ns.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
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
	Requests       int     // number of requests in the means
	Arrivals       int     // with Prometheus semantics completions
	RateRPS        float64 // Arrivals over the window's length
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
	WindowNs    int64 // length of a window
	HopNs       int64 // from the start of one window to that of the next
	MinRequests int   // a window with fewer is dropped
	Semantics   Semantics
	Limits      Limits // of the engine, for the windows
	Name        string // of the run, for the windows
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
		if samples[i].OK || o.Semantics == byArrival { // Prometheus counts successes alone
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
		prompt2 += promptTokens * promptTokens
		output2 += outputTokens * outputTokens
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

// coveredNs returns the time that windows cover, ns, and the sum of their lengths. Both are 0 for benchmarks, of which
// no times are known.
func coveredNs(windows []window) (covered, sum int64) {
	order := slices.Clone(windows)
	slices.SortStableFunc(order, func(a, b window) int { return cmp.Compare(a.StartNs, b.StartNs) })
	end := int64(math.MinInt64) // of the windows so far
	for i := range order {
		w := &order[i]
		sum += w.EndNs - w.StartNs
		covered += max(0, w.EndNs-max(w.StartNs, end))
		end = max(end, w.EndNs)
	}
	return covered, sum
}

// overlapOf returns how often windows cover a time that they cover, on average: 1 where none overlap, 4 where windows of
// 20 s begin every 5 s.
func overlapOf(windows []window) float64 {
	covered, sum := coveredNs(windows)
	if covered == 0 {
		return 1
	}
	return float64(sum) / float64(covered)
}

// independentWindows returns how many windows of the same length would cover the same time without overlap.
func independentWindows(windows []window) float64 { return float64(len(windows)) / overlapOf(windows) }
