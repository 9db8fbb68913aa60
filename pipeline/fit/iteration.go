package fit

import (
	"fmt"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Iteration is one run's steps as queueing models have them: step us = alpha +
// beta * tokens computed + gamma * KV tokens read.
type Iteration struct {
	Model *result.Model // coefficients alpha, beta, gamma with intervals and errors
	// FloorUs are the hardware's limits of the three: the weights once over the
	// bandwidth, a token's linear layers at their peak, a token's KV over the bandwidth.
	FloorUs  [3]float64
	Reason   string // why the run takes no part; empty when it does
	Findings []trace.Finding
	Lengths  [2]*float64 // mean prompt and output tokens
	// Of every row that Model has an opinion on: when it began (monotonic), and its time.
	TimeNs     []int64
	Us, PredUs []float64
}

// FitIteration fits one run's steps. A saturated run, or one without step rows,
// has a Reason and no Model.
func FitIteration(src Source, o Options) (*Iteration, error) {
	o.Models = []string{Linear3}
	o, err := o.Resolve()
	if err != nil {
		return nil, err
	}
	p, steps, space, err := Load(src, o)
	if err != nil {
		return nil, err
	}
	it := &Iteration{FloorUs: floorsOf(space), Reason: p.Reason}
	it.Lengths[0], it.Lengths[1] = p.Lengths.means()
	if it.Reason == "" {
		vec, err := Vectorizer(Linear3, space)
		if err != nil {
			return nil, err
		}
		opt := rows.Options{Target: o.BetaTarget, Lag: p.Lag.Lag, Gamma: features.DefaultGamma, Split: o.Split, Saturated: p.Spans}
		table, err := steps.BetaBasis(space, *vec, opt)
		if err != nil {
			return nil, err
		}
		f := &fitter{o: o, gammas: []float64{features.DefaultGamma}, used: []*Run{p}, out: &result.Fit{Options: o.Record()}}
		if it.Model, err = f.otherModel([]*rows.Table{table}, Linear3); err != nil {
			it.Reason = fmt.Sprintf("no step times: %v", err)
		} else {
			it.predict(table)
		}
	}
	it.Findings = p.Findings
	return it, nil
}

// predict fills the rows' times with the fitted coefficients.
func (it *Iteration) predict(t *rows.Table) {
	for i := range t.Kept {
		us := 0.0
		for j, x := range t.Row(i) {
			us += x * it.Model.Coefficients[j].Value
		}
		if us > 0 {
			it.TimeNs = append(it.TimeNs, t.TimeNs[i])
			it.Us = append(it.Us, t.Y[i])
			it.PredUs = append(it.PredUs, us)
		}
	}
}

// floorsOf are the three limits, in us.
func floorsOf(space *features.Space) [3]float64 {
	token := space.Roofline(&features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1})
	one := space.Roofline(&features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1, NumSampledSeqs: 1})
	read := space.Roofline(&features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1, KVReadTokens: 1})
	return [3]float64{one.WeightS * 1e6, token.LinearS * 1e6, (read.KVS - token.KVS) * 1e6}
}
