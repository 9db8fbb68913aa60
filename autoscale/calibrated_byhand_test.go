package autoscale

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
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
