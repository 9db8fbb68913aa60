package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// advice names the experiment that separates a term from its companions.
var advice = []struct {
	term string
	what string
}{
	{"tp_communication", "a run with another tensor_parallel_size"},
	{"fixed_step_overhead", "a model with another depth"},
	{"gqa_efficiency", "a model with another ratio of KV heads to heads"},
	{"moe_activation", "batches of very different size on the MoE model"},
	{"prefill_attention", "prompts of very different length"},
	{"prefill_linear_compute", "prompts of very different length at the same batch"},
	{"decode_attention", "contexts of very different length at the same batch"},
	{"kv_cache_read", "contexts of very different length at the same batch"},
	{"decode_weight_load", "another model or GPU, or batches from 1 to max_num_seqs"},
	{"batch_utilization", "batches from 1 to max_num_seqs at short contexts"},
	{"chunked_prefill_mixed", "steps that mix prefill and decode, and steps that do not"},
	{"prefill_decode_mix", "steps that mix prefill and decode, and steps that do not"},
	{"cpu_offload_transfer", "load with CPU offloading active"},
	{"bias", "another model or GPU"},
}

// NullSentence says which terms the rows cannot tell apart, what is known of
// them together, and which experiment would separate them.
func NullSentence(terms []Term, g ridge.NullGroup, configs int) string {
	var names []string
	for _, j := range g.Terms {
		names = append(names, terms[j].Name)
	}
	if len(names) == 1 {
		return fmt.Sprintf("%s leaves no mark on these rows; %s would show it", names[0], experimentFor(names))
	}
	list := strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	known := fmt.Sprintf("only their sum, %.3g ms of a typical step, is known", g.SumUs/1000)
	switch {
	case g.Dim == 0:
		return fmt.Sprintf("%s nearly move together: %.3g ms of a typical step is known of their sum, little of each; add %s", list,
			g.SumUs/1000, experimentFor(names))
	case g.Dim < len(names)-1:
		known = fmt.Sprintf("%d combinations of them are unknown; together they make %.3g ms of a typical step", g.Dim, g.SumUs/1000)
	}
	return fmt.Sprintf("%s cannot be told apart: %s; add %s", list, known, experimentFor(names))
}

// experimentFor is the advice of the first two terms that have one.
func experimentFor(names []string) string {
	var what []string
	for _, a := range advice {
		if slices.Contains(names, a.term) && !slices.Contains(what, a.what) {
			what = append(what, a.what)
		}
	}
	if len(what) == 0 {
		return "runs that vary them separately"
	}
	return strings.Join(what[:min(2, len(what))], ", or ")
}
