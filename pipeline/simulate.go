package pipeline

import (
	"context"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Simulate runs a workload through the embedded simulator of one engine and writes
// simulation.json and requests.parquet to o.Out.
func Simulate(ctx context.Context, o simulate.Options) (*simulate.Document, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	doc, err := simulate.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	return doc, folder.WriteDocument(filepath.Join(o.Out, folder.SimulationFile), doc)
}

// StepExplanation is how one recorded step's feature vector comes about, and what coefficients make of it.
type StepExplanation struct {
	SchemaVersion string                `json:"schema_version"`
	ToolVersion   string                `json:"tool_version"`
	Run           string                `json:"run"`
	Step          int64                 `json:"step"`
	Source        string                `json:"source"`      // rich | journey | approximate
	MeasuredUs    *float64              `json:"measured_us"` // cadence of the interval that holds the step's execution
	Lag           *int                  `json:"lag"`
	Members       []BatchMember         `json:"members"`
	Explanation   *features.Explanation `json:"explanation"`
	Warnings      []trace.Finding       `json:"warnings"`
}

// BatchMember is one request's part of the batch.
type BatchMember struct {
	Request  string `json:"request"`
	Phase    string `json:"phase"`
	Computed int64  `json:"computed_tokens"`
	Prompt   int64  `json:"prompt_tokens"`
	New      int64  `json:"new_tokens"`
}

// ExplainStep rebuilds a step of an extracted run and explains its features; without a set there
// is no prediction.
func ExplainStep(out string, run *result.ExtractRun, step int64, version features.Version, set *coeff.Set) (*StepExplanation, error) {
	recorded, err := table.Read(table.RunDir(out, run.ID))
	if err != nil {
		return nil, err
	}
	steps, err := rows.Rebuild(recorded, run.Deployment, version)
	if err != nil {
		return nil, err
	}
	st := steps.At(step)
	if st == nil {
		return nil, trace.Errorf("", "run %q has no step %d, want %d..%d", run.ID, step, steps.First, steps.First+int64(steps.Len())-1)
	}
	if !st.Known() {
		return nil, trace.Errorf(rows.UnknownBatch, "the batch of step %d of run %q is unknown: %s", step, run.ID, st.Reason).
			WithHint("record journeys at rate 1.0 and snapshots with --step-tracing-rich-subsample-rate 1.0")
	}
	space, err := features.New(version, run.Deployment)
	if err != nil {
		return nil, err
	}
	return describeStep(steps, st, space, set)
}

func describeStep(steps *rows.Steps, st *rows.Step, space *features.Space, set *coeff.Set) (*StepExplanation, error) {
	gamma := features.DefaultGamma
	lag := rows.AssumedLag(steps.Dep)
	if set != nil {
		gamma = set.Gamma
		if l, known := set.PipelineLag[steps.Run.ID]; known {
			lag = l.Lag
		}
	}
	in := st.In
	in.PreemptionEMA = emaAt(steps.Run, st.ID, gamma)
	var e *features.Explanation
	var p *features.Predictor
	var err error
	if set != nil {
		e, p, err = space.ExplainOn(&in, set, steps.Dep)
	} else {
		e, err = space.ExplainBeta(&in, nil)
	}
	if err != nil {
		return nil, err
	}
	doc := &StepExplanation{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion, Run: steps.Run.ID, Step: st.ID,
		Source: st.Tag.String(), Lag: &lag, MeasuredUs: cadenceUs(steps.Run, st.ID+int64(lag)), Members: []BatchMember{}, Explanation: e,
		Warnings: []trace.Finding{}}
	members, err := steps.Members(st.ID)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		phase := "prefill"
		if m.IsDecode() {
			phase = "decode"
		}
		doc.Members = append(doc.Members, BatchMember{m.CoreID, phase, m.Computed, m.Prompt, m.New})
	}
	if set != nil {
		doc.Warnings = append(append(doc.Warnings, p.Warnings()...), set.Outside(steps.Dep)...)
	}
	return doc, nil
}

// emaAt is the preemption average after the last recorded step up to id.
func emaAt(run *trace.Run, id int64, gamma float64) float64 {
	ema := 0.0
	for i := range run.Steps {
		if s := &run.Steps[i]; s.ID <= id {
			ema = features.EMA(ema, gamma, float64(s.NumPreempted), float64(s.RunningDepth))
		}
	}
	return ema
}

// cadenceUs is the time from the start of step id to the start of the next
// one, when both were recorded.
func cadenceUs(run *trace.Run, id int64) *float64 {
	for i := 0; i+1 < len(run.Steps); i++ {
		if run.Steps[i].ID == id && run.Steps[i+1].ID == id+1 {
			return new(rows.SpanUs(run.Steps[i].TsStartNs, run.Steps[i+1].TsStartNs))
		}
	}
	return nil
}

// CoefficientFile is the native coefficient file of a fit, with the gates of a
// validation unless that is nil.
func CoefficientFile(f *result.Fit, v *result.Validation) ([]byte, error) {
	set, err := fit.Native(f, v)
	if err != nil {
		return nil, err
	}
	return folder.SetBytes(set)
}

// StepTimes is a coefficient set bound to one deployment: batch in, us out. It is
// not for several goroutines at once.
type StepTimes struct {
	set   *coeff.Set
	space *features.Space
	x     []float64
}

// NewStepTimes binds a set to a deployment.
func NewStepTimes(set *coeff.Set, d *deploy.Deployment) (*StepTimes, error) {
	space, err := features.New(set.SpecVersion, d)
	if err != nil {
		return nil, err
	}
	return &StepTimes{set: features.On(set, d), space: space, x: make([]float64, len(set.Beta))}, nil
}

// StepUs predicts one step of the batch.
func (p *StepTimes) StepUs(batch []trace.Chunk) (float64, error) {
	if _, err := p.space.Beta(new(p.space.Sum(batch)), p.x); err != nil {
		return 0, err
	}
	return p.set.Predict(p.x), nil
}

// Features are the step features of the last batch.
func (p *StepTimes) Features() []float64 { return p.x }

// TermUs is what one term gives to a step, us.
type TermUs struct {
	Name string
	Us   float64
}

// Terms are the terms of the last batch, in the order of the set.
func (p *StepTimes) Terms() []TermUs {
	terms := make([]TermUs, len(p.set.Beta))
	for i := range terms {
		terms[i] = TermUs{p.set.Beta[i].Name, p.set.Beta[i].Value * p.x[i]}
	}
	return terms
}
