package features

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// slotsInBook are those of versions 1.0 and 1.1. A slot that somebody tries out
// behind them needs no row.
var slotsInBook = map[string]int{"alpha": 11, "beta": 16}

// The book's tables of features and constants are those of the code, formula by
// formula; that each formula is what its function computes is another test.
func TestSpecHasEveryFeature(t *testing.T) {
	text := specText(t)
	for model, slots := range map[string][2][]Feature{
		"alpha": {listsOf(V11).alpha, listsOf(V10).alpha}, "beta": {listsOf(V11).beta, listsOf(V10).beta},
	} {
		for i := range slotsInBook[model] {
			f, old := &slots[0][i], &slots[1][i]
			row := fmt.Sprintf("| <a id=\"%s-%s\"></a>%d | `%s` | %s | %s | %s | %s | `%s` | `%s` |", model, dashed(f.Name), f.Slot, f.Name,
				f.Kind, penaltyText(f), signText(f), short(f.Bound), f.Formula, old.Formula)
			if !strings.Contains(text, row+"\n") {
				t.Errorf("docs/spec.md lacks the row of %s:\n%s", f.Name, row)
			}
		}
	}
}

func TestSpecHasTheSlotsOf12(t *testing.T) {
	text := specText(t)
	for i := slotsInBook["beta"]; i < 20; i++ {
		f := &listsOf(V12).beta[i]
		row := fmt.Sprintf("| <a id=\"beta-%s\"></a>%d | `%s` | %s | %s | %s | %s | `%s` |", dashed(f.Name), f.Slot, f.Name, f.Kind,
			penaltyText(f), signText(f), short(f.Bound), f.Formula)
		if !strings.Contains(text, row+"\n") {
			t.Errorf("docs/spec.md lacks the row of %s:\n%s", f.Name, row)
		}
	}
}

func TestSpecHasTheSlotsOf13(t *testing.T) {
	text, old := specText(t), slices.Concat(listsOf(V12).beta, listsOf(V12).alpha)
	for i, f := range slices.Concat(listsOf(V13).beta, listsOf(V13).alpha) {
		if row := fmt.Sprintf("`%s` | `%s` |\n", f.Name, f.Formula); f.Formula != old[i].Formula && !strings.Contains(text, row) {
			t.Errorf("docs/spec.md lacks the row of %s:\n%s", f.Name, row)
		}
	}
}

func TestSpecHasEveryConstant(t *testing.T) {
	text := specText(t)
	for v, anchor := range map[Version]bool{V12: true, V10: false} {
		for _, q := range workedExample(t, v).constants() {
			row := fmt.Sprintf("`%s` | %s | `%s` |", q.Name, q.Unit, q.Formula)
			if anchor {
				row = fmt.Sprintf("<a id=\"%s\"></a>", dashed(q.Name)) + row
			}
			if q.Formula != "" && !strings.Contains(text, "| "+row) {
				t.Errorf("docs/spec.md lacks the row of %s %s:\n| %s", v, q.Name, row)
			}
		}
	}
}

// TestSpecWorkedExample computes the book's example.
func TestSpecWorkedExample(t *testing.T) {
	text := specText(t)
	for column, v := range []Version{V11, V10} {
		sp := workedExample(t, v)
		in := sp.Sum([]trace.Chunk{{Prompt: 512, New: 512}})
		in.RunningDepth, in.PreemptionEMA = 1, 0.05
		q := QueueInput{RunningDepth: 24, WaitingDepth: 8, KVUsageRatio: 0.72, PromptTokens: 512, PreemptionEMA: 0.05}
		if v == V10 {
			q.KVFreeBytes = 1835008
		} else {
			q.KVFreeBlocks = 1120
		}
		beta, alpha := make([]float64, len(sp.beta)), make([]float64, len(sp.alpha))
		_, err := sp.Beta(&in, beta)
		if err == nil {
			_, err = sp.Alpha(&q, alpha)
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string][]float64{
			"body, linear FLOP a token": {sp.linearFLOPs}, "KV bytes a token": {sp.kvBytes}, "weight bytes": {sp.totalBytes},
			"roofline_step_time": {sp.rooflineS}, "alpha": alpha, "beta": beta,
		} {
			for i, want := range exampleRow(t, text, name, column) {
				if d := got[i] - want; d*d > 1e-24*want*want {
					t.Errorf("%s %s[%d]: got %v, docs/spec.md says %v", v, name, i, got[i], want)
				}
			}
		}
	}
}

// exampleRow are the numbers of one row of the example's table; column 0 is 1.1.
func exampleRow(t *testing.T, text, name string, column int) []float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\| ` + name + ` \| ([^|]*) \| ([^|]*) \|$`).FindStringSubmatch(text[strings.Index(text, `id="worked-example"`):])
	if m == nil {
		t.Fatalf("docs/spec.md: the example has no row %q", name)
	}
	var out []float64
	for _, s := range strings.Split(m[1+column], ", ") {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

func workedExample(t *testing.T, v Version) *Space {
	t.Helper()
	sp, err := New(v, &deploy.Deployment{
		Model: deploy.Model{NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, IntermediateSize: 14336,
			VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2,
			BytesPerLMHead: 2, LinearCompute: "native"},
		Hardware: deploy.Hardware{TFlopsPeak: 989, TFlopsFP8: 1979, BwPeakTBs: 3.35, PCIeBandwidthGBs: 64, PCIeEfficiency: 0.75,
			InterconnectBandwidthGBs: 900, InterconnectLatencyUs: 10},
		Engine: deploy.Engine{MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, BlockSize: 16, KVBlocksGPU: trace.Some(int64(4000))},
		TP:     1, PP: 1, DP: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

func specText(t *testing.T) string {
	t.Helper()
	text := repo.Read(t, "../../docs/spec.md")
	return string(text)
}

func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

func signText(f *Feature) string {
	if f.Free {
		return "free"
	}
	return "+"
}

func penaltyText(f *Feature) string {
	if f.PenaltyOne != f.Penalty {
		return fmt.Sprintf("%g (%g)", f.Penalty, f.PenaltyOne)
	}
	return short(f.Penalty)
}

// short writes 10000 as 1e4.
func short(v float64) string {
	if v >= 1e4 {
		return strings.NewReplacer("e+0", "e", "e+", "e").Replace(strconv.FormatFloat(v, 'e', -1, 64))
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
