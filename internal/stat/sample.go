// Package stat holds the statistics that more than one package reports: each has
// one definition here, and its name or doc comment says which. Every package may
// import it; it imports gonum only.
//
//	sample.go   quantiles, weighted median, mean, order, evenly thinned rows; effective size of a series; draws
//	            that depend on their keys alone; histograms of streams; the five saturation checks and their limits
//	errors.go   errors of predictions: MAPE, WAPE, median and P95 APE, bias, RMSE, skill; the nearest rows'
//	            prediction, for the noise floor; Cholesky factor, solve and inverse; bands along a quantity
//	compare.go  Kolmogorov-Smirnov distance with p-values, Wasserstein distance, Student's t, paired differences
//	portable.go exp, log and powers with the same bits on every architecture
//	list.go     what every element gives, those that are kept, how many they are, their sum
//
// Unknown numbers are NaN; the caller writes them as null. Nothing here depends
// on the order of a map, on the clock or on the number of workers.
package stat

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// Quantile is the p-quantile of a sorted sample, linear between the order
// statistics around p(n-1) (type 7 of Hyndman and Fan, the default of R and
// numpy); p in [0, 1]. NaN without values.
func Quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := p * float64(len(sorted)-1)
	k := int(at)
	if k+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[k] + (at-float64(k))*(sorted[k+1]-sorted[k])
}

// Sorted is a sorted copy.
func Sorted(v []float64) []float64 {
	s := slices.Clone(v)
	Sort(s)
	return s
}

// Sort is slices.Sort, of long lists digit by digit of their bits (Knuth, vol. 3, 5.2.5), in a fifth of the time.
func Sort(v []float64) {
	const long, width = 1 << 10, 11
	if len(v) < long || slices.ContainsFunc(v, math.IsNaN) {
		slices.Sort(v)
		return
	}
	digit := func(x float64, d int) uint64 { // of its bits, so turned that they rise with it
		b := math.Float64bits(x)
		return (b ^ (uint64(int64(b)>>63) | 1<<63)) >> (d * width) % (1 << width)
	}
	var ends [64/width + 1][1 << width]int32
	for _, x := range v {
		for d := range ends {
			ends[d][digit(x, d)]++
		}
	}
	from, to := v, make([]float64, len(v))
	for d := range ends {
		at, sum := &ends[d], int32(0)
		if int(at[digit(v[0], d)]) == len(v) {
			continue // the same everywhere
		}
		for i, n := range at {
			at[i], sum = sum, sum+n
		}
		for _, x := range from {
			i := digit(x, d)
			to[at[i]] = x
			at[i]++
		}
		from, to = to, from
	}
	copy(v, from)
}

// Median is the 0.5-quantile of values in any order, which it leaves as they
// are; NaN without values.
func Median(v []float64) float64 { return Quantile(Sorted(v), 0.5) }

// WeightedMedian is the smallest value whose weight and that of all smaller ones
// reach half the total; NaN without values.
func WeightedMedian(v, w []float64) float64 {
	var total, sum float64
	order := Order(v)
	for _, i := range order {
		total += w[i]
	}
	for _, i := range order {
		if sum += w[i]; sum >= total/2 {
			return v[i]
		}
	}
	return math.NaN()
}

