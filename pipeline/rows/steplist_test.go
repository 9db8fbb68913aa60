package rows

import (
	"math"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
)

// listOf returns a list with the steps.
func listOf(steps ...Step) stepList {
	l := newStepList(len(steps), false)
	for k := range steps {
		l.set(k, &steps[k])
	}
	return l
}

// copies returns all steps of a run.
func (s *Steps) copies() (out []Step) {
	for k := range s.Len() {
		out = append(out, *s.At(s.First + int64(k)))
	}
	return out
}

// change changes step k of the list.
func (l *stepList) change(k int, change func(*Step)) {
	st := l.at(k, 0)
	change(&st)
	l.set(k, &st)
}

// TestStoredSteps: a step comes out of the list as it went in, whatever its inputs are.
func TestStoredSteps(t *testing.T) {
	sums := features.StepInput{
		PrefillTokens: 7, DecodeTokens: 3, ScheduledTokens: 10, NumPrefillReqs: 2, NumDecodeReqs: 3, NumSampledSeqs: 5,
		PrefillCausalWork: 28.5, DecodeContextTokens: 300, PrefillContext: 40, KVReadTokens: 347, RunningDepth: 6,
	}
	for name, c := range map[string]struct {
		change func(in *features.StepInput)
		whole  int // inputs that are kept whole
	}{
		"sums":                 {func(*features.StepInput) {}, 0},
		"no batch":             {func(in *features.StepInput) { *in = features.StepInput{} }, 0},
		"the most":             {func(in *features.StepInput) { in.ScheduledTokens = math.MaxInt32 }, 0},
		"more than four bytes": {func(in *features.StepInput) { in.ScheduledTokens = math.MaxInt32 + 1 }, 1},
		"the most requests":    {func(in *features.StepInput) { in.RunningDepth, in.NumSampledSeqs = math.MaxUint16, math.MaxUint16 }, 0},
		"more than two bytes":  {func(in *features.StepInput) { in.RunningDepth = math.MaxUint16 + 1 }, 1},
		"a share":              {func(in *features.StepInput) { in.NumDecodeReqs = 2.5 }, 1},
		"negative":             {func(in *features.StepInput) { in.DecodeTokens = -1 }, 1},
		"read otherwise":       {func(in *features.StepInput) { in.KVReadTokens = 5 }, 1},
		"spec 1.0":             {func(in *features.StepInput) { in.SumPrefillAttnWork, in.SumDecodeKVBlocks = 3, 2 }, 1},
		"moved blocks":         {func(in *features.StepInput) { in.TransferBlocks, in.CPUResidentReadBlocks = 3, 2 }, 1},
		"within a reach":       {func(in *features.StepInput) { in.Reached = &features.Reached{{Entries: 4}} }, 0},
	} {
		want := Step{ID: 12, Tag: TagSummary, Reason: reconstruct.EncoderRan, NoStart: true, Recorded: 9, In: sums}
		c.change(&want.In)
		l := newStepList(3, true)
		l.set(2, &want)
		if got := l.at(2, 12); !reflect.DeepEqual(got, want) || len(l.whole) != c.whole {
			t.Errorf("%s: got %+v, want %+v; %d kept whole, want %d", name, got, want, len(l.whole), c.whole)
		}
		if got := l.at(1, 11); !reflect.DeepEqual(got, Step{ID: 11}) {
			t.Errorf("%s: a step that was not set: got %+v", name, got)
		}
	}
}
