package forms

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
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
		now := b.of(engine, what)
		before := a.of(engine, what)
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

// Counters are what one answer of /metrics says of the prefix cache, of drafts (tokens) and of preemptions since
// the server started, over all of its engines.
type Counters struct {
	Name                              string
	Queries, Hits, Drafted, Preempted int64
	IsSGLang                          bool // whose pages run.yaml does not tell
}

// mostMetrics bounds an answer of /metrics, bytes.
const mostMetrics = 64 << 20

// ReadCounters reads the counters of a file; ok is false where it lacks one, or one is no count.
func ReadCounters(in *source.Input, how source.Options) (c Counters, ok bool, err error) {
	src, err := source.Open(in, how.Stdin, how.Limits)
	if src == nil {
		return c, false, err
	}
	defer func() {
		in.Size, in.Sum = src.Digest()
		src.Close()
	}()
	if e := source.AsSyntax(err); e != nil && e.Code != source.CodeNotOTLP {
		return c, false, e
	}
	text, err := io.ReadAll(io.LimitReader(src.R, mostMetrics))
	if err != nil {
		return c, false, src.ReadError(err)
	}
	c.Name = in.Name
	counts := map[*int64]bool{}
	names := map[string]*int64{"vllm:prefix_cache_queries_total": &c.Queries, "sglang:prompt_tokens_total": &c.Queries,
		"vllm:prefix_cache_hits_total": &c.Hits, "sglang:cached_tokens_total": &c.Hits,
		"vllm:spec_decode_num_draft_tokens_total": &c.Drafted, "vllm:num_preemptions_total": &c.Preempted}
	for line := range strings.Lines(string(text)) {
		name, _, fields := metricLine(line)
		to := names[name]
		if to == nil {
			continue
		}
		v, err := strconv.ParseFloat(strings.Join(fields[:min(1, len(fields))], ""), 64)
		if err != nil || !(v >= 0 && v < 1<<53) {
			return c, false, nil
		}
		*to += int64(v)
		counts[to], c.IsSGLang = true, strings.HasPrefix(name, "sglang:")
	}
	return c, counts[&c.Queries] && counts[&c.Hits], nil
}

// Drafts says, after Check, of an engine that drafts tokens what its passes and clients make of them: drafted
// tokens are the generation tokens beyond the requests of each pass, and a stream has one
// chunk a pass.
func (g *Pairing) Drafts(answers []Counters) string {
	passes, tokens := 0.0, 0.0
	for i := range g.rows {
		if r := &g.rows[i]; r.Chunks.V > 1 && r.OutputTokens.V > 1 {
			passes = passes + float64(r.Chunks.V-1)
			tokens = tokens + float64(r.OutputTokens.V-1)
		}
	}
	counted := ""
	if n := len(answers); n > 0 {
		counted = fmt.Sprintf("; the server counted %d", answers[n-1].Drafted)
	}
	return fmt.Sprintf("speculative decoding: %d tokens were drafted in %d decodes of requests%s; a pass yields %.2f tokens a request",
		g.passes.tokens-g.passes.reqs, g.passes.reqs, counted, tokens/max(1, passes))
}

// Check compares what was found with the counters: answers of /metrics taken where no prompt
// was half counted cut the requests into stretches, and the hits of each must be the
// counters'. Requests of a stretch where one token differs lose what was found. The findings
// say what differs, and which answers fit no place.
func (g *Pairing) Check(answers []Counters) (findings []trace.Finding) {
	g.deltas = map[string]int64{}
	slices.SortStableFunc(answers, func(a, b Counters) int {
		return cmp.Or(cmp.Compare(a.Queries, b.Queries), cmp.Compare(a.Hits, b.Hits))
	})
	order := g.inOrder()
	at, lastK := g.places(answers, order), -1
	for k := range answers {
		if at[k] < 0 {
			continue
		}
		if lastK >= 0 && at[k] > at[lastK] {
			if f := g.compare(&answers[lastK], &answers[k], order[at[lastK]:at[k]]); f != "" {
				findings = append(findings, trace.Findingf(CodeClientFile, "%s", f))
			}
		}
		lastK = k
	}
	if n := stat.Count(at, func(i int) bool { return i < 0 }); n > 0 {
		findings = append(findings, trace.Findingf(CodeClientFile, "%d of %d answers of /metrics count prompts that no number of requests "+
			"in order makes up: another client, or requests were running; the first is %s", n, len(at), answers[slices.IndexFunc(at,
			func(i int) bool { return i < 0 })].Name))
	}
	return findings
}

// inOrder are the rows with chunks, in order of the first that is known.
func (g *Pairing) inOrder() []int {
	var out []int
	for i := range g.rows {
		if r := &g.rows[i]; (r.FirstChunkNs.OK || r.LastChunkNs.OK) && r.PromptTokens.OK {
			out = append(out, i)
		}
	}
	at := func(i int) int64 { return g.rows[i].FirstChunkNs.Or(g.rows[i].LastChunkNs.V) }
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(at(a), at(b)) })
	return out
}

