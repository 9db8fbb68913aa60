package forms

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Snapshot is one answer of vLLM's /metrics: its histograms by engine.
type Snapshot struct {
	Name    string
	AtNs    int64 // wall clock: the text's own time stamps, else what the caller knows
	engines map[string]map[string]*histogram
}

// histogram is a metric's sum, count and cumulative buckets.
type histogram struct {
	sum, count float64
	buckets    []bucket
}

type bucket struct{ le, n float64 }

// Metrics that are read, by what they measure; older names behind the newer.
var metrics = map[string]string{
	"vllm:time_to_first_token_seconds": "ttft", "vllm:inter_token_latency_seconds": "itl", "vllm:time_per_output_token_seconds": "itl",
	"vllm:e2e_request_latency_seconds": "e2e", "vllm:request_prompt_tokens": "prompt", "vllm:request_generation_tokens": "output",
}

// IsMetrics recognises Prometheus text with metrics of vLLM, or of SGLang.
func IsMetrics(data []byte) bool {
	text := bytes.TrimSpace(data)
	return slices.ContainsFunc([]string{"vllm:", "sglang:"}, func(engine string) bool {
		return bytes.HasPrefix(text, []byte(engine)) || bytes.HasPrefix(text, []byte("#")) && bytes.Contains(text, []byte("\n"+engine))
	})
}

// ReadSnapshot reads one answer of /metrics; atNs is when it was asked for, where
// the text does not say. Lines of other metrics are skipped.
func ReadSnapshot(data []byte, name string, atNs int64) (*Snapshot, error) {
	s := &Snapshot{Name: name, AtNs: atNs, engines: map[string]map[string]*histogram{}}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		if !strings.HasPrefix(line, "vllm:") {
			continue
		}
		if err := s.line(strings.TrimSpace(line)); err != "" {
			return nil, &trace.SyntaxError{File: name, Line: int64(number), Code: CodeUnknownFile, Msg: err}
		}
	}
	for _, e := range s.engines {
		for _, h := range e {
			slices.SortStableFunc(h.buckets, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
		}
	}
	if len(s.engines) == 0 {
		return nil, &trace.SyntaxError{File: name, Line: 1, Code: CodeUnknownFile,
			Msg: "got no histogram of vLLM, want /metrics of a server that has served"}
	}
	return s, nil
}

// line reads `name{labels} value [ms]`; the text says what is wrong.
func (s *Snapshot) line(text string) string {
	name, labels, fields := metricLine(text)
	if len(fields) == 0 {
		return "" // a metric without labels is none of ours
	}
	suffix := name[strings.LastIndexByte(name, '_')+1:]
	what := metrics[strings.TrimSuffix(name, "_"+suffix)]
	if what == "" {
		return ""
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || math.IsNaN(v) || v < 0 {
		return "metric " + name + ": got " + strconv.Quote(fields[0]) + ", want a number >= 0"
	}
	if len(fields) > 1 {
		if ms, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			s.AtNs = ms * 1e6
		}
	}
	h := s.of(labelOf(labels, "engine"), what)
	switch suffix {
	case "sum":
		h.sum = v
	case "count":
		h.count = v
	case "bucket":
		le, err := strconv.ParseFloat(labelOf(labels, "le"), 64)
		if err != nil {
			return "metric " + name + ": got no bound le"
		}
		h.buckets = append(h.buckets, bucket{le, v})
	}
	return ""
}

// metricLine parts `name{labels} value [ms]`; there are no fields where it has no labels.
func metricLine(text string) (name, labels string, fields []string) {
	name, rest, _ := strings.Cut(text, "{")
	labels, value, _ := strings.Cut(rest, "} ")
	return name, labels, strings.Fields(value)
}

func (s *Snapshot) of(engine, what string) *histogram {
	if s.engines[engine] == nil {
		s.engines[engine] = map[string]*histogram{}
	}
	if s.engines[engine][what] == nil {
		s.engines[engine][what] = &histogram{}
	}
	return s.engines[engine][what]
}

// labelOf is the value of a label; "" without one.
func labelOf(labels, name string) string {
	for _, part := range strings.Split(labels, ",") {
		if k, v, ok := strings.Cut(part, "="); ok && k == name {
			return strings.Trim(v, `"`)
		}
	}
	return ""
}

// median is the middle of the bucket that holds half of what came between two
// answers: within a bucket nothing is known. That of the last bucket is its lower bound.
func (h *histogram) median(before *histogram) float64 {
	n := h.count - before.count
	lower := 0.0
	for i, b := range h.buckets {
		c := b.n
		if i < len(before.buckets) && before.buckets[i].le == b.le {
			c -= before.buckets[i].n
		}
		if c >= n/2 && n > 0 {
			if math.IsInf(b.le, 1) {
				return lower
			}
			return (lower + b.le) / 2
		}
		lower = b.le
	}
	return math.NaN()
}

// leastBetween is how many requests two answers must lie apart to be a point.
const leastBetween = 10

// Between makes a point of every two answers that follow each other, engine by
// engine: rate and means are exact, the median of TTFT is known to its bucket.
// Answers without requests between them, and those across a restart, are dropped.
func Between(snapshots []*Snapshot) *File {
	f := &File{Dropped: map[trace.Code]int{}}
	list := slices.Clone(snapshots)
	slices.SortStableFunc(list, func(a, b *Snapshot) int { return cmp.Compare(a.AtNs, b.AtNs) })
	for i := 1; i < len(list); i++ {
		for _, e := range slices.Sorted(maps.Keys(list[i].engines)) {
			f.between(list[i-1], list[i], e)
		}
	}
	return f
}

func (f *File) between(a, b *Snapshot, engine string) {
	at := a.Name + " to " + b.Name + ", engine " + engine
	seconds := float64(b.AtNs-a.AtNs) / 1e9
	d := map[string][2]*histogram{}
	for _, what := range []string{"ttft", "itl", "e2e", "prompt", "output"} {
		now, before := b.of(engine, what), a.of(engine, what)
		if now.count < before.count || now.sum < before.sum {
			f.Read++
			f.drop(incomplete, "%s: %s counts %g requests after %g: the server started again", at, what, now.count, before.count)
			return
		}
		d[what] = [2]*histogram{now, before}
	}
	n := d["e2e"][0].count - d["e2e"][1].count
	if n < leastBetween || !(seconds > 0) {
		f.Read++
		f.drop(incomplete, "%s: got %g requests in %g s, want at least %d in more than 0 s", at, n, seconds, leastBetween)
		return
	}
	mean := func(what string) float64 {
		return (d[what][0].sum - d[what][1].sum) / (d[what][0].count - d[what][1].count)
	}
	f.keep(Point{Sweep: "metrics, engine " + engine, Strategy: "metrics@" + strconv.FormatFloat(n/seconds, 'g', 4, 64), Requests: int(n),
		RateRPS: n / seconds, Concurrency: (d["e2e"][0].sum - d["e2e"][1].sum) / seconds, PromptTokens: mean("prompt"),
		OutputTokens: mean("output"), TTFTMeanMs: 1e3 * mean("ttft"), TTFTMedianMs: 1e3 * d["ttft"][0].median(d["ttft"][1]),
		ITLMs: 1e3 * mean("itl")}, at)
}
