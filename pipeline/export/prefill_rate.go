package export

// This file computes the prefill throughput of an idle engine, for autoscalers and routers.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// prefillRate is the prefill throughput of an idle engine, which autoscalers and routers call V_P or
// peak prefill throughput (spec#prefill-rate).
type prefillRate struct {
	Chunk   int64       // prompt tokens: max_num_batched_tokens, or the longest prompt
	PerS    float64     // Chunk / TTFTMs, tokens/s
	CI95    *[2]float64 // from the covariance of the step's coefficients; nil where it is unknown
	SlopeUs float64     // of idle TTFT over prompt tokens, us/token: least squares over eight lengths
	TTFTMs  float64     // of a prompt of Chunk tokens on an idle engine
}

// prefillRateOf returns the rate of a configuration, from predictions of the TTFT of prompts up to
// a full chunk on an idle engine.
func prefillRateOf(src *Source, c *result.FitConfig) (*prefillRate, error) {
	d := &c.Deployment
	t, err := src.Timer(*c)
	if err != nil {
		return nil, err
	}
	r := &prefillRate{Chunk: min(d.Engine.MaxNumBatchedTokens, max(1, d.LongestSequence().Or(math.MaxInt32)-1))}
	ttftUs := func(n int64) (float64, error) {
		us, err := t.StepUs([]trace.Chunk{{Prompt: n, New: n}})
		if src.OverheadUs != nil && err == nil {
			if delay, missing := src.OverheadUs(*d, n); missing == nil {
				us += delay
			}
		}
		return us, err
	}
	// TTFT (y, us) by prompt length (x), at eight lengths up to the chunk.
	const lengths = 8
	var x, y [lengths]float64
	var mx, my float64 // their means
	for i := range lengths {
		n := max(1, r.Chunk*int64(i+1)/lengths)
		if y[i], err = ttftUs(n); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Label, err)
		}
		x[i] = float64(n)
		mx += x[i] / lengths
		my += y[i] / lengths
	}
	// The slope of the line of least squares is the covariance over the variance of x.
	var xx, xy float64
	for i := range lengths {
		xx += (x[i] - mx) * (x[i] - mx)
		xy += (x[i] - mx) * (y[i] - my)
	}
	us := y[lengths-1]
	r.PerS = float64(r.Chunk) / us * 1e6
	r.TTFTMs = us / 1e3
	r.SlopeUs = xy / math.Max(xx, 1)
	r.CI95, err = src.rateInterval(d, t, float64(r.Chunk), us)
	return r, err
}

// rateInterval returns the 95 % interval of the rate tokens/us, in tokens/s, for the step that t
// timed last; nil if the covariance of the coefficients is unknown.
func (src *Source) rateInterval(d *deploy.Deployment, t StepTimer, tokens, us float64) (*[2]float64, error) {
	f, ok := t.(featured)
	if !ok || src.Set == nil {
		return nil, nil
	}
	set, err := src.Set()
	if err != nil {
		return nil, err
	}
	x := f.Features()
	cov := features.On(set, d).Covariance
	if len(cov) != len(x) {
		return nil, nil
	}
	// The time is x.beta, so its variance is x'*cov*x.
	variance := 0.0
	for i, row := range cov {
		for j, v := range row {
			variance += x[i] * (v * x[j])
		}
	}
	half := 1.96 * math.Sqrt(math.Max(0, variance))
	return &[2]float64{tokens / (us + half) * 1e6, tokens / math.Max(1, us-half) * 1e6}, nil
}

// Sentence returns the sentence about the rate for the comment of a generated file.
func (r *prefillRate) Sentence() string {
	s := fmt.Sprintf("V_P %.0f tokens/s", r.PerS)
	if r.CI95 != nil {
		s += fmt.Sprintf(" (95 %%: %.0f to %.0f, of the step time's coefficients)", r.CI95[0], r.CI95[1])
	}
	return s + fmt.Sprintf(": a prompt of %d tokens on an idle engine has a TTFT of %.1f ms", r.Chunk, r.TTFTMs)
}

// sideValue returns the rate as a value of the sidecar.
func (r *prefillRate) sideValue(key string) SideValue {
	return SideValue{Key: key, Name: "prefill throughput", Value: &r.PerS, Unit: "tokens/s", CI95: r.CI95,
		Identified: "derived",
		Learned:    true, Origin: "max_num_batched_tokens / idle TTFT of such a prompt",
		Effect: "turns tokens in flight into a wait"}
}
