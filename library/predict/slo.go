package predict

// This file searches for the highest load at which the latencies meet their targets.

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bound is one limit of a service level objective as the document of predict has it.
type Bound struct {
	Metric string  `json:"metric"` // ttft, tpot, itl or e2e
	Figure string  `json:"figure"` // mean or a percentile over requests, of itl over tokens
	Ms     float64 `json:"ms"`
}

// boundsOf returns the limits of the targets in the form of documents.
func boundsOf(t *Targets) []Bound {
	var out []Bound
	for _, l := range t.Limits {
		out = append(out, Bound{Metric: l.Metric, Figure: l.Figure(), Ms: l.LimitMs})
	}
	return out
}

// MaxLoad is the highest load at which all targets are met.
type MaxLoad struct {
	SLO         []Bound `json:"slo"`
	Goodput     float64 `json:"goodput,omitempty"`
	Concurrency int     `json:"concurrency,omitempty"` // 0: no load meets them
	RateRPS     float64 `json:"rate_rps,omitempty"`
	Breaks      string  `json:"breaks,omitempty"` // which target the next higher load that was tried misses
	TokensPerS  float64 `json:"output_tokens_per_sec_per_gpu"`
}

// brokenText returns a description of the first target that a probe misses; "" if it meets all.
func brokenText(s *Sample, t *Targets) string {
	broken := Broken([]*Sample{s}, t)
	if broken == brokenSaturated {
		return "the engine does not keep up"
	}
	for _, l := range t.Limits {
		if broken != l.Metric+" "+l.Figure() {
			continue
		}
		v := s.Figure(l.Metric, l.Quantile)
		return fmt.Sprintf("%s %s %s ms, want at most %g", strings.ToUpper(l.Metric), l.Figure(), unlike(v, l.LimitMs), l.LimitMs)
	}
	if broken == "goodput" {
		return fmt.Sprintf("goodput %s %%, want at least %.10g %%", unlike(100*s.Goodput(t.Limits), 100*t.Goodput), 100*t.Goodput)
	}
	return broken
}

// unlike returns a number with four digits, or as many as it takes to lie on its side of a limit that it misses.
func unlike(v, limit float64) string {
	const mostDigits = 12
	for digits := 4; ; digits++ {
		text := strconv.FormatFloat(v, 'g', digits, 64)
		shown, err := strconv.ParseFloat(text, 64)
		if digits == mostDigits || err != nil || shown != limit && (shown < limit) == (v < limit) {
			return text
		}
	}
}

// ProbeRequests are measured to decide whether a load meets the targets.
const ProbeRequests = 500

// probe simulates a load in its steady state with one seed. warmUpS is the warm-up of an idle server.
func (p *Prediction) probe(load Load, warmUpS float64) (*Sample, error) {
	steady := p.SteadyState(load, 1, warmUpS, max(ProbeRequests, 2*load.Clients))
	for {
		stretch, err := steady.Stretch(p.options.Seed, 1)
		if err != nil {
			return nil, err
		}
		stretch.AtMeanRate()
		s, _, err := p.serve(stretch, p.options.Seed, nil)
		if err != nil || !steady.Lengthen(s) {
			return s, err
		}
	}
}

// searchMaxLoad returns the highest load that meets the targets. It doubles the load until a target
// is missed and then halves the interval, down to one client or 2 %. It varies clients, or the rate
// if the question has one. It starts at one client, or at the rate divided by a power of 64 with which a target is
// met, and ends at four times max_num_seqs clients for each rank, or 16,384 times the rate, which no server reaches.
func (p *Prediction) searchMaxLoad(load *Load, warmUpS float64, targets *Targets) (*MaxLoad, error) {
	out := &MaxLoad{SLO: boundsOf(targets), Goodput: targets.Goodput}
	try := func(amount float64) (meets bool, err error) {
		own := load.WithAmount(amount)
		s, err := p.probe(own, warmUpS)
		if err != nil {
			return false, err
		}
		if broken := brokenText(s, targets); broken != "" {
			out.Breaks = broken
			return false, nil
		}
		out.Concurrency = own.Clients
		out.RateRPS = own.RateRPS
		out.TokensPerS = float64(s.Tokens) / s.ServedS / float64(p.GPUs)
		return true, nil
	}
	lo := 0.0        // the highest load that met the targets
	hi := 1.0        // the lowest load that did not, once the doubling ends
	leastStep := 1.0 // clients; 0: of rates
	if load.Clients == 0 {
		hi = load.RateRPS / 64
		leastStep = 0
	}
	most := math.Max(1<<14*load.RateRPS, 4*float64(p.MaxNumSeqs*p.DP))
	// A rate far above what the server can do: down to one that leaves it idle nearly always.
	for idleRPS := 0.01 * WarmUpAnswers / warmUpS; leastStep == 0 && hi > idleRPS; hi /= 64 {
		meets, err := try(hi)
		if err != nil {
			return nil, err
		}
		if meets {
			break
		}
	}
	for hi <= most {
		meets, err := try(hi)
		if err != nil {
			return nil, err
		}
		if !meets {
			break
		}
		lo = hi
		hi *= 2
	}
	for hi-lo > max(leastStep, 0.02*lo) && lo > 0 {
		mid := (lo + hi) / 2
		if leastStep > 0 {
			mid = math.Floor(mid)
		}
		meets, err := try(mid)
		if err != nil {
			return nil, err
		}
		if meets {
			lo = mid
		} else {
			hi = mid
		}
	}
	return out, nil
}
