package predictor

import "github.com/blis-train/blis-train/internal/stat"

// buckets of the stratified sample, as llm-d's latency predictor cuts them
// (llm-d-latency-predictor 04e44cd, training/training_server.py): requests waiting
// 0, 1-2, 3-5, 6-10, 11+; KV cache in steps of 0.05; prefix score in steps of 0.25.
const (
	queueBuckets  = 5
	kvBuckets     = 20
	prefixBuckets = 4
	buckets       = queueBuckets * kvBuckets * prefixBuckets
	bucketRows    = 500 // rows kept in one bucket
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
