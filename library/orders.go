package library

// This file corrects the times of a plan that cannot be right beside those of worse GPUs and of less
// parallelism, because a measured row can be wrong: a better GPU must not be slower.

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/vllm"
)

// Rows that exceed these limits are replaced (allowedUs). The limits are below those that tests hold plans to
// (mostOutOfOrder and orderLaunchUs) because plans are compared at some batches only, and between those the order has to
// hold too. Times of equal evidence that are wrongBeyond times too long are no repeats of one kernel: the other's time
// is taken, not only a bound.
const (
	replaceBeyond   = 1.4
	replaceLaunchUs = 4.0
	wrongBeyond     = 3.0
)

// A kernel is not slower
//
//   - on a better GPU: bandwidth, peak rate in the dtype, memory and link are all at least as high;
//   - on twice the tensor-parallel ranks, where it does at most the same work (collectives are left out);
//   - with narrower weights than with bfloat16 ones, see gemm and contradicted (experts).
//
// A time that breaks an order is lowered to what the order allows. Rows contradict only rows of no better evidence,
// and times that are computed without a table take no part. Where the evidence is worse, or the contradiction large,
// the contradicting time itself is taken. The other way round, a time that rests on worse evidence is raised where the
// measured rows of a better GPU take longer.

// allowedUs returns up to which time a row is kept that should take leastUs or less.
func allowedUs(leastUs float64) float64 { return replaceBeyond*leastUs + replaceLaunchUs }

// orderedStep binds the plan of a deployment and those that it is compared with: of worse GPUs, and of lower tensor
// parallelism.
type orderedStep struct {
	d *deploy.Deployment
	o Options
	// plans has the plans of the deployment's model that were bound, from rows as they are. It is shared by the
	// orderedSteps of one model, which need the same plans.
	plans *[]rawPlan
}

// rawPlan is a plan of a deployment on a GPU, as Bind returns it.
type rawPlan struct {
	gpu  string
	tp   int64
	step *Step
	err  error
}

// plan returns the plan of the deployment on a GPU with tp ranks, from rows as they are. Plans are shared: callers do
// not change them.
func (r *orderedStep) plan(g *GPU, tp int64) (*Step, error) {
	for _, p := range *r.plans {
		if p.gpu == g.Hardware && p.tp == tp {
			return p.step, p.err
		}
	}
	on := *r.d
	on.TP = tp
	if g.Hardware != r.d.Hardware.Name {
		on.Hardware = sheets()[g.Hardware]
	}
	s, err := g.Bind(&on, r.o)
	*r.plans = append(*r.plans, rawPlan{g.Hardware, tp, s, err})
	return s, err
}

// bind returns the plan of the deployment on a GPU, its operators lowered to what those of worse GPUs and of half,
// quarter, ... the ranks allow. A reference plan that has errors still has the operators that were bound.
func (r *orderedStep) bind(g *GPU) (*Step, error) {
	raw, err := r.plan(g, r.d.TP)
	if err != nil {
		return raw, err
	}
	s := new(Step)
	*s = *raw
	s.Operators = append([]Operator(nil), raw.Operators...)
	for tp := r.d.TP; ; tp /= 2 {
		for _, worse := range append([]*GPU{g}, worseThan(g, s.DType)...) {
			if worse == g && tp == r.d.TP {
				continue // the plan itself
			}
			if reference, _ := r.plan(worse, tp); reference != nil {
				by := "of " + worse.Hardware
				if tp != r.d.TP {
					by = fmt.Sprintf("%s at tensor-parallel size %d", by, tp)
				}
				s.replaceSlower(reference, by, &r.d.Engine)
			}
		}
		if tp%2 != 0 {
			break
		}
	}
	r.raiseStandIns(s, g)
	return s, nil
}

// raiseStandIns raises times that do not rest on rows of the kernel itself, but on rows that stand in for them. If a
// better GPU has a time of better evidence, this GPU's must not be less than that time divided by what allowedUs adds.
func (r *orderedStep) raiseStandIns(s *Step, g *GPU) {
	isStandIn := func(op Operator) bool { return op.rank > ofKernel && op.Kind != Collective }
	if !slices.ContainsFunc(s.Operators, isStandIn) {
		return
	}
	for _, better := range GPUs() {
		if !isBetter(better, g, s.DType) || isBetter(g, better, s.DType) { // not better, or equal
			continue
		}
		reference, _ := r.plan(better, r.d.TP)
		if reference == nil {
			continue
		}
		for i, at := range s.samePlace(reference) {
			op, like := &s.Operators[i], &reference.Operators[at]
			if !isStandIn(*op) || like.rank >= op.rank || like.Reached == Analytic {
				continue
			}
			own, other := op.us, r.inOrderOfRanks(reference, better, at)
			op.us = func(in *state) float64 { return max(own(in), (other(in)-replaceLaunchUs)/replaceBeyond) }
		}
	}
}

