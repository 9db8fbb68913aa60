package features

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// checkStep applies 01 F-3 to a step in 1.1; in 1.0, which has no such rules,
// it refuses only NaN and infinity (G-7).
func (s *Space) checkStep(in *StepInput) error {
	if s.version == V10 {
		return in.checkFinite()
	}
	switch {
	case !in.allCounts():
		return in.badField()
	case in.PrefillTokens+in.DecodeTokens != in.ScheduledTokens:
		return trace.Errorf(InconsistentTokens, "scheduled_tokens: got %g, want prefill %g + decode %g",
			in.ScheduledTokens, in.PrefillTokens, in.DecodeTokens)
	case in.DecodeTokens != in.NumDecodeReqs:
		return trace.Errorf(InconsistentRequests, "decode_tokens: got %g, want num_decode_reqs %g", in.DecodeTokens, in.NumDecodeReqs)
	case in.PrefillTokens < in.NumPrefillReqs, (in.PrefillTokens == 0) != (in.NumPrefillReqs == 0):
		return trace.Errorf(InconsistentRequests, "prefill_tokens: got %g for %g prefill requests, want at least one token each",
			in.PrefillTokens, in.NumPrefillReqs)
	case in.NumSampledSeqs > in.NumPrefillReqs+in.NumDecodeReqs:
		return trace.Errorf(InconsistentSampled, "num_sampled_seqs: got %g, want at most %g scheduled requests",
			in.NumSampledSeqs, in.NumPrefillReqs+in.NumDecodeReqs)
	}
	return nil
}

// checkQueue is checkStep for a queue input.
func (s *Space) checkQueue(in *QueueInput) error {
	for i, f := range queueFields {
		v := *f.at(in)
		if s.version == V10 {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return badInput(f.name, v, "a finite number")
			}
			continue
		}
		if !isCount(v) {
			return badInput(f.name, v, "a finite number >= 0")
		}
		if queueFields[i].isFrac && v > 1 {
			return badInput(f.name, v, "a ratio in 0..1")
		}
	}
	return nil
}

// allCounts reports whether every field is finite and >= 0. The sum finds NaN
// and infinity, the minimum the sign, without a branch per field.
func (in *StepInput) allCounts() bool {
	sum := in.PrefillTokens + in.DecodeTokens + in.ScheduledTokens + in.NumPrefillReqs + in.NumDecodeReqs +
		in.NumSampledSeqs + in.PrefillCausalWork + in.SumPrefillAttnWork + in.DecodeContextTokens + in.KVReadTokens +
		in.SumDecodeKVBlocks + in.RunningDepth + in.PreemptionEMA + in.TransferBlocks + in.CPUResidentReadBlocks
	least := min(in.PrefillTokens, in.DecodeTokens, in.ScheduledTokens, in.NumPrefillReqs, in.NumDecodeReqs,
		in.NumSampledSeqs, in.PrefillCausalWork, in.SumPrefillAttnWork, in.DecodeContextTokens, in.KVReadTokens,
		in.SumDecodeKVBlocks, in.RunningDepth, in.PreemptionEMA, in.TransferBlocks, in.CPUResidentReadBlocks)
	return least >= 0 && sum <= math.MaxFloat64
}

// badField names the first field that is not a finite count.
func (in *StepInput) badField() error {
	for _, f := range stepFields {
		if v := *f.at(in); !isCount(v) {
			return badInput(f.name, v, "a finite number >= 0")
		}
	}
	return badInput("step input", math.Inf(1), "a finite sum of its fields")
}

func (in *StepInput) checkFinite() error {
	for _, f := range stepFields {
		if v := *f.at(in); math.IsNaN(v) || math.IsInf(v, 0) {
			return badInput(f.name, v, "a finite number")
		}
	}
	return nil
}

func isCount(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

func badInput(name string, got float64, want string) error {
	return trace.Errorf(BadInput, "%s: got %g, want %s", name, got, want)
}
