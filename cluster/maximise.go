package cluster

// This file searches for the parameters of a policy that maximise its goodput: by a Gaussian
// process (expected improvement), at random, or on a grid. Points lie in the unit cube; tune.go
// scales them.

import (
	"cmp"
	"math"

	"gonum.org/v1/gonum/optimize"

	"github.com/blis-train/blis-train/internal/stat"
)

// Value is one noisy evaluation of the function at a point: its value and the slack of the
// constraint, each with its variance. The constraint is met where the slack is not negative.
type Value struct {
	Value, Variance, Slack, SlackVariance float64
}

// Call is one evaluation of the function at a point, as it is written to optimise.jsonl. A search
// that was interrupted continues with the calls read from there.
type Call struct {
	N      int       `json:"call"`
	Method string    `json:"method"`
	X      []float64 `json:"x"`
	Value
}

// search looks for the maximum of a function on the unit cube of Dims dimensions.
type search struct {
	Dims        int
	Method      string // gp, random or grid
	Start       int    // calls before the Gaussian process chooses points
	Calls       int    // further calls
	Seed        int64
	Constrained bool
	Made        []Call           // calls so far, including those of an interrupted search
	Told        func(Call) error // called after every new evaluation, to write it to the log; may be nil
}

// Methods of searching.
const (
	methodGP     = "gp"
	methodRandom = "random"
	methodGrid   = "grid"
)

// found is the result of a search.
type found struct {
	X    []float64
	Mean float64 // posterior mean at X
}

// maximise evaluates f until Start+Calls calls are made, and returns the point among them with the
// best posterior mean that probably meets the constraint.
func (s *search) maximise(f func(x []float64) (Value, error)) (*found, error) {
	for n := len(s.Made); n < s.Start+s.Calls; n++ {
		x := s.next(n)
		v, err := f(x)
		if err != nil {
			return nil, err
		}
		c := Call{N: n, Method: s.Method, X: x, Value: v}
		if s.Made = append(s.Made, c); s.Told != nil {
			if err := s.Told(c); err != nil {
				return nil, err
			}
		}
	}
	best, mean := s.among(s.processes())
	return &found{X: s.Made[best].X, Mean: mean}, nil
}

// next returns the point of call n. With a Gaussian process the first Start points are a Halton
// sequence.
func (s *search) next(n int) []float64 {
	switch {
	case s.Method == methodGrid:
		return s.gridPoint(n)
	case s.Method == methodRandom:
		x := make([]float64, s.Dims)
		for k := range x {
			x[k] = stat.Draw(uint64(s.Seed), uint64(n), uint64(k))
		}
		return x
	case n < s.Start:
		return halton(n, s.Dims, s.Seed)
	}
	return s.propose(n)
}

// streamHalton is the key of the random draws that shift the Halton sequence.
const streamHalton = 77

// gridPoint returns point n of the finest full grid that Start+Calls evaluations can cover.
func (s *search) gridPoint(n int) []float64 {
	side := max(2, int(math.Floor(math.Pow(float64(s.Start+s.Calls), 1/float64(s.Dims))+1e-9)))
	x := make([]float64, s.Dims)
	for k := range x {
		x[k] = float64(n%side) / float64(side-1)
		n /= side
	}
	return x
}

// halton returns point n of the Halton sequence, shifted by the seed: points that cover the unit cube
// more evenly than random ones.
func halton(n, dims int, seed int64) []float64 {
	primes := []int{2, 3, 5, 7, 11, 13, 17, 19, 23, 29}
	x := make([]float64, dims)
	for k := range x {
		base := primes[k%len(primes)]
		f := 1.0
		v := stat.Draw(uint64(seed), streamHalton, uint64(k)) // the shift of this dimension
		for i := n + 1; i > 0; i /= base {
			f /= float64(base)
			v += f * float64(i%base)
		}
		x[k] = v - math.Floor(v)
	}
	return x
}

// processes fits a Gaussian process to the values of the calls made, and another to the slack;
// slack is nil without a constraint.
func (s *search) processes() (value, slack *process) {
	var points [][]float64
	var values, valueVariances, slacks, slackVariances []float64
	for _, call := range s.Made {
		points = append(points, call.X)
		values = append(values, call.Value.Value)
		valueVariances = append(valueVariances, call.Variance)
		slacks = append(slacks, call.Slack)
		slackVariances = append(slackVariances, call.SlackVariance)
	}
	value = fitProcess(points, values, valueVariances)
	if s.Constrained {
		slack = fitProcess(points, slacks, slackVariances)
	}
	return value, slack
}

// candidates is the number of points among which propose chooses; it refines the best few (refined)
// with Nelder-Mead.
const (
	candidates = 300
	refined    = 3
)

// propose returns the point of call n that maximises log expected improvement plus the log
// probability that the constraint is met.
func (s *search) propose(n int) []float64 {
	value, slack := s.processes()
	_, best := s.among(value, slack)
	gain := func(x []float64) float64 {
		for _, v := range x {
			if v < 0 || v > 1 {
				return math.Inf(-1)
			}
		}
		mean, sd := value.predictAt(x)
		gained := logImprovement(mean, sd, best)
		if slack != nil {
			slackMean, slackSD := slack.predictAt(x)
			gained += math.Log(math.Max(1e-12, normalBelow(slackMean/slackSD)))
		}
		return gained
	}
	type scored struct {
		x      []float64
		gained float64
	}
	// Score many points of a Halton sequence, other ones for each call, then climb from the best of them.
	all := make([]scored, candidates)
	for k := range all {
		x := halton(1000+n*candidates+k, s.Dims, s.Seed+1)
		all[k] = scored{x, gain(x)}
	}
	stat.SortStable(all, func(a, b scored) int { return cmp.Compare(b.gained, a.gained) })
	top := all[:refined]
	for i := range top {
		res, err := optimize.Minimize(optimize.Problem{Func: func(x []float64) float64 { return -gain(x) }}, top[i].x,
			&optimize.Settings{FuncEvaluations: 40 * s.Dims}, &optimize.NelderMead{})
		if err == nil && -res.F > top[i].gained {
			top[i] = scored{append([]float64(nil), res.X...), -res.F}
		}
		if top[i].gained > top[0].gained {
			top[0] = top[i]
		}
	}
	return top[0].x
}

// among returns the index of the call with the best posterior mean among those that meet the
// constraint with a probability of at least one half, and that mean. If none does, it returns the
// call with the largest posterior slack.
func (s *search) among(value, slack *process) (best int, mean float64) {
	best = -1
	mean = math.Inf(-1)
	safest := 0
	chance := math.Inf(-1)
	for i, c := range s.Made {
		predicted, _ := value.predictAt(c.X)
		probability := 1.0
		if slack != nil {
			slackMean, slackSD := slack.predictAt(c.X)
			probability = normalBelow(slackMean / slackSD)
			if slackMean > chance {
				safest, chance = i, slackMean
			}
		}
		if probability >= 0.5 && predicted > mean {
			best, mean = i, predicted
		}
	}
	if best < 0 {
		best = safest
		mean, _ = value.predictAt(s.Made[best].X)
	}
	return best, mean
}
