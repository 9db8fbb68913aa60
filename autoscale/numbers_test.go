package autoscale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// TestSidecarOfACalibration: where each value of an autoscaler's file comes from, with its interval and configuration.
func TestSidecarOfACalibration(t *testing.T) {
	q := example(inferno3P)
	q.Servers[0].Effective[0].CI95 = &[2]float64{6.5, 6.7}
	q.Servers[0].Effective[1].Identified = "held"
	q.Servers[0].Reason = "a reason"
	other := q.Servers[0]
	other.ID = "l4"
	other.Accelerator = "L4"
	other.Load = nil
	q.Servers = append(q.Servers, other)
	o := export.Options{Settings: wordsOf(InfernoModels).Settings, Config: "h100", Command: "export it"}
	out, err := Calibration(q, result.Input{Name: "queue.json", Bytes: 7}, InfernoModels, o)
	if err != nil {
		t.Fatal(err)
	}
	var side export.Sidecar
	for _, f := range out.Files {
		if strings.Contains(string(f.Data), `"origin"`) {
			if err := json.Unmarshal(f.Data, &side); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(side.Values) != len(inferno3P.Parameters()) || len(side.Configs) != 1 || *side.SpecVersion != string(inferno3P) {
		t.Fatalf("got %+v of %d files", side, len(out.Files))
	}
	for i, v := range side.Values {
		p := q.Servers[0].Effective[i]
		if v.Key != "h100."+p.Name || v.Name != p.Name || *v.Value != p.Value || v.Learned != (i != 1) || v.Origin != "queue fit" || (v.CI95 != nil) != (i == 0) {
			t.Errorf("got %+v, want %+v", v, p)
		}
	}
	if c := side.Configs[0]; c.Label != "h100" || c.Seats != 128 || c.Note != "a reason" || *c.PromptTokens != 512 || *c.OutputTokens != 127.6 {
		t.Errorf("got %+v", c)
	}
	o.Config = ""
	if out, err = Calibration(q, result.Input{}, InfernoModels, o); err != nil {
		t.Fatal(err)
	}
	for _, f := range out.Files {
		if strings.Contains(string(f.Data), `"origin"`) {
			side = export.Sidecar{}
			if err := json.Unmarshal(f.Data, &side); err != nil || len(side.Configs) != 2 || side.Configs[1].PromptTokens != nil {
				t.Errorf("got %+v, %v", side.Configs, err)
			}
		}
	}
	if _, err := Calibration(q, result.Input{}, "csv", o); err == nil || !strings.Contains(err.Error(), `format of a queueing calibration: got "csv"`) {
		t.Errorf("got %v", err)
	}
	s := exported{QueueServer: &QueueServer{}}
	if got := loadText(&s); got != "no windows" {
		t.Errorf("got %q", got)
	}
	if p := (&QueueServer{Physical: []queueParameter{{Name: "p"}}, Effective: []queueParameter{{Name: "e"}}}); p.parameters(true)[0].Name != "p" || p.parameters(false)[0].Name != "e" {
		t.Error("physical and effective parameters")
	}
}

// TestConfigurationOfATuner: noise and drift as measured, or the tuner's own with a warning.
func TestConfigurationOfATuner(t *testing.T) {
	of := func(change func(s *QueueServer)) (c configData, warnings []trace.Finding) {
		t.Helper()
		q := example(inferno3P)
		change(&q.Servers[0])
		x := valuesOf(q.Servers[0].Effective)
		data, found, err := tunerConfig([]exported{{QueueServer: &q.Servers[0], x: x, flavour: inferno3P}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		return c, found
	}
	c, warnings := of(func(*QueueServer) {})
	if !slices.Equal(c.Model.Expected, []float64{41.3, 8.7}) || math.Abs(c.Filter.ErrorLevel-1.96*1.4826*0.04) > 1e-12 || c.Filter.GammaFactor != 1 || !c.Model.BoundedState || len(c.Model.InitState) != 3 || c.Model.InitState[0] != 6.621754782151419 {
		t.Errorf("got %+v, %v", c, warnings)
	}
	if c, warnings = of(func(s *QueueServer) { s.Noise, s.Tracks, s.Load = nil, nil, nil }); c.Filter.ErrorLevel != 0.5 || !slices.Equal(c.Model.Expected, []float64{200, 40}) || len(warnings) < 2 ||
		!strings.Contains(warnings[0].Message, "the noise of a window is not known") || !strings.Contains(warnings[1].Message, "how fast the parameters drift is not known without a sliding refit") || warnings[0].Code != export.AssumedValue {
		t.Errorf("nothing measured: got %+v, %v", c, warnings)
	}
	if _, warnings = of(func(s *QueueServer) { s.Noise.ITLResidual = nil }); len(warnings) == 0 || !strings.Contains(warnings[0].Message, "noise") {
		t.Errorf("half of the noise: got %v", warnings)
	}
	if _, _, err := tunerConfig([]exported{{QueueServer: &QueueServer{ID: "a"}}, {QueueServer: &QueueServer{ID: "b"}}}, nil); err == nil || trace.HintOf(err) != "--config a" {
		t.Error("two servers have one configuration")
	}
}

// TestProblemsThatAreRefused and what a problem says of servers that are not sized.
func TestProblemsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"servers: []\n":                                                  "p.yaml: got no servers, want at least one",
		"servers: [{name: a, rate_rps: -1}]\n":                           `p.yaml:1:31: server "a": rate_rps: got -1`,
		"servers: [{name: a, itl_ms: -1}]\n":                             "itl_ms",
		"servers: [{name: a, priority: -1}]\n":                           "priority",
		"servers: [{name: a, nothing: 1}]\n":                             "nothing",
		"servers: {name: a}\n":                                           "p.yaml",
		"capacity: {H100: -1}\nservers: [{name: a}]\n":                   "p.yaml:1:18: capacity of H100: got -1",
		"unit_cost: {H100: 1, H100-SXM-80GB: 2}\nservers: [{name: a}]\n": `got "H100-SXM-80GB", which is there under another name`,
	} {
		if _, err := ReadProblem([]byte(text), "p.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	p, err := ReadProblem([]byte("capacity: {2xH100: 3}\nservers: [{name: a}]\n"), "p.yaml")
	if err != nil || p.Servers[0].Priority != 1 || p.Policy != policyNone || p.Capacity["2xH100-SXM-80GB"] != 3 {
		t.Errorf("got %+v, %v", p, err)
	}
	if got := acceleratorOf(&QueueServer{Accelerator: "H100", AccCount: 1}); got != "H100" {
		t.Errorf("got %s", got)
	}
	q := example(corrected)
	twin := q.Servers[0]
	twin.ID = "twin"
	q.Servers = append(q.Servers, twin)
	p.UnitCost = map[string]float64{deviceName("H100"): 5}
	ask := func(change func(s *problemServer)) (Demand, []trace.Finding, error) {
		s := problemServer{Model: "meta-llama/Llama-3.1-8B", Demand: Demand{Name: "chat", RateRPS: 3}}
		change(&s)
		return p.demand(&s, q)
	}
	if _, _, err := ask(func(*problemServer) {}); err == nil || !strings.Contains(err.Error(), `server "chat": queue.json has several servers of "meta-llama/Llama-3.1-8B" on 2xH100`) || trace.HintOf(err) != "choose with parameters: [twin]" {
		t.Errorf("two of one device: got %v", err)
	}
	if _, _, err := ask(func(s *problemServer) { s.Model = "other" }); err == nil || !strings.Contains(err.Error(), `server "chat": got model "other", want one of queue.json: `) {
		t.Errorf("another model: got %v", err)
	}
	q.Servers = q.Servers[:1]
	d, found, err := ask(func(s *problemServer) { s.Current = Placement{Accelerator: "2xH100", Replicas: 3} })
	if err != nil || len(d.Options) != 1 || d.Options[0].Accelerator != "2xH100" || d.Options[0].Units != 2 || d.Options[0].UnitCost != 5 || d.Options[0].RateRPS <= 0 || d.Current.Cost != 5*2*3 || d.RateRPS != 3 {
		t.Errorf("got %+v, %v, %v", d, found, err)
	}
	if d, found, err = ask(func(s *problemServer) { s.ITLMs = 0.001 }); err != nil || len(d.Options) != 0 || len(found) != 1 || found[0].Code != targetBelowRange || !strings.HasPrefix(found[0].Message, "chat on 2xH100: ") {
		t.Errorf("a target below the range: got %+v, %v, %v", d, found, err)
	}
	q.Servers[0].Effective = nil
	if d, found, err = ask(func(*problemServer) {}); err != nil || len(found) != 1 || found[0].Code != badModel || !strings.HasPrefix(found[0].Message, "chat on h100: ") {
		t.Errorf("no parameters: got %+v, %v, %v", d, found, err)
	}
	p.Servers = []problemServer{{Model: "x"}}
	if demands, _, err := p.Demands(q); err == nil || demands != nil {
		t.Errorf("got %v, %v", demands, err)
	}
	good := Option{Accelerator: "A", Units: 1, RateRPS: 1}
	for name, c := range map[string]struct {
		f    Fleet
		d    []Demand
		want string
	}{
		"good":          {Fleet{Policy: policyNone}, []Demand{{Name: "a", Options: []Option{good}}}, ""},
		"policy":        {Fleet{Policy: "any"}, nil, `saturation policy: got "any"`},
		"unlimited":     {Fleet{Policy: "any", Unlimited: true}, nil, ""},
		"no name":       {Fleet{Policy: policyNone}, []Demand{{}}, `server "": want a name, each once`},
		"a name twice":  {Fleet{Policy: policyNone}, []Demand{{Name: "a"}, {Name: "a"}}, `server "a": want a name, each once`},
		"no device":     {Fleet{Policy: policyNone}, []Demand{{Name: "a", Options: []Option{{Units: 1, RateRPS: 1}}}}, `server "a" on "": got 1 units and 1 requests/s`},
		"no units":      {Fleet{Policy: policyNone}, []Demand{{Name: "a", Options: []Option{{Accelerator: "A", RateRPS: 1}}}}, `got 0 units`},
		"no rate":       {Fleet{Policy: policyNone}, []Demand{{Name: "a", Options: []Option{{Accelerator: "A", Units: 1}}}}, `got 1 units and 0 requests/s`},
		"a rate of NaN": {Fleet{Policy: policyNone}, []Demand{{Name: "a", Options: []Option{{Accelerator: "A", Units: 1, RateRPS: math.NaN()}}}}, `NaN requests/s`},
	} {
		if err := c.f.Check(c.d); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	free := Fleet{Unlimited: true}
	plan, err := free.Allocate([]Demand{{Name: "a", Priority: 1, RateRPS: 9, Options: []Option{{Accelerator: "A", Type: "A", Units: 1, UnitCost: 3, RateRPS: 4}, {Accelerator: "B", Type: "B", Units: 1, UnitCost: 8, RateRPS: 4}}}})
	if err != nil || plan.Servers[0].Accelerator != "A" || plan.Servers[0].Replicas != 3 || plan.Cost != 9 {
		t.Errorf("without limits: got %+v, %v", plan, err)
	}
	if got := transition(Placement{Accelerator: "A", Replicas: 2, Cost: 20}, Placement{Accelerator: "A", Replicas: 3, Cost: 30}); got != 10 {
		t.Errorf("one replica more: got %g", got)
	}
	if got := transition(Placement{Accelerator: "A", Replicas: 2, Cost: 20}, Placement{Accelerator: "B", Replicas: 2, Cost: 30}); math.Abs(got-(10+0.1*50)) > 1e-12 {
		t.Errorf("another device: got %g", got)
	}
	if got := transition(Placement{Accelerator: "A", Replicas: 2, Cost: 20}, Placement{Accelerator: "A", Replicas: 2, Cost: 99}); got != 0 {
		t.Errorf("the same: got %g", got)
	}
}

// TestSizesOfADocument: servers without an answer are findings, and an error where all are.
func TestSizesOfADocument(t *testing.T) {
	q := example(corrected)
	empty := q.Servers[0]
	empty.ID, empty.Effective, empty.Reason = "empty", nil, "why"
	q.Servers = append(q.Servers, empty)
	o := SizeOptions{}
	o.Targets = Targets{TTFTMs: 500, ITLMs: 40}
	o.Requests = 0
	if err := SizeQueues(context.Background(), q, o); err != nil || q.Servers[0].Sizing == nil || q.Servers[0].Sizing.RateRPS <= 0 || q.Servers[0].Sizing.Simulated != nil || q.Servers[1].Sizing != nil {
		t.Fatalf("got %+v, %v", q.Servers, err)
	}
	if !slices.ContainsFunc(q.Warnings, func(f trace.Finding) bool {
		return f.Code == badModel && strings.HasPrefix(f.Message, `empty: server "empty": got 0 corrected parameters, want `)
	}) {
		t.Errorf("got %v", q.Warnings)
	}
	seats := example(inferno3P)
	o.Concurrency = 8
	if err := SizeQueues(context.Background(), seats, o); err != nil || seats.Servers[0].Sizing == nil {
		t.Errorf("the fewest seats: got %+v, %v", seats.Servers[0].Sizing, err)
	}
	o.Concurrency, o.Requests = 0, 200
	if err := SizeQueues(context.Background(), q, o); err != nil || q.Servers[0].Sizing.Simulated == nil {
		t.Errorf("simulated: got %+v, %v", q.Servers[0].Sizing, err)
	}
	q.Servers = q.Servers[1:]
	if err := SizeQueues(context.Background(), q, o); err == nil || !strings.Contains(err.Error(), "got 0 corrected parameters") {
		t.Errorf("none is sized: got %v", err)
	}
	physical := example(corrected).Servers[0]
	physical.Physical, physical.Effective = physical.Effective, nil
	if _, err := sizedOf(&physical, corrected, 0, 0); err != nil {
		t.Errorf("physical parameters: got %v", err)
	}
	physical.Load.CachedTokens = 256
	if m, err := sizedOf(&physical, corrected, 1024, 30); err != nil || m.shape.Prompt != 1024 || m.shape.Cached != 512 || m.shape.Output != 30 {
		t.Errorf("other lengths: got %+v, %v", m.shape, err)
	}
	physical.Load = nil
	if _, err := sizedOf(&physical, corrected, 0, 0); err == nil || !strings.Contains(err.Error(), "the mean lengths of its requests are unknown, because no window was recorded") {
		t.Errorf("no lengths: got %v", err)
	}
	if tr := trafficOf(shape{Prompt: 3}, 4, 5, 6); tr.RateRPS != 4 || tr.Requests != 5 || tr.Seed != 6 || tr.Shape.Prompt != 3 {
		t.Errorf("got %+v", tr)
	}
}

// TestFitsThatAreRefused: with the reason in the document, or as an error.
func TestFitsThatAreRefused(t *testing.T) {
	if _, err := Fit(nil, defaultFit(corrected)); err == nil || trace.CodeOf(err) != noWindows {
		t.Errorf("no windows: got %v", err)
	}
	o := defaultFit(corrected)
	o.Physical = []float64{1, 2}
	if _, err := Fit(nil, o); err == nil || trace.CodeOf(err) != badOption || !strings.Contains(err.Error(), "physical parameters: got [1 2], want ") {
		t.Errorf("two parameters: got %v", err)
	}
	o.Physical = []float64{1, 2, 0, 4}[:len(corrected.Parameters())]
	if _, err := Fit(nil, o); err == nil || trace.CodeOf(err) != badOption {
		t.Errorf("a parameter of 0: got %v", err)
	}
	opt := DefaultOptions()
	opt.Flavour = inferno3P
	x := []float64{8, 0.05, 1e-4}
	s := plantedServer(t, inferno3P, x, 2, 2)
	s.Windows[1] = s.Windows[0]
	f, err := calibrate(s, &opt)
	if err != nil || f.X != nil || !strings.Contains(f.Doc.Reason, "; hint: ") {
		t.Errorf("one operating point: got %+v, %v", f.Doc.Reason, err)
	}
	s.Reason = "saturated: x"
	if f, err = calibrate(s, &opt); err != nil || f.X != nil || f.Doc.Reason != "saturated: x" || f.Doc.ID != "chat" || f.Doc.AccCount != 2 || f.Doc.Load == nil {
		t.Errorf("saturated: got %+v, %v", f.Doc, err)
	}
	none := &Server{ID: "none"}
	if f, err = calibrate(none, &opt); err != nil || !strings.Contains(f.Doc.Reason, "windows: got none") || f.Doc.Load != nil {
		t.Errorf("no windows: got %+v, %v", f.Doc, err)
	}
	p := &problem{o: &fitOptions{Huber: 2}}
	for r, want := range map[float64][2]float64{1: {1, 1}, -2: {4, 1}, 3: {2 * (6 - 2), 2. / 3}, -4: {2 * (8 - 2), 0.5}} {
		if loss, weight := p.robust(r); loss != want[0] || weight != want[1] {
			t.Errorf("%g: got %g and %g, want %v", r, loss, weight, want)
		}
	}
	p.power = true
	for r, want := range map[float64][2]float64{4: {8, 0.375}, -9: {27, 0.25}, 0: {0, 7500}} {
		if loss, weight := p.robust(r); loss != want[0] || math.Abs(weight-want[1]) > 1e-9 {
			t.Errorf("power, %g: got %g and %g, want %v", r, loss, weight, want)
		}
	}
	p.power = false
	p.prior = []float64{0}
	if got := p.loss([]float64{3, 5}); got != 9+25 { // without windows both are of the prior
		t.Errorf("got a loss of %g", got)
	}
	if got := p.marquardt(nil, thorough); len(got) != 0 {
		t.Errorf("nothing to fit: got %v", got)
	}
	if got := condition([]float64{4, 2}, 2); got != 2 {
		t.Errorf("got a condition of %g", got)
	}
	if !math.IsInf(condition([]float64{4}, 2), 1) || !math.IsInf(condition([]float64{4, 0}, 2), 1) || !math.IsInf(condition([]float64{1, 1e-15}, 2), 1) || math.IsInf(condition([]float64{1, 1.1e-15}, 2), 1) {
		t.Error("a condition without an end")
	}
}

// TestDirectionsByHand: parameters of a direction are named from a weight of 0.003, and described by the changes that go together
// with one of 10 %. Of windows for which the model has no answer none is determined.
func TestDirectionsByHand(t *testing.T) {
	d := direction([]string{"a", "b", "c", "d"}, []float64{0.5, -0.003, 0.0029, -1})
	if want := (queueDirection{Names: []string{"a", "b", "d"}, Weight: []float64{0.5, -0.003, -1}}); !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v", d)
	}
	alone := direction([]string{"x", "y"}, []float64{0, 1})
	if got, want := directionWords([]queueDirection{d, alone}), "a +5.1 % with b -0.03 % with d -9.5 % changes neither TTFT nor ITL; y shows in neither TTFT nor ITL"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	o := defaultFit(corrected)
	p := &problem{o: &o, windows: onePoint(t, corrected, 1, 0, rand.New(rand.NewPCG(1, 2))), sigma: evenSigma(1), scale: [2]float64{1, 1}}
	if id := p.identify([]float64{700, 700, 700}); id.Rank != 0 || len(id.Null) != 3 || !math.IsInf(id.Condition, 1) {
		t.Errorf("without an answer: got %+v", id)
	}
}

// TestWindowsWithoutVariance: neither the state nor the window varies, so nothing can be weighted and the window is not used.
func TestWindowsWithoutVariance(t *testing.T) {
	w := onePoint(t, corrected, 1, 0, rand.New(rand.NewPCG(1, 2)))[0]
	w.TTFTMs, w.TTFTSeMs, w.ITLSeMs = 2*w.TTFTMs, 1e-200, 1e-200
	o := &robustOptions{Flavour: corrected}
	g := gaussian{x: mat.NewVecDense(3, logsOf(truth[corrected])), p: mat.NewDense(3, 3, nil)}
	s := o.update(&g, &w, 0, true)
	if s.Verdict != rejectedModel || !math.IsNaN(s.NIS) || math.Abs(s.Innovation[0]-w.TTFTMs/2) > 0.01*w.TTFTMs || !slices.Equal(g.state(), logsOf(truth[corrected])) {
		t.Errorf("got %+v", s)
	}
}

// TestFiltersWithoutAnAnswer: a model that has none at the state or beside it, and a covariance that cannot be inverted.
func TestFiltersWithoutAnAnswer(t *testing.T) {
	upTo := func(most float64) observer {
		return func(x []float64) ([]float64, bool) { return []float64{x[0], 2 * x[0]}, x[0] <= most }
	}
	step := func(float64) float64 { return 0.5 }
	minus := func(up, down float64) float64 { return up - down }
	for most, want := range map[float64]string{3: "", 2: "beside the state", 1.9: "at the state"} {
		hx, j, failed := differences(upTo(most), []float64{2}, step, minus)
		if (failed == "") != (want == "") || want == "beside the state" && (failed != want || hx == nil || j != nil) {
			t.Errorf("up to %g: got %v, %v, %q", most, hx, j, failed)
		}
		if want == "" && (j.At(0, 0) != 1 || j.At(1, 0) != 2) {
			t.Errorf("got %v", mat.Formatted(j))
		}
	}
	h := mat.NewDense(1, 1, []float64{2})
	p := mat.NewDense(1, 1, []float64{3})
	if inverse, nis, ok := innovationOf([]float64{4}, h, p, []float64{4}); !ok || inverse.At(0, 0) != 1./16 || nis != 1 {
		t.Errorf("got %v, %g, %v", inverse, nis, ok)
	}
	if inverse, nis, ok := innovationOf([]float64{4}, h, mat.NewDense(1, 1, []float64{0}), []float64{0}); ok || inverse != nil || !math.IsNaN(nis) {
		t.Errorf("no variance: got %v, %g, %v", inverse, nis, ok)
	}
	o := &robustOptions{Floor: 0.1}
	got := o.measurement(&window{TTFTMs: 100, TTFTSeMs: 20, ITLMs: 10})
	if math.Abs(got[0]-(0.04+0.01)) > 1e-12 || math.Abs(got[1]-(0.05*0.05+0.01)) > 1e-12 {
		t.Errorf("got %v", got)
	}
	if ms, remark := overheadMs(&result.Fit{}, &result.FitConfig{}); ms != 0 || remark != "without an API overhead (the fit has none)" {
		t.Errorf("got %g, %q", ms, remark)
	}
	var big head
	big.p, big.shift = 0x1p+600, -400
	big.rescale()
	if big.p != 0x1p+200 || big.shift != 0 {
		t.Errorf("got %g, %d", big.p, big.shift)
	}
	big = head{p: 0x1p+600, none: 0x1p+400, zero: 0x1p+401, first: 0x1p+402}
	big.rescale()
	if big.p != 0x1p+200 || big.none != 1 || big.zero != 2 || big.first != 4 || big.shift != 0 {
		t.Errorf("got %+v", big)
	}
	big = head{p: 0x1p-600}
	if big.rescale(); big.p != 0x1p-200 || big.shift != -400 {
		t.Errorf("got %+v", big)
	}
}

// TestRowsOfThePage: every table of the page of a calibration with a figure of its own in each column.
func TestRowsOfThePage(t *testing.T) {
	q := &Queue{Header: result.Header{Command: "queue fit x", Inputs: []result.Input{{Name: "in", Bytes: 1234, SHA256: "cafe"}}}, Flavour: "corrected",
		Options:  QueueOptions{WindowS: 60, HopS: 15, MinRequests: 20, Semantics: "arrival", HoldOut: 0.3, QueueRatio: 10},
		Warnings: []trace.Finding{trace.Findingf(narrowLine, "a warning")},
		Servers: []QueueServer{
			{ID: "a", Physical: []queueParameter{{Name: "p", Value: 1.5, Unit: "ms", Identified: measured}},
				Effective: []queueParameter{{Name: "e", Value: 2.5, CI95: &[2]float64{2, 3}, Unit: "ms", Identified: held, Floor: ptr(0.5), Utilisation: ptr(0.2), Shift: ptr(1.7), PriorShare: ptr(0.4)}},
				Windows:   queueAccount{Read: 9, Kept: 7, Dropped: map[string]int{"few": 2}},
				Scores:    []queueScore{{Estimator: "effective", Set: "train", Windows: 5, TTFTWape: ptr(0.11), TTFTBias: ptr(0.12), ITLWape: ptr(0.13), ITLBias: ptr(-0.14), Unpredicted: 6}},
				Identify:  &queueIdentify{Rank: 2, Condition: ptr(31.5), Null: []queueDirection{{Names: []string{"p", "e"}}, {Names: []string{"z"}}}, Sweep: []queuePoint{{512, 128, 2.25, 0.5}, {64, 32, 1, 0.5}}},
				Tracks:    []queueTrack{{Estimator: "sliding", Flavour: "wva-3p", Windows: 21, Accepted: 22, MeanNIS: ptr(2.3), RejectedFrac: 0.24, Unpredicted: 25, LockedOut: 26, Final: []float64{1, 2.5}, Verdict: "fine"}},
				Sizing: &QueueSizing{TargetTTFTMs: 500, TargetITLMs: 40, TargetTPS: 900, RateRPS: 3.5, Binding: "itl", Replicas: 4, Concurrency: 64, TTFTMs: 51, ITLMs: 52,
					Simulated: &queueSimPoint{TTFTMs: 53, ITLMs: 54, TTFTP95Ms: 55, ITLP95Ms: 56}}},
			{ID: "b", Reason: "saturated", Sizing: &QueueSizing{RateRPS: 1, TTFTMs: 2, ITLMs: 3}},
		},
		Plan: &QueuePlan{Cost: 800, Unserved: []string{"x"}, Servers: []queueGiven{{Name: "chat", Priority: 1, RateRPS: 2.5, Accelerator: "H100", Replicas: 3, Wanted: 4, Cost: 700, Value: 6}}}}
	rows := func(x report.Section) (out []string) {
		for _, b := range x.Blocks {
			if b.Table == nil {
				continue
			}
			for _, r := range b.Table.Rows {
				var cells []string
				for _, c := range r.Cells {
					cells = append(cells, strings.ReplaceAll(c.Text, "\u00a0", " "))
				}
				out = append(out, strings.Join(cells, " | "))
			}
		}
		return out
	}
	for what, c := range map[string]struct {
		of   report.Section
		want []string
	}{
		"parameters": {parameterSection(q), []string{"a | steps | p | 1.5 | – | ms | measured | – | – | – | –", "a | latencies | e | 2.5 | 2 to 3 | ms | held | 0.5 | 0.2 | 1.7 | 40.0 %"}},
		"scores":     {scoreSection(q), []string{"a | effective | train | 5 | 11.0 % | +12.0 % | 13.0 % | −14.0 % | 6"}},
		"shown":      {showSection(q), []string{"a | 9 | 7 | few 2 | 2 | 31.5 | p with e; z | 512/128 at 2.25/s, 64/32 at 1/s", "b | 0 | 0 | none | – | – | saturated | "}},
		"tracks":     {trackSection(q), []string{"a | sliding | wva-3p | 21 | 22 | 2.3 | 24.0 % | 25 | 26 | 1 2.5 | fine"}},
		"sizes":      {sizeSection(q), []string{"a | 500 | 40 | 900 | 3.5 | itl | 4 | 64 | 51 | 52 | 53 | 54 | 55 | 56", "b | – | – | – | 1 |  | – | – | 2 | 3 | – | – | – | –"}},
		"plan":       {planSection(q), []string{"chat | 1 | 2.5 | H100 | 3 | 4 | 700 | 6"}},
		"origin":     {originSection(q), []string{"in | 1,234 | cafe"}},
	} {
		if got := rows(c.of); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
	if got := planSection(q).Blocks[0].Table.Caption; got != "Greedy: 800 cents per hour, 1 server unserved" {
		t.Errorf("got %q", got)
	}
	h := headOf(q)
	facts := []report.Fact{report.FactOf("Flavour", "corrected"), report.FactOf("Window", "60 s every 15 s, at least 20 requests, by arrival"), report.FactOf("Hold-out", report.Pct(0.3)+" of the windows"), report.FactOf("Waiting room", "10 times the seats")}
	if h.Sentence != "1 of 2 servers have effective parameters of corrected." || !slices.Equal(h.Failed, []string{"b: saturated"}) || !slices.Equal(h.Facts, facts) {
		t.Errorf("got %+v", h)
	}
}

// TestResourcesByHand: the resources of two models, each after its comments, with prices where the version has them.
func TestResourcesByHand(t *testing.T) {
	q := example(wvA4P)
	second := q.Servers[0]
	second.ID, second.Model, second.AccCount, second.Load = "other", "org/Second", 1, nil
	same := q.Servers[0]
	same.ID, same.Accelerator = "a100", "A100"
	q.Servers = append(q.Servers, second, same)
	data, warnings, err := calibrationFile(q, wordsOf(QueueWVA4P, "unit-cost=2.5", "version=v0.0.5"))
	if err != nil || len(warnings) != 0 {
		t.Fatalf("got %v, %v", warnings, err)
	}
	parts := strings.Split(string(data), "---\n")
	if len(parts) != 2 {
		t.Fatalf("got %d resources:\n%s", len(parts), data)
	}
	for i, wants := range [][]string{
		{"# Read by workload-variant-autoscaler v0.0.1 to v0.4.2", "#   h100: 0 windows at 3 requests/s of 512/128 tokens; alpha measured, beta measured, gamma measured, delta measured\n", "#   a100: 0 windows", "variantCost: \"5\"", "acc: A100", "acc: H100", "maxBatchSize: 128", "accCount: 2",
			"# The label names the accelerator in use and sloClassRef a ConfigMap of yours: edit both.\n"},
		{"#   other: no windows; alpha measured", "variantCost: \"2.5\"", "modelID: org/Second"},
	} {
		for _, want := range wants {
			if !strings.Contains(parts[i], want) {
				t.Errorf("resource %d lacks %q:\n%s", i, want, parts[i])
			}
		}
	}
	data, warnings, err = calibrationFile(q, wordsOf(QueueWVA4P, "version=v0.4.1"))
	if err != nil || len(warnings) != 2 || warnings[1].Message != "org/Second: spec.variantCost (cents per replica and hour) is missing, because no price is known: state it with --option unit-cost=CENTS" || warnings[1].Code != export.AssumedValue ||
		strings.Count(string(data), "# The label names the accelerator in use: edit it. spec.variantCost (cents per replica and hour) is missing, because no price is known: add it.\n") != 2 || strings.HasPrefix(string(data), "---") {
		t.Errorf("without a price: got %v, %v\n%s", warnings, err, data)
	}
	if _, _, err = calibrationFile(q, wordsOf(QueueWVA4P, "unit-cost=2.5", "version=v0.0.4")); trace.CodeOf(err) != export.BadEntry || !strings.Contains(err.Error(), "--option unit-cost: got 2.5 for v0.0.4, which has no spec.variantCost, want v0.0.5 or later") {
		t.Errorf("got %v", err)
	}
	if _, warnings, err = calibrationFile(q, wordsOf(QueueWVA4P, "version=v0.0.4")); err != nil || len(warnings) != 0 {
		t.Errorf("v0.0.4: got %v, %v", warnings, err)
	}
	for v, want := range map[string][2]bool{"": {true, true}, "main": {true, true}, "v0.0.4": {false, true}, "v0.0.5": {true, true}, "v0.0.6": {true, false}} {
		if got := [2]bool{hasVariantCost(v), namesServiceClass(v)}; got != want {
			t.Errorf("%q: got a price and a class %v, want %v", v, got, want)
		}
	}
	// The errors of the consumer's formula: the worst load that is beyond 15 % in TTFT or 10 % in ITL is named.
	point := func(load, ttft, itl float64) export.SteadyPoint {
		return export.SteadyPoint{LoadFrac: load, TTFTErr: &ttft, ITLErr: &itl}
	}
	for _, c := range []struct {
		points    []export.SteadyPoint
		text, far string
	}{
		{[]export.SteadyPoint{point(0.2, 0.15, -0.1)}, "+15 / -10 % at 20 % load", ""},
		{[]export.SteadyPoint{point(0.2, 0.16, 0.01), point(0.8, -0.01, -0.2), point(0.9, 0.2, 0)}, "+16 / +1 % at 20 %, -1 / -20 % at 80 %, +20 / +0 % at 90 % load", "is off by -1 % in TTFT and -20 % in ITL at 80 % of the capacity"},
		{[]export.SteadyPoint{point(0.2, 0, 0), {LoadFrac: 0.5}}, "+0 / +0 % at 20 %, no answer at 50 % of the capacity", "has no answer at 50 % of the capacity"},
	} {
		if text, far := steadyText(c.points); text != c.text || far != c.far {
			t.Errorf("got %q and %q, want %q and %q", text, far, c.text, c.far)
		}
	}
}

// TestCalibrationsThatAreRefused: what each file needs, and the verdict that its sidecar passes on.
func TestCalibrationsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(q *Queue)
		format export.Format
		words  []string
		want   string
	}{
		"flavour":      {func(q *Queue) { q.Flavour = string(corrected) }, InfernoModels, nil, "corrected"},
		"version":      {func(*Queue) {}, InfernoModels, []string{"version=zero"}, "zero"},
		"no model":     {func(q *Queue) { q.Servers[0].Model = "" }, InfernoModels, nil, `h100: got model "" on accelerator "H100", want both named`},
		"twice":        {func(q *Queue) { q.Servers = append(q.Servers, q.Servers[0]) }, InfernoModels, nil, `h100 and h100 would both be "meta-llama/Llama-3.1-8B" on "H100"; the reader keeps the last`},
		"no server":    {func(q *Queue) { q.Servers = nil }, InfernoModels, nil, "inferno-models: got no server to write"},
		"no points":    {func(q *Queue) { q.Servers[0].Points = q.Servers[0].Points[:1] }, TunerCalibrate, nil, "tuner-calibrate: got 1 operating points, want at least 2"},
		"no targets":   {func(q *Queue) { q.Servers[0].Sizing = nil }, wvaSLO, nil, `wva-slo: h100: got TTFT 0 ms, ITL 0 ms, namespace "llm", want all three`},
		"no namespace": {func(*Queue) {}, wvaSLO, []string{"namespace="}, `got TTFT 500 ms, ITL 40 ms, namespace "", want all three`},
		"two targets": {func(q *Queue) {
			q.Servers = append(q.Servers, q.Servers[0])
			q.Servers[1].ID, q.Servers[1].Accelerator = "l40s", "L40S"
			q.Servers[1].Sizing = &QueueSizing{TargetTTFTMs: 600, TargetITLMs: 40}
		}, wvaSLO, nil, "wva-slo: l40s: got TTFT 600 ms, ITL 40 ms of meta-llama/Llama-3.1-8B for the entry blis-train-llama-3.1-8b, want those of an earlier server"},
	} {
		q := example(inferno3P)
		c.change(q)
		if _, _, err := calibrationFile(q, wordsOf(c.format, c.words...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if out, err := Calibration(q, result.Input{}, c.format, export.Options{Settings: wordsOf(c.format, c.words...).Settings}); err == nil || out != nil {
			t.Errorf("%s: got %v, %v", name, out, err)
		}
	}
	q := example(inferno3P)
	q.Servers[0].Verdict = &coeff.Judgement{Verdict: coeff.VerdictFail}
	empty := QueueServer{ID: "empty", Model: "m", Accelerator: "A100"}
	q.Servers = append(q.Servers, empty)
	out, err := Calibration(q, result.Input{}, InfernoModels, export.Options{Settings: wordsOf(InfernoModels).Settings})
	if err != nil {
		t.Fatal(err)
	}
	var side export.Sidecar
	for _, f := range out.Files {
		if strings.Contains(string(f.Data), `"origin"`) {
			if err := json.Unmarshal(f.Data, &side); err != nil {
				t.Fatal(err)
			}
		}
	}
	if side.Verdict != coeff.VerdictFail || len(side.Warnings) != 1 || side.Warnings[0].Message != "empty is left out: it has no such parameters" {
		t.Errorf("got %q, %v", side.Verdict, side.Warnings)
	}
	// Operating points are written in requests per minute.
	data, _, err := calibrationFile(example(inferno3P), wordsOf(TunerCalibrate))
	var specs []serverSpec
	if err != nil || json.Unmarshal(data, &specs) != nil || len(specs) != 2 {
		t.Fatalf("got %s, %v", data, err)
	}
	want := serverSpec{"h100", "default", "llama-3.1-8b", 128, 1280, allocation{"H100", 1, 128, 9, 60, serverLoad{150, 150, 1024, 64}}}
	if specs[1] != want {
		t.Errorf("got %+v, want %+v", specs[1], want)
	}
}

// TestLinesThatAreFound: a line that is off by more than 10 % somewhere, and one that holds for full engines alone.
func TestLinesThatAreFound(t *testing.T) {
	src := exampleSource()
	src.Step = func(deploy.Deployment) (export.StepTimer, error) { return saturating{}, nil }
	src.Fit.Configs = src.Fit.Configs[:1]
	_, w := writers()
	codes := func(format export.Format) (out []trace.Code) {
		opt := optionsOf(t, w)
		if format != InfernoModels {
			opt.Settings = nil
		}
		_, _, found, err := infernoEntry(src, src.Fit.Configs[0], accelerator{"H100", 1}, opt, format == InfernoModels)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			out = append(out, f.Code)
		}
		return out
	}
	if got := codes(InfernoModels); !slices.Contains(got, narrowLine) || slices.Contains(got, export.PoorProjection) {
		t.Errorf("for engines that are filled: got %v", got)
	}
	if got := codes(vllmSim); slices.Contains(got, narrowLine) || !slices.Contains(got, export.PoorProjection) {
		t.Errorf("for engines that are simulated: got %v", got)
	}
	src.Step = func(deploy.Deployment) (export.StepTimer, error) { return nil, errors.New("no steps") }
	if _, _, _, err := infernoEntry(src, src.Fit.Configs[0], accelerator{"H100", 1}, optionsOf(t, w), true); err == nil || !strings.HasSuffix(err.Error(), "tp1: no steps") {
		t.Errorf("got %v", err)
	}
}

// TestSpeedsOfTheMachine: parameters times the speed of each window, whose predictions are then exact.
func TestSpeedsOfTheMachine(t *testing.T) {
	x := []float64{8, 0.05, 1e-4}
	s := plantedServer(t, inferno3P, x, 2, 4)
	for i, speed := range []float64{1, 1.5} {
		w := &s.Windows[i]
		ttft, itl, ok := predictWindow(inferno3P, w, []float64{x[0] * speed, x[1] * speed, x[2] * speed}, asSized)
		if !ok {
			t.Fatal("no prediction")
		}
		w.TTFTMs, w.ITLMs = ttft, itl
	}
	got := atSpeed(s.Windows, inferno3P, x, []float64{1, 1.5})
	if got.Windows != 2 || *got.TTFTWape > 1e-12 || *got.ITLWape > 1e-12 {
		t.Errorf("got %+v", got)
	}
	if plain := evaluate(s.Windows, inferno3P, x, asSized); *plain.TTFTWape < 0.1 || *plain.ITLBias > -0.1 {
		t.Errorf("without the speed: got %+v", plain)
	}
	if v := lag1([]float64{1, 1, 1}); !math.IsNaN(v) {
		t.Errorf("no change: got %g", v)
	}
	if v := lag1([]float64{1, 2}); !math.IsNaN(v) {
		t.Errorf("two values: got %g", v)
	}
	if v := lag1([]float64{1, 2, 4, 1}); math.Abs(v-((0*-1)+(2*0)+(-1*2))/(1+0+4+1.)) > 1e-12 {
		t.Errorf("got %g", v)
	}
	steps := []step{{Window: 0, NIS: 1, Innovation: [2]float64{1, 2}, Verdict: accepted}, {Window: 1, NIS: 4, Verdict: rejectedNIS, Innovation: [2]float64{3, 4}}, {Window: 1, NIS: math.NaN(), Verdict: rejectedModel}}
	track := summarize([]window{{TTFTMs: 1, ITLMs: 2}, {TTFTMs: 3, ITLMs: 4}}, steps)
	if track.Windows != 3 || track.Accepted != 1 || track.Unpredicted != 1 || *track.MeanNIS != 2.5 || track.RejectedFrac != 0.5 || track.LockedOut != 2 || track.Whiteness[0] != nil {
		t.Errorf("got %+v", track)
	}
}

// TestIntervalsByPhases: with four load stages the interval holds the scatter of fits that each leave one out.
func TestIntervalsByPhases(t *testing.T) {
	x := []float64{8, 0.05, 1e-4}
	s := plantedServer(t, inferno3P, x, 1, 4, 8, 2, 6, 3, 7, 5)
	for i := range s.Windows {
		s.Windows[i].Phase = fmt.Sprint(i % 4)
		s.Windows[i].ITLMs *= 1 + 0.05*float64(i%4)
	}
	o := DefaultOptions()
	o.Flavour = inferno3P
	opt := defaultFit(inferno3P)
	all, err := Fit(s.Windows, opt)
	if err != nil {
		t.Fatal(err)
	}
	params := s.effective(inferno3P, all)
	found := widenIntervals(params, s.Windows, all, opt)
	opt.Near = all.X
	for j, p := range params {
		var logs []float64
		for g := range 4 {
			var rest []window
			for i, w := range s.Windows {
				if i%4 != g {
					rest = append(rest, w)
				}
			}
			f, err := Fit(rest, opt)
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, math.Log(f.X[j]))
		}
		mean := stat.Mean(logs)
		sum := 0.0
		for _, v := range logs {
			sum += (v - mean) * (v - mean)
		}
		half := 3.1824463052837 * math.Sqrt(sum*3/4) // Student's t with three degrees of freedom
		narrow := math.Log(all.Hi[j] / all.Lo[j])
		lo, hi := min(math.Log(all.Lo[j]), math.Log(all.X[j])-half), max(math.Log(all.Hi[j]), math.Log(all.X[j])+half)
		if math.Abs(*p.ModelError-(hi-lo)/narrow) > 1e-6 || math.Abs(math.Log(p.CI95[0])-lo) > 1e-6 || math.Abs(math.Log(p.CI95[1])-hi) > 1e-6 {
			t.Errorf("%s: got %g and %v, want %g and %g to %g", p.Name, *p.ModelError, *p.CI95, (hi-lo)/narrow, math.Exp(lo), math.Exp(hi))
		}
		if want := map[bool]string{true: byJackknife, false: byCurvature}[hi-lo > narrow]; p.CI95Method != want {
			t.Errorf("%s: got %s, want %s", p.Name, p.CI95Method, want)
		}
		isFound := slices.ContainsFunc(found, func(f trace.Finding) bool {
			return f.Code == sizingRemark && strings.HasPrefix(f.Message, p.Name+": the queueing model's own error moves it "+fmt.Sprintf("%.1f", (hi-lo)/narrow)+" times")
		})
		if want := hi-lo > 2*narrow; isFound != want {
			t.Errorf("%s: got a finding %v of %g", p.Name, isFound, (hi-lo)/narrow)
		}
	}
	for i := range s.Windows {
		s.Windows[i].Phase = fmt.Sprint(i % 3)
	}
	params = s.effective(inferno3P, all)
	if found := widenIntervals(params, s.Windows, all, opt); len(found) != 0 || params[0].CI95Method != byCurvature || params[0].ModelError != nil {
		t.Errorf("three stages: got %v, %+v", found, params[0])
	}
}

// TestScoresOfTheSimulator: a validation with simulations also scores the simulator with the same parameters.
func TestScoresOfTheSimulator(t *testing.T) {
	x := []float64{8, 0.05, 1e-4}
	later := plantedServer(t, inferno3P, x, 2)
	fitted := &Queue{Servers: []QueueServer{{ID: "chat"}}}
	for i, name := range inferno3P.Parameters() {
		fitted.Servers[0].Effective = append(fitted.Servers[0].Effective, queueParameter{Name: name, Value: x[i]})
	}
	o := DefaultOptions()
	o.Flavour = inferno3P
	got, err := ValidateQueues(t.Context(), fitted, []*Server{later}, "", &o, 400)
	if err != nil || len(got[0].Scores) != 2 || got[0].Scores[1].Estimator != "simulator:effective" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if s := got[0].Scores[1]; s.Windows != 1 || *s.ITLWape > 0.2 || *s.TTFTWape > 0.5 || *s.ITLWape == *got[0].Scores[0].ITLWape {
		t.Errorf("got %+v", s)
	}
	stopped := make(chan struct{})
	close(stopped)
	if _, err := later.simulated(fromVector(x), 100_000, stopped); err == nil {
		t.Error("interrupted: got a score")
	}
	r := o.Record()
	if r != (QueueOptions{WindowS: float64(o.Cut.WindowNs) / 1e9, HopS: float64(o.Cut.HopNs) / 1e9, MinRequests: o.Cut.MinRequests, Semantics: string(o.Cut.Semantics), Observation: "median", HoldOut: 0.3, QueueRatio: 10}) {
		t.Errorf("got %+v", r)
	}
	if o.Sweep.Mean = true; o.Record().Observation != "mean" || o.waiting(25) != 250 {
		t.Errorf("got %+v", o.Record())
	}
	if _, err := ReadProblem([]byte("servers:\n  - {name: a\n"), "p.yaml"); err == nil || !strings.HasPrefix(err.Error(), "p.yaml:") {
		t.Errorf("got %v", err)
	}
}

// TestNamesOfAccelerators: a remark only where one unit of the accelerator is several devices.
func TestNamesOfAccelerators(t *testing.T) {
	config := func(tp, pp int64) result.FitConfig {
		d := deploy.Deployment{TP: tp, PP: pp}
		d.Hardware.Name = "H100-SXM-80GB"
		return result.FitConfig{Deployment: d}
	}
	for _, c := range []struct {
		count, tp, pp int64
		want          string
	}{{1, 0, 0, ""}, {1, 1, 1, ""}, {2, 2, 0, ""}, {4, 2, 2, ""}, {1, 2, 1, "A stands for 2 x H100"}, {1, 2, 3, "A stands for 6 x H100"}, {1, 0, 4, "A stands for 4 x H100"}} {
		if got := renamedNote(accelerator{"A", c.count}, config(c.tp, c.pp)); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
	for prefix, want := range map[string]string{"WVA": "wva-qwen3-8b", "a_": "a--qwen3-8b", "-.a.-.": "a.qwen3-8b", strings.Repeat("a", 260): strings.Repeat("a", 253)} {
		if got := resourceName(prefix, "Qwen/Qwen3-8B"); got != want {
			t.Errorf("%s: got %s", prefix, got)
		}
	}
}

// TestServersWithoutParameters: formats that are made of points or of targets need none.
func TestServersWithoutParameters(t *testing.T) {
	for format, want := range map[export.Format]int{TunerCalibrate: 2, wvaSLO: 2, InfernoModels: 1, QueueWVA4P: 1} {
		q := example(inferno3P)
		q.Servers = append(q.Servers, q.Servers[0])
		q.Servers[1].ID, q.Servers[1].Model, q.Servers[1].Effective, q.Servers[1].Reason = "bare", "other", nil, "too few windows"
		got, warnings, err := chooseServers(q, &reader{Format: format}, &queueOptions{})
		if err != nil || len(got) != want || len(warnings) != 2-want || len(warnings) == 1 && warnings[0].Message != "bare is left out: too few windows" || (got[0].x == nil) != (want == 2) {
			t.Errorf("%s: got %d, %v, %v", format, len(got), warnings, err)
		}
	}
}

// TestDrawnTraffic: a simulated mean is corrected by what the model says of the lengths and the rate that were drawn. A
// window whose latencies are the corrected ones has no residual.
func TestDrawnTraffic(t *testing.T) {
	w := window{RateRPS: 2, Shape: shape{Prompt: 300, PromptCV2: 1, Output: 60}, Limits: Limits{MaxBatch: 32, Queue: 320, MaxBatchedTokens: 2048}}
	e := &engine{theta: logsOf([]float64{8, 0.05, 0.0001})}
	traffic := workload.Traffic{Shape: w.Shape, PromptLaw: workload.LogNormalLaw, OutputLaw: workload.ConstantLaw, RateRPS: w.RateRPS, Requests: 40, Seed: 1}
	_, drawn := traffic.Draw()
	asDrawn := w
	asDrawn.Shape, asDrawn.RateRPS = drawn, traffic.DrawnRate()
	got, err := simulate(fromVector(expsOf(e.theta)), w.Limits, traffic, nil)
	if err != nil {
		t.Fatal(err)
	}
	ttft, itl, ok := predictWindow(corrected, &w, expsOf(e.theta), asSized)
	drawnTTFT, drawnITL, okDrawn := predictWindow(corrected, &asDrawn, expsOf(e.theta), asSized)
	if !ok || !okDrawn || math.Abs(math.Log(drawnTTFT/ttft)) < 0.01 {
		t.Fatalf("got TTFT %g as asked and %g as drawn, want two", ttft, drawnTTFT)
	}
	w.TTFTMs, w.ITLMs = got.TTFTMs*ttft/drawnTTFT, got.ITLMs*itl/drawnITL
	if !e.simulateWindows([]window{w}, workload.ConstantLaw, 40) || math.Abs(e.residuals[0]) > 1e-9 || math.Abs(e.residuals[1]) > 1e-9 {
		t.Errorf("got residuals %v", e.residuals)
	}
	for _, s := range e.slopes[1] { // ITL grows with each parameter
		if !(s > 0) {
			t.Errorf("got slopes %v", e.slopes)
		}
	}
}

// TestLargestFleet: the best allocation is searched for up to ten servers.
func TestLargestFleet(t *testing.T) {
	f := &Fleet{Capacity: map[string]int{"H100": 20}, Policy: policyNone}
	var demands []Demand
	for i := range 11 {
		demands = append(demands, Demand{Name: fmt.Sprint(i), Priority: 1, RateRPS: 1, Options: []Option{{Accelerator: "H100", Type: "H100", Units: 1, RateRPS: 2, UnitCost: 1}}})
	}
	for n, want := range map[int]bool{10: true, 11: false} {
		if plan, err := f.Optimum(demands[:n]); err != nil || (plan != nil) != want {
			t.Errorf("%d servers: got %+v, %v", n, plan, err)
		}
	}
}

// TestUncertainSimulation: a simulated mean with a standard error above 5 % is named, with ten times the requests.
func TestUncertainSimulation(t *testing.T) {
	got := uncertain(&queueSimPoint{Requests: 1800, TTFTMs: 2923.6, TTFTSeMs: 520})
	const want = "simulated TTFT of 2,924 ms: its standard error is 18 %, and more near the highest rate: 1,800 requests are too few to judge the rate; " +
		"--simulate some 18,000"
	if len(got) != 1 || got[0].Code != sizingRemark || got[0].Message != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if got := uncertain(&queueSimPoint{Requests: 1800, TTFTMs: 100, TTFTSeMs: 5}); got != nil {
		t.Errorf("5 %%: got %v", got)
	}
}
