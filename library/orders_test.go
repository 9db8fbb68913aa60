package library

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
)

// mostOutOfOrder is the ratio up to which times of a plan may break an order that must hold: repeats of a kernel, its
// tuning and clocks explain no more. orderLaunchUs are allowed in addition: kernels of newer GPUs and of narrower
// weights, which quantize their input, may take so much longer to start.
const (
	mostOutOfOrder = 1.5
	orderLaunchUs  = 5.0
)

var ordersTo = flag.String("orders", "", "write every comparison of TestEvalOrders to this CSV")

// namedBatches are the batches at which plans are compared.
var namedBatches = []struct {
	name  string
	batch Batch
	// twice has twice the requests, or a prompt of twice the length.
	twice Batch
}{
	{"8 decodes", decodes(8, 1000), decodes(16, 1000)},
	{"128 decodes", decodes(128, 4000), decodes(256, 4000)},
	{"prompt of 2,048", promptBehind(2048, 0), promptBehind(4096, 0)},
	{"32 decodes and a prompt of 512", both(decodes(32, 2000), promptBehind(512, 0)), both(decodes(64, 2000), promptBehind(1024, 0))},
}

func decodes(n, context float64) Batch {
	return Batch{Tokens: n, Sequences: n, Decodes: n, DecodeContext: n * context}
}

func promptBehind(n, cached int64) Batch {
	return BatchOf([]trace.Chunk{{Prompt: n + cached, Computed: cached, New: n}})
}

func both(a, b Batch) Batch {
	a.Tokens += b.Tokens
	a.Sequences += b.Sequences
	a.Prefills = b.Prefills
	a.PrefillTokens = b.PrefillTokens
	a.PrefillPairs = b.PrefillPairs
	return a
}

// planOn names a plan by GPU and tensor parallelism.
type planOn struct {
	gpu string
	tp  int64
}

// comparison is one time that must not be much longer than another.
type comparison struct {
	relation, model, gpu string
	tp                   int64
	batch, operator      string
	us, leastUs          float64
	launchUs             float64 // allowed beside the ratio
}

// ratio is how many times longer the time is than the other, the launches of an operator apart.
func (c *comparison) ratio() float64 { return (c.us - c.launchUs) / c.leastUs }

// compareOrders compares the plans of a model on some GPUs: whole steps without collectives, and operator by operator.
func compareOrders(t *testing.T, id, setting string, gpus []*GPU, tps []int64) (out []comparison, replaced map[string]float64) {
	plans := map[planOn]*Step{}
	raw := new([]rawPlan) // each GPU and parallelism is bound once for all comparisons
	replaced = map[string]float64{}
	for _, g := range gpus {
		for _, tp := range tps {
			d, err := deploy.LoadSettings(setting, "hardware.name="+g.Hardware, "vllm.version=0.24.0", "vllm.max_num_seqs=256",
				"vllm.max_num_batched_tokens=8192", "vllm.max_model_len=10000", "vllm.kv_blocks_total_gpu=20000",
				fmt.Sprintf("tensor_parallel_size=%d", tp))
			if err != nil {
				continue
			}
			if d.Model.Layers().Loads(d.Parallel()) != nil {
				continue // heads or matrices cannot be shared so
			}
			r := orderedStep{d: d, plans: raw}
			s, err := r.bind(g)
			if err != nil {
				continue
			}
			plans[planOn{g.Hardware, tp}] = s
			for i := range s.Operators {
				if op := &s.Operators[i]; op.Contradicted > 0 {
					key := fmt.Sprintf("%s, %s %s, %s", g.Hardware, op.Table, op.DType, strings.TrimLeft(op.Note, "0123456789"))
					replaced[key] = max(replaced[key], op.Contradicted)
				}
			}
		}
	}
	compare := func(relation string, key planOn, s, least *Step) {
		place := s.samePlace(least)
		for _, b := range namedBatches {
			own, other := s.Us(&b.batch), least.Us(&b.batch)
			c := comparison{relation: relation, model: id, gpu: key.gpu, tp: key.tp, batch: b.name, operator: "step"}
			for i, us := range own {
				if s.Operators[i].Kind != Collective {
					c.us += us
				}
			}
			for i, us := range other {
				if least.Operators[i].Kind != Collective {
					c.leastUs += us
				}
			}
			out = append(out, c)
			for i, at := range place {
				op := &s.Operators[i]
				isOfOtherGroup := op.Kind == Collective && s.TP != least.TP
				if op.Reached == Analytic || least.Operators[at].Reached == Analytic || isOfOtherGroup || other[at] <= 0 {
					continue
				}
				c.operator, c.us, c.leastUs, c.launchUs = op.Name, own[i], other[at], orderLaunchUs*op.Count
				out = append(out, c)
			}
		}
	}
	for key, s := range plans {
		for _, worse := range worseThan(s.GPU, s.DType) {
			if least := plans[planOn{worse.Hardware, key.tp}]; least != nil {
				compare("not slower than "+worse.Hardware, key, s, least)
			}
		}
		if least := plans[planOn{key.gpu, key.tp / 2}]; least != nil && key.tp%2 == 0 {
			compare("not slower than at half the parallelism", key, s, least)
		}
		for _, b := range namedBatches {
			c := comparison{relation: "not slower than twice the batch", model: id, gpu: key.gpu, tp: key.tp, batch: b.name, operator: "step"}
			twice := s.Us(&b.twice)
			for i, us := range s.Us(&b.batch) {
				c.us += us
				c.leastUs += twice[i]
				if twice[i] > 0 {
					own := c
					own.operator, own.us, own.leastUs = s.Operators[i].Name, us, twice[i]
					out = append(out, own)
				}
			}
			out = append(out, c)
		}
	}
	return out, replaced
}

