package export

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// blisModel is the fit's name of BLIS's parameterisation.
const blisModel = "trained-physics"

// blisTerm is one position of BLIS's trained-physics coefficients: its name in the registry, its unit there, what BLIS multiplies it
// with, and what a 0 does inside BLIS.
type blisTerm struct{ Name, Units, Role, Zero string }

//go:embed formats.yaml
var formatsYAML []byte

// formats are the terms of BLIS's steps and delays, and the options and the versions of formats.
var formats = files.Embedded[struct {
	Beta, Alpha []blisTerm
	Options     map[Format][]Setting
	Versions    map[Format][]string
}](formatsYAML, "formats.yaml")

// Positions the exporter treats by name.
const (
	blisAllReduce   = 3
	blisMoEDispatch = 10
)

// blisValue is one value as it will be written.
type blisValue struct {
	blisTerm
	value      float64
	ci95       *[2]float64
	identified string
	learned    bool
	origin     string // where the number comes from
}

// learned reports whether the data show a term: not tagged otherwise and not held at the bound of
// its sign (spec#not-learned).
func learned(c result.Coefficient) bool {
	return !c.NotLearned && c.Identified != "prior-only" && c.Value != 0
}

// blisAlphas takes a0 from the overhead target and a1 from egress, each as the
// median prediction of the fitted model on a configuration (nil: on all of them):
// BLIS has one constant where we have a function. a2 is 0: TTFT and ITL are engine
// times here, so there is nothing left to add per token.
func blisAlphas(fit *result.Fit, c *result.FitConfig) ([]blisValue, error) {
	var out []blisValue
	for i, target := range []string{coeff.Overhead, coeff.Egress} {
		if m := fit.AlphaNamed(target); m != nil && !m.Replay {
			return nil, trace.Errorf(NothingToExport, "alpha target %q is marked replay: false, it may not be added as a delay", m.Target)
		}
		v := blisValue{blisTerm: formats().Alpha[i], origin: fmt.Sprintf("no %s target in the fit", target)}
		if us, of, ok := fit.MedianDelayUs(target, c); ok {
			v.value, v.learned, v.identified = us, true, "within"
			v.origin = fmt.Sprintf("median prediction of the %s target%s", target, of)
		}
		out = append(out, v)
	}
	return append(out, blisValue{blisTerm: formats().Alpha[2], learned: true, identified: "by definition",
		origin: "0: TTFT and ITL are measured inside the engine"}), nil
}

// Refusal is one value a consumer should not be given.
type Refusal struct {
	Code     trace.Code
	Sentence string
}

// refusals lists what is wrong with delays, one sentence each.
func refusals(alpha []blisValue) []Refusal {
	var out []Refusal
	for i, v := range alpha {
		at := fmt.Sprintf("alpha[%d] %s = %g %s", i, v.Name, v.value, v.Units)
		switch {
		case !(v.value >= 0) || math.IsInf(v.value, 0):
			out = append(out, Refusal{impossibleValue, at + ": BLIS stops at start-up with \"must be a finite non-negative number\""})
		case !v.learned:
			out = append(out, Refusal{unlearnedValue, at + ": " + v.origin + "; inside BLIS " + v.Zero})
		}
	}
	return out
}

// forceHint stands beside refusals.
const forceHint = "choose other configurations with --config LABEL, or write them all the same with --force %s"

// Refuse turns refusals into an error, but those that the options overrule into warnings. The
// hint takes the codes that would have to be named.
func (o *Options) Refuse(rs []Refusal, hint string) ([]trace.Finding, error) {
	var warn []trace.Finding
	var msg, names []string
	var first trace.Code
	for _, r := range rs {
		if said := (trace.Finding{Code: r.Code, Message: r.Sentence}); o.Overrules(r.Code) {
			warn = stat.AppendNew(warn, said)
			continue
		}
		if slices.Contains(msg, r.Sentence) { // of a configuration with the same label, or of all
			continue
		}
		if msg = append(msg, r.Sentence); first == "" {
			first = r.Code
		}
		names = stat.AppendNew(names, string(r.Code))
	}
	if len(msg) == 0 {
		return warn, nil
	}
	return nil, &trace.Error{Code: first, Msg: strings.Join(msg, "; "), Hint: fmt.Sprintf(hint, strings.Join(names, ","))}
}

