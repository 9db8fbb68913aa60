package autoscale

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// every100ms are requests that arrive ten a second for n seconds: TTFT 50 ms, 11
// tokens 20 ms apart.
func every100ms(n int) []sample {
	var out []sample
	for i := range 10 * n {
		at := int64(i) * 100e6
		out = append(out, sample{ArrivedNs: at, FirstNs: at + 50e6, LastNs: at + 250e6, Prompt: 100 + int64(i%2)*200, Output: 11, OK: true})
	}
	return out
}

func TestCut(t *testing.T) {
	samples := every100ms(100)
	samples[5].OK = false // arrived, never finished
	o := defaultCut()
	o.WindowNs, o.HopNs, o.Limits = 20e9, 20e9, Limits{MaxBatch: 8}
	spans := []Span{{Phase: "warmup", StartNs: 0, EndNs: 20e9, Drop: closedLoop}, {Phase: "a", StartNs: 20e9, EndNs: 70e9},
		{Phase: "b", StartNs: 70e9, EndNs: 140e9}}
	spans[0].Drop = closedLoop
	o.SaturatedNs = [][2]int64{{89e9, 90e9}}
	w, c, err := Cut(samples, spans, o)
	if err != nil {
		t.Fatal(err)
	}
	// warm-up 1; a: 2 and a rest; b: 70-90 saturated, 90-110, 110-130 empty, rest
	want := map[trace.Code]int{closedLoop: 1, fewRequests: 3, saturatedWindow: 1}
	kept := 0
	for code, n := range want {
		if c.Dropped[code] != n {
			t.Errorf("%s: got %d, want %d", code, c.Dropped[code], n)
		}
		kept += n
	}
	if c.Windows != len(w)+kept || len(w) != 3 {
		t.Fatalf("got %d windows, %d kept, %v dropped", c.Windows, len(w), c.Dropped)
	}
	x := w[0]
	if x.Phase != "a" || x.RateRPS != 10 || x.Requests != 200 || math.Abs(x.TTFTMs-50) > 1e-9 || math.Abs(x.ITLMs-20) > 1e-9 ||
		x.TTFTSeMs > 1e-9 {
		t.Errorf("got %+v", x)
	}
	if s := x.Shape; s.Prompt != 200 || math.Abs(s.PromptCV2-0.25) > 1e-12 || s.Output != 11 || s.OutputCV2 > 1e-12 {
		t.Errorf("got shape %+v, want 200 (cv2 0.25) and 11 (0)", s)
	}
	if x = w[2]; x.StartNs != 90e9 || x.Requests != 100 || x.RateRPS != 5 {
		t.Errorf("got %+v, want the window of half a load", x)
	}
}

// TestSemantics: a failed request arrives and never finishes; by completions the
// window moves with the end of the requests.
func TestSemantics(t *testing.T) {
	samples := every100ms(60)
	for i := range 100 {
		samples[i].OK = false
	}
	o := defaultCut()
	o.WindowNs, o.HopNs = 30e9, 30e9
	spans := []Span{{StartNs: 0, EndNs: 60e9}}
	byArrival, _, _ := Cut(samples, spans, o)
	o.Semantics = byPrometheus
	byEnd, _, _ := Cut(samples, spans, o)
	if a, b := byArrival[0], byEnd[0]; a.Arrivals != 300 || a.Requests != 200 || b.Arrivals != b.Requests || b.Requests != 198 ||
		math.Abs(b.RateRPS-6.6) > 1e-12 {
		t.Errorf("got %d arrivals of %d by arrival, %d of %d at %g/s by completion", a.Arrivals, a.Requests, b.Arrivals, b.Requests, b.RateRPS)
	}
}

// TestTokenWeighted: the gap is the mean over tokens, not over requests.
func TestTokenWeighted(t *testing.T) {
	used := []*sample{{LastNs: 100e6, Output: 2}, {LastNs: 900e6, Output: 101}}
	if _, itl := meansOf(used); math.Abs(itl-1000.0/101) > 1e-9 {
		t.Errorf("got %g ms, want 1000 ms over 101 gaps", itl)
	}
}

func TestCutRefuses(t *testing.T) {
	for _, change := range []func(*cutOptions){
		func(o *cutOptions) { o.WindowNs = 0 }, func(o *cutOptions) { o.MinRequests = 1 }, func(o *cutOptions) { o.Semantics = "mean" },
	} {
		o := defaultCut()
		change(&o)
		if _, _, err := Cut(nil, nil, o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

// TestObservedClocks: a client's clock goes before the engine's, which serves where it is alone.
func TestObservedClocks(t *testing.T) {
	ns, tokens := func(v int64) trace.Opt[int64] { return trace.Some(v) }, trace.Some(int64(10))
	client := trace.ObservedRequest{
		SendNs: ns(5), FirstChunkNs: ns(20), LastChunkNs: ns(90), QueuedNs: ns(1005), EngineFirstNs: ns(1018), EngineLastNs: ns(1088),
		PromptTokens: tokens, OutputTokens: tokens, Success: trace.Some(true),
	}
	engine := client
	engine.SendNs, engine.FirstChunkNs, engine.LastChunkNs = trace.Opt[int64]{}, trace.Opt[int64]{}, trace.Opt[int64]{}
	none := engine
	none.QueuedNs = trace.Opt[int64]{}
	got, skipped := fromObserved([]trace.ObservedRequest{client, engine, none})
	if len(got) != 2 || skipped != 1 || !got[0].OK || !got[1].OK || got[0].FirstNs-got[0].ArrivedNs != 15 ||
		got[1].FirstNs-got[1].ArrivedNs != 13 {
		t.Errorf("got %+v and %d skipped", got, skipped)
	}
}
