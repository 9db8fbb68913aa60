package autoscale

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestSamplesOfTheEngine: arrival, first and last token of a journey; what lacks them is an arrival only.
func TestSamplesOfTheEngine(t *testing.T) {
	journey := trace.Request{CoreID: trace.Some("c"), ArrivedNs: some(10), QueuedNs: some(12), FirstTokenNs: some(20), FinishedNs: some(30), PromptTokens: some(5), CachedTokens: some(3),
		OutputTokens: some(2), Success: trace.Some(true)}
	want := sample{ArrivedNs: 10, FirstNs: 20, LastNs: 30, Prompt: 5, Cached: 3, Output: 2, OK: true}
	for name, c := range map[string]struct {
		change  func(*trace.Request)
		arrived int64
		isWhole bool
	}{
		"whole":          {func(r *trace.Request) {}, 10, true},
		"no cached":      {func(r *trace.Request) { r.CachedTokens = trace.Opt[int64]{} }, 10, true},
		"no arrival":     {func(r *trace.Request) { r.ArrivedNs.OK = false }, 12, true},
		"no first token": {func(r *trace.Request) { r.FirstTokenNs.OK = false }, 10, false},
		"no end":         {func(r *trace.Request) { r.FinishedNs.OK = false }, 10, false},
		"no prompt":      {func(r *trace.Request) { r.PromptTokens.OK = false }, 10, false},
		"no output":      {func(r *trace.Request) { r.OutputTokens.OK = false }, 10, false},
		"failed":         {func(r *trace.Request) { r.Success.V = false }, 10, false},
		"not known":      {func(r *trace.Request) { r.Success.OK = false }, 10, false},
	} {
		r := journey
		c.change(&r)
		got, n := fromRequests([]trace.Request{r})
		one := want
		one.ArrivedNs, one.OK = c.arrived, c.isWhole
		if !r.CachedTokens.OK {
			one.Cached = 0
		}
		if n != 0 || len(got) != 1 || got[0] != one {
			t.Errorf("%s: got %+v, want %+v", name, got, one)
		}
	}
	none := journey
	none.ArrivedNs.OK, none.QueuedNs.OK = false, false
	alone := journey
	alone.CoreID.OK = false
	stock := trace.Request{Source: trace.SourceStock}
	if got, n := fromRequests([]trace.Request{none, alone, stock}); n != 3 || len(got) != 0 {
		t.Errorf("without an arrival or a journey: got %+v, %d", got, n)
	}
	empty := journey
	empty.OutputTokens.V = 0
	if got, _ := fromRequests([]trace.Request{empty}); got[0].OK {
		t.Error("an answer without tokens is whole")
	}
}