// inOrderOfRanks returns the time of the operator at a place of a plan on a GPU, at most what the same GPU's plans at
// less tensor parallelism allow.
func (r *orderedStep) inOrderOfRanks(s *Step, g *GPU, place int) func(in *state) float64 {
	us := s.Operators[place].us
	for tp := s.TP; tp%2 == 0; {
		tp /= 2
		fewer, _ := r.plan(g, tp)
		if fewer == nil {
			continue
		}
		if at, ok := s.samePlace(fewer)[place]; ok {
			own, least := us, fewer.Operators[at].us
			us = func(in *state) float64 { return min(own(in), allowedUs(least(in))) }
		}
	}
	return us
}

// sheets has the datasheets of the embedded GPUs.
var sheets = sync.OnceValue(func() map[string]deploy.Hardware {
	out := map[string]deploy.Hardware{}
	for _, g := range GPUs() {
		out[g.Hardware], _ = deploy.Datasheet(g.Hardware)
	}
	return out
})

// isBetter reports whether a GPU is at least as good as another in everything that kernels of a dtype depend on.
func isBetter(g, than *GPU, dtype string) bool {
	return g.Hardware != than.Hardware && g.Bandwidth >= than.Bandwidth && g.Link >= than.Link &&
		g.peakOf(dtype) >= than.peakOf(dtype) && sheets()[g.Hardware].MemoryGB >= sheets()[than.Hardware].MemoryGB
}

// worseThan returns the embedded GPUs that a GPU is better than. Of two equal GPUs the one that comes first by folder
// counts as the worse one, so that they do not lower each other.
func worseThan(g *GPU, dtype string) (out []*GPU) {
	for _, a := range GPUs() {
		if isBetter(g, a, dtype) && (!isBetter(a, g, dtype) || a.Folder < g.Folder) {
			out = append(out, a)
		}
	}
	return out
}

// samePlace pairs the operators of a plan with those of another: of the same name and count, in the same order. The
// result is from index to index. Names that the plans do not have equally often are left out.
func (s *Step) samePlace(other *Step) map[int]int {
	type kind struct {
		name  string
		count float64
	}
	own, theirs := map[kind][]int{}, map[kind][]int{}
	for i := range s.Operators {
		k := kind{s.Operators[i].Name, s.Operators[i].Count}
		own[k] = append(own[k], i)
	}
	for i := range other.Operators {
		k := kind{other.Operators[i].Name, other.Operators[i].Count}
		theirs[k] = append(theirs[k], i)
	}
	place := map[int]int{}
	for k, list := range own {
		if len(theirs[k]) != len(list) {
			continue
		}
		for i, at := range list {
			place[at] = theirs[k][i]
		}
	}
	return place
}

// replaceSlower lowers the times of operators that take longer than allowedUs of a reference's, which they cannot be
// slower than. by names the reference. All batches take the lesser time, so that there is no cliff.
func (s *Step) replaceSlower(reference *Step, by string, e *vllm.Engine) {
	place := s.samePlace(reference)
	states := s.orderStates(e)
	for i := range s.Operators {
		op := &s.Operators[i]
		at, ok := place[i]
		// Collectives over other numbers of ranks are in no order.
		if !ok || op.Reached == Analytic || reference.TP != s.TP && op.Kind == Collective {
			continue
		}
		like := &reference.Operators[at]
		// A reference of worse evidence does not count, unless other rows have replaced it already: then its time
		// is theirs.
		if like.Reached == Analytic || like.rank > op.rank && like.Contradicted == 0 {
			continue
		}
		// By how much does the operator break the order, in any batch?
		most := 0.0
		for k := range states {
			if in := &states[k]; op.runs(in) {
				if us, leastUs := op.us(in), like.us(in); us > allowedUs(leastUs) && leastUs > 0 {
					most = math.Max(most, us/leastUs)
				}
			}
		}
		if most == 0 {
			continue
		}
		// It does: the reference's time stands in where it rests on better evidence or the difference is
		// too large for repeats of one kernel; otherwise the time is lowered to what the order allows.
		own, other := op.us, like.us
		if op.measured == nil {
			op.measured = own
		}
		if op.rank > like.rank || most > wrongBeyond {
			op.us = func(in *state) float64 { return min(own(in), other(in)) }
			op.Note = fmt.Sprintf("rows take up to %.1f times those %s, which stand in", most, by)
		} else {
			op.us = func(in *state) float64 { return min(own(in), allowedUs(other(in))) }
			op.Note = fmt.Sprintf("rows take up to %.1f times those %s: lowered to %.1f times", most, by, replaceBeyond)
		}
		op.rank = max(op.rank, like.rank)
		op.Contradicted = math.Max(op.Contradicted, most)
		op.Reached = Substituted
	}
}

