package simulate

// This file binds a deployment to its step times and states how far these can be trusted.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Trust states how far step times can be relied on that were not fitted: the errors of predictions
// for the deployment's family with this family held out of the library's corrections, or why the
// family was not validated.
type Trust struct {
	Family   string          `json:"family"`             // kind of layers, weights and GPU
	Judged   *library.Judged `json:"judged,omitempty"`   // the family's validation; nil: not validated
	Unjudged string          `json:"unjudged,omitempty"` // why it was not validated
	// Outside are the axes on which the prediction lies outside of what was measured.
	Outside []string `json:"outside,omitempty"`
	// Intervals90 are half widths, as ratios, of the intervals that nine in ten measured servers lie in.
	Intervals90 *library.Intervals `json:"intervals_90,omitempty"`
	Substituted []string           `json:"substituted_kernels,omitempty"`
	// Contradictions are rows of kernel tables that must be wrong, because they are slower than the rows
	// with fewer ranks, with bfloat16 or, for H200, of H100.
	Contradictions []string `json:"contradicting_kernels,omitempty"`
	Sentence       string   `json:"sentence"`
	Summary        string   `json:"-"` // the sentence without what is said of single kernels
}

// TablesFile returns the kernel tables that library build wrote, and the file's description. Code:
// bad_kernel_table.
func TablesFile(path string, special bool) (*library.GPU, result.Input, error) {
	data, in, err := folder.ReadInput(path, special)
	if err != nil {
		return nil, in, err
	}
	g, err := library.Read(data, path)
	return g, in, err
}

// bind checks that the deployment can be simulated and chooses the source of step times. For kernel
// tables it also looks up the kernels of a step. Codes: those of [library.Bound] and of deploy.
func (s *Simulation) bind() error {
	o := s.o
	d := s.Deployment
	if err := d.CheckSimulated(); err != nil {
		return err
	}
	if d.DP > 1 && o.EmitOTLP != "" {
		return option.Misusef("--emit-otlp: got %d data-parallel ranks, want one engine", d.DP)
	}
	if o.usesSet() {
		s.LatencyModel = ModelPhysics
		return nil
	}
	if o.Model != ModelAuto && o.Model != ModelTables {
		s.LatencyModel = o.Model
		return nil
	}
	s.LatencyModel = ModelTables
	if err := d.CheckTables(); err != nil {
		return err
	}
	one := *d.Plain(true)
	given := library.Options{GPU: o.GPU}
	step, err := library.Bound(&one, given)
	// Without tables of this GPU, auto takes the roofline, unless the user named tables or coefficients.
	code := trace.CodeOf(err)
	noKernels := code == library.NoTables || code == library.NoRows
	if noKernels && o.Model == ModelAuto && o.GPU == nil && o.Coefficients == "" {
		if _, e := sim.NewRoofline(d); e != nil {
			return err
		}
		s.LatencyModel = ModelRoofline
		s.NoTables = err
		s.Trust = &Trust{Family: "roofline, " + d.Hardware.Name, Unjudged: err.Error()}
		why := "no measured kernels (" + err.Error() + ")"
		if code == library.NoTables {
			why = "no kernel of " + d.Hardware.Name + " was measured"
		}
		s.Trust.Sentence = "not validated: " + why + "; steps take the datasheet's roofline, which no server reaches"
		s.logSentence("step times: roofline; " + s.Trust.Sentence)
		return nil
	}
	if err != nil {
		return err
	}
	step.Unjudged = append(step.Unjudged, unmeasuredParts(d)...)
	s.Step = step
	s.asked = library.AskedOf(d)
	s.asked.Workload = o.Workload != ""
	if o.Workload == "" {
		s.asked.InputTokens = o.InputTokens
		s.asked.OutputTokens = o.OutputTokens
		s.asked.Clients = int64(o.Concurrency)
		s.asked.RateRPS = o.RateRPS
	}
	s.Trust = trustOf(step, &s.asked)
	s.Trust.setContradictions(library.Contradictions(&one, step, given))
	s.logSentence("step times: kernels of " + step.GPU.Hardware + ", " + library.Learned().Version + "; " + s.Trust.Sentence)
	return nil
}

