package features

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

// TestTrainedPhysicsOfExperts: the constants of a mixture of experts in 8-bit weights, as its formulas have them, with experts in half of
// the layers and in all, on one replica and on two.
func TestTrainedPhysicsOfExperts(t *testing.T) {
	for _, c := range []struct{ dp, layers float64 }{{1, 16}, {2, 16}, {1, 32}, {2, 32}} {
		d := moe(4)
		d.DP = int64(c.dp)
		d.Model.NumMoELayers = int64(c.layers)
		got, err := NewTrainedPhysics(d)
		if err != nil {
			t.Fatal(err)
		}
		m := d.Model.AsBLISReads()
		const tp, all, hidden, kv, ffn, expert, shared = 4.0, 32.0, 4096.0, 1024.0, 14336.0, 1408.0, 2816.0
		width := m.BytesPerWeight
		peak := d.Hardware.TFlopsPeak
		if width == 1 {
			peak = d.Hardware.TFlopsFP8
		}
		bw := d.Hardware.BwPeakTBs * 1e6
		dense := all - c.layers
		group := tp * c.dp
		ring := 2 * hidden * m.BytesPerActivation * (tp - 1) / tp / bw
		want := TrainedPhysics{
			bytePerUs: bw, flopPerUs: peak * 1e6, layers: all, moeLayers: c.layers,
			projPerToken:      all * 2 * hidden * (2*hidden + 2*kv) / group,
			ffnPerToken:       6 * hidden * (c.layers*2*expert + c.layers*shared + dense*ffn) / group,
			attnPerPair:       all * 4 * 32 / tp * 128 / c.dp,
			kvBytesPerToken:   2 * bytesPerKV * all * kv / group,
			weightUs:          (all*hidden*(2*hidden+2*kv)/tp + c.layers*16/group*3*hidden*expert + c.layers*3*hidden*shared/tp + dense*3*hidden*ffn/tp) * width / bw,
			allReducePerToken: ring * (all + dense) / c.dp,
		}
		if c.dp == 1 {
			want.allReducePerToken += ring * c.layers
		} else {
			want.moeDispatch = c.layers / c.dp * (group - 1) / group * 2 * hidden * m.BytesPerActivation / bw
		}
		if dense == 0 {
			want.moeLayers = 0
		}
		for _, v := range []struct {
			name      string
			got, want float64
		}{
			{"bytes per us", got.bytePerUs, want.bytePerUs}, {"FLOP per us", got.flopPerUs, want.flopPerUs}, {"layers", got.layers, want.layers}, {"MoE layers", got.moeLayers, want.moeLayers},
			{"projections", got.projPerToken, want.projPerToken}, {"FFN", got.ffnPerToken, want.ffnPerToken}, {"attention", got.attnPerPair, want.attnPerPair},
			{"KV bytes", got.kvBytesPerToken, want.kvBytesPerToken}, {"weights", got.weightUs, want.weightUs}, {"all-reduce", got.allReducePerToken, want.allReducePerToken},
			{"dispatch", got.moeDispatch, want.moeDispatch},
		} {
			if !near(v.got/math.Max(1, v.want), v.want/math.Max(1, v.want)) || math.Abs(v.got-v.want) > 1e-9*v.want {
				t.Errorf("%+v, %s: got %g, want %g", c, v.name, v.got, v.want)
			}
		}
	}
	for _, b := range []float64{math.NaN(), math.Inf(1), -0.5} {
		beta := make([]float64, 11)
		if err := CheckBetas(beta); err != nil {
			t.Errorf("zeros: got %v", err)
		}
		beta[10] = b
		if err := CheckBetas(beta); err == nil || !strings.Contains(err.Error(), "beta coefficient 10") {
			t.Errorf("%g: got %v", b, err)
		}
	}
	for n, isGood := range map[int]bool{6: false, 7: true, 11: true, 12: false} {
		if err := CheckBetas(make([]float64, n)); (err == nil) != isGood {
			t.Errorf("%d values: got %v", n, err)
		}
	}
}

// TestEachFieldIsChecked: an input with one field out of range is refused by the name of the field.
func TestEachFieldIsChecked(t *testing.T) {
	s := space(t, V12, dense(1))
	refused := func(err error, name string) bool {
		return trace.CodeOf(err) == BadInput && strings.Contains(err.Error(), name+": got")
	}
	for _, f := range stepFields {
		for _, v := range []float64{-1, math.NaN(), math.Inf(1)} {
			in := StepInput{PrefillTokens: 8, NumPrefillReqs: 2, DecodeTokens: 4, NumDecodeReqs: 4, ScheduledTokens: 12, NumSampledSeqs: 4}
			if err := s.checkStep(&in); err != nil {
				t.Fatal(err)
			}
			*f.at(&in) = v
			if err := s.checkStep(&in); !refused(err, f.name) {
				t.Errorf("%s %g: got %v", f.name, v, err)
			}
		}
	}
	for _, f := range queueFields {
		values := map[float64]bool{-1: false, 0: true, 1: true, math.Inf(1): false, 1.5: !f.isFrac}
		for v, isGood := range values {
			var in QueueInput
			*f.at(&in) = v
			if err := s.checkQueue(&in); (err == nil) != isGood || err != nil && !refused(err, f.name) {
				t.Errorf("%s %g: got %v", f.name, v, err)
			}
		}
	}
}

// TestTimesOfCollectives: an all-reduce takes what its table says for the bytes of the tokens: the fused one up to its largest
// size, the one inside CUDA graphs up to the largest of these, and the one outside beyond. Logits take half of one.
func TestTimesOfCollectives(t *testing.T) {
	d := testkit.Llama8B()
	d.TP = 2
	s := space(t, V12, d)
	if s.reduce == nil || s.reduceEager == nil {
		t.Fatal("the H100 has no table")
	}
	kinds := map[string]bool{}
	for _, isFused := range []bool{false, true} {
		if isFused { // up to 64 tokens, with the times of another table
			s.fused, s.fusedBytes = deploy.FusedAllReduceOf("B200", 4), 64*4096*2
		}
		for _, n := range []float64{1, 8, 64, 256, 512, 700, 2000, 8192} {
			tokens, captured := s.graphs.Tokens(n)
			bytes := tokens * 4096 * 2
			kind, us := "outside graphs", s.reduceEager.Us(bytes)
			if captured {
				kind, us = "in graphs", s.reduce.Us(bytes)
			}
			if isFused && n <= 64 {
				kind, us = "fused", s.fused.Us(bytes)
			}
			kinds[kind] = true
			if got := s.reduceS(n); !near(got*1e6, us) || us < 1 {
				t.Errorf("%g tokens %s: got %g us, want %g", n, kind, got*1e6, us)
			}
		}
	}
	if len(kinds) != 3 {
		t.Errorf("got all-reduces %v, want of three kinds", kinds)
	}
	if got, want := s.gatheredS(8)*1e6, s.reduce.Us(8*128256*2)/2; !near(got, want) || want < 1 {
		t.Errorf("logits of 8: got %g us, want %g", got, want)
	}
	if got := s.gatheredS(0); got != 0 {
		t.Errorf("no logits: got %g s", got)
	}
}