// Mean is that of the values that are not NaN; NaN without any.
func Mean(v []float64) float64 {
	var sum float64
	n := 0
	for _, x := range v {
		if !math.IsNaN(x) {
			sum, n = sum+x, n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// StdErr is the sample standard deviation over the square root of the size, of
// the values that are not NaN; 0 below two of them.
func StdErr(v []float64) float64 {
	m, n := Mean(v), 0
	var squares float64
	for _, x := range v {
		if !math.IsNaN(x) {
			squares, n = squares+(x-m)*(x-m), n+1
		}
	}
	if n < 2 {
		return 0
	}
	return math.Sqrt(squares / float64(n-1) / float64(n))
}

// Order lists the positions of the values from small to large, equal ones as
// they stand.
func Order[V cmp.Ordered](v []V) []int {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(v[a], v[b]) })
	return order
}

// Thin keeps at most n of the values, evenly spread, the first among them.
func Thin[T any](v []T, n int) []T {
	if len(v) <= n {
		return v
	}
	out := make([]T, n)
	for k := range out {
		out[k] = v[ThinAt(k, len(v), n)]
	}
	return out
}

// ThinAt is the place among all of value k of those that Thin keeps.
func ThinAt(k, all, n int) int {
	if all <= n {
		return k
	}
	return k * all / n
}

// Round is v to n significant digits, for numbers that are only drawn.
func Round(v float64, n int) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow(10, float64(n-1)-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// Bounds on the cost of EffectiveSize.
const (
	maxSeriesLag = 500
	maxSeries    = 20_000
)

// EffectiveSize is the number of independent observations that a series in time
// order is worth: n / (1 + 2*sum rho_k), the autocorrelations of the ranks summed
// while the sums of neighbouring pairs stay positive (Geyer's initial positive
// sequence). It lies in [1, n].
//
// Source: Geyer, Statistical Science 7 (1992), section 3.3.
func EffectiveSize(series []float64) float64 {
	n := len(series)
	if n < 4 {
		return float64(n)
	}
	window := series
	if n > maxSeries {
		window = series[(n-maxSeries)/2:][:maxSeries]
	}
	r := ranks(window)
	m := Mean(r)
	for i := range r {
		r[i] -= m
	}
	c0 := autocovariance(r, 0)
	if c0 == 0 {
		return float64(n)
	}
	tau, last := -1.0, math.Inf(1)
	for k := 0; k+1 < min(len(r)/2, maxSeriesLag); k += 2 {
		pair := (autocovariance(r, k) + autocovariance(r, k+1)) / c0
		if pair <= 0 {
			break
		}
		last = min(last, pair)
		tau += 2 * last
	}
	return math.Max(1, math.Min(float64(n), float64(n)/tau))
}

// autocovariance is that of a series whose mean is 0.
func autocovariance(x []float64, lag int) float64 {
	sum := 0.0
	for i := 0; i+lag < len(x); i++ {
		sum += x[i] * x[i+lag]
	}
	return sum / float64(len(x))
}

// ranks count from 0; ties stand at their mean rank.
func ranks(x []float64) []float64 {
	order := Order(x)
	out := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			out[k] = float64(i+j-1) / 2
		}
		i = j
	}
	return out
}

// Draw is a uniform number in [0, 1) that depends on its keys alone: a draw keyed
// by (seed, stream, index) is the same whatever was drawn before, and by whom.
//
// Source: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) over a
// chain of the keys.
func Draw(keys ...uint64) float64 {
	x := uint64(0)
	for _, k := range keys {
		x = mix(x ^ k)
	}
	return float64(x>>11) / (1 << 53)
}

// DrawN is Draw as a whole number in [0, n).
func DrawN(n uint64, keys ...uint64) uint64 { return uint64(Draw(keys...) * float64(n)) }

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// LogNormal is the u-quantile, 0 < u < 1, of the log-normal law with a mean and a squared
// coefficient of variation (variance / mean^2).
func LogNormal(mean, cv2, u float64) float64 {
	sigma2 := math.Log1p(cv2)
	return mean * math.Exp(math.Sqrt(2*sigma2)*math.Erfinv(2*u-1)-sigma2/2)
}

// Histogram counts values >= 0 in bins of a fixed relative width of about 0.4 %:
// quantiles of a stream, no sample kept.
type Histogram struct {
	count []int64   // by bin
	sums  []float64 // of the values in a bin
	n     int64
	sum   float64
	max   float64
}

const (
	binsPerOctave = 177 // 2^(1/177) - 1 = 0.39 %
	binOctaves    = 48
)

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	const bins = binsPerOctave*binOctaves + 1
	return &Histogram{count: make([]int64, bins), sums: make([]float64, bins)}
}

// Add counts x (>= 0) w times; w < 0 takes back what was counted.
func (h *Histogram) Add(x float64, w int64) {
	bin := 0
	if x > 1 {
		bin = min(len(h.count)-1, 1+int(math.Log2(x)*binsPerOctave))
	}
	h.count[bin] += w
	h.n += w
	h.sums[bin] += x * float64(w)
	h.sum += x * float64(w)
	h.max = math.Max(h.max, x)
}

