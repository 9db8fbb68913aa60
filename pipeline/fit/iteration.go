package fit

// This file fits the three-parameter step time of queueing models, which package autoscale writes into
// the inputs of autoscalers.

import (
	"context"
	"fmt"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Iteration is a fit of one run's step times in the form of queueing models: step us = alpha + beta
// * tokens computed + gamma * KV tokens read.
type Iteration struct {
	Model *result.Model // coefficients alpha, beta, gamma with intervals and errors
	// FloorUs are lower bounds of the three coefficients by the hardware, us: reading the weights
	// once, the linear layers of a token at peak, reading the KV of a token.
	FloorUs  [3]float64
	Reason   string // why the run cannot be fitted; empty if it was
	Findings []trace.Finding
	Lengths  [2]*float64 // mean prompt and output tokens
	// TimeNs, Us and PredUs are, for every step that Model predicts, its monotonic start and its
	// measured and predicted time.
	TimeNs     []int64
	Us, PredUs []float64
}

// FitIteration returns the fit of one run's steps. A saturated run, or one without step rows, has a
// Reason and no Model.
func FitIteration(ctx context.Context, src Source, o Options) (*Iteration, error) {
	o.Models = []string{Linear3}
	o, err := o.Resolve()
	if err != nil {
		return nil, err
	}
	p, steps, space, err := Load(ctx, src, o)
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

// predict sets TimeNs, Us and PredUs from the rows. Rows with a prediction of 0 or less are
// omitted.
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

// floorsOf returns the lower bounds of Iteration.FloorUs: the hardware's time of the weights for a
// step with one sampled token, of the linear layers for one token, and of reading one token of KV.
func floorsOf(space *features.Space) [3]float64 {
	// Logits are computed for sampled sequences only: the weights of the language-model head belong to
	// the constant, its arithmetic does not belong to every token.
	oneToken := features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1}
	sampled := oneToken
	sampled.NumSampledSeqs = 1
	withKV := oneToken
	withKV.KVReadTokens = 1
	weightS := space.Roofline(&sampled).WeightS
	linearS := space.Roofline(&oneToken).LinearS
	kvS := space.Roofline(&withKV).KVS - space.Roofline(&oneToken).KVS
	return [3]float64{weightS * 1e6, linearS * 1e6, kvS * 1e6}
}
