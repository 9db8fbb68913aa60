package deploy

import (
	"maps"

	"github.com/blis-train/blis-train/trace"
)

// scheduleKeys are the flags of what the simulator's schedule covers and no step time does.
var scheduleKeys = []string{"speculative_config"}

// Plain is d as a step-time model sees it: without what only the schedule knows of,
// speculation and pipeline stages. A step of all stages takes as long as one without.
func (d *Deployment) Plain() *Deployment {
	if d.PP <= 1 && !d.Engine.SpeculativeDecoding {
		return d
	}
	own := *d
	own.PP = 1
	own.Engine.SpeculativeDecoding = false
	own.Engine.Extra = maps.Clone(d.Engine.Extra)
	for _, key := range scheduleKeys {
		delete(own.Engine.Extra, key)
	}
	return &own
}

// CheckSimulated refuses combinations that vLLM refuses or that the simulator cannot
// play. Codes: bad_knobs, unsupported_engine.
func (d *Deployment) CheckSimulated() error {
	s, err := d.Engine.Speculation()
	if err != nil {
		return err
	}
	refuse := func(what, hint string) error {
		return trace.Errorf(UnsupportedEngine, "%s", what).WithHint(hint)
	}
	switch {
	case d.PP > 1 && d.Model.NumLayers > 0 && d.PP > d.Model.NumLayers:
		return trace.Errorf(BadKnobs, "pipeline_parallel_size: got %d, want at most the model's %d layers", d.PP, d.Model.NumLayers)
	case s == nil && d.Engine.SpeculativeDecoding:
		return refuse("speculative decoding: got no speculative_config, want method and num_speculative_tokens",
			"write vllm.speculative_config as the server was started with it")
	case s == nil:
		return nil
	case d.PP > 1 && !d.Engine.isSince(draftsWithPPSince):
		return refuse("pipeline_parallel_size: got speculative decoding beside it, want 1 before vLLM 0.33",
			"vLLM refuses it too; set pipeline_parallel_size 1")
	case s.Rates == nil && s.Method != "suffix" && s.Method != "ngram" && s.Method != "ngram_gpu":
		return refuse("speculative_config: got no acceptance, want synthetic_acceptance_length or synthetic_acceptance_rates",
			"tokens per verify of a server: 1 + accepted/drafts of vllm:spec_decode_num_accepted_tokens_total and .._num_drafts_total")
	case s.Rates == nil:
		return refuse("speculative_config: got "+s.Method+" without an acceptance, want synthetic_acceptance_length or "+
			"synthetic_acceptance_rates",
			"what n-gram drafts accept depends on the text: take it from the counters of a server with the same text")
	case s.Method == "draft_model" || s.Method == "dflash" || s.Method == "dspark":
		return refuse("speculative_config.method: got "+s.Method+", a draft model whose size is not known, want "+
			"eagle, eagle3, mtp, ngram or suffix", "simulate without it, or with the method mtp as a lower bound")
	}
	return nil
}

// draftsWithPPSince is the first release whose model runner takes drafts and pipeline stages together.
var draftsWithPPSince = [2]int{0, 33}

// DrafterUs is the time of one pass of the drafter that takes part in a step, us: reading
// one layer and the LM head, as EAGLE and MTP have them; 0 without a drafter on the GPU.
// passes is how many there are: the proposals follow one another. An estimate.
func (d *Deployment) DrafterUs() (passUs float64, passes int64) {
	s, err := d.Engine.Speculation()
	if err != nil || s == nil || !s.IsEagle() || !(d.Hardware.BwPeakTBs > 0) {
		return 0, 0
	}
	m := &d.Model
	tables := float64(m.HiddenSize) * float64(m.VocabSize)
	head := tables * m.BytesPerLMHead
	layers := (m.WeightBytes() - head - float64(tables*m.BytesPerActivation)) / float64(max(1, m.NumLayers))
	passes = s.Tokens
	if s.Parallel {
		passes = 1
	}
	return (layers + head) / (d.Hardware.BwPeakTBs * 1e6 * float64(max(1, d.TP))), passes
}

// estimated says which parts of a simulation rest on no measurement.
func (d *Deployment) estimated() (out []trace.Finding) {
	if us, passes := d.DrafterUs(); us > 0 {
		out = append(out, trace.Findingf(notModelled, "%s: the drafter's time is an estimate: %d times %.0f us a step, one layer and "+
			"the LM head read from memory", d.Name, passes, us))
	}
	if d.PP > 1 {
		out = append(out, trace.Findingf(notModelled, "%s: the %d pipeline stages are taken as equal parts of a step, what they send each "+
			"other as free", d.Name, d.PP))
	}
	return out
}
