package predictor

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// columns are the rows of one target, column by column.
type columns struct {
	Features []Feature
	X        [][]float64 // [column][row]; NaN unknown
	Y        []float64   // ms, > 0
	Run      []int32     // whose row it is
	Waiting  []int64
	Prefix   []float64
	Bucket   []int // of the stratified sample
	Physics  []float64
}

// newColumns lays rows out as columns. Physics estimates (ms) are NaN until set.
func newColumns(target, features string, rows []*Row, run []int32) *columns {
	t := &columns{Features: featuresOf(target == targetTPOT, features), Run: run}
	t.X = make([][]float64, len(t.Features))
	for c := range t.Features {
		f := &t.Features[c]
		t.X[c] = make([]float64, len(rows))
		for i, r := range rows {
			if !f.IsCategory {
				t.X[c][i] = f.of(r)
			}
		}
	}
	for _, r := range rows {
		t.Y, t.Waiting, t.Prefix = append(t.Y, targetOf(r, target)), append(t.Waiting, r.NumRequestWaiting), append(t.Prefix, r.PrefixCacheScore)
		t.Bucket = append(t.Bucket, Bucket(r))
		t.Physics = append(t.Physics, math.NaN())
	}
	return t
}

// Row copies a row into x.
func (t *columns) Row(i int, x []float64) {
	for c := range t.X {
		x[c] = t.X[c][i]
	}
}

// pick is the columns of some rows.
func (t *columns) pick(rows []int) [][]float64 {
	out := make([][]float64, len(t.X))
	for c := range t.X {
		out[c] = make([]float64, len(rows))
		for k, i := range rows {
			out[c][k] = t.X[c][i]
		}
	}
	return out
}

// IsQueued reports whether somebody waits before a row's request.
func (t *columns) IsQueued(i int) bool { return t.Waiting[i] > 0 }

// group is the index of a row's conformal factor (forest.LevelFactors).
func (t *columns) group(i int) int {
	g := 0
	if t.Waiting[i] > 0 {
		g = 2
	}
	if t.Prefix[i] >= 0.5 {
		g++
	}
	return g
}

// splitTail parts rows into the first share of each run and the rest, both in the
// order of rows.
func splitTail(t *columns, rows []int, share float64) (head, tail []int) {
	count, seen := map[int32]int{}, map[int32]int{}
	for _, i := range rows {
		count[t.Run[i]]++
	}
	for _, i := range rows {
		run := t.Run[i]
		if seen[run]++; float64(seen[run]) <= share*float64(count[run]) {
			head = append(head, i)
		} else {
			tail = append(tail, i)
		}
	}
	return head, tail
}

// moments are the mean and the standard deviation of a column's known values; a
// column that does not vary counts as 0.
func moments(column []float64, rows []int) (mean, scale float64) {
	known := stat.Filter(stat.Map(rows, func(i int) float64 { return column[i] }), func(v float64) bool { return !math.IsNaN(v) })
	if len(known) == 0 {
		return 0, 0
	}
	mean = stat.Mean(known)
	squares := stat.Sum(known, func(v float64) float64 { return (v - mean) * (v - mean) })
	return mean, math.Sqrt(squares / float64(len(known)))
}

// standardised is 0, the mean, for an unknown value and for a column without spread.
func standardised(v, mean, scale float64) float64 {
	if math.IsNaN(v) || scale == 0 {
		return 0
	}
	return (v - mean) / scale
}

// buckets of the stratified sample, as llm-d's latency predictor cuts them
// (llm-d-latency-predictor 04e44cd, training/training_server.py): requests waiting
// 0, 1-2, 3-5, 6-10, 11+; KV cache in steps of 0.05; prefix score in steps of 0.25.
const (
	queueBuckets  = 5
	kvBuckets     = 20
	prefixBuckets = 4
	buckets       = queueBuckets * kvBuckets * prefixBuckets
	bucketRows    = 500 // rows kept in one bucket: LATENCY_MAX_TRAINING_DATA_SIZE_PER_BUCKET of the server
)

// Bucket is the place of a row in [0, Buckets).
func Bucket(r *Row) int {
	kv := min(kvBuckets-1, int(kvBuckets*max(0, min(1, r.KVCachePercentage))))
	return (queueBucket(r.NumRequestWaiting)*kvBuckets+kv)*prefixBuckets + int(scoreBucket(max(0, min(1, r.PrefixCacheScore))))
}

// queueBucket is the place of a number of waiting requests among the queue buckets.
func queueBucket(waiting int64) int {
	for b, most := range []int64{0, 2, 5, 10} {
		if waiting <= most {
			return b
		}
	}
	return queueBuckets - 1
}

