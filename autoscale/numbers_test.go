package autoscale

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
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
	if !slices.Equal(c.Model.Expected, []float64{41.3, 8.7}) || math.Abs(c.Filter.ErrorLevel-tunerPercentile*medianToSD*0.04) > 1e-12 || c.Filter.GammaFactor != 1 || !c.Model.BoundedState || len(c.Model.InitState) != 3 || c.Model.InitState[0] != 6.621754782151419 {
		t.Errorf("got %+v, %v", c, warnings)
	}
	if c, warnings = of(func(s *QueueServer) { s.Noise, s.Tracks, s.Load = nil, nil, nil }); c.Filter.ErrorLevel != tunerErrorLevel || !slices.Equal(c.Model.Expected, []float64{200, 40}) || len(warnings) < 2 ||
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
		"servers: [{name: a, rate_rps: -1}]\n":                           `p.yaml: server "a": bad_queue_model: rate_rps: got -1`,
		"servers: [{name: a, itl_ms: -1}]\n":                             "itl_ms",
		"servers: [{name: a, priority: -1}]\n":                           "priority",
		"servers: [{name: a, nothing: 1}]\n":                             "nothing",
		"servers: {name: a}\n":                                           "p.yaml",
		"capacity: {H100: -1}\nservers: [{name: a}]\n":                   "p.yaml: bad_queue_model: capacity of H100: got -1",
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
	if m, err := sizedOf(&physical, corrected, 1024, 30); err != nil || m.s.Prompt != 1024 || m.s.Cached != 512 || m.s.Output != 30 {
		t.Errorf("other lengths: got %+v, %v", m.s, err)
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
	if math.Abs(got[0]-(0.04+0.01)) > 1e-12 || math.Abs(got[1]-(noStdErr*noStdErr+0.01)) > 1e-12 {
		t.Errorf("got %v", got)
	}
	if ms, remark := overheadMs(&result.Fit{}, &result.FitConfig{}); ms != 0 || remark != "without an API overhead (the fit has none)" {
		t.Errorf("got %g, %q", ms, remark)
	}
	var big head
	big.p, big.shift = 0x1p+600, -400
	big.rescale()
	if big.p != 0x1p+200 || big.shift != -400+stepBits {
		t.Errorf("got %g, %d", big.p, big.shift)
	}
	big = head{p: 0x1p+600, none: 0x1p+400, zero: 0x1p+401, first: 0x1p+402}
	big.rescale()
	if big.p != 0x1p+200 || big.none != 1 || big.zero != 2 || big.first != 4 || big.shift != 0 {
		t.Errorf("got %+v", big)
	}
	big = head{p: 0x1p-600}
	if big.rescale(); big.p != 0x1p-200 || big.shift != -stepBits {
		t.Errorf("got %+v", big)
	}
}
