package autoscale

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/klauspost/compress/zstd"
)

// every100ms are requests that arrive ten a second for n seconds: TTFT 50 ms, 11
// tokens 20 ms apart.
func every100ms(n int) []sample {
	var out []sample
	for i := range 10 * n {
		at := int64(i) * 100e6
		out = append(out, sample{
			ArrivedNs: at,
			FirstNs:   at + 50e6,
			LastNs:    at + 250e6,
			Prompt:    100 + int64(i%2)*200,
			Output:    11,
			OK:        true,
		})
	}
	return out
}

func TestCut(t *testing.T) {
	samples := every100ms(100)
	samples[5].OK = false // arrived, never finished
	o := defaultCut
	o.WindowNs = 20e9
	o.HopNs = 20e9
	o.Limits = Limits{MaxBatch: 8}
	spans := []Span{{Phase: "warmup", StartNs: 0, EndNs: 20e9, Drop: closedLoop}, {Phase: "a", StartNs: 20e9, EndNs: 70e9},
		{Phase: "b", StartNs: 70e9, EndNs: 90e9, Drop: saturatedWindow}, {Phase: "c", StartNs: 90e9, EndNs: 140e9}}
	spans[0].Drop = closedLoop
	w, c, err := Cut(samples, spans, o)
	if err != nil {
		t.Fatal(err)
	}
	// warm-up 1; a: 2 and a rest; b: saturated; c: 90-110, 110-130 empty, rest
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
	o := defaultCut
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
		o := defaultCut
		change(&o)
		if _, _, err := Cut(nil, nil, o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

// TestObservedClocks: a client's clock goes before the engine's, which serves where it is alone.
func TestObservedClocks(t *testing.T) {
	ns := func(v int64) trace.Opt[int64] { return trace.Some(v) }
	tokens := trace.Some(int64(10))
	client := trace.ObservedRequest{
		SendNs:        ns(5),
		FirstChunkNs:  ns(20),
		LastChunkNs:   ns(90),
		QueuedNs:      ns(1005),
		EngineFirstNs: ns(1018),
		EngineLastNs:  ns(1088),
		PromptTokens:  tokens,
		OutputTokens:  tokens,
		Success:       trace.Some(true),
	}
	engine := client
	engine.SendNs = trace.Opt[int64]{}
	engine.FirstChunkNs = trace.Opt[int64]{}
	engine.LastChunkNs = trace.Opt[int64]{}
	none := engine
	none.QueuedNs = trace.Opt[int64]{}
	got, skipped := fromObserved([]trace.ObservedRequest{client, engine, none})
	if len(got) != 2 || skipped != 1 || !got[0].OK || !got[1].OK || got[0].FirstNs-got[0].ArrivedNs != 15 ||
		got[1].FirstNs-got[1].ArrivedNs != 13 {
		t.Errorf("got %+v and %d skipped", got, skipped)
	}
}

// TestMetricsArePoints: answers of /metrics before and after the phases of two
// recordings become operating points. Means and counts are those of the clients and
// of the server's spans, medians lie in their bucket, and the points are fitted as
// those of a sweep are.
func TestMetricsArePoints(t *testing.T) { metricsArePoints(t, "gqa-a") }

// TestEvalMetricsArePoints: the same of both recordings.
func TestEvalMetricsArePoints(t *testing.T) {
	repo.NeedEval(t)
	metricsArePoints(t, "gqa-a")
	metricsArePoints(t, "mha-core")
}

func metricsArePoints(t *testing.T, name string) {
	t.Helper()
	dir := repo.Shared(t, "data", "real_vllm_stock", name)
	o := pipeline.DefaultExtractOptions()
	o.Out, o.Batches = t.TempDir(), nil
	ext, err := pipeline.Extract(context.Background(), []string{dir}, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, src := range pipeline.FitSources(o.Out, ext) {
		run, err := src.Load()
		if err != nil {
			t.Fatal(err)
		}
		r := &ext.Runs[i]
		out := t.TempDir()
		phases := metricsOf(t, dir, out, r.Deployment.Workload)
		qo := DefaultOptions()
		qo.Sweep.MaxBatch = 16
		qo.Sweep.MaxBatchedTokens = 1024
		s, inputs, err := SweepServer([]string{out}, func(name string) ([]byte, result.Input, error) {
			b, err := os.ReadFile(name)
			return b, result.Input{Name: filepath.Base(name)}, err
		}, &qo)
		if err != nil {
			t.Fatal(err)
		}
		if len(inputs) != 2*len(phases) || s.Account.Kept == 0 || len(s.Windows) != s.Account.Kept {
			t.Fatalf("%s: got %d windows of %d answers, %+v", src.ID, len(s.Windows), len(inputs), s.Account)
		}
		for _, w := range s.Windows {
			checkPoint(t, src.ID, run, w.Requests, w.Shape.Prompt, w.Shape.Output, w.TTFTMs)
		}
		if _, _, err := FitQueues(context.Background(), []*Server{s}, &qo, nil); err != nil {
			t.Errorf("%s: %v", src.ID, err)
		}
		t.Logf("%s: %d points of %d answers", src.ID, len(s.Windows), len(inputs))
	}
}

// metricsOf unpacks the answers of a run's phases, with the date when they were asked for.
func metricsOf(t *testing.T, dir, out string, workload map[string]any) []string {
	t.Helper()
	var names []string
	for _, p := range workload["phases"].([]any) {
		phase := p.(map[string]any)
		name := phase["name"].(string)
		if phase["metrics_before"] == nil {
			continue
		}
		names = append(names, name)
		for _, side := range []string{"before", "after"} {
			packed := repo.Read(t, dir, phase["metrics_"+side].(string))
			rd, err := zstd.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(rd)
			rd.Close()
			if err != nil {
				t.Fatal(err)
			}
			at := time.Unix(0, int64(phase["metrics_"+side+"_ns"].(int))).UTC()
			header := "HTTP/1.1 200 OK\r\ndate: " + at.Format(http.TimeFormat) + "\r\n\r\n" // as curl -i writes it
			repo.Write(t, header+string(text), out, name+"_"+side+".prom")
		}
	}
	return names
}

// checkPoint compares a point with the phase that has its number of requests.
func checkPoint(t *testing.T, id string, run *trace.Run, requests int, prompt, output, ttftMs float64) {
	t.Helper()
	counts := map[string]int{}
	prompts := map[string]float64{}
	outputs := map[string]float64{}
	ttfts := map[string][]float64{}
	byID := map[string]*trace.Request{}
	for i := range run.Requests {
		byID[strings.TrimSuffix(strings.TrimPrefix(run.Requests[i].APIID.V, "cmpl-"), "-0")] = &run.Requests[i]
	}
	for i := range run.Observed {
		c := &run.Observed[i]
		counts[c.Phase.V]++
		prompts[c.Phase.V] += float64(c.PromptTokens.V)
		outputs[c.Phase.V] += float64(c.OutputTokens.V)
		if r := byID[c.ID]; r != nil {
			ttfts[c.Phase.V] = append(ttfts[c.Phase.V], r.StockTTFTUs.V/1000)
		}
	}
	for phase, n := range counts {
		if n != requests {
			continue
		}
		if p, o := prompts[phase]/float64(n), outputs[phase]/float64(n); math.Abs(p-prompt) > 1e-9*p || math.Abs(o-output) > 1e-9*o {
			continue
		}
		if mean := stat.Mean(ttfts[phase]); len(ttfts[phase]) != n || math.Abs(mean-ttftMs) > 1e-6*mean {
			t.Errorf("%s %s: got a mean TTFT of %.6f ms, the spans' is %.6f (%d of %d)", id, phase, ttftMs, mean, len(ttfts[phase]), n)
		}
		return
	}
	t.Errorf("%s: no phase of %d requests with %.3f and %.3f tokens", id, requests, prompt, output)
}

// published are the parameters and errors that llm-inferno/model-trainer reports for its two
// sweeps (scripts/VALIDATION_SCATTER_README.md@047f0ae).
var published = []struct {
	file      string
	x         []float64
	ttft, itl float64
}{
	{"llama-3.1-8b.csv", []float64{6.58, 1.93e-2, 5.46e-5}, 0.146, 0.060},
	{"qwen2.5-14b-report.csv", []float64{9.87, 3.58e-2, 8.63e-5}, 0.163, 0.080},
}

func readSweep(t *testing.T, name string, o *Options) *Server {
	t.Helper()
	r, err := os.Open(filepath.Join("../testdata/sweeps", name))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := clients.ReadLevels(r, name)
	if err != nil {
		t.Fatal(err)
	}
	return serverOfSweep(name, f.Levels, o)
}

// sweepOptions are model-trainer's: 256 seats, as much waiting room, seven loads a sweep.
func sweepOptions(f Flavour) Options {
	o := DefaultOptions()
	o.Flavour = f
	o.QueueRatio = 1
	o.Sweep.Loads = 7
	return o
}

// halves splits the windows into two times eight shapes, a chessboard over prompt and output.
func halves(w []window) (train, held []window) {
	shapes := map[string]int{}
	for i := range w {
		k, seen := shapes[w[i].Name]
		if !seen {
			k = len(shapes)
			shapes[w[i].Name] = k
		}
		if (k/4+k%4)%2 == 0 {
			train = append(train, w[i])
		} else {
			held = append(held, w[i])
		}
	}
	return train, held
}

// TestPublishedSweeps: on the 112 points of each of two published sweeps the fit is no worse
// than the published parameters, in the flavour they were made with (wva-3p reproduces the
// published errors to the digit), and a fit to eight shapes holds on the other eight.
func TestPublishedSweeps(t *testing.T) {
	for _, p := range published {
		for _, f := range []Flavour{wvA3P, inferno3P} {
			o := sweepOptions(f)
			s := readSweep(t, p.file, &o)
			if len(s.Windows) != 112 || s.Account.Read != 160 {
				t.Fatalf("%s: got %d windows, want 112 of 160: %+v", p.file, len(s.Windows), s.Account)
			}
			fitted := func(w []window) []float64 {
				fit, err := Fit(w, defaultFit(f))
				if err != nil {
					t.Fatal(err)
				}
				return fit.X
			}
			x := fitted(s.Windows)
			in := evaluate(s.Windows, f, x, asSized)
			var out queueScore // of eight unseen shapes
			if f == inferno3P {
				train, held := halves(s.Windows)
				out = evaluate(held, f, fitted(train), asSized)
			}
			pub := evaluate(s.Windows, f, p.x, asSized)
			t.Logf("%s %s: WAPE TTFT/ITL %.1f/%.1f %% in-sample, %.1f/%.1f %% with the published parameters; alpha %.3g beta %.3g gamma %.3g",
				p.file, f, 100**in.TTFTWape, 100**in.ITLWape, 100**pub.TTFTWape, 100**pub.ITLWape, x[0], x[1], x[2])
			switch f {
			case wvA3P:
				if math.Abs(*pub.TTFTWape-p.ttft) > 0.0015 || math.Abs(*pub.ITLWape-p.itl) > 0.0005 {
					t.Errorf("%s: published parameters give %.4f and %.4f, published %.3f and %.3f", p.file, *pub.TTFTWape, *pub.ITLWape, p.ttft, p.itl)
				}
				if *in.TTFTWape > p.ttft || *in.ITLWape > p.itl+0.0005 {
					t.Errorf("%s %s: in-sample %.4f and %.4f, want at most %.3f and %.3f", p.file, f, *in.TTFTWape, *in.ITLWape, p.ttft, p.itl)
				}
			case inferno3P:
				if *in.TTFTWape > p.ttft || *in.ITLWape > p.itl+0.0005 || *out.TTFTWape > 0.2 || *out.ITLWape > 0.08 {
					t.Errorf("%s %s: %.4f and %.4f in-sample, %.4f and %.4f held out, want at most %.3f, %.3f, 0.2, 0.08",
						p.file, f, *in.TTFTWape, *in.ITLWape, *out.TTFTWape, *out.ITLWape, p.ttft, p.itl)
				}
			}
		}
	}
}
