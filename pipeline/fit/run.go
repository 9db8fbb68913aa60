package fit

import (
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Run is one run as rows, its recording released.
type Run struct {
	Src       OptionsSource
	Config    string
	Reason    string // why it takes no part; empty when used
	Saturated bool
	Contexts  string      // where those of a logged pass come from; empty for steps of the fork
	Spans     []rows.Span // Saturated parts of a run that is not
	Quality   result.StepQuality
	Findings  []trace.Finding
	Lag       result.RunLag
	Evidence  []result.LagEvidence
	Audit     result.TargetAudit
	Beta      *rows.Table
	Alpha     map[string]*rows.Table // per alpha target
	Frozen    *rows.Table            // 1.0 duration-free comparison: 1.0 features on the cadence
	WallNs    int64                  // latest wall-clock stamp
	Lengths   Lengths
	Covered   *result.Covered
	Coverage  rows.Coverage // of the steps; with BetaOnly

	kept    int         // beta rows
	largest string      // reason for which there are none
	steps   *rows.Steps // for rows under other bases; rebuilt by Again
	space   *features.Space
}

// Lengths are sums over finished requests, for the configuration's means.
type Lengths struct{ Requests, Prompt, Output int64 }

// Add adds the sums of another run.
func (l *Lengths) Add(o Lengths) {
	l.Requests += o.Requests
	l.Prompt += o.Prompt
	l.Output += o.Output
}

// Means are the mean prompt and output, nil without requests.
func (l *Lengths) Means() (prompt, output *float64) {
	if l.Requests == 0 {
		return nil, nil
	}
	n := float64(l.Requests)
	return result.OrNull(float64(l.Prompt) / n), result.OrNull(float64(l.Output) / n)
}

func lengthsOf(run *trace.Run) Lengths {
	var l Lengths
	for i := range run.Requests {
		if r := &run.Requests[i]; run.AsksFor(r) && r.Success.Or(false) && r.PromptTokens.OK && r.OutputTokens.OK {
			l.Requests++
			l.Prompt += r.PromptTokens.V
			l.Output += r.OutputTokens.V
		}
	}
	logged := run.Aggregate != nil && l.Requests == 0
	for i := range run.Observed {
		if r := &run.Observed[i]; logged && r.Success.Or(false) && r.PromptTokens.OK && r.OutputTokens.OK {
			l.Add(Lengths{1, r.PromptTokens.V, r.OutputTokens.V})
		}
	}
	return l
}