// reservoir keeps at most a number of items per bucket of a stream: a uniform
// sample of all that came (spec#predictor-sample). Which items a sample keeps depends on
// the seed, the bucket and the order in it alone.
type reservoir[T any] struct {
	keep    int
	seed    uint64
	buckets []bucket[T]
}

type bucket[T any] struct {
	seen  int
	items []T
}

// newReservoir makes an empty one.
func newReservoir[T any](buckets, keep int, seed uint64) *reservoir[T] {
	return &reservoir[T]{keep: keep, seed: seed, buckets: make([]bucket[T], buckets)}
}

// Add offers an item.
func (r *reservoir[T]) Add(in int, item T) {
	b := &r.buckets[in]
	b.seen++
	switch {
	case len(b.items) < r.keep:
		b.items = append(b.items, item)
	default: // algorithm R (Vitter, ACM TOMS 11, 1985): the n-th stays with probability keep/n
		if j := stat.DrawN(uint64(b.seen), r.seed, uint64(in), uint64(b.seen)); j < uint64(r.keep) {
			b.items[j] = item
		}
	}
}

// Each hands every kept item to use, bucket by bucket, with the number of items it
// stands for; those numbers add up to all that came.
func (r *reservoir[T]) Each(use func(in int, item T, weight float64)) {
	for i := range r.buckets {
		b := &r.buckets[i]
		for _, item := range b.items {
			use(i, item, float64(b.seen)/float64(len(b.items)))
		}
	}
}

const (
	windowNs        = 60_000_000_000 // of arrivals, where nothing says what was offered
	leastWindows    = 9
	leastDispersion = 2.0 // variance / mean of the windows' counts that a constant rate does not reach
)

// stagesOf says in which load stage of the run each request arrived, counted from
// 0 in time (lives are in order of arrival). A stage is, by what is known: a phase
// of run.yaml other than the warm-up; a stretch of workload.stage_requests
// arrivals; else windows of 60 s (a ninth of a shorter run) whose arrival rates fall into the
// same third, where the rates differ by more than chance.
func stagesOf(lives []life, d *deploy.Deployment) []trace.Opt[int64] {
	out := make([]trace.Opt[int64], len(lives))
	if named := openPhases(d); len(named) > 0 {
		for i := range lives {
			for k, p := range named {
				if at := lives[i].arrived; at.OK && at.V >= p.StartNs && at.V < p.EndNs {
					out[i] = trace.Some(int64(k))
				}
			}
		}
		return out
	}
	if counts := stageRequests(d); len(counts) > 1 {
		stage, left := 0, counts[0]
		for i := range lives {
			for left < 1 && stage+1 < len(counts) {
				stage++
				left = counts[stage]
			}
			out[i] = trace.Some(int64(stage))
			left--
		}
		return out
	}
	windowStages(lives, out)
	return out
}

// openPhases are the phases of run.yaml other than the warm-up.
func openPhases(d *deploy.Deployment) []deploy.Phase {
	return stat.Filter(d.Phases, func(p deploy.Phase) bool { return p.Name != deploy.WarmupPhase })
}

// stageRequests is workload.stage_requests of run.yaml, nil without it.
func stageRequests(d *deploy.Deployment) []int64 {
	values, _ := d.Workload["stage_requests"].([]any)
	var out []int64
	for _, v := range values {
		switch n := v.(type) {
		case int:
			out = append(out, int64(n))
		case int64:
			out = append(out, n)
		case float64:
			out = append(out, int64(n))
		default:
			return nil
		}
	}
	return out
}

// windowStages ranks windows by their number of arrivals and cuts the ranks into
// thirds. Where the counts scatter as a constant rate's do there is one stage.
func windowStages(lives []life, out []trace.Opt[int64]) {
	known := lives // those without an arrival come first
	for len(known) > 0 && !known[0].arrived.OK {
		known, out = known[1:], out[1:]
	}
	if len(known) == 0 {
		return
	}
	first := known[0].arrived.V
	span := known[len(known)-1].arrived.V - first
	width := min(windowNs, span/leastWindows+1)
	n := int(span/width) + 1
	window := func(i int) int { return int((known[i].arrived.V - first) / width) }
	counts, stage := make([]float64, n), make([]int64, n)
	for i := range known {
		counts[window(i)]++
	}
	mean, variance := float64(len(known))/float64(n), 0.0
	for _, c := range counts {
		variance += (c - mean) * (c - mean) / math.Max(1, float64(n-1))
	}
	if variance > leastDispersion*mean {
		for k, w := range stat.Order(counts) {
			stage[w] = int64(k * 3 / n)
		}
	}
	for i := range known {
		out[i] = trace.Some(stage[window(i)])
	}
}
