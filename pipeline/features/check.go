package features

// This file refuses inputs of features that contradict themselves or are no numbers.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// checkStep returns an error for contradictory counts (spec#input-checks). Version 1.0 has no such
// rules: there it refuses only NaN and infinity.
func (s *Space) checkStep(in *StepInput) error {
	if s.version == V10 {
		return checkFinite(in, stepFields)
	}
	switch {
	case !in.allCounts():
		return badField(in, stepFields, "step input")
	case in.PrefillTokens+in.DecodeTokens != in.ScheduledTokens:
		return trace.Errorf(BadInput, "scheduled_tokens: got %g, want prefill %g + decode %g",
			in.ScheduledTokens, in.PrefillTokens, in.DecodeTokens)
	// A decode has one token, or more where drafts are verified.
	case in.DecodeTokens < in.NumDecodeReqs, in.NumDecodeReqs == 0 && in.DecodeTokens > 0:
		return trace.Errorf(BadInput, "decode_tokens: got %g, want at least num_decode_reqs %g", in.DecodeTokens, in.NumDecodeReqs)
	case in.PrefillTokens < in.NumPrefillReqs, (in.PrefillTokens == 0) != (in.NumPrefillReqs == 0):
		return trace.Errorf(BadInput, "prefill_tokens: got %g for %g prefill requests, want at least one token each",
			in.PrefillTokens, in.NumPrefillReqs)
	case in.NumSampledSeqs > in.NumPrefillReqs+in.DecodeTokens:
		return trace.Errorf(BadInput, "num_sampled_seqs: got %g, want at most %g scheduled requests and drafts",
			in.NumSampledSeqs, in.NumPrefillReqs+in.DecodeTokens)
	}
	return nil
}

// checkQueue returns an error for a queue state with a field out of range.
func (s *Space) checkQueue(in *QueueInput) error {
	if s.version == V10 {
		return checkFinite(in, queueFields)
	}
	signs := in.RunningDepth >= 0 && in.WaitingDepth >= 0 && in.KVUsageRatio >= 0 && in.KVUsageRatio <= 1 &&
		in.PromptTokens >= 0 && in.PrefixHitRatio >= 0 && in.PrefixHitRatio <= 1 && in.KVFreeBytes >= 0 &&
		in.KVFreeBlocks >= 0 && in.PreemptionEMA >= 0
	sum := in.RunningDepth + in.WaitingDepth + in.PromptTokens + in.KVFreeBytes + in.KVFreeBlocks + in.PreemptionEMA
	if signs && sum <= math.MaxFloat64 {
		return nil
	}
	return badField(in, queueFields, "queue input")
}

// badField returns the error for the first field that is not a finite count, or not in 0..1 where
// it must be; whole names the input when only the sum of its fields is infinite.
func badField[T any](in *T, fields []field[T], whole string) error {
	for _, f := range fields {
		v := *f.at(in)
		if !isCount(v) {
			return badInput(f.name, v, "a finite number >= 0")
		}
		if f.isFrac && v > 1 {
			return badInput(f.name, v, "a ratio in 0..1")
		}
	}
	return badInput(whole, math.Inf(1), "a finite sum of its fields")
}

// checkFinite returns an error for the first field that is NaN or infinite.
func checkFinite[T any](in *T, fields []field[T]) error {
	for _, f := range fields {
		if v := *f.at(in); math.IsNaN(v) || math.IsInf(v, 0) {
			return badInput(f.name, v, "a finite number")
		}
	}
	return nil
}

// allCounts reports whether every field is finite and >= 0. NaN fails every comparison and infinity
// the sum, which is faster than testing field by field.
func (in *StepInput) allCounts() bool {
	signs := in.PrefillTokens >= 0 && in.DecodeTokens >= 0 && in.ScheduledTokens >= 0 && in.NumPrefillReqs >= 0 &&
		in.NumDecodeReqs >= 0 && in.NumSampledSeqs >= 0 && in.PrefillCausalWork >= 0 && in.SumPrefillAttnWork >= 0 &&
		in.DecodeContextTokens >= 0 && in.KVReadTokens >= 0 && in.SumDecodeKVBlocks >= 0 && in.RunningDepth >= 0 &&
		in.PreemptionEMA >= 0 && in.TransferBlocks >= 0 && in.CPUResidentReadBlocks >= 0
	sum := in.PrefillTokens + in.DecodeTokens + in.ScheduledTokens + in.NumPrefillReqs + in.NumDecodeReqs +
		in.NumSampledSeqs + in.PrefillCausalWork + in.SumPrefillAttnWork + in.DecodeContextTokens + in.KVReadTokens +
		in.SumDecodeKVBlocks + in.RunningDepth + in.PreemptionEMA + in.TransferBlocks + in.CPUResidentReadBlocks
	return signs && sum <= math.MaxFloat64
}

// isCount reports whether v is finite and not negative.
func isCount(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

// badInput returns the error of an input out of range.
func badInput(name string, got float64, want string) error {
	return trace.Errorf(BadInput, "%s: got %g, want %s", name, got, want)
}

// Codes of rejected inputs (spec#input-checks, spec#finite) and versions (spec#spec-version).
const (
	UnknownSpecVersion trace.Code = "unknown_spec_version"
	BadInput           trace.Code = "bad_input"
	FeatureOutOfRange  trace.Code = "feature_out_of_range"
	WrongFeatureSet    trace.Code = "wrong_feature_set"
	noSuchTarget       trace.Code = "no_such_target"
)
