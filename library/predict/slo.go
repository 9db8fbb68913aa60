package predict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/simulate"
)

// Bound is one limit of a service level objective.
type Bound struct {
	Metric string  `json:"metric"` // ttft, itl or e2e
	Figure string  `json:"figure"` // mean, p50, p90 or p99 over requests, of itl over tokens
	Ms     float64 `json:"ms"`
}

// String returns the bound as a user writes it.
func (b Bound) String() string { return fmt.Sprintf("%s.%s=%gms", b.Metric, b.Figure, b.Ms) }

var (
	boundMetrics = []string{"ttft", "itl", "e2e"}
	boundFigures = []string{"mean", "p50", "p90", "p95", "p99"}
)

// ParseSLO reads bounds such as "ttft=500ms,itl.p99=30ms". Without a figure a bound holds for
// the 90th percentile.
func ParseSLO(text string) ([]Bound, error) {
	var out []Bound
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, value, _ := strings.Cut(word, "=")
		metric, figure, _ := strings.Cut(strings.ToLower(name), ".")
		figure = cmp.Or(figure, "p90")
		limit, err := time.ParseDuration(value)
		if err != nil || limit <= 0 || !slices.Contains(boundMetrics, metric) || !slices.Contains(boundFigures, figure) {
			return nil, option.Misusef("--slo: got %q, want ttft, itl or e2e (also .mean, .p50, .p90, .p99) and a time, as in ttft=500ms", word)
		}
		out = append(out, Bound{Metric: metric, Figure: figure, Ms: float64(limit) / 1e6})
	}
	return out, nil
}

// MaxLoad is the highest load at which all bounds are kept.
type MaxLoad struct {
	SLO         []Bound `json:"slo"`
	Concurrency int     `json:"concurrency,omitempty"` // 0: no load keeps them
	RateRPS     float64 `json:"rate_rps,omitempty"`
	Breaks      string  `json:"breaks,omitempty"` // which bound the next higher load that was tried breaks
	TokensPerS  float64 `json:"output_tokens_per_sec_per_gpu"`
}

// brokenBound names the first bound that a run breaks; "" where it keeps all.
func brokenBound(s *simulate.Summary, slo []Bound) string {
	for _, b := range slo {
		v := s.Latency(b.Metric, b.Figure)
		if v == nil {
			return "no " + strings.ToUpper(b.Metric)
		}
		if *v > b.Ms {
			return fmt.Sprintf("%s %s %.4g ms, want at most %g", strings.ToUpper(b.Metric), b.Figure, *v, b.Ms)
		}
	}
	return ""
}

// searchMaxLoad doubles the load until a bound breaks and then halves the interval, down to one
// client or 2 %. It varies clients, or the rate where the question has one.
func (p *Prediction) searchMaxLoad(slo []Bound) (*MaxLoad, error) {
	out := &MaxLoad{SLO: slo}
	try := func(load float64) (kept bool, err error) {
		clients, rate := 0, load
		if p.RateRPS == 0 {
			clients, rate = int(load), 0
		}
		s, err := p.run(clients, rate, nil)
		if err != nil {
			return false, err
		}
		broken := brokenBound(s, slo)
		if broken == "" && rate > 0 && s.Overload.Saturated {
			broken = "the engine does not keep up"
		}
		if broken != "" {
			out.Breaks = broken
			return false, nil
		}
		out.Concurrency = clients
		out.RateRPS = rate
		out.TokensPerS = s.TokensPerSec / float64(p.GPUs)
		return true, nil
	}
	lo := 0.0
	hi := 1.0
	leastStep := 1.0 // clients
	if p.RateRPS > 0 {
		hi = p.RateRPS / 64
		leastStep = 0
	}
	most := math.Max(1<<14*p.RateRPS, 4*float64(p.MaxNumSeqs))
	for hi <= most {
		kept, err := try(hi)
		if err != nil {
			return nil, err
		}
		if !kept {
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
		kept, err := try(mid)
		if err != nil {
			return nil, err
		}
		if kept {
			lo = mid
		} else {
			hi = mid
		}
	}
	return out, nil
}
