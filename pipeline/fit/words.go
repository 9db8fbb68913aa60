package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
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

// nullSentence says which terms the rows cannot tell apart, what is known of
// them together, and which experiment would separate them.
func nullSentence(terms []term, g ridge.NullGroup, configs int) string {
	var names []string
	for _, j := range g.Terms {
		names = append(names, terms[j].name)
	}
	if len(names) == 1 {
		return fmt.Sprintf("%s leaves no mark on these rows; %s would show it", names[0], experimentFor(names))
	}
	list := strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	known := fmt.Sprintf("only their sum, %.3g ms of a typical step, is known", g.SumUs/1000)
	switch {
	case g.Dim == 0:
		return fmt.Sprintf("%s nearly move together: %.3g ms of a typical step is known of their sum, little of each; add %s", list, g.SumUs/1000, experimentFor(names))
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

// driftFindings name machines that change speed while measured: the signed
// hold-out error of a block leaves ten percent.
func (f *fitter) driftFindings(out *result.Model) {
	worst := map[string]result.DriftBlock{}
	var order []string
	for _, d := range out.Drift {
		w, seen := worst[d.Run]
		if !seen {
			order = append(order, d.Run)
		}
		if !seen || abs(d.Bias) > abs(w.Bias) {
			worst[d.Run] = d
		}
	}
	for _, run := range order {
		if d := worst[run]; abs(d.Bias) > 0.1 {
			direction := "slower"
			if d.Bias > 0 {
				direction = "faster"
			}
			out.Warnings = append(out.Warnings, trace.Findingf(MachineDrift,
				"%s: in block %d of %d of the hold-out the engine ran %s than the training part predicts (signed error %+.0f %%)", run, d.Block, driftBlocks, direction, 100*d.Bias))
		}
	}
}

func abs(v float64) float64 {
	if v < 0 {
		return -v
	}
	return v
}
