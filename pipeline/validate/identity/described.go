package identity

// This file takes over what the extraction found: settings of run.yaml that the server's own files (its
// log, metrics, spans) contradict. Each function returns a reading (identity.go): what was compared, how
// much of it contradicts, and a sentence.

import (
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// serverSettings are the keys of run.yaml that decide how long every step takes. A step whose model, device or
// number of GPUs is another teaches coefficients of another machine.
var serverSettings = map[string]bool{
	"model.id":               true,
	"model.dtype":            true,
	"model.kv_cache_dtype":   true,
	"hardware.name":          true,
	"tensor_parallel_size":   true,
	"pipeline_parallel_size": true,
	"data_parallel_size":     true,

	"vllm.quantization":           true,
	"vllm.speculative_config":     true,
	"vllm.enable_expert_parallel": true,
	"vllm.cpu_offload_gb":         true,
}

// schedulerSettings are the keys that decide which requests run together and when. Step times do not depend
// on them, and a replay does: even one that agrees under this load will not under another.
var schedulerSettings = map[string]bool{
	"vllm.max_num_seqs":           true,
	"vllm.max_num_batched_tokens": true,
	"vllm.max_model_len":          true,
	"vllm.enable_chunked_prefill": true,
	"vllm.enable_prefix_caching":  true,
	"vllm.async_scheduling":       true,
	"vllm.scheduling_policy":      true,
	"vllm.block_size":             true,
	"vllm.kv_blocks_total_gpu":    true,

	"vllm.kv_transfer_config":           true,
	"vllm.kv_offloading_size":           true,
	"vllm.cpu_offloading":               true,
	"vllm.kv_cache_memory_bytes":        true,
	"vllm.long_prefill_token_threshold": true,
	"vllm.max_num_partial_prefills":     true,
	"vllm.max_long_partial_prefills":    true,
}

// statedServer repeats what the extraction found run.yaml to contradict of the machine and the model.
func statedServer(f *facts) reading {
	return f.contradicted(func(setting string) bool { return serverSettings[setting] })
}

// statedScheduler repeats what the extraction found run.yaml to contradict of the scheduler.
func statedScheduler(f *facts) reading {
	return f.contradicted(func(setting string) bool { return schedulerSettings[setting] })
}

// apiTokens repeats what the extraction found API spans to contradict of the prompts of journeys. The tables have the
// engine's count alone.
func apiTokens(f *facts) reading {
	var r reading
	for i := range f.run.Requests {
		if q := &f.run.Requests[i]; q.CoreID.OK && q.APIID.OK {
			r.checked++
		}
	}
	for _, w := range f.Findings {
		if w.Code == source.CodeAPITokens {
			r.violated++
			r.largest++
			r.broken = true
			r.sentence = w.Message
		}
	}
	return r
}

// describedAlike repeats the other contradictions of run.yaml: those of settings that neither step times nor
// batches depend on, and those that have another explanation too.
func describedAlike(f *facts) reading {
	return f.contradicted(func(setting string) bool { return !serverSettings[setting] && !schedulerSettings[setting] })
}

// contradicted joins the findings that run.yaml contradicts the recording, of the settings for which
// isMeant is true. A finding about no single setting has the name "".
func (f *facts) contradicted(isMeant func(setting string) bool) reading {
	r := reading{checked: 1}
	var sentences []string
	for _, w := range f.Findings {
		if w.Code == source.CodeRunContradicted && isMeant(w.Setting) {
			r.violated++
			sentences = append(sentences, w.Message)
		}
	}
	r.sentence = strings.Join(sentences, "; ")
	r.largest = float64(r.violated)
	r.broken = r.violated > 0
	return r
}