// places finds how many requests, in order, each answer has counted, -1 where no number fits:
// by the shift that most answers agree on.
func (g *Pairing) places(answers []Counters, order []int) []int {
	sum := int64(0)
	sums := map[int64]int{0: 0}
	starts := []int64{0}
	for i, row := range order {
		sum += g.rows[row].PromptTokens.V
		sums[sum] = i + 1
		starts = append(starts, sum)
	}
	out, most := make([]int, len(answers)), 0
	if len(answers) == 0 {
		return out
	}
	const mostShifts = 100_000
	for _, s := range starts[:min(len(starts), mostShifts)] {
		shift := answers[0].Queries - s
		n := stat.Count(answers, func(a Counters) bool { _, ok := sums[a.Queries-shift]; return ok })
		if n > most {
			most = n
			for k, a := range answers {
				if i, ok := sums[a.Queries-shift]; ok {
					out[k] = i
				} else {
					out[k] = -1
				}
			}
		}
		if n == len(answers) {
			break
		}
	}
	return out
}

// compare holds the hits of rows, which two answers enclose, against their difference. What
// the server counted beyond those that are told belongs to the others.
func (g *Pairing) compare(a, b *Counters, rows []int) string {
	want := b.Hits - a.Hits
	phase := g.rows[rows[0]].Phase.V
	of := func(i int) bool { return g.rows[i].Phase.V == phase }
	if n := stat.Count(rows, of); n == len(rows) && n == stat.Count(g.inOrder(), of) {
		g.deltas[phase] = want
	}
	found, most, ok := g.counted(rows, want)
	if ok {
		return ""
	}
	dropped := 0
	for _, i := range rows {
		r := &g.rows[i]
		if r.CachedSource.V != trace.CachedUsage {
			var none trace.Opt[int64]
			r.CachedTokens = none
			r.CachedSource = trace.Opt[string]{}
			r.CachedMin = none
			r.CachedMax = none
			dropped++
		}
	}
	return fmt.Sprintf("from %s to %s the server counted %d cached tokens, the passes make %d to %d: nothing that they say of these %d "+
		"requests is used", a.Name, b.Name, want, found, found+most, dropped)
}

// counted shares what rows had in the cache, want tokens, among those that nothing else tells.
// found tokens are told, most is what the others may have; false where want is not between.
func (g *Pairing) counted(rows []int, want int64) (found, most int64, ok bool) {
	var open []*guess
	for _, i := range rows {
		r := &g.rows[i]
		found += r.CachedTokens.V
		if !r.CachedTokens.OK {
			hi := g.rules.most(r.PromptTokens.V)
			most += hi
			open = append(open, &guess{row: r, source: trace.CachedCounter, tokens: 0})
			r.CachedMin, r.CachedMax = trace.Some(int64(0)), trace.Some(hi)
		}
	}
	if want < found || want > found+most || (want-found)%max(1, g.rules.Block) != 0 {
		return found, most, false
	}
	for _, o := range open { // in proportion to their prompts, then by whole blocks
		o.tokens = int64(float64(want-found)*float64(o.row.CachedMax.V)/float64(max(1, most))) / g.rules.Block * g.rules.Block
	}
	share(open, want-found)
	for _, o := range open {
		o.row.CachedTokens, o.row.CachedSource = trace.Some(o.tokens), trace.Some(o.source)
		if want == found {
			o.row.CachedMax = o.row.CachedMin
		}
	}
	return found, most, true
}

// rateRequests is how many requests a logged hit rate is of.
const rateRequests = 1000

// Rate shares by the hit rates of the log where nothing else tells of any prompt: none had
// anything where all rates are 0, else the last of one engine tells of up to 1000 requests.
func (g *Pairing) Rate(rates []row) []trace.Finding {
	order := g.inOrder()
	told := stat.Count(g.rows, func(r trace.ObservedRequest) bool { return r.CachedTokens.OK })
	if len(rates) == 0 || len(order) == 0 || g.Paired+told > 0 {
		return nil
	}
	last := rates[len(rates)-1]
	sum := stat.Sum(order, func(i int) int64 { return g.rows[i].PromptTokens.V })
	others := stat.Count(rates, func(r row) bool { return r.Engine != last.Engine })
	hits := last.Rate.V * float64(sum) / float64(max(1, g.rules.Block))
	said := "are taken for all of these prompts"
	if someHit := slices.ContainsFunc(rates, func(r row) bool { return r.Rate.V > 0 }); someHit && len(order)+1000*others > rateRequests {
		said = "are each of the last 1000 requests of one engine, and not used"
	} else if _, _, ok := g.counted(order, int64(math.Round(hits))*max(1, g.rules.Block)); !ok {
		said = "are more than these prompts can have found, and not used"
	}
	return []trace.Finding{trace.Findingf(CodeClientFile, "%d hit rates of the prefix cache in the log, the last %.1f %%, %s: %d prompts",
		len(rates), 100*last.Rate.V, said, len(order))}
}
