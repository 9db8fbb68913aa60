package fit

import (
	"github.com/blis-train/blis-train/internal/portable"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// leastShare is the smallest factor of prompt work relative to the rest that one
// run's rows are believed to show; below it, too few of its steps hold prompts.
const leastShare = 0.2

// runTotals are the measured and predicted times of one run's training rows, us:
// [0] of decode steps, [1] of steps with prompts.
type runTotals struct {
	config       int32
	rows         int
	y            [2]float64
	rest, prompt [2]float64 // predicted by the terms that are not, and are, prompt work
}

// totalsByRun adds up the training rows of every run, in order of run labels.
func totalsByRun(s *Solved) []runTotals {
	out, x := make([]runTotals, len(s.Pool.Runs)), s.Train.Reader()
	for i, r := range s.Train.Run {
		t, k := &out[r], 0
		if s.Train.Regime[i] != int32(rows.Decode) {
			k = 1
		}
		rest, prompt := splitPrompt(s, x.Row(i))
		t.config = s.Train.Config[i]
		t.rows++
		t.y[k] += s.Train.Y[i]
		t.rest[k] += rest
		t.prompt[k] += prompt
	}
	return out
}

// splitPrompt is the prediction of a row by the terms of prompt work and by the others, us.
func splitPrompt(s *Solved, x []float64) (rest, prompt float64) {
	for j, v := range x {
		if s.Terms[j].Prompt {
			prompt += float64(v * s.Fit.Beta[j])
		} else {
			rest += float64(v * s.Fit.Beta[j])
		}
	}
	return rest, prompt
}

// factors are what the run takes relative to the prediction: all for every term,
// and more on top for prompt work, such that the predicted time of its decode
// steps and that of its other steps each add up to the measured one. Where the
// run cannot tell the two apart more is 1 and all makes the whole add up.
func (t *runTotals) factors() (all, more float64) {
	if det := float64(t.rest[0]*t.prompt[1]) - float64(t.rest[1]*t.prompt[0]); det > 0 {
		all = (float64(t.y[0]*t.prompt[1]) - float64(t.y[1]*t.prompt[0])) / det
		work := (float64(t.rest[0]*t.y[1]) - float64(t.rest[1]*t.y[0])) / det
		if all > 0 && work > leastShare*all {
			return all, work / all
		}
	}
	if pred := t.rest[0] + t.rest[1] + t.prompt[0] + t.prompt[1]; pred > 0 {
		return (t.y[0] + t.y[1]) / pred, 1
	}
	return 1, 1
}

// logs are the logarithms of the factors of every term that is not prompt work,
// and of those that are.
func (t *runTotals) logs() [2]float64 {
	all, more := t.factors()
	return [2]float64{portable.Log(all), portable.Log(all * more)}
}
