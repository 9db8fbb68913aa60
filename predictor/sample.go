package predictor

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
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

// sample is a row and where it comes from.
type sample struct {
	run, at int // run, and place in its Rows
	row     *Row
}

// rowSet are the rows that have a target, in the order of runs and time.
type rowSet struct {
	runs    []*runRows
	samples []sample
	table   *trainingColumns
}

// gatherRows lays the rows of a target out.
func gatherRows(runs []*runRows, target, features string) *rowSet {
	a := &rowSet{runs: runs}
	var rows []*Row
	var run []int32
	for k, x := range runs {
		for i := range x.Rows {
			if row := &x.Rows[i]; targetOf(row, target) > 0 {
				a.samples = append(a.samples, sample{k, i, row})
				rows = append(rows, row)
				run = append(run, int32(k))
			}
		}
	}
	a.table = newTrainingColumns(target, features, rows, run)
	return a
}

// targetOf is what happened to a row's request, ms; 0 when it is unknown.
func targetOf(r *Row, target string) float64 {
	switch target {
	case targetTTFT:
		return r.TTFTMs
	case targetTPOT:
		return r.TPOTMs.Or(0)
	}
	return r.E2EMs.Or(0)
}

// setPhysics puts the estimates of a target into the table.
func (a *rowSet) setPhysics(e []estimates, target string) {
	for i, s := range a.samples {
		a.table.Physics[i] = math.NaN()
		if v := e[s.run][target]; v != nil && v[s.at] > 0 {
			a.table.Physics[i] = v[s.at]
		}
	}
}

// byTime takes the first rows of each run for training, without those whose request
// was alive when the test began (spec#predictor-splits).
func (a *rowSet) byTime() (train, test []int, dropped int) {
	for i, x := range a.samples {
		border := a.runs[x.run].testStartNs()
		switch {
		case x.row.DecisionNs >= border:
			test = append(test, i)
		case !x.row.DepartedNs.OK || x.row.DepartedNs.V >= border:
			dropped++
		default:
			train = append(train, i)
		}
	}
	return train, test, dropped
}

// stratified keeps at most so many rows of each bucket (0: all), in the order
// they came, with their weights.
func stratified(t *trainingColumns, train []int, most int, weights string, seed uint64) (rows []int, w []float64) {
	r := newReservoir[int](buckets, cmp.Or(most, max(1, len(train))), seed)
	for _, i := range train {
		r.Add(t.Bucket[i], i)
	}
	weight := map[int]float64{}
	r.Each(func(_ int, i int, seen float64) {
		rows = append(rows, i)
		switch weights {
		case weightsFlat:
			seen = 1
		case weightsSqrt:
			seen = math.Sqrt(seen)
		}
		weight[i] = seen
	})
	slices.Sort(rows)
	return rows, stat.Map(rows, func(i int) float64 { return weight[i] })
}

// rowsPerBucket is the most rows of a bucket to grow trees on. auto grows trees of each limit on the rows before the last two
// fifths and the last fifth of the training time, and takes the one with the least mean error on the fifths that follow.
func (o *TrainOptions) rowsPerBucket(tab *trainingColumns, early []int) (int, error) {
	if o.BucketRows != "auto" {
		n, _ := strconv.Atoi(o.BucketRows) // none: 0
		return n, nil
	}
	best, least := bucketRows, math.Inf(1)
	before := -1
	for _, most := range []int{bucketRows, 2000, 0} {
		sum := 0.0
		n := 0.0
		grown := 0
		for _, share := range []float64{0.6, 0.8} {
			head, rest := splitTail(tab, early, share)
			next, _ := splitTail(tab, rest, 0.2/(1-share))
			rows, w := stratified(tab, head, most, o.Weights, o.Seed)
			if grown += len(rows); len(head) < leastPart || len(next) < leastPart {
				return best, nil
			}
			m, err := newTrees(tab, rows, w, o.boost())
			if err != nil {
				return 0, err
			}
			for _, i := range next {
				sum = sum + math.Abs(m.Predict(tab, i)/tab.Y[i]-1)
				n += 1
			}
		}
		if grown == before { // the limit binds nowhere
			break
		}
		if before = grown; sum/n < least {
			best, least = most, sum/n
		}
	}
	return best, nil
}

// nearestOf is the median target of the ten nearest other test rows, columns
// standardised: what no model of these columns can be expected to beat by much.
func nearestOf(t *trainingColumns, rows []int) []float64 {
	points := make([]float64, len(rows)*len(t.X))
	for c := range t.X {
		mean, scale := moments(t.X[c], rows)
		for k, i := range rows {
			points[k*len(t.X)+c] = standardised(t.X[c][i], mean, scale)
		}
	}
	n := stat.NewNeighbours(points, len(t.X), stat.Map(rows, func(i int) float64 { return t.Y[i] }))
	out := make([]float64, len(rows))
	for k := range out {
		out[k] = n.Median(k)
	}
	return out
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