// unmeasuredParts returns what a deployment does that no measured server did, whatever its family.
func unmeasuredParts(d *deploy.Deployment) (out []string) {
	e := &d.Engine
	streamed, _ := vllm.Number(e.Extra["stream_interval"])
	for _, part := range []struct {
		has  bool
		what string
	}{
		{!e.IsSince(vllm.Release{0, 8}), "V0, the engine of vLLM before 0.8"},
		{d.PP > 1, "pipeline stages"},
		{e.SpeculativeDecoding, "speculative decoding"},
		{e.CPUOffloading, "copies to a CPU tier"},
		{e.Transfers() != "", "prefill apart from decode"},
		{e.Extra["distributed_executor_backend"] == "ray", "the executor ray"},
		{e.Extra["disable_custom_all_reduce"] == true && d.TP > 1, "all-reduces without vLLM's own kernels"},
		{e.LongPrefillThreshold > 0, "prompts in chunks of long_prefill_token_threshold"},
		{e.EPLBInterval() > 0, "experts that are rebalanced while the server runs"},
		{streamed > 1, "tokens that are streamed several at a time"},
	} {
		if part.has {
			out = append(out, part.what)
		}
	}
	for _, key := range []string{"attention_backend", "linear_backend"} {
		if name, isStated := e.Extra[key].(string); isStated && !strings.EqualFold(name, "auto") {
			out = append(out, "--"+strings.ReplaceAll(key, "_", "-")+" "+name)
		}
	}
	return out
}

// MarkSaturated states that the load is more than the deployment serves, which no server was measured with.
func (s *Simulation) MarkSaturated() {
	s.asked.Saturated = true
	s.Trust = s.TrustIn(s.asked.Clients, s.asked.CachedShare, s.asked.Workload, true)
}

// TrustIn returns how far the step times can be relied on under a load of so many clients, 0 for arrivals at a rate, that
// find a share of each prompt in the prefix cache. The load may be that of a workload, and more than the deployment serves.
func (s *Simulation) TrustIn(clients int64, cachedShare float64, isWorkload, isSaturated bool) *Trust {
	if s.Step == nil { // on the roofline every load is unmeasured
		return s.Trust
	}
	asked := s.asked
	asked.Clients = clients
	asked.CachedShare = cachedShare
	asked.Workload = isWorkload
	asked.Saturated = isSaturated
	t := trustOf(s.Step, &asked)
	t.setContradictions(s.Trust.Contradictions)
	return t
}

// setContradictions stores the rows that must be wrong, and names them in the sentence.
func (t *Trust) setContradictions(slower []string) {
	t.Contradictions = slower
	if len(slower) > 0 {
		t.Sentence += "; " + strings.Join(slower, "; ")
	}
}

// logSentence calls Options.Say, if set.
func (s *Simulation) logSentence(sentence string) {
	if s.o.Say != nil {
		s.o.Say(sentence)
	}
}

// trustOf returns how far step times from kernel tables can be relied on.
func trustOf(step *library.Step, asked *library.Asked) *Trust {
	learned := library.Learned()
	intervals, outside := learned.IntervalsOf(step, asked)
	t := &Trust{
		Family:      step.Family,
		Sentence:    learned.SentenceFor(step, asked),
		Outside:     outside,
		Intervals90: &intervals,
	}
	t.Summary = t.Sentence
	t.Judged, t.Unjudged = learned.JudgedAs(step)
	t.nameSubstituted(step.Operators)
	return t
}

// nameSubstituted lists the operators whose times are of other rows, those of one note together.
func (t *Trust) nameSubstituted(operators []library.Operator) {
	names := map[string][]string{} // of operators, by note
	var notes []string             // in the order of operators
	for i := range operators {
		op := &operators[i]
		if op.Reached != library.Substituted {
			continue
		}
		if !slices.Contains(notes, op.Note) {
			notes = append(notes, op.Note)
		}
		if !slices.Contains(names[op.Note], op.Name) {
			names[op.Note] = append(names[op.Note], op.Name)
		}
	}
	for _, note := range notes {
		t.Substituted = append(t.Substituted, fmt.Sprintf("%s (%s)", strings.Join(names[note], ", "), note))
	}
	if len(t.Substituted) > 0 {
		t.Sentence += "; other rows stand for " + strings.Join(t.Substituted, ", ")
	}
}