// orderStates returns the states of the batches at which operators are compared: decodes alone and prompts alone,
// small and large, within the engine's limits.
func (s *Step) orderStates(e *vllm.Engine) (out []state) {
	for _, n := range []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 2048, 4096, 8192} {
		for _, context := range []float64{1000, 2000, 4000, 8000} {
			b := Batch{Tokens: n, Sequences: n, Decodes: n, DecodeContext: n * context}
			if n <= float64(e.MaxNumSeqs) {
				out = append(out, s.stateOf(&b))
			}
			// A chunk of n tokens of one prompt, behind 0, 1000, 3000 or 7000 cached ones.
			pairs := n*(n+1)/2 + (context-1000)*n
			b = Batch{Tokens: n, Sequences: 1, Prefills: 1, PrefillTokens: n, PrefillPairs: pairs}
			if n <= float64(e.MaxNumBatchedTokens) {
				out = append(out, s.stateOf(&b))
			}
		}
	}
	return out
}

// Replaced names rows of a table and dtype that others contradict, so that plans do not use them as they are.
type Replaced struct {
	Table, DType string
	Most         float64 // how many times longer than others allow
	Plans        int     // in how many plans
}

// ReplacedRows returns the rows that others contradict in plans of some models on the GPU, with 1 to 8
// tensor-parallel ranks and otherwise usual settings. modelIDs are names on Hugging Face.
func (g *GPU) ReplacedRows(modelIDs []string) (out []Replaced) {
	for _, id := range modelIDs {
		plans := new([]rawPlan)
		for _, tp := range []string{"1", "2", "4", "8"} {
			d, err := deploy.LoadSettings("model.id="+id, "hardware.name="+g.Hardware, "vllm.version=0.24.0", "vllm.max_num_seqs=256",
				"vllm.max_num_batched_tokens=8192", "vllm.max_model_len=10000", "vllm.kv_blocks_total_gpu=20000", "tensor_parallel_size="+tp)
			if err != nil {
				continue // the model's heads cannot be shared so
			}
			r := orderedStep{d: d, plans: plans}
			s, err := r.bind(g)
			if err != nil {
				continue
			}
			for i := range s.Operators {
				if op := &s.Operators[i]; op.Contradicted > 0 {
					out = addReplaced(out, op)
				}
			}
		}
	}
	return out
}

// addReplaced counts an operator whose rows were replaced.
func addReplaced(list []Replaced, op *Operator) []Replaced {
	for i := range list {
		if r := &list[i]; r.Table == op.Table && r.DType == op.DType {
			r.Most = max(r.Most, op.Contradicted)
			r.Plans++
			return list
		}
	}
	return append(list, Replaced{op.Table, op.DType, op.Contradicted, 1})
}

// AsMeasured returns the plan with its rows as they were measured, where others replaced them.
func (s *Step) AsMeasured() *Step {
	raw := *s
	raw.Operators = append([]Operator(nil), s.Operators...)
	for i := range raw.Operators {
		if op := &raw.Operators[i]; op.measured != nil {
			op.us = op.measured
		}
	}
	return &raw
}

// doubt returns what part of a step's time was taken away by replacing contradicted rows, at most: the size of the
// contradiction, by which the stated error grows.
func (s *Step) doubt(e *vllm.Engine) float64 {
	most := 0.0
	for _, in := range s.orderStates(e) {
		before, after := 0.0, 0.0
		for i := range s.Operators {
			op := &s.Operators[i]
			if !op.runs(&in) {
				continue
			}
			us := op.Count * op.us(&in)
			after += us
			if op.measured != nil {
				before += op.Count * op.measured(&in)
			} else { // rows of experts that were replaced are not kept: at most so many times the time
				before += us * math.Max(1, op.Contradicted)
			}
		}
		if before > 0 {
			most = math.Max(most, 1-after/before)
		}
	}
	return most
}