// TestMeasuredWindowByHand: the means, variations and errors of four requests, and the limits of what is a window.
func TestMeasuredWindowByHand(t *testing.T) {
	at := func(arrived, ttftMs, decodeMs, prompt, cached, output int64) sample {
		return sample{ArrivedNs: arrived, FirstNs: arrived + ttftMs*1e6, LastNs: arrived + (ttftMs+decodeMs)*1e6, Prompt: prompt, Cached: cached, Output: output, OK: true}
	}
	samples := []sample{at(0, 10, 40, 100, 10, 3), at(1e9, 20, 60, 100, 20, 3), at(2e9, 40, 100, 300, 400, 5), at(3e9, 50, 120, 300, 0, 5), {ArrivedNs: 4e9}}
	o := cutOptions{WindowNs: 5e9, HopNs: 5e9, MinRequests: 4, Semantics: byArrival, Name: "run", Limits: Limits{MaxBatch: 7}}
	spans := []Span{{Phase: "p", StartNs: 0, EndNs: 5e9}}
	got, counts, err := Cut(samples, spans, o)
	if err != nil || len(got) != 1 || counts.Windows != 1 || len(counts.Dropped) != 0 {
		t.Fatalf("got %+v, %+v, %v", got, counts, err)
	}
	w := got[0]
	// Blocks of two requests: TTFT 15 and 45 ms, gaps of 100/4 and 220/8 ms.
	if w.Name != "run" || w.Phase != "p" || w.StartNs != 0 || w.EndNs != 5e9 || w.Requests != 4 || w.Arrivals != 5 || w.RateRPS != 1 || w.Limits.MaxBatch != 7 ||
		w.Shape != (shape{Prompt: 200, Cached: 107.5, Output: 4, PromptCV2: 0.25, OutputCV2: 0.0625}) ||
		w.TTFTMs != 30 || math.Abs(w.ITLMs-320./12) > 1e-12 || math.Abs(w.TTFTSeMs-15) > 1e-12 || math.Abs(w.ITLSeMs-1.25) > 1e-12 {
		t.Errorf("got %+v", w)
	}
	// Of twelve requests five blocks have TTFTs of 10 to 50 ms and gaps of 2 to 10 ms.
	var many window
	var used []*sample
	for _, block := range []int64{1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5} {
		s := at(0, 10*block, 4*block, 1, 0, 3)
		used = append(used, &s)
	}
	if many.measure(used); math.Abs(many.TTFTSeMs-math.Sqrt(50)) > 1e-9 || math.Abs(many.ITLSeMs-math.Sqrt2) > 1e-9 {
		t.Errorf("five blocks: got errors of %g and %g ms", many.TTFTSeMs, many.ITLSeMs)
	}
	// By Prometheus only what finished counts, also for the rate.
	o.Semantics = byPrometheus
	if got, _, _ := Cut(samples, spans, o); len(got) != 1 || got[0].Arrivals != 4 || got[0].RateRPS != 0.8 {
		t.Errorf("got %+v", got)
	}
	o.Semantics = byArrival
	dropped := func(change func(o *cutOptions, s *Span, samples []sample)) trace.Code {
		own, span, list := o, spans[0], slices.Clone(samples)
		change(&own, &span, list)
		got, counts, err := Cut(list, []Span{span}, own)
		if err != nil || len(got)+counts.Dropped[fewRequests]+counts.Dropped[noLatency]+counts.Dropped[closedLoop] != counts.Windows {
			t.Errorf("got %d windows, %+v, %v", len(got), counts, err)
		}
		for code := range counts.Dropped {
			return code
		}
		return ""
	}
	for want, change := range map[trace.Code]func(*cutOptions, *Span, []sample){
		fewRequests: func(o *cutOptions, _ *Span, _ []sample) { o.MinRequests = 5 },
		closedLoop:  func(_ *cutOptions, s *Span, _ []sample) { s.Drop = closedLoop },
		noLatency: func(_ *cutOptions, _ *Span, list []sample) {
			for i := range list {
				list[i].FirstNs = list[i].ArrivedNs
			}
		},
	} {
		if got := dropped(change); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := dropped(func(_ *cutOptions, s *Span, _ []sample) { s.EndNs-- }); got != fewRequests {
		t.Errorf("a span shorter than a window: got %q", got)
	}
	for name, c := range map[string]struct {
		change func(*cutOptions)
		isGood bool
	}{
		"shortest": {func(o *cutOptions) { o.WindowNs, o.HopNs, o.MinRequests = 1e9, 1e6, 2 }, true}, "window": {func(o *cutOptions) { o.WindowNs = 1e9 - 1 }, false}, "hop": {func(o *cutOptions) { o.HopNs = 1e6 - 1 }, false},
		"requests": {func(o *cutOptions) { o.MinRequests = 1 }, false}, "semantics": {func(o *cutOptions) { o.Semantics = "any" }, false},
	} {
		own := o
		if c.change(&own); (own.Check() == nil) != c.isGood {
			t.Errorf("%s: got %v", name, own.Check())
		}
	}
}

// fittedByHand is a server with two windows, of which the first was fitted.
func fittedByHand() *Calibrated {
	first := window{Name: "run", Phase: "p", StartNs: 11, EndNs: 12, Requests: 13, RateRPS: 14, Shape: shape{Prompt: 15, Cached: 16, Output: 17, PromptCV2: 18, OutputCV2: 19}, TTFTMs: 20, ITLMs: 21, TTFTSeMs: 22, ITLSeMs: 23}
	second := first
	second.TTFTSeMs, second.ITLSeMs = 0, 0
	return &Calibrated{Server: &Server{ID: "s", Windows: []window{first, second}}, Split: 1, speed: []float64{0.9, 1.1}}
}

// TestRowsOfWindows: every column of windows.parquet.
func TestRowsOfWindows(t *testing.T) {
	f := fittedByHand()
	some := trace.Some[float64]
	want := WindowRow{Server: "s", Name: "run", Phase: "p", StartNs: 11, EndNs: 12, Speed: some(0.9), Requests: 13, RateRPS: 14, Prompt: 15, Cached: 16, Output: 17, PromptCV2: 18, OutputCV2: 19,
		TTFTMs: 20, TTFTSeMs: some(22), ITLMs: 21, ITLSeMs: some(23), Estimator: "robust", Names: corrected.Parameters()}
	if got := f.measuredRow(0, corrected, "robust"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := f.measuredRow(1, corrected, "robust"); got.Window != 1 || !got.HoldOut || got.TTFTSeMs.OK || got.ITLSeMs.OK || got.Speed.V != 1.1 {
		t.Errorf("got %+v", got)
	}
	f.speed = nil
	rows := f.stepRows(corrected, "sliding", []step{
		{Window: 1, X: []float64{1, 2}, P: [][]float64{{1, 2}, {3, 4}}, Innovation: [2]float64{5, -6}, NIS: 7, Verdict: accepted},
		{Window: 0, NIS: math.NaN(), Verdict: "other"},
	})
	if r := rows[0]; r.Window != 1 || r.Verdict != string(accepted) || !slices.Equal(r.X, []float64{1, 2}) || !slices.Equal(r.P, []float64{1, 2, 3, 4}) || r.NIS != some(7) || r.TTFTPred != some(15) || r.ITLPred != some(27) || r.Speed.OK {
		t.Errorf("got %+v", r)
	}
	if r := rows[1]; r.Window != 0 || r.NIS.OK || r.TTFTPred.OK || r.ITLPred.OK || r.P != nil {
		t.Errorf("got %+v", r)
	}
}

// TestVerdictsAtTheirLimits: each gate of a calibration passes at its limit and fails beyond it.
func TestVerdictsAtTheirLimits(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	verdictOf := func(change func(f *Calibrated)) (string, string) {
		f := fittedByHand()
		f.Windows[1].RateRPS = 14
		f.Doc.ID = "s"
		f.Doc.Effective = []queueParameter{{Name: "a", Identified: measured}, {Name: "b", Identified: held}}
		f.Doc.Scores = []queueScore{
			{Set: holdOut, Estimator: estEffective, TTFTWape: v(0.25), ITLWape: v(0.1)}, {Set: holdOut, Estimator: estPhysical, TTFTWape: v(0.9), ITLWape: v(0.9)}, {Set: validation, Estimator: estEffective, TTFTWape: v(0.9), ITLWape: v(0.9)},
		}
		change(f)
		j := f.verdict()
		if j == nil {
			return "", ""
		}
		return j.Verdict, strings.Join(j.Failed(), "; ")
	}
	for name, c := range map[string]struct {
		change func(f *Calibrated)
		want   string
		failed string
	}{
		"at the limits":       {func(f *Calibrated) {}, coeff.VerdictPass, ""},
		"TTFT":                {func(f *Calibrated) { f.Doc.Scores[0].TTFTWape = v(0.2501) }, coeff.VerdictFail, "hold_out_ttft_wape"},
		"ITL":                 {func(f *Calibrated) { f.Doc.Scores[0].ITLWape = v(0.1001) }, coeff.VerdictFail, "hold_out_itl_wape"},
		"a parameter":         {func(f *Calibrated) { f.Doc.Effective[1].Identified = atBound }, coeff.VerdictFail, "parameters_neither_measured_nor_held"},
		"load above":          {func(f *Calibrated) { f.Windows[1].RateRPS = 15 }, coeff.VerdictFail, "hold_out_load_outside_fitted"},
		"load below":          {func(f *Calibrated) { f.Windows[1].RateRPS = 13 }, coeff.VerdictFail, "hold_out_load_outside_fitted"},
		"one not predicted":   {func(f *Calibrated) { f.Doc.Scores[0].Unpredicted = 1 }, coeff.VerdictInsufficient, "hold_out_ttft_wape"},
		"no hold-out":         {func(f *Calibrated) { f.Split = 2 }, coeff.VerdictInsufficient, "hold_out_load_outside_fitted"},
		"physical ones alone": {func(f *Calibrated) { f.Doc.Physical, f.Doc.Effective = f.Doc.Effective, nil }, coeff.VerdictFail, "hold_out_ttft_wape"},
		"none":                {func(f *Calibrated) { f.Doc.Effective = nil }, "", ""},
	} {
		got, failed := verdictOf(c.change)
		if got != c.want || !strings.Contains(failed, c.failed) || c.failed == "" && failed != "" {
			t.Errorf("%s: got %s, %q", name, got, failed)
		}
	}
	f := fittedByHand()
	for rate, want := range map[float64]float64{14: 0, 21: 0.5, 7: 0.5} {
		f.Windows[1].RateRPS = rate
		if got := f.loadBeyondFitFrac(); got == nil || math.Abs(*got-want) > 1e-12 {
			t.Errorf("%g/s: got %v, want %g", rate, got, want)
		}
	}
	if f.Split = 0; f.loadBeyondFitFrac() != nil {
		t.Error("nothing was fitted: got a distance")
	}
	// The gates of a validation, by the effective parameters or, without them, by the physical ones.
	for name, c := range map[string]struct {
		change func(s *QueueServer)
		want   bool
	}{
		"at the limits": {func(s *QueueServer) {}, true},
		"TTFT":          {func(s *QueueServer) { s.Scores[1].TTFTWape = v(0.2001) }, false},
		"ITL":           {func(s *QueueServer) { s.Scores[1].ITLWape = v(0.1001) }, false},
		"not predicted": {func(s *QueueServer) { s.Scores[1].Unpredicted = 1 }, false},
		"no TTFT":       {func(s *QueueServer) { s.Scores[1].TTFTWape = nil }, false},
		"physical":      {func(s *QueueServer) { s.Effective, s.Scores = nil, s.Scores[2:] }, false},
		"good physical": {func(s *QueueServer) {
			s.Effective, s.Scores = nil, []queueScore{{Set: validation, Estimator: estPhysical, TTFTWape: v(0), ITLWape: v(0)}}
		}, true},
		"another's": {func(s *QueueServer) { s.Scores = s.Scores[2:] }, false},
		"no score":  {func(s *QueueServer) { s.Scores = nil }, false},
	} {
		s := &QueueServer{Effective: []queueParameter{{}}, Scores: []queueScore{
			{Set: holdOut, Estimator: estEffective, TTFTWape: v(9), ITLWape: v(9)}, {Set: validation, Estimator: estEffective, TTFTWape: v(0.2), ITLWape: v(0.1)}, {Set: validation, Estimator: estPhysical, TTFTWape: v(9), ITLWape: v(0)}}}
		if c.change(s); Passed(s) != c.want {
			t.Errorf("%s: got passed %v", name, !c.want)
		}
	}
	q := &Queue{Servers: []QueueServer{{ID: "a", Verdict: &coeff.Judgement{Verdict: coeff.VerdictPass}}, {ID: "b"}, {ID: "c", Verdict: &coeff.Judgement{Verdict: coeff.VerdictFail}}}}
	for id, want := range map[string]string{"": coeff.VerdictFail, "a": coeff.VerdictPass, "b": "", "c": coeff.VerdictFail} {
		if got, _ := q.VerdictOf(id); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}

// TestPhysicalParametersByHand: the parameters in both forms, with floors, utilisation and what is found of them.
func TestPhysicalParametersByHand(t *testing.T) {
	p := &Physical{Params: params{AlphaMs: 8, BetaMs: 0.05, GammaMs: 0.001}, CI95: [3]*[2]float64{{7, 9}}, Floor: [3]float64{4, 0.1, 0.001}, Bound: [3]bool{false, false, true}, Prompt: 100, Output: 40}
	if got := p.vector(corrected); !slices.Equal(got, []float64{8, 0.05, 0.001}) {
		t.Errorf("got %v", got)
	}
	for i, want := range []float64{8, 0.05 + 0.001*120, 8, 0.051} {
		if got := p.vector(wvA4P)[i]; math.Abs(got-want) > 1e-12 {
			t.Errorf("parameter %d of four: got %g, want %g", i, got, want)
		}
	}
	if (*Physical)(nil).vector(corrected) != nil || (*Physical)(nil).document(corrected) != nil {
		t.Error("none: got parameters")
	}
	doc := p.document(corrected)
	for i, want := range []struct {
		unit, identified   string
		floor, utilisation float64
	}{{"ms/iteration", measured, 4, 0.5}, {"ms/token computed", measured, 0.1, 2}, {"ms/KV token read", atBound, 0.001, 1}} {
		q := doc[i]
		if q.Unit != want.unit || q.Identified != want.identified || *q.Floor != want.floor || math.Abs(*q.Utilisation-want.utilisation) > 1e-12 || (q.CI95 != nil) != (i == 0) || q.Name != corrected.Parameters()[i] {
			t.Errorf("got %+v", q)
		}
	}
	if four := p.document(wvA4P); len(four) != 4 || four[0].Unit != "ms" || four[1].Unit != "ms/request" || four[3].Unit != "ms/(token request)" || four[0].Floor != nil || four[2].Identified != measured {
		t.Errorf("got %+v", four)
	}
	s := &Server{ID: "s"}
	v := func(x float64) *float64 { return &x }
	found := s.parameterFindings(corrected, []queueParameter{
		{Name: "a", Value: 5, Floor: v(5), Utilisation: v(1)}, {Name: "b", Value: 5, Floor: v(6), Utilisation: v(1.2)}, {Name: "c", Shift: v(2)}, {Name: "d", Shift: v(2.01)}, {Name: "e", Shift: v(0.49)}, {Name: "f", Shift: v(0.5)},
	})
	var names []string
	for _, f := range found {
		names = append(names, f.Message[:len("s: effective d")])
	}
	if !slices.Equal(names, []string{"s: b of 5 ms i", "s: effective d", "s: effective e"}) || !strings.Contains(found[0].Message, "below the hardware's 6 ms (implied utilisation 1.20)") || found[0].Code != unlikelyParameter {
		t.Errorf("got %v", found)
	}
	if s.speeds(1) != nil {
		t.Error("no steps: got speeds")
	}
}

// TestValidateQueuesByHand: parameters of a server of another recording, and why there are none.
func TestValidateQueuesByHand(t *testing.T) {
	o := DefaultOptions()
	o.Flavour = inferno3P
	w := window{RateRPS: 4, Limits: Limits{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 2048}, Shape: shape{Prompt: 200, Output: 60}}
	truth := []float64{8, 0.05, 1e-4}
	ttft, itl, ok := predictWindow(inferno3P, &w, truth, asSized)
	if !ok {
		t.Fatal("no prediction")
	}
	w.TTFTMs, w.ITLMs = 1.25*ttft, itl/2
	fitted := &Queue{Servers: []QueueServer{{ID: "a", Load: &queueLoad{TTFTMs: 1.5 * w.TTFTMs, ITLMs: w.ITLMs}}}}
	for i, name := range inferno3P.Parameters() {
		fitted.Servers[0].Effective = append(fitted.Servers[0].Effective, queueParameter{Name: name, Value: truth[i]})
	}
	server := &Server{ID: "a", Windows: []window{w}}
	got, err := ValidateQueues(t.Context(), fitted, []*Server{server}, "", &o, 0)
	if err != nil || len(got) != 1 || len(got[0].Scores) != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if s := got[0].Scores[0]; s.Estimator != estEffective || s.Set != validation || s.Windows != 1 || math.Abs(*s.TTFTWape-0.2) > 1e-9 || math.Abs(*s.ITLWape-1) > 1e-9 || math.Abs(*s.TTFTBias+0.2) > 1e-9 || math.Abs(*s.ITLBias-1) > 1e-9 {
		t.Errorf("got %+v", s)
	}
	if s := got[0].Scores[1]; s.Estimator != estConstant || math.Abs(*s.TTFTWape-0.5) > 1e-9 || *s.ITLWape != 0 {
		t.Errorf("got %+v", s)
	}
	server.ID = "b"
	if _, err := ValidateQueues(t.Context(), fitted, []*Server{server}, "", &o, 0); err == nil || !strings.Contains(err.Error(), `parameters of server "b": got none, have a`) {
		t.Errorf("got %v", err)
	}
	if got, err := ValidateQueues(t.Context(), fitted, []*Server{server}, "a", &o, 0); err != nil || len(got[0].Scores) != 2 {
		t.Errorf("those of a: got %+v, %v", got, err)
	}
	empty := &Server{ID: "a"}
	empty.Account.Dropped = map[string]int{string(fewRequests): 3, string(closedLoop): 2}
	if got, err := ValidateQueues(t.Context(), fitted, []*Server{empty}, "", &o, 0); err != nil || !strings.Contains(got[0].Reason, "no window is left (") || !strings.Contains(got[0].Reason, string(fewRequests)+" 3") || len(got[0].Scores) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	refused := &Server{ID: "a", Reason: "why", Windows: []window{w}}
	if got, err := ValidateQueues(t.Context(), fitted, []*Server{refused}, "", &o, 0); err != nil || len(got[0].Scores) != 0 || len(got[0].Effective) != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestIterationOfARun: the physical parameters that follow from a fit of the steps: scaled so that the predictions have
// the measured sum, and the hardware's floor where the steps show no coefficient.
func TestIterationOfARun(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	coefficient := func(us float64, interval *[2]float64) result.Coefficient {
		c := result.Coefficient{}
		c.Value = us
		c.CI95 = interval
		return c
	}
	it := &fit.Iteration{
		Model: &result.Model{
			Train: &result.Errors{Bias: v(-0.2)}, Holdout: &result.Errors{MAPE: v(0.3)},
			Coefficients: []result.Coefficient{coefficient(8000, &[2]float64{9000, 12_000}), coefficient(0, &[2]float64{0, 1}), coefficient(4, nil)},
		},
		FloorUs: [3]float64{5000, 60, 1}, Lengths: [2]*float64{v(100), v(40)}, Findings: []trace.Finding{{Code: "first"}},
	}
	s := &Server{ID: "s"}
	s.takeIteration(it)
	p := s.Physical
	if p == nil || p.Params != (params{AlphaMs: 10, BetaMs: 0.06, GammaMs: 0.005}) || p.Floor != [3]float64{5, 0.06, 0.001} || p.Bound != [3]bool{false, true, false} || *p.CI95[0] != [2]float64{9, 12} || p.CI95[1] != nil || p.CI95[2] != nil ||
		p.Prompt != 100 || p.Output != 40 || p.Errors != it.Model.Holdout || p.steps != it {
		t.Errorf("got %+v", p)
	}
	if len(s.Findings) != 2 || s.Findings[0].Code != "first" || s.Findings[1].Code != heldParameter || s.Findings[1].Message != "s: "+corrected.Parameters()[1]+" is not shown by the steps; the hardware's 0.06 ms is used" {
		t.Errorf("got %v", s.Findings)
	}
	s = &Server{ID: "s"}
	s.takeIteration(&fit.Iteration{Reason: "too few steps"})
	if s.Physical != nil || len(s.Findings) != 1 || s.Findings[0].Message != "s: too few steps" {
		t.Errorf("got %+v", s)
	}
	it.Lengths = [2]*float64{}
	s = &Server{ID: "s"}
	if s.takeIteration(it); s.Physical.Prompt != 0 || s.Physical.Output != 0 {
		t.Errorf("lengths that are not known: got %+v", s.Physical)
	}
}

// TestServerOfARun: the server of a recording, with its windows, what was skipped, and its delay before the engine.
func TestServerOfARun(t *testing.T) {
	d := testkit.Llama8B()
	o := DefaultOptions()
	o.Cut.WindowNs, o.Cut.HopNs, o.Cut.MinRequests = 10e9, 10e9, 5
	run := &trace.Run{ID: "r"}
	for i := range int64(25) {
		at := 100e9 + i*1e9
		run.Requests = append(run.Requests, trace.Request{CoreID: trace.Some(fmt.Sprint("c", i)), APIID: trace.Some(fmt.Sprint("a", i)), ArrivedNs: some(at), QueuedNs: some(at + 3e6), ScheduledNs: some(at + 4e6), FirstTokenNs: some(at + 50e6), FinishedNs: some(at + 250e6), DepartedNs: some(at + 251e6),
			PromptTokens: some(100), OutputTokens: some(11), Success: trace.Some(true)})
	}
	run.Requests = append(run.Requests, trace.Request{APIID: trace.Some("alone"), ArrivedNs: some(101e9)})
	s, err := serverOfRun("r", run, d, &o)
	if err != nil {
		t.Fatal(err)
	}
	if s.ID != "r" || s.Source != fromRecording || s.Model != d.Model.ID || s.Accelerator != d.Hardware.Name || s.AccCount != d.TP || s.Deployment != d || math.Abs(s.Limits.OverheadMs-3) > 1e-9 || s.Reason != "" || len(s.Findings) != 0 {
		t.Errorf("got %+v", s)
	}
	if a := s.Account; a.Read != 3 || a.Kept != 2 || a.Skipped != 1 || a.Dropped[string(fewRequests)] != 1 || len(a.Dropped) != 1 || len(s.Windows) != 2 {
		t.Errorf("got %+v", a)
	}
	if w := s.Windows[1]; w.Name != "r" || w.StartNs != 110e9 || w.Requests != 10 || w.RateRPS != 1 || w.TTFTMs != 50 || w.ITLMs != 20 || w.Limits.OverheadMs != s.Limits.OverheadMs {
		t.Errorf("got %+v", w)
	}
	for i := range run.Requests {
		run.Requests[i].ArrivedNs.OK = false
	}
	s, err = serverOfRun("r", run, d, &o)
	if err != nil || s.Limits.OverheadMs != 0 || len(s.Findings) != 1 || s.Findings[0].Message != "r: no ARRIVED stamps: overhead taken as 0 ms" {
		t.Errorf("got %+v, %v", s, err)
	}
	// Without records of the engine those of clients.
	client := &trace.Run{ID: "r"}
	for i := range int64(25) {
		at := 100e9 + i*1e9
		client.Observed = append(client.Observed, trace.ObservedRequest{SendNs: some(at), FirstChunkNs: some(at + 60e6), LastChunkNs: some(at + 260e6), PromptTokens: some(100), OutputTokens: some(11), Success: trace.Some(true)})
	}
	client.Observed = append(client.Observed, trace.ObservedRequest{})
	if s, err = serverOfRun("r", client, d, &o); err != nil || len(s.Windows) != 2 || s.Windows[0].TTFTMs != 60 || s.Account.Skipped != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
}

// TestSweepOfFilesByHand: a table of load levels as a server, with means or medians, and files of no sweep.
func TestSweepOfFilesByHand(t *testing.T) {
	const table = "input_tokens,output_tokens,rate_rps,ttft_ms,tpot_ms,input_sd,output_sd\n100,20,2,40,10,50,5\n100,20,1,30,9,,\n100,20,4,80,12,,\n"
	read := func(files map[string]string) func(path string) ([]byte, result.Input, error) {
		return func(path string) ([]byte, result.Input, error) {
			if text, ok := files[path]; ok {
				return []byte(text), result.Input{Name: "in/" + path}, nil
			}
			return nil, result.Input{}, os.ErrNotExist
		}
	}
	o := DefaultOptions()
	o.Sweep.Accelerator, o.Sweep.AccCount, o.Sweep.MaxBatch, o.QueueRatio = "H100", 2, 64, 3
	s, inputs, err := SweepServer([]string{"t.csv"}, read(map[string]string{"t.csv": table}), &o)
	if err != nil {
		t.Fatal(err)
	}
	if s.ID != "sweep" || s.Source != fromSweep || s.Accelerator != "H100" || s.AccCount != 2 || s.Limits.MaxBatch != 64 || s.Limits.Queue != 192 || len(inputs) != 1 || inputs[0].Name != "in/t.csv" || s.Account.Read != 3 || s.Account.Kept != 3 || !o.Sweep.Mean {
		t.Errorf("got %+v, %+v", s, inputs)
	}
	if w := s.Windows[1]; w.RateRPS != 2 || w.TTFTMs != 40 || w.ITLMs != 10 || w.Shape != (shape{Prompt: 100, Output: 20, PromptCV2: 0.25, OutputCV2: 0.0625}) {
		t.Errorf("got %+v, want the levels by rate", w)
	}
	o.Sweep.Mean, o.Sweep.Loads, o.Sweep.Model = false, 2, "m"
	if s, _, err = SweepServer([]string{"t.csv"}, read(map[string]string{"t.csv": table}), &o); err != nil || s.ID != "m" || len(s.Windows) != 2 || s.Windows[1].RateRPS != 2 || s.Account.Dropped[string(beyondLoads)] != 1 {
		t.Errorf("two loads: got %+v, %v", s, err)
	}
	o.Sweep.Mean, o.Sweep.Median, o.Sweep.Loads = false, true, 0
	if s, _, err = SweepServer([]string{"t.csv"}, read(map[string]string{"t.csv": table}), &o); err != nil || o.Sweep.Mean || len(s.Windows) != 0 || s.Account.Dropped[string(noLatency)] != 3 {
		t.Errorf("medians that no row has: got %+v, %v", s, err)
	}
	for path, text := range map[string]string{"none.csv": "", "bad.csv": strings.Replace(table, "40", "x", 1)} {
		files := map[string]string{path: text}
		if path == "none.csv" {
			files = nil
		}
		if _, _, err := SweepServer([]string{path}, read(files), &o); err == nil {
			t.Errorf("%s: got no error", path)
		} else if path == "bad.csv" && !strings.HasPrefix(err.Error(), "bad.csv:2") {
			t.Errorf("got %v, want the name and the line of the file", err)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"b.csv", "a.json", "config.json", "hardware.json", "tokenizer_config.json", "x.prom", "aiperf_server_metrics_export.jsonl", "other.txt"} {
		repo.Write(t, "{}", dir, name)
	}
	names, err := sweepFiles([]string{"given.csv", dir})
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	if err != nil || !slices.Equal(names, []string{"given.csv", "a.json", "b.csv", "x.prom", "aiperf_server_metrics_export.jsonl"}) {
		t.Errorf("got %v, %v", names, err)
	}
	if _, err := sweepFiles([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "neither extract.json nor benchmark files") {
		t.Errorf("got %v", err)
	}
}

// TestLimitsOfOptions: options of queue fit and of queue size at their limits and beyond them.
func TestLimitsOfOptions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		isGood bool
	}{
		"defaults": {func(o *Options) {}, true}, "flavour": {func(o *Options) { o.Flavour = "x" }, false}, "window": {func(o *Options) { o.Cut.WindowNs = 1 }, false},
		"no waiting room": {func(o *Options) { o.QueueRatio = 0 }, true}, "the largest": {func(o *Options) { o.QueueRatio = 1000 }, true}, "larger": {func(o *Options) { o.QueueRatio = 1001 }, false}, "negative": {func(o *Options) { o.QueueRatio = -1 }, false}, "NaN": {func(o *Options) { o.QueueRatio = math.NaN() }, false},
		"nothing held out": {func(o *Options) { o.HoldOut = 0 }, false}, "all held out": {func(o *Options) { o.HoldOut = 1 }, false}, "nearly all": {func(o *Options) { o.HoldOut = 0.999 }, true},
		"one of each": {func(o *Options) { o.Sweep.MaxBatch, o.Sweep.MaxBatchedTokens, o.Sweep.AccCount = 1, 1, 1 }, true}, "no seat": {func(o *Options) { o.Sweep.MaxBatch = 0 }, false}, "no token": {func(o *Options) { o.Sweep.MaxBatchedTokens = 0 }, false},
		"most seats": {func(o *Options) { o.Sweep.MaxBatch = 1 << 24 }, true}, "more seats": {func(o *Options) { o.Sweep.MaxBatch = 1<<24 + 1 }, false}, "more tokens": {func(o *Options) { o.Sweep.MaxBatchedTokens = 1<<24 + 1 }, false},
		"no device": {func(o *Options) { o.Sweep.AccCount = 0 }, false}, "loads": {func(o *Options) { o.Sweep.Loads = -1 }, false},
	} {
		o := DefaultOptions()
		if c.change(&o); (o.Check() == nil) != c.isGood {
			t.Errorf("%s: got %v", name, o.Check())
		}
	}
	for name, c := range map[string]struct {
		o      SizeOptions
		f      Flavour
		isGood bool
	}{
		"none": {SizeOptions{}, corrected, true}, "largest": {SizeOptions{Targets: Targets{TTFTMs: 1e8, ITLMs: 1e8, TPS: 1e8}, Prompt: 1e8, Output: 1e8}, corrected, true},
		"ttft": {SizeOptions{Targets: Targets{TTFTMs: 1.01e8}}, corrected, false}, "itl": {SizeOptions{Targets: Targets{ITLMs: -1}}, corrected, false}, "tps": {SizeOptions{Targets: Targets{TPS: math.NaN()}}, corrected, false},
		"prompt": {SizeOptions{Prompt: -1}, corrected, false}, "output": {SizeOptions{Output: 1.01e8}, corrected, false},
		"concurrency": {SizeOptions{Concurrency: 1 << 14}, inferno3P, true}, "of another flavour": {SizeOptions{Concurrency: 1}, corrected, false}, "more": {SizeOptions{Concurrency: 1<<14 + 1}, inferno3P, false}, "less": {SizeOptions{Concurrency: -1}, inferno3P, false},
		"requests": {SizeOptions{Requests: 1}, corrected, true}, "fewer": {SizeOptions{Requests: -1}, corrected, false}, "of four parameters": {SizeOptions{Requests: 1}, wvA4P, false}, "none of them": {SizeOptions{}, wvA4P, true},
	} {
		if err := c.o.checkFor(c.f); (err == nil) != c.isGood {
			t.Errorf("%s: got %v", name, err)
		}
	}
	o := DefaultOptions()
	o.Sweep.Loads, o.Sweep.Mean = 7, true
	o.Cut = cutOptions{WindowNs: 30e9, HopNs: 15e9, MinRequests: 9, Semantics: byPrometheus}
	if got, want := CommandLine("fit", &o), "queue fit --flavour corrected --hold-out 0.3 --hop 15s --loads 7 --max-num-batched-tokens 8192 --max-num-seqs 256 --min-requests 9 --queue-ratio 10 --semantics prometheus --ttft mean --window 30s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r := o.Record(); r.WindowS != 30 || r.HopS != 15 || r.MinRequests != 9 || r.Semantics != "prometheus" || r.Observation != "mean" || r.HoldOut != 0.3 || r.QueueRatio != 10 {
		t.Errorf("got %+v", r)
	}
	if o.waiting(25) != 250 {
		t.Errorf("got %d", o.waiting(25))
	}
}

// TestOverheadIsPartOfTTFT: requests apart from each other take longer to the first token by the delay before the engine.
func TestOverheadIsPartOfTTFT(t *testing.T) {
	p := params{AlphaMs: 8, BetaMs: 0.05, GammaMs: 1e-4}
	at := func(overheadMs float64) *queueSimPoint {
		got, err := simulate(p, Limits{MaxBatch: 8, OverheadMs: overheadMs}, trafficOf(shape{Prompt: 40, Output: 4}, 0.01, 40, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	without, with := at(0), at(7.5)
	if math.Abs(with.TTFTMs-without.TTFTMs-7.5) > 0.01 || math.Abs(with.ITLMs-without.ITLMs) > 1e-9 {
		t.Errorf("got %g and %g ms to the first token, %g and %g ms a token", without.TTFTMs, with.TTFTMs, without.ITLMs, with.ITLMs)
	}
}

// TestScoresOfAFigure: the most telling set decides where several were scored.
func TestScoresOfAFigure(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	q := &Queue{Servers: []QueueServer{{ID: "a", Scores: []queueScore{
		{Set: shownSets[0], Estimator: "e", TTFTWape: v(0.1), ITLWape: v(0.2), Windows: 3}, {Set: shownSets[len(shownSets)-1], Estimator: "e", TTFTWape: v(0.3), ITLWape: v(0.4)}, {Set: "other", Estimator: "e", TTFTWape: v(0.9)}, {Set: shownSets[0], Estimator: "none"},
	}}}}
	for id, want := range map[string]float64{"ttft": 0.1, "itl": 0.2} {
		fig := scoreFigure(q, id, strings.ToUpper(id))
		if fig == nil || len(fig.Panels) == 0 {
			t.Fatalf("%s: no figure", id)
		}
		var page strings.Builder
		for _, p := range fig.Panels {
			page.WriteString(string(p.HTML()))
		}
		if text := report.Pct(want) + " on 3 windows of " + shownSets[0]; !strings.Contains(page.String(), text) {
			t.Errorf("%s: the figure does not say %q", id, text)
		}
	}
	if scoreFigure(&Queue{Servers: []QueueServer{{ID: "a", Scores: []queueScore{{Set: shownSets[0], Estimator: "e"}}}}}, "ttft", "TTFT") != nil {
		t.Error("no score: got a figure")
	}
}

// TestPlanByHand: totals of an allocation, who is not served, and what is left.
func TestPlanByHand(t *testing.T) {
	f := &Fleet{Capacity: map[string]int{"A": 5, "B": 6}}
	p := f.plan([]queueGiven{{Name: "z", Cost: 2, Value: 3, Replicas: 1}, {Name: "b"}, {Name: "a", Cost: 5, Value: 7, Full: true}}, map[string]int{"A": 1, "B": 2, "C": 3})
	if p.Cost != 7 || p.Value != 10 || !slices.Equal(p.Unserved, []string{"b"}) || !reflect.DeepEqual(p.Left, map[string]int{"A": 1, "B": 2}) || p.Servers[0].Name != "a" || p.Servers[2].Name != "z" {
		t.Errorf("got %+v", p)
	}
}

// TestLineByHand: a line through points that it cannot reach is off by 1/3 and 1/3 of them at most and on average.
func TestLineByHand(t *testing.T) {
	l := fitLine([][]float64{{1, 0, 0}, {1, 0, 0}}, []float64{1, 1})
	if math.Abs(l.coef[0]-1) > 1e-9 || l.maxErr > 1e-9 || l.meanErr > 1e-9 || l.points != 2 {
		t.Errorf("got %+v", l)
	}
	// c minimises (1-c)^2 + (1-c/2)^2: c = 1.5/1.25, off by +0.2 and -0.4.
	l = fitLine([][]float64{{1, 0, 0}, {1, 0, 0}}, []float64{1, 2})
	if math.Abs(l.coef[0]-1.2) > 1e-6 || math.Abs(l.maxErr-0.4) > 1e-6 || math.Abs(l.meanErr-0.3) > 1e-6 {
		t.Errorf("got %+v", l)
	}
}
