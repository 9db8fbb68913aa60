package simulate

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/kernels"
	"github.com/blis-train/blis-train/trace"
)

// Trust says how far step times that nobody fitted can be relied on: how predictions of the deployment's own family did where the family
// was left out of the corrections, or why nobody knows.
type Trust struct {
	Family      string          `json:"family"`             // kind of layers, weights and GPU
	Judged      *kernels.Judged `json:"judged,omitempty"`   // the family's; nil: unjudged
	Unjudged    string          `json:"unjudged,omitempty"` // why
	Substituted []string        `json:"substituted_kernels,omitempty"`
	// Contradictions are the step's rows that are slower than fewer ranks', than bfloat16's or, on H200, than H100's.
	Contradictions []string `json:"contradicting_kernels,omitempty"`
	Sentence       string   `json:"sentence"`
}

// TablesFile reads kernel tables of one's own, as library build writes them. Code: bad_kernel_table.
func TablesFile(path string, special bool) (*kernels.GPU, result.Input, error) {
	data, in, err := folder.ReadInput(path, special)
	if err != nil {
		return nil, in, err
	}
	g, err := kernels.Read(data, path)
	return g, in, err
}

// bind checks that the deployment can be simulated, finds out what times the steps, and for the sums of measured kernels adds up the
// deployment's. Codes: those of [kernels.Bound] and of deploy.
func (s *Simulation) bind() error {
	o, d := s.o, s.Deployment
	if err := d.CheckSimulated(); err != nil {
		return err
	}
	switch s.model = o.Model; {
	case o.usesSet():
		s.model = ModelPhysics
		return nil
	case o.Model != ModelAuto && o.Model != ModelTables:
		return nil
	}
	s.model = ModelTables
	if err := d.CheckTables(); err != nil {
		return err
	}
	one := *d.Plain(true)
	given := kernels.Options{GPU: o.GPU}
	step, err := kernels.Bound(&one, given)
	if code := trace.CodeOf(err); o.Model == ModelAuto && o.GPU == nil && (code == kernels.NoTables || code == kernels.NoRows) {
		if _, e := sim.NewRoofline(d); e != nil {
			return err
		}
		s.model, s.trust = ModelRoofline, &Trust{Family: "roofline, " + d.Hardware.Name, Unjudged: err.Error()}
		s.trust.Sentence = "unjudged: no measured kernels (" + err.Error() + "); steps take the datasheet's roofline, which no server reaches"
		s.say("step times: roofline; " + s.trust.Sentence)
		return nil
	}
	if err != nil {
		return err
	}
	for _, of := range []struct {
		is   bool
		what string
	}{{d.PP > 1, "pipeline stages"}, {d.Engine.SpeculativeDecoding, "speculative decoding"}, {d.Engine.CPUOffloading, "copies to a CPU tier"},
		{d.Engine.Transfers() != "", "prefill apart from decode"}} {
		if of.is {
			step.Unjudged = append(step.Unjudged, of.what)
		}
	}
	s.step, s.trust = step, trustOf(step)
	if slower := kernels.Contradictions(&one, step, given); len(slower) > 0 {
		s.trust.Contradictions = slower
		s.trust.Sentence += "; " + strings.Join(slower, "; ")
	}
	s.say("step times: kernels of " + step.GPU.Hardware + ", " + kernels.Learned().Version + "; " + s.trust.Sentence)
	return nil
}

func (s *Simulation) say(sentence string) {
	if s.o.Say != nil {
		s.o.Say(sentence)
	}
}

func trustOf(step *kernels.Step) *Trust {
	learned := kernels.Learned()
	t := &Trust{Family: step.Family, Sentence: learned.Sentence(step)}
	t.Judged, t.Unjudged = learned.JudgedAs(step)
	of, notes := map[string][]string{}, []string(nil)
	for i := range step.Operators {
		if op := &step.Operators[i]; op.Reached == kernels.Substituted {
			of[op.Note], notes = stat.AppendNew(of[op.Note], op.Name), stat.AppendNew(notes, op.Note)
		}
	}
	for _, note := range notes {
		t.Substituted = append(t.Substituted, fmt.Sprintf("%s (%s)", strings.Join(of[note], ", "), note))
	}
	if len(t.Substituted) > 0 {
		t.Sentence += "; other rows stand for " + strings.Join(t.Substituted, ", ")
	}
	return t
}
