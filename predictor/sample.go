package predictor

// This file draws a stratified sample of rows, so that rare loads are not lost among common ones.

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
)

// Bucket returns the bucket of a row in the stratified sample, in [0, buckets).
func Bucket(r *Row) int {
	kv := min(kvBuckets-1, int(kvBuckets*max(0, min(1, r.KVCachePercentage))))
	prefix := int(scoreBucket(max(0, min(1, r.PrefixCacheScore))))
	return (queueBucket(r.NumRequestWaiting)*kvBuckets+kv)*prefixBuckets + prefix
}

// queueBucket returns the queue bucket of a number of waiting requests, in [0, queueBuckets).
func queueBucket(waiting int64) int {
	for b, most := range []int64{0, 2, 5, 10} {
		if waiting <= most {
			return b
		}
	}
	return queueBuckets - 1
}

// reservoir keeps at most a number of items of each bucket of a stream: a uniform
// sample (spec#predictor-sample). Which items it keeps depends only on the seed, the
// bucket and the order of items in the bucket.
type reservoir[T any] struct {
	keep    int
	seed    uint64
	buckets []bucket[T]
}

// bucket has the items kept of one bucket and the number of all it was offered.
type bucket[T any] struct {
	seen  int
	items []T
}

// newReservoir returns an empty reservoir that keeps so many items in each bucket.
func newReservoir[T any](buckets, keep int, seed uint64) *reservoir[T] {
	return &reservoir[T]{keep: keep, seed: seed, buckets: make([]bucket[T], buckets)}
}

// Add offers an item to bucket in.
func (r *reservoir[T]) Add(in int, item T) {
	b := &r.buckets[in]
	b.seen++
	if len(b.items) < r.keep {
		b.items = append(b.items, item)
		return
	}
	// Algorithm R (Vitter, ACM TOMS 11, 1985): the n-th item is kept with probability keep/n.
	if j := stat.DrawN(uint64(b.seen), r.seed, uint64(in), uint64(b.seen)); j < uint64(r.keep) {
		b.items[j] = item
	}
}

// Each calls use with every kept item, in the order of buckets. weight is the number of items of
// the stream that the item represents; weights sum to the length of the stream.
func (r *reservoir[T]) Each(use func(in int, item T, weight float64)) {
	for i := range r.buckets {
		b := &r.buckets[i]
		for _, item := range b.items {
			use(i, item, float64(b.seen)/float64(len(b.items)))
		}
	}
}

// sample is a row and its run.
type sample struct {
	run, at int // run, and place in its Rows
	row     *Row
}

// rowSet has the rows with a measured latency for one target, in the order of runs and time.
type rowSet struct {
	runs    []*runRows
	samples []sample
	table   *trainingColumns // the same rows by column
}

// gatherRows returns the rows that have a target, as samples and as columns.
func gatherRows(runs []*runRows, target, features string) *rowSet {
	a := &rowSet{runs: runs}
	var rows []*Row
	var run []int32
	for k, x := range runs {
		for i := range x.Rows {
			if row := &x.Rows[i]; targetOf(row, target) > 0 {
				a.samples = append(a.samples, sample{run: k, at: i, row: row})
				rows = append(rows, row)
				run = append(run, int32(k))
			}
		}
	}
	a.table = newTrainingColumns(target, features, rows, run)
	return a
}

// targetOf returns the measured latency of a row, ms; 0 when it is unknown.
func targetOf(r *Row, target string) float64 {
	switch target {
	case targetTTFT:
		return r.TTFTMs
	case targetTPOT:
		return r.TPOTMs.Or(0)
	}
	return r.E2EMs.Or(0)
}

// setPhysics sets the estimates of a target in the table.
func (a *rowSet) setPhysics(e []estimates, target string) {
	for i, s := range a.samples {
		a.table.Physics[i] = math.NaN()
		if v := e[s.run][target]; v != nil && v[s.at] > 0 {
			a.table.Physics[i] = v[s.at]
		}
	}
}

// byTime returns the rows of each run up to the border for training and those after it for the
// test. Training rows whose request had not departed when the test began are excluded and counted
// in dropped (spec#predictor-splits).
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

// stratified returns at most so many (most; 0: all) of the training rows in each bucket, in their
// order, with their weights.
func stratified(t *trainingColumns, train []int, most int, weights string,
	seed uint64) (rows []int, w []float64) {
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
	for _, i := range rows {
		w = append(w, weight[i])
	}
	return rows, w
}

// rowsPerBucket returns the limit of rows in a bucket for growing trees. With auto it tries several
// limits: it grows trees on the first three and the first four fifths of the training rows, and
// chooses the limit with the smallest mean error on the fifths that follow.
func (o *TrainOptions) rowsPerBucket(tab *trainingColumns, early []int) (int, error) {
	if o.BucketRows != "auto" {
		n, _ := strconv.Atoi(o.BucketRows) // none: 0
		return n, nil
	}
	best := bucketRows
	least := math.Inf(1)
	before := -1                                      // rows grown on with the limit before
	for _, most := range []int{bucketRows, 2000, 0} { // 0: no limit
		var (
			sum   float64 // of absolute percentage errors
			n     float64
			grown int // rows that trees were grown on
		)
		for _, share := range []float64{0.6, 0.8} { // of the rows for training; the fifth after them judges
			head, rest := splitTail(tab, early, share)
			next, _ := splitTail(tab, rest, 0.2/(1-share))
			rows, w := stratified(tab, head, most, o.Weights, o.Seed)
			if len(head) < leastPart || len(next) < leastPart {
				return best, nil
			}
			grown += len(rows)
			m, err := newTrees(tab, rows, w, o.boost())
			if err != nil {
				return 0, err
			}
			for _, i := range next {
				sum += math.Abs(m.Predict(tab, i)/tab.Y[i] - 1)
				n++
			}
		}
		if grown == before {
			break // no bucket reaches the previous limit: higher limits give the same trees
		}
		before = grown
		if sum/n < least {
			best = most
			least = sum / n
		}
	}
	return best, nil
}

// nearestOf returns for each test row the median latency of its ten nearest other test rows, with
// columns standardised. The error of this prediction is a noise floor, where no model has a smaller
// one: a model of these columns cannot be expected to be much better.
func nearestOf(t *trainingColumns, rows []int) []float64 {
	points := make([]float64, len(rows)*len(t.X))
	for c := range t.X {
		mean, scale := moments(t.X[c], rows)
		for k, i := range rows {
			points[k*len(t.X)+c] = standardised(t.X[c][i], mean, scale)
		}
	}
	neighbours := stat.NewNeighbours(points, len(t.X), t.targetsAt(rows))
	out := make([]float64, len(rows))
	for k := range out {
		out[k] = neighbours.Median(k)
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
