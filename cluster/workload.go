package cluster

// This file draws the requests of experiments. A prefix group is requests that share a prompt
// prefix.

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// load is the description of a workload whose requests are drawn.
type load struct {
	Name      string
	Groups    int        // number of prefix groups, whose frequencies follow Zipf's law
	Prefix    [2]int64   // tokens, log-uniform over groups
	Own       [2]int64   // tokens after the prefix, uniform
	Unique    float64    // share of prompts without a group
	UniqueLen [2]int64   // tokens of such a prompt, uniform
	Output    [2]int64   // tokens, uniform
	CV        float64    // coefficient of variation of the gaps between arrivals; 1 for Poisson
	Newcomer  bool       // one more group from half-time, to which a fifth of the later requests belong
	recording *recording // recorded requests to play; only classes are drawn then
}

// loadOf returns the workload of a preset. requests are those of the user's file, which the workloads
// mooncakePreset and filePreset play; the others draw their own.
func loadOf(name string, requests []sim.Request) (load, error) {
	l := loads[name]
	var err error
	switch name {
	case mooncakePreset:
		l.recording, err = mooncakeRecording(requests)
	case filePreset:
		l.recording, err = fileRecording(requests)
	}
	if l.recording != nil && !(l.recording.lengthUs > 0) {
		err = trace.Errorf(codeBadSpec, "preset %s: got requests of one moment, want arrivals over time", name)
	}
	return l, err
}

// Words describes the load in a sentence for the report.
func (l *load) Words() string {
	if l.recording != nil {
		return l.recording.words()
	}
	s := fmt.Sprintf("one prefix of %d tokens", l.Prefix[0])
	if l.Groups > 1 {
		s = fmt.Sprintf("%d prefix groups of %d to %d tokens", l.Groups, l.Prefix[0], l.Prefix[1])
	}
	s += fmt.Sprintf(", %d to %d own tokens", l.Own[0], l.Own[1])
	if l.Unique > 0 {
		s += fmt.Sprintf(", %.0f %% unique prompts of %d to %d", 100*l.Unique, l.UniqueLen[0], l.UniqueLen[1])
	}
	s += fmt.Sprintf(", %d to %d outputs, gaps of CV %g, 33/34/33 %% critical, standard, sheddable", l.Output[0],
		l.Output[1], l.CV)
	if l.Newcomer {
		s += ", one more group from half-time"
	}
	return s
}

// newcomerGroup is the number of the prefix group that appears at half-time.
const newcomerGroup = 1000

// publishedTargets are the published latency budgets, used as targets. Sheddable is stricter than
// standard there too.
var publishedTargets = map[string]target{"critical": {TTFTUs: 200_000}, "standard": {TTFTUs: 500_000},
	"sheddable": {TTFTUs: 300_000}}

// Keys of the random draws of a request. Each property has its own key, so that a change of one does not
// change the draws of another. They begin after the keys of policies (policy.go).
const (
	streamArrival = 10 + iota
	streamLength
	streamGroup
	streamClass
)

// stream is a random generator that is seeded again for each property of each request.
type stream struct {
	pcg rand.PCG
	rng *rand.Rand
}

// randFor returns the generator of one property (kind) of one request.
func (s *stream) randFor(seed int64, kind, request int) *rand.Rand {
	s.pcg.Seed(uint64(seed), uint64(kind)<<40|uint64(request))
	return s.rng
}

// drawBetween returns a uniform random number between r[0] and r[1], both included.
func drawBetween(rng *rand.Rand, r [2]int64) int64 { return r[0] + rng.Int64N(r[1]-r[0]+1) }

// Draw returns the requests of one seed, which arrive at a mean rate, in requests per second, for
// some seconds.
func (l *load) Draw(seed int64, rate, seconds float64) []sim.Request {
	s := &stream{}
	s.rng = rand.New(&s.pcg)
	if l.recording != nil {
		return l.recording.draw(s, seed, rate, seconds)
	}
	var out []sim.Request
	at := 0.0                  // us
	shape := 1 / (l.CV * l.CV) // of the gamma distribution with this coefficient of variation
	for i := 0; ; i++ {
		if rng := s.randFor(seed, streamArrival, i); l.CV == 1 {
			at += rng.ExpFloat64() / rate * 1e6
		} else {
			at += workload.Gamma(rng, shape) / shape / rate * 1e6
		}
		if at >= seconds*1e6 {
			return out
		}
		out = append(out, l.request(s, seed, i, at, seconds))
	}
}

// request returns request i, which arrives at `at` us of a run of some seconds.
func (l *load) request(s *stream, seed int64, i int, at, seconds float64) sim.Request {
	q := s.arrival(seed, i, at)
	rng := s.randFor(seed, streamGroup, i)
	unique := rng.Float64() < l.Unique
	rank := l.zipf(rng.Float64())
	fresh := rng.Float64() < 0.2
	if l.Newcomer && fresh && at >= seconds*1e6/2 {
		rank = newcomerGroup - 1
	}
	rng = s.randFor(seed, streamLength, i)
	q.OutputTokens = drawBetween(rng, l.Output)
	own := drawBetween(rng, l.Own)
	if unique {
		q.PromptTokens = drawBetween(rng, l.UniqueLen)
	} else {
		q.Group = uint64(rank + 1)
		q.GroupTokens = l.prefixOf(rank)
		q.PromptTokens = q.GroupTokens + own
	}
	return q
}

// arrival returns request i with its arrival, class and target, but without lengths.
func (s *stream) arrival(seed int64, i int, at float64) sim.Request {
	q := sim.Request{ID: strconv.Itoa(i), ArrivalUs: sim.ToUs(at)}
	switch u := s.randFor(seed, streamClass, i).Float64(); {
	case u < 0.33:
		q.SLOClass = "critical"
	case u < 0.67:
		q.SLOClass = "standard"
	default:
		q.SLOClass = "sheddable"
	}
	q.SLOTTFTUs = int64(publishedTargets[q.SLOClass].TTFTUs)
	return q
}

// zipf returns the rank below Groups that the uniform number u selects if rank k has the weight
// 1/(k+1).
func (l *load) zipf(u float64) int {
	sum := 0.0
	for k := range l.Groups {
		sum += 1 / float64(k+1)
	}
	for k := range l.Groups {
		if u -= 1 / float64(k+1) / sum; u < 0 {
			return k
		}
	}
	return l.Groups - 1
}

// prefixOf returns the prefix tokens of the group of a rank: whole blocks of 16, the same for all
// seeds.
func (l *load) prefixOf(rank int) int64 {
	if l.Prefix[0] == l.Prefix[1] {
		return l.Prefix[0]
	}
	u := rand.New(rand.NewPCG(uint64(rank), 77)).Float64() // 77 is an arbitrary constant
	lo := math.Log(float64(l.Prefix[0]))
	hi := math.Log(float64(l.Prefix[1]))
	return int64(math.Exp(lo+u*(hi-lo))) / 16 * 16
}

// digestOf returns a hash of arrivals, lengths and content of the requests, by which runs of equal
// requests are recognised.
func digestOf(reqs []sim.Request) string {
	h := fnv.New64a()
	for i := range reqs {
		q := &reqs[i]
		fmt.Fprintln(h, q.ArrivalUs, q.PromptTokens, q.OutputTokens, q.Group, q.GroupTokens, q.Hashes, q.SLOClass)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