// TestOrdersHold: over models of all kinds no operator and no step is slower than on a worse GPU, at half the tensor parallelism or
// of twice the batch, by more than mostOutOfOrder.
func TestOrdersHold(t *testing.T) {
	n := 0
	var gpus []*GPU
	for _, g := range GPUs() {
		if strings.HasPrefix(g.Hardware, "H200") || strings.Contains(g.Hardware, "B200") {
			gpus = append(gpus, g)
		}
	}
	for _, id := range []string{"Qwen/Qwen3-8B", "nvidia/Kimi-K2.5-NVFP4"} {
		list, _ := compareOrders(t, id, "model.id="+id, gpus, []int64{4, 8})
		n += len(list)
		for _, c := range list {
			if c.ratio() > mostOutOfOrder {
				t.Errorf("%s on %d x %s, %s, %s: got %.0f us, %s takes %.0f", c.model, c.tp, c.gpu, c.batch, c.operator, c.us, c.relation, c.leastUs)
			}
		}
	}
	if n < 500 {
		t.Errorf("got %d comparisons", n)
	}
}

// TestEvalOrders is TestOrdersHold over all built-in models, with a list of the rows that were replaced; -orders writes a CSV of all
// comparisons.
func TestEvalOrders(t *testing.T) {
	repo.NeedEval(t)
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	w.Write([]string{"relation", "model", "gpu", "tp", "batch", "operator", "us", "least_us", "launch_us", "ratio"})
	var mu sync.Mutex
	all := 0
	violations := map[string]int{}
	replaced := map[string]float64{}
	ids := model.BuiltInIDs()
	err := par.Try(context.Background(), 0, len(ids), func(i int) error {
		list, instead := compareOrders(t, ids[i], "model.id="+ids[i], GPUs(), []int64{1, 2, 4, 8, 16})
		mu.Lock()
		defer mu.Unlock()
		all += len(list)
		for key, by := range instead {
			replaced[key] = max(replaced[key], by)
		}
		for _, c := range list {
			w.Write([]string{c.relation, c.model, c.gpu, fmt.Sprint(c.tp), c.batch, c.operator, fmt.Sprintf("%.4g", c.us),
				fmt.Sprintf("%.4g", c.leastUs), fmt.Sprint(c.launchUs), fmt.Sprintf("%.3f", c.ratio())})
			if c.ratio() > mostOutOfOrder {
				violations[strings.SplitN(c.relation, " ", 4)[3]+", "+c.operator]++
				t.Errorf("%s on %d x %s, %s, %s: got %.0f us, %s takes %.0f", c.model, c.tp, c.gpu, c.batch, c.operator, c.us, c.relation, c.leastUs)
			}
		}
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Flush()
	if *ordersTo != "" {
		if err := os.WriteFile(*ordersTo, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d comparisons, beyond %g: %v", all, mostOutOfOrder, violations)
	keys := slices.SortedFunc(maps.Keys(replaced), func(a, b string) int { return cmp.Compare(replaced[b], replaced[a]) })
	for _, key := range keys {
		t.Logf("replaced: %s", key)
	}
}

// TestPlantedRowIsFound: rows of one layer that are made twenty times slower are replaced, named, and widen the stated error; without them
// nothing changes.
func TestPlantedRowIsFound(t *testing.T) {
	d := deploymentOn(t, "H200", 2, "native")
	clean := bound(t, d)
	if clean.Doubt > 0.01 {
		t.Errorf("before: got a doubt of %g", clean.Doubt)
	}
	g, err := For(&d.Hardware)
	if err != nil {
		t.Fatal(err)
	}
	bad := &GPU{Hardware: g.Hardware, Folder: g.Folder, SM: g.SM, Bandwidth: g.Bandwidth, FLOPS: g.FLOPS, Link: g.Link}
	table, err := g.Table("gemm")
	if err != nil {
		t.Fatal(err)
	}
	planted := *table
	planted.Series = slices.Clone(table.Series)
	for i := range planted.Series {
		s := &planted.Series[i]
		s.Q = slices.Clone(s.Q)
		if n := s.Key[table.Column("n")]; n > 4000 && n < 6200 {
			for j := range s.Q {
				s.Q[j] = Quantized(20 * Us(s.Q[j]))
			}
		}
	}
	needed := []string{"gemm", "context_attention", "generation_attention", "custom_allreduce", "nccl"}
	for _, own := range g.Tables {
		if !slices.Contains(needed, own.Name) {
			continue
		}
		full, err := g.Table(own.Name)
		if err != nil {
			t.Fatal(err)
		}
		if own.Name == "gemm" {
			full = &planted
		}
		bad.Tables = append(bad.Tables, full)
	}
	var file bytes.Buffer
	if err := bad.Write(&file); err != nil {
		t.Fatal(err)
	}
	read, err := Read(file.Bytes(), "planted")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Bound(d, Options{GPU: read})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for i := range s.Operators {
		op := &s.Operators[i]
		if op.Contradicted > 5 && strings.Contains(op.Note, "rows take up to") {
			named++
		}
	}
	if named == 0 || s.Doubt < 0.2 {
		t.Errorf("got %d operators replaced and a doubt of %g, want some", named, s.Doubt)
	}
	for _, b := range namedBatches {
		got, want := s.NewPricer().Parts(&b.batch), clean.NewPricer().Parts(&b.batch)
		if r := got.Total() / want.Total(); r < 0.9 || r > mostOutOfOrder {
			t.Errorf("%s: got %.0f us, without the planted rows %.0f", b.name, got.Total(), want.Total())
		}
	}
}