// LoadPoint is one load at which a format's terms and the model they stand for were simulated in the
// same traffic.
type LoadPoint struct {
	LoadFrac  float64 `json:"load_frac"` // of the model's capacity
	RateRPS   float64 `json:"rate_rps"`
	TTFTMs    float64 `json:"ttft_ms"` // means of the model
	ITLMs     float64 `json:"itl_ms"`  // of requests' means of their gaps
	E2EMs     float64 `json:"e2e_ms"`
	TTFTRatio float64 `json:"ttft_ratio"` // of the terms over the model
	ITLRatio  float64 `json:"itl_ratio"`
	E2ERatio  float64 `json:"e2e_ratio"`
}

// comparedLoads are the shares of the capacity at which models are compared.
var comparedLoads = []float64{0.3, 0.6, 0.8}

// ComparedRequests are so many.
const ComparedRequests = 1500

// OnLoads are a deployment's loads, and the wait of a request for the step that asynchronous scheduling has begun when it arrives:
// BLIS has no such step, so the wait is added to its delay before the queue.
type OnLoads struct {
	Points []LoadPoint
	WaitUs float64
}

// ConsumerModel is a consumer's model with the delays of a request before the queue, at completion and per token, us.
type ConsumerModel func(alpha []float64) (sim.Parts, error)

// comparison is a deployment under its own model in Poisson traffic, to hold what a consumer makes of it against.
type comparison struct {
	traffic  workload.Traffic
	capacity float64 // requests/s
}

// CompareLoads simulates a deployment with its coefficient set, and as BLIS would with a model of BLIS's (made with the delays of a
// request before the queue, at completion and per token, us), in the same Poisson traffic of log-normal lengths about the means, at
// three loads of the set's capacity.
func CompareLoads(set *coeff.Set, d *deploy.Deployment, alpha []float64, prompt, output float64, blis ConsumerModel) (*OnLoads, error) {
	own, err := sim.EngineOf(d, set)
	if err != nil {
		return nil, err
	}
	c := comparison{traffic: workload.ChatTraffic(d, prompt, output)}
	if c.capacity, err = c.traffic.Capacity(d, own.Latency); err != nil {
		return nil, err
	}
	theirs, out := own, &OnLoads{}
	theirs.Async, theirs.EmptyStepUs, theirs.IdleSleepUs, theirs.ScheduleUs = false, 1, 0, 0
	if own.Async {
		var ms [2][3]float64
		for i, cfg := range []*sim.Config{&own, &theirs} {
			if ms[i], err = meanLatencies(cfg, c.requests(comparedLoads[1])); err != nil {
				return nil, err
			}
		}
		out.WaitUs = math.Max(0, 1e3*(ms[0][0]-ms[1][0]))
	}
	parts, err := blis([]float64{alpha[0] + out.WaitUs, alpha[1], alpha[2]})
	if err != nil {
		return nil, err
	}
	theirs.Apply(parts)
	for _, load := range comparedLoads {
		reqs := c.requests(load)
		a, err := meanLatencies(&own, reqs)
		if err != nil {
			return nil, err
		}
		b, err := meanLatencies(&theirs, reqs)
		if err != nil {
			return nil, err
		}
		out.Points = append(out.Points, LoadPoint{LoadFrac: load, RateRPS: c.traffic.DrawnRate(), TTFTMs: a[0], ITLMs: a[1], E2EMs: a[2],
			TTFTRatio: b[0] / a[0], ITLRatio: b[1] / a[1], E2ERatio: b[2] / a[2]})
	}
	return out, nil
}

// requests are those of a share of the capacity.
func (c *comparison) requests(load float64) []sim.Request {
	c.traffic.Requests, c.traffic.RateRPS = ComparedRequests, load*c.capacity
	reqs, _ := c.traffic.Draw()
	return reqs
}

// meanLatencies are the means of TTFT, ITL (of requests' means) and E2E of the requests that finish, ms.
func meanLatencies(cfg *sim.Config, reqs []sim.Request) (mean [3]float64, err error) {
	var n [3]float64
	_, err = sim.Stream(*cfg, reqs, nil, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		if e2e, ok := r.E2EUs(); ok {
			ttft, has := r.TTFTUs()
			itl, gaps := r.ITLUs()
			for i, ok := range []bool{has, gaps, true} {
				if ok {
					mean[i], n[i] = mean[i]+[]float64{ttft, itl, e2e}[i]/1000, n[i]+1
				}
			}
		}
		return true
	}))
	if err == nil && n[2] == 0 {
		err = workload.ErrNothingFinished
	}
	for i := range mean {
		mean[i] /= n[i]
	}
	return mean, err
}
