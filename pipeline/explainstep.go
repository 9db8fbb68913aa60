package pipeline

// This file explains the features and the predicted time of one recorded step.

import (
	"fmt"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// StepExplanation shows how the feature vector of one recorded step is computed, and the time that
// coefficients predict for it.
type StepExplanation struct {
	SchemaVersion string                `json:"schema_version"`
	ToolVersion   string                `json:"tool_version"`
	Run           string                `json:"run"`
	Step          int64                 `json:"step"`
	Source        string                `json:"source"`      // rich | journey | approximate
	MeasuredUs    *float64              `json:"measured_us"` // cadence of the interval that holds the step's execution
	Lag           *int                  `json:"lag"`         // steps from schedule() to the execution
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

// ExplainStep returns how the features of a step of an extracted run are computed, after it has
// rebuilt the step's batch. set may be nil; then there is no prediction.
func ExplainStep(out string, run *result.ExtractRun, step int64, version features.Version, set *coeff.Set) (*StepExplanation, error) {
	recorded, err := table.Read(table.RunDir(out, run.ID))
	if err != nil {
		return nil, err
	}
	steps, err := rows.Rebuild(recorded, run.Deployment, version)
	if err != nil {
		return nil, err
	}
	recordedStep := steps.At(step)
	if steps.Len() == 0 {
		return nil, trace.Errorf("", "run %q has no recorded step: its steps were reconstructed from a log or from clients", run.ID).
			WithHint("the fork inference-sim/vllm records steps: --step-tracing-enabled")
	}
	if recordedStep == nil {
		return nil, trace.Errorf("", "run %q has no step %d, want %d..%d", run.ID, step, steps.First, steps.First+int64(steps.Len())-1).
			WithHint(fmt.Sprintf("give --step %d, for instance", steps.First))
	}
	if !recordedStep.Known() {
		return nil, trace.Errorf(rows.UnknownBatch, "the batch of step %d of run %q is unknown: %s", step, run.ID, recordedStep.Reason).
			WithHint("record journeys at rate 1.0 and snapshots with --step-tracing-rich-subsample-rate 1.0")
	}
	space, err := features.New(version, run.Deployment)
	if err != nil {
		return nil, err
	}
	return describeStep(steps, recordedStep, space, set)
}

// describeStep returns the explanation of a rebuilt step.
func describeStep(steps *rows.Steps, st *rows.Step, space *features.Space, set *coeff.Set) (*StepExplanation, error) {
	// gamma is the memory of the average of preemptions, lag the number of steps from schedule() to
	// the interval that the execution fills: those of the fit, if there is one.
	gamma := features.DefaultGamma
	lag := rows.AssumedLag(steps.Run, steps.Dep)
	if set != nil {
		gamma = set.Gamma
		if l, known := set.PipelineLag[steps.Run.ID]; known {
			lag = l.Lag
		}
	}
	in := st.In
	in.PreemptionEMA = emaAt(steps.Run, st.ID, gamma)
	var explanation *features.Explanation
	var predictor *features.Predictor
	var err error
	if set != nil {
		explanation, predictor, err = space.ExplainOn(&in, set, steps.Dep)
	} else {
		explanation, err = space.ExplainBeta(&in, nil)
	}
	if err != nil {
		return nil, err
	}
	doc := &StepExplanation{
		SchemaVersion: result.SchemaVersion,
		ToolVersion:   folder.ToolVersion,
		Run:           steps.Run.ID,
		Step:          st.ID,
		Source:        st.Tag.String(),
		Lag:           &lag,
		MeasuredUs:    cadenceUs(steps.Run, st.ID+int64(lag)), // a batch executes lag steps after it was scheduled
		Members:       []BatchMember{},
		Explanation:   explanation,
		Warnings:      []trace.Finding{},
	}
	members, err := steps.Members(st.ID)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		phase := "prefill"
		if m.IsDecode() {
			phase = "decode"
		}
		doc.Members = append(doc.Members, BatchMember{
			Request:  m.CoreID,
			Phase:    phase,
			Computed: m.Computed,
			Prompt:   m.Prompt,
			New:      m.New,
		})
	}
	if set != nil {
		doc.Warnings = append(append(doc.Warnings, predictor.Warnings()...), set.Outside(steps.Dep)...)
	}
	return doc, nil
}

// emaAt returns the moving average of preemptions after the last recorded step up to id; gamma is
// the weight of the newest step in it.
func emaAt(run *trace.Run, id int64, gamma float64) float64 {
	ema := 0.0
	for i := range run.Steps {
		if s := &run.Steps[i]; s.ID <= id {
			ema = features.EMA(ema, gamma, float64(s.NumPreempted), float64(s.RunningDepth))
		}
	}
	return ema
}

// cadenceUs returns the time in us from the start of step id to the start of the next one; nil
// unless both were recorded.
func cadenceUs(run *trace.Run, id int64) *float64 {
	for i := 0; i+1 < len(run.Steps); i++ {
		if run.Steps[i].ID == id && run.Steps[i+1].ID == id+1 {
			return new(rows.SpanUs(run.Steps[i].TsStartNs, run.Steps[i+1].TsStartNs))
		}
	}
	return nil
}
