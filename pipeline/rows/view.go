package rows

import (
	"slices"

	"github.com/blis-train/blis-train/internal/packed"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// summaries are the step summaries of a run in little memory: what rows need of them.
type summaries struct {
	first   int64   // id of the first
	ids     []int32 // id - first
	startNs []int64
	rest    *packed.Floats
}

// summaryWidth is the number of columns of summaries.rest.
const summaryWidth = 12

// summariesOf packs summaries whose ids are less than maxStepRange apart.
func summariesOf(steps []trace.Step) *summaries {
	m := &summaries{ids: make([]int32, len(steps)), startNs: make([]int64, len(steps)), rest: packed.NewFloats(summaryWidth)}
	row := make([]float64, summaryWidth)
	for k := range steps {
		s := &steps[k]
		if k == 0 {
			m.first = s.ID
		}
		m.ids[k], m.startNs[k] = int32(s.ID-m.first), s.TsStartNs
		for j, v := range [...]int64{s.DurationUs, s.RunningDepth, s.WaitingDepth, s.NumPrefillReqs, s.NumDecodeReqs, s.ScheduledTokens,
			s.PrefillTokens, s.DecodeTokens, s.NumPreempted, s.BlocksTotal, s.BlocksFree} {
			row[j] = float64(v)
		}
		row[summaryWidth-1] = s.KVUsage
		m.rest.Append(row)
	}
	m.rest.Seal()
	return m
}

func (m *summaries) len() int { return len(m.ids) }

func (m *summaries) id(k int) int64 { return m.first + int64(m.ids[k]) }

// upTo is the last summary of a step up to id; -1 without one.
func (m *summaries) upTo(id int64) int {
	n, _ := slices.BinarySearchFunc(m.ids, id-m.first, func(a int32, want int64) int {
		if int64(a) <= want {
			return -1
		}
		return 1
	})
	return n - 1
}

// held is how many summaries and steps a view holds unpacked at a time: more than
// the steps of a row and those before it.
const held = 64

// view reads summaries and steps of a run, best in order. Each goroutine has its own.
type view struct {
	s         *Steps
	summary   *packed.Reader
	step      *packed.Reader
	summaries [held]trace.Step
	steps     [held]Step
	hasSum    [held]int // 1 + which one; 0: none
	hasStep   [held]int
}

func (s *Steps) view() *view {
	v := &view{s: s, summary: s.summaries.rest.Reader()}
	if s.all != nil {
		v.step = s.all.Reader()
	}
	return v
}

// recorded is summary k as far as rows need it, valid for the next calls.
func (v *view) recorded(k int) *trace.Step {
	out := &v.summaries[k%held]
	if v.hasSum[k%held] == k+1 {
		return out
	}
	v.hasSum[k%held] = k + 1
	row := v.summary.Row(k)
	*out = trace.Step{
		ID: v.s.summaries.id(k), TsStartNs: v.s.summaries.startNs[k], DurationUs: int64(row[0]), RunningDepth: int64(row[1]),
		WaitingDepth: int64(row[2]), NumPrefillReqs: int64(row[3]), NumDecodeReqs: int64(row[4]), ScheduledTokens: int64(row[5]),
		PrefillTokens: int64(row[6]), DecodeTokens: int64(row[7]), NumPreempted: int64(row[8]), BlocksTotal: int64(row[9]),
		BlocksFree: int64(row[10]), KVUsage: row[11],
	}
	return out
}

// stepWidth is the number of columns of Steps.all: tag, reason, summary, whether its
// start is unknown, and the sums but for the preemption average.
const stepWidth = 18

// keep packs the step after those that are packed.
func (s *Steps) keep(st *Step, row []float64) {
	why := slices.Index(s.reasons, st.Reason)
	if why < 0 {
		why, s.reasons = len(s.reasons), append(s.reasons, st.Reason)
	}
	in, noStart := &st.In, 0.0
	if st.NoStart {
		noStart = 1
	}
	s.all.Append(append(row[:0], float64(st.Tag), float64(why), float64(st.Recorded), noStart, in.PrefillTokens, in.DecodeTokens,
		in.ScheduledTokens, in.NumPrefillReqs, in.NumDecodeReqs, in.NumSampledSeqs, in.PrefillCausalWork, in.SumPrefillAttnWork,
		in.DecodeContextTokens, in.KVReadTokens, in.SumDecodeKVBlocks, in.RunningDepth, in.TransferBlocks, in.CPUResidentReadBlocks))
}

// number is step k of the run, counted from the first, valid for the next calls.
func (v *view) number(k int) *Step {
	out := &v.steps[k%held]
	if v.hasStep[k%held] == k+1 {
		return out
	}
	v.hasStep[k%held] = k + 1
	row := v.step.Row(k)
	*out = Step{ID: v.s.First + int64(k), Tag: Tag(row[0]), Reason: v.s.reasons[int(row[1])], Recorded: int32(row[2]),
		NoStart: row[3] != 0, In: features.StepInput{PrefillTokens: row[4], DecodeTokens: row[5], ScheduledTokens: row[6],
			NumPrefillReqs: row[7], NumDecodeReqs: row[8], NumSampledSeqs: row[9], PrefillCausalWork: row[10],
			SumPrefillAttnWork: row[11], DecodeContextTokens: row[12], KVReadTokens: row[13], SumDecodeKVBlocks: row[14],
			RunningDepth: row[15], TransferBlocks: row[16], CPUResidentReadBlocks: row[17]}}
	return out
}

// at is the step with the given id, or nil outside the run.
func (v *view) at(id int64) *Step {
	if k := id - v.s.First; k >= 0 && k < int64(v.s.Len()) {
		return v.number(int(k))
	}
	return nil
}

// Len is the number of steps, recorded or not; their ids are First and the next.
func (s *Steps) Len() int {
	if s.all == nil {
		return 0
	}
	return s.all.Len()
}

// At returns the step with the given id, or nil outside the run. A block of steps is
// unpacked for it: use Each for many.
func (s *Steps) At(id int64) *Step { return s.view().at(id) }