// Merge adds the values of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, w := range other.count {
		h.count[i] += w
		h.sums[i] += other.sums[i]
	}
	h.n, h.sum, h.max = h.n+other.n, h.sum+other.sum, math.Max(h.max, other.max)
}

// N is the number of values.
func (h *Histogram) N() int64 { return h.n }

// Mean is exact; 0 without values.
func (h *Histogram) Mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// Quantile is the p-quantile within 0.4 %: the mean of the bin that holds it
// (0 without values).
func (h *Histogram) Quantile(p float64) float64 {
	want := int64(math.Ceil(p * float64(h.n)))
	seen := int64(0)
	for bin, c := range h.count {
		seen += c
		if c == 0 || seen < want {
			continue
		}
		return math.Min(h.max, h.sums[bin]/float64(c))
	}
	return h.max
}

// Map is f of every element, in order; nil for none.
func Map[T, U any](list []T, f func(T) U) (out []U) {
	out = slices.Grow(out, len(list))
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

// Filter is the elements that keep takes, in order; nil for none.
func Filter[T any](list []T, keep func(T) bool) (out []T) {
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// Count is how many elements is takes.
func Count[T any](list []T, is func(T) bool) (n int) {
	for _, v := range list {
		if is(v) {
			n++
		}
	}
	return n
}

// AppendNew appends to list those of more that it does not hold, each once.
func AppendNew[T comparable](list []T, more ...T) []T {
	for _, v := range more {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// SortStable is slices.SortStableFunc for short lists: the sorting itself stands once in the program, not once for each type.
func SortStable[T any](list []T, cmp func(a, b T) int) {
	sort.SliceStable(list, func(i, j int) bool { return cmp(list[i], list[j]) < 0 })
}

// Keyed is a map of the list's elements, each as of says; of equal keys the last counts.
func Keyed[T, V any, K comparable](list []T, of func(T) (K, V)) map[K]V {
	out := make(map[K]V, len(list))
	for _, x := range list {
		k, v := of(x)
		out[k] = v
	}
	return out
}

// Sum adds up f of every element, in order; the conversion keeps a product in f from being fused with the addition.
func Sum[T any, N int | int64 | float64](list []T, f func(T) N) (sum N) {
	for _, v := range list {
		sum += N(f(v))
	}
	return sum
}

// Limits of the saturation checks: a value above its limit is a hit, and two
// hits mean that the server was overloaded.
const (
	limitFailureShare   = 0.05
	limitQueueRising    = 0.5
	limitPreemptedShare = 0.15
	limitTTFTDrift      = 2
	limitE2ETail        = 10

	hitsThatSaturate = 2
	minCheckRequests = 9 // below it the checks on order and tail say nothing
)

// Names of the checks.
const (
	CheckFailureShare   = "failure_share"
	CheckQueueRising    = "queue_rising_r2"
	CheckPreemptedShare = "preempted_share"
	CheckTTFTDrift      = "ttft_drift"
	CheckE2ETail        = "e2e_p99_over_p50"
)

// Arrival is what the checks need of one request, recorded or simulated. Times
// are of any one clock and unit; NaN is unknown.
type Arrival struct {
	At, Left  float64
	TTFT, E2E float64
	Ended     bool // finished, failed or given up
	Failed    bool // ended without success through no wish of its client
	Engine    bool // reached the engine
	Preempted bool // at least once
}

// Check is one of the five.
type Check struct {
	Name, Doc string
	Value     float64 // NaN: not measurable on these requests
	Limit     float64
	Hit       bool
}

// Saturation runs the five checks over requests in order of arrival and says
// whether the server was saturated.
func Saturation(requests []Arrival) (checks []Check, saturated bool) {
	hits := 0
	for _, c := range []struct {
		name, doc string
		limit     float64
		value     func([]Arrival) float64
	}{
		{CheckFailureShare, "failed requests / ended requests; requests the client gave up do not count", limitFailureShare, failureShare},
		{CheckQueueRising, "R2 of the requests in the system at each arrival against time, where they rise; null while the offered load " +
			"itself rises",
			limitQueueRising, queueRising},
		{CheckPreemptedShare, "requests preempted at least once / requests of the engine", limitPreemptedShare, preemptedShare},
		{CheckTTFTDrift, "median TTFT of the last third of the requests / of the first third", limitTTFTDrift, ttftDrift},
		{CheckE2ETail, "P99 / P50 of E2E", limitE2ETail, e2eTail},
	} {
		v := c.value(requests)
		check := Check{Name: c.name, Doc: c.doc, Value: v, Limit: c.limit, Hit: v > c.limit}
		if check.Hit {
			hits++
		}
		checks = append(checks, check)
	}
	return checks, hits >= hitsThatSaturate
}

// share is the part of the requests with whole that part holds for; NaN of none.
func share(requests []Arrival, whole, part func(*Arrival) bool) float64 {
	var n, of float64
	for i := range requests {
		if a := &requests[i]; whole(a) {
			of++
			if part(a) {
				n++
			}
		}
	}
	return n / of
}

func failureShare(requests []Arrival) float64 {
	return share(requests, func(a *Arrival) bool { return a.Ended }, func(a *Arrival) bool { return a.Failed })
}

func preemptedShare(requests []Arrival) float64 {
	return share(requests, func(a *Arrival) bool { return a.Engine }, func(a *Arrival) bool { return a.Preempted })
}

// queueRising is R2 of the queue against time, 0 where it falls. The queue is
// everything in the system, running included, at each arrival: an engine with
// many seats lets its batch grow long before anything waits. After the last
// arrival every queue falls, so nothing is read there.
func queueRising(requests []Arrival) float64 {
	at := make([]float64, 0, len(requests))
	left := make([]float64, 0, len(requests))
	for i := range requests {
		if a := &requests[i]; !math.IsNaN(a.Left) {
			at = append(at, a.At)
			left = append(left, a.Left)
		}
	}
	if len(at) < minCheckRequests || isRamp(at) {
		return math.NaN()
	}
	Sort(left)
	queue, gone := make([]float64, len(at)), 0
	for i, t := range at {
		for gone < len(left) && left[gone] <= t {
			gone++
		}
		queue[i] = float64(i - gone)
	}
	r := correlation(at, queue)
	if !(r > 0) {
		return 0
	}
	return r * r
}

// correlation is Pearson's, of equally many values; NaN where either does not vary.
func correlation(x, y []float64) float64 {
	mx, my := Mean(x), Mean(y)
	var xx, xy, yy float64
	for i, v := range x {
		dx, dy := v-mx, y[i]-my
		xx += dx * dx
		xy += dx * dy
		yy += dy * dy
	}
	return xy / math.Sqrt(xx*yy)
}

// rampFactor is how much faster the last third of the arrivals may come than
// the first before the load itself is a ramp.
const rampFactor = 1.5

// isRamp reports whether the offered load rises over the arrivals (sorted): a
// growing number of requests in the system then says nothing about saturation.
func isRamp(at []float64) bool {
	n := len(at)
	third := n / 3
	first := at[third] - at[0]
	last := at[n-1] - at[n-1-third]
	return last > 0 && first/last > rampFactor
}

func ttftDrift(requests []Arrival) float64 {
	v := known(requests, func(a *Arrival) float64 { return a.TTFT })
	if len(v) < minCheckRequests {
		return math.NaN()
	}
	third := len(v) / 3
	return over(Median(v[len(v)-third:]), Median(v[:third]))
}

func e2eTail(requests []Arrival) float64 {
	v := known(requests, func(a *Arrival) float64 { return a.E2E })
	if len(v) < minCheckRequests {
		return math.NaN()
	}
	Sort(v)
	return over(Quantile(v, 0.99), Quantile(v, 0.5))
}

// over is a/b, NaN unless b is positive.
func over(a, b float64) float64 {
	if !(b > 0) {
		return math.NaN()
	}
	return a / b
}

func known(requests []Arrival, of func(*Arrival) float64) []float64 {
	v := make([]float64, 0, len(requests))
	for i := range requests {
		if x := of(&requests[i]); !math.IsNaN(x) {
			v = append(v, x)
		}
	}
	return v
}
