package cluster

import (
	"context"
	"errors"
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
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
)

// smallTuner tunes with 0.5 s of a load that one engine cannot serve in time.
func smallTuner(t *testing.T) *tuner {
	t.Helper()
	small := lab{IsolationOptions: IsolationOptions{Instances: 1, Workers: 1}, inputs: inputs{plant: plant{Deployment: defaultDeployment()}, gate: gate{Kind: kindSame, Scale: 1}}, ctx: context.Background(),
		preset: preset{Name: "seed", Load: "seed", Rate: 200, Seconds: 0.5, WarmupS: 0.1}, load: loads["seed"], rate: 200, capacity: 40}
	ask := DefaultOptimiseOptions()
	ask.Method, ask.Start, ask.Calls, ask.TrainSeeds, ask.TestSeeds = methodRandom, 2, 1, 2, 2
	out := &tuner{lab: small, ask: ask, train: []int64{1, 2}, test: []int64{101, 102}, always: map[string]elsewhere{}, made: func(loggedCall) error { return nil }}
	there := small
	there.rate, there.preset.Seconds = 20, 0.25
	out.other = &there
	return out
}

// TestTunedPolicy: the goodput of train and test seeds, of class critical and their difference; each transfer beside
// always-admit at the same load; the effect of each parameter over its range.
func TestTunedPolicy(t *testing.T) {
	tu := smallTuner(t)
	spec := specOf("slo-gated", scorersNew, "priority-fcfs")
	spec.Admission.Thresholds = map[string]float64{"standard": 20, "sheddable": 10}
	mean := func(spec *Spec, plant *plant, seeds []int64, draw func(int64) []sim.Request) (all, critical, seats float64) {
		t.Helper()
		runs, err := tu.outcomes(spec, plant, seeds, draw)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range runs {
			all += o.All.Goodput() / float64(len(runs))
			critical += o.class("critical").Goodput() / float64(len(runs))
			seats += o.Seats / float64(len(runs))
		}
		return all, critical, seats
	}
	got, err := tu.validated("slo-gated", &spec)
	if err != nil {
		t.Fatal(err)
	}
	train, _, _ := mean(&spec, &tu.plant, tu.train, tu.drawRequests)
	test, critical, _ := mean(&spec, &tu.plant, tu.test, tu.drawRequests)
	if got.Policy != "slo-gated" || !near12(*got.Train, train) || !near12(*got.Test, test) || !near12(*got.Critical, critical) || !near12(*got.Gap, train-test) || train == test || len(got.Transfer) != 5 {
		t.Errorf("got %+v, want %g, %g and %g", got, train, test, critical)
	}
	always := specOf("always-admit", scorersNew, "priority-fcfs")
	bursty, fresh := loads["bursty"], loads["newcomer"]
	other := plant{Deployment: tu.plant.Deployment, Other: true}
	for i, c := range []struct {
		to    string
		plant *plant
		draw  func(int64) []sim.Request
	}{
		{"rate x0.8", &tu.plant, func(s int64) []sim.Request { return tu.load.Draw(s, 160, 0.5) }},
		{"rate x1.2", &tu.plant, func(s int64) []sim.Request { return tu.load.Draw(s, 240, 0.5) }},
		{"bursty, 0.3 x rate", &tu.plant, func(s int64) []sim.Request { return bursty.Draw(s, 60, 1) }},
		{"newcomer, 0.3 x rate", &tu.plant, func(s int64) []sim.Request { return fresh.Draw(s, 60, 1) }},
		{"other coefficients, same rho", &other, func(s int64) []sim.Request { return tu.load.Draw(s, 20, 0.25) }},
	} {
		all, _, _ := mean(&spec, c.plant, tu.test, c.draw)
		base, _, seats := mean(&always, c.plant, tu.test, c.draw)
		if x := got.Transfer[i]; x.To != c.to || !near12(*x.Goodput, all) || !near12(*x.Always, base) || !near12(*x.Seats, seats) || x.Tested != (base < 0.99) {
			t.Errorf("%s: got %g beside %g with %g of the seats, want %g beside %g with %g", c.to, *x.Goodput, *x.Always, *x.Seats, all, base, seats)
		}
	}
	tu.always["rate x0.8"] = elsewhere{goodput: num(0.99), seats: num(0.125)}
	tu.always["rate x1.2"] = elsewhere{goodput: num(0.9899), seats: num(0.25)}
	tu.always["bursty, 0.3 x rate"] = elsewhere{}
	if got, err = tu.validated("slo-gated", &spec); err != nil || got.Transfer[0].Tested || *got.Transfer[0].Seats != 0.125 || !got.Transfer[1].Tested || *got.Transfer[1].Always != 0.9899 || !got.Transfer[2].Tested {
		t.Errorf("what always-admit does there is known: got %+v, %v", got.Transfer, err)
	}
	// A number of waiting requests from which standard and sheddable requests are rejected, and a number that nothing reads.
	knobs := []parameter{
		{"gate", 1, 10_000, func(s *Spec, v float64) { s.Admission.Thresholds = map[string]float64{"standard": v, "sheddable": v} }},
		{"nothing", 1, 16, func(s *Spec, v float64) { s.Admission.K = v }},
	}
	rows, err := tu.sensitivity(spec, knobs)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	var points [][]float64
	for _, v := range []float64{1, 10, 100, 1000, 10_000} {
		own := spec
		own.Admission.Thresholds = map[string]float64{"standard": v, "sheddable": v}
		all, _, err := tu.goodput(&own, &tu.plant, tu.train, tu.drawRequests)
		if err != nil {
			t.Fatal(err)
		}
		points = append(points, all)
	}
	best := slices.MaxFunc(points, func(a, b []float64) int { return int(math.Copysign(1, stat.Mean(a)-stat.Mean(b))) })
	worst := slices.MinFunc(points, func(a, b []float64) int { return int(math.Copysign(1, stat.Mean(a)-stat.Mean(b))) })
	d := stat.Paired(best, worst)
	if r := rows[0]; r.Name != "gate" || r.Lo != 1 || r.Hi != 10_000 || !near12(*r.Moves, d.Mean) || d.Mean <= 0 || !near12(*r.Band, d.Hi-d.Mean) || (r.Effect == "yes") != (d.Lo > 0) {
		t.Errorf("got %+v, moves %g, band %g, want %+v", r, *r.Moves, *r.Band, d)
	}
	if r := rows[1]; r.Name != "nothing" || *r.Moves != 0 || *r.Band != 0 || r.Effect != "no effect" {
		t.Errorf("got %+v", r)
	}
	for _, c := range []struct{ a, b string }{{tu.keyOf([]float64{1}, []float64{2}), tu.keyOf([]float64{2}, []float64{1})}} {
		if c.a == c.b || !strings.HasPrefix(c.a, "seed random from 2, 8 engines, 200/s, seeds 2, ") {
			t.Errorf("got keys %q and %q", c.a, c.b)
		}
	}
	tu.ask.Method = methodGrid
	if got := tu.keyOf(nil, nil); !strings.HasPrefix(got, "seed grid of 3 from 2, ") {
		t.Errorf("got the key %q", got)
	}
}

func near12(a, b float64) bool { return math.Abs(a-b) <= 1e-12 }

// TestSearchOfAPolicy: every simulation is logged with its policy and key, those that were made are not made again, and
// what is found has its parameters and goodput.
func TestSearchOfAPolicy(t *testing.T) {
	tu := smallTuner(t)
	tu.preset.Seconds, tu.preset.WarmupS = 0.2, 0
	for _, to := range []string{"rate x0.8", "rate x1.2", "bursty, 0.3 x rate", "newcomer, 0.3 x rate", "other coefficients, same rho"} {
		tu.always[to] = elsewhere{}
	}
	tu.key, tu.critical = "key", 0.25
	var told []string
	tu.Progress = func(stage string, done, total int64, _ string) {
		told = append(told, fmt.Sprintf("%s %d/%d", stage, done, total))
	}
	var logged []loggedCall
	tu.made = func(c loggedCall) error { logged = append(logged, c); return nil }
	got, err := tu.tunePolicy("slo-gated")
	if err != nil {
		t.Fatal(err)
	}
	if len(logged) != 3 || !slices.Equal(told, []string{"optimise slo-gated 1/3", "optimise slo-gated 2/3", "optimise slo-gated 3/3"}) || got.Method != methodRandom || len(got.Sensitivity) != 5 || len(got.Parameters) != 4 || got.Posterior == nil {
		t.Errorf("got %d calls, told %q, %+v", len(logged), told, got)
	}
	for i, c := range logged {
		spec := tu.apply("slo-gated", c.X)
		all, critical, err := tu.goodput(&spec, &tu.plant, tu.train, tu.drawRequests)
		if err != nil {
			t.Fatal(err)
		}
		a, b := stat.StdErr(all), stat.StdErr(critical)
		if c.Policy != "slo-gated" || c.Key != "key" || c.N != i || !near12(c.Value.Value, stat.Mean(all)) || !near12(c.Variance, a*a) || !near12(c.Slack, stat.Mean(critical)-0.25) || !near12(c.SlackVariance, b*b) {
			t.Errorf("call %d: got %+v, want %g and %g", i, c, stat.Mean(all), stat.Mean(critical))
		}
	}
	var parameters []string
	for name, v := range got.Parameters {
		if v != stat.Round(v, 4) {
			t.Errorf("%s: got %v, want four digits", name, v)
		}
		parameters = append(parameters, name)
	}
	slices.Sort(parameters)
	if !slices.Equal(parameters, []string{"pa", "qd", "threshold_sheddable", "threshold_standard"}) {
		t.Errorf("got %q", parameters)
	}
	tu.before = append(slices.Clone(logged[:2]), loggedCall{"slo-gated", "other key", logged[2].Call}, loggedCall{"probabilistic", "key", logged[2].Call})
	logged = nil
	again, err := tu.tunePolicy("slo-gated")
	if err != nil || len(logged) != 1 || logged[0].N != 2 || !reflect.DeepEqual(again, got) {
		t.Errorf("two of three calls were made: got %d more, %+v, %v", len(logged), again, err)
	}
	tu.made = func(loggedCall) error { return errors.New("no room") }
	tu.before = nil
	if _, err := tu.tunePolicy("slo-gated"); err == nil || err.Error() != "no room" {
		t.Errorf("a call that is not logged: got %v", err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	tu.ctx = cancelled
	if _, err := tu.validated("slo-gated", new(specOf("slo-gated", scorersNew, "priority-fcfs"))); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if _, err := tu.sensitivity(specOf("slo-gated", scorersNew, "priority-fcfs"), tunable()["slo-gated"]); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if _, err := tu.tunePolicy("slo-gated"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

// TestInputsOfAnExperiment: which files it reads, and what it refuses.
func TestInputsOfAnExperiment(t *testing.T) {
	dir := t.TempDir()
	set := filepath.Join(dir, "set.yaml")
	text, err := os.ReadFile(filepath.Join("..", "coeff", "testdata", "example", "coefficients.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	repo.Write(t, string(text), set)
	runYAML, config := runFiles(defaultDeployment(), calibrationRun)
	repo.Write(t, runYAML, filepath.Join(dir, "run", "run.yaml"))
	repo.Write(t, config, filepath.Join(dir, "run", "config.json"))
	repo.Write(t, strings.Replace(runYAML, "data_parallel_size: 1", "data_parallel_size: 2", 1), filepath.Join(dir, "two", "run.yaml"))
	repo.Write(t, config, filepath.Join(dir, "two", "config.json"))
	repo.Write(t, "num_prefill_tokens,num_decode_tokens,arrived_at\n100,20,0\n200,10,1\n300,30,2\n", filepath.Join(dir, "w.csv"))
	load := func(change func(o *IsolationOptions)) (*inputs, error) {
		o := DefaultIsolationOptions()
		o.Alone, o.Controller = true, kindSame
		change(&o)
		return loadInputs(context.Background(), &o)
	}
	names := func(l *inputs) (out []string) {
		for _, in := range l.files {
			out = append(out, filepath.Base(in.Name))
		}
		return out
	}
	l, err := load(func(*IsolationOptions) {})
	if err != nil || !strings.HasPrefix(l.plant.Name, "the published blackbox") || l.plant.Deployment == nil || l.gate.Kind != kindSame || l.gate.Scale != 1 || l.others != nil || l.files != nil {
		t.Errorf("none: got %+v, %v", l, err)
	}
	l, err = load(func(o *IsolationOptions) {
		o.Deployment, o.Plant, o.Controller = filepath.Join(dir, "run"), set, set
	})
	if err != nil || !slices.Equal(names(l), []string{"run.yaml", "set.yaml", "set.yaml"}) || l.plant.Set == nil || filepath.Base(l.plant.Name) != "set.yaml" || filepath.Base(l.gate.Kind) != "set.yaml" || l.gate.Set == nil || l.gate.Scale != 1 {
		t.Fatalf("all: got %q, %+v, %v", names(l), l, err)
	}
	if want := 2 * len(l.plant.Set.FileWarnings()); len(l.warnings) != want {
		t.Errorf("got warnings %v, want %d", l.warnings, want)
	}
	// The description of the default engines is read back as they are.
	d, want := l.plant.Deployment, defaultDeployment()
	wantBlocks, _, _ := want.KVBlocks()
	blocks, _, err := d.KVBlocks()
	if err != nil || d.Hardware.Name != want.Hardware.Name || d.Hardware.TFlopsPeak != want.Hardware.TFlopsPeak || d.Hardware.BwPeakTBs != want.Hardware.BwPeakTBs || d.TP != want.TP || d.Engine.MaxNumSeqs != want.Engine.MaxNumSeqs ||
		d.Engine.MaxNumBatchedTokens != want.Engine.MaxNumBatchedTokens || d.Engine.BlockSize != want.Engine.BlockSize || blocks != wantBlocks || d.Model.NumLayers != want.Model.NumLayers || d.Model.HiddenSize != want.Model.HiddenSize ||
		d.Model.NumHeads != want.Model.NumHeads || d.Model.NumKVHeads != want.Model.NumKVHeads || d.Model.IntermediateSize != want.Model.IntermediateSize || d.Model.VocabSize != want.Model.VocabSize || d.Engine.IsAsync() != want.Engine.IsAsync() {
		t.Errorf("got %+v, want %+v, %v", d, want, err)
	}
	if l, err = load(func(o *IsolationOptions) { o.Preset, o.Workload = "workload", filepath.Join(dir, "w.csv") }); err != nil || len(l.recorded) != 3 || !slices.Equal(names(l), []string{"w.csv"}) {
		t.Errorf("a workload: got %+v, %v", l, err)
	}
	for name, change := range map[string]func(o *IsolationOptions){
		"data_parallel_size: got 2, want 1": func(o *IsolationOptions) { o.Deployment = filepath.Join(dir, "two") },
		"nowhere":                           func(o *IsolationOptions) { o.Deployment = filepath.Join(dir, "nowhere") },
		"no-plant":                          func(o *IsolationOptions) { o.Plant = filepath.Join(dir, "no-plant") },
		"no-gate":                           func(o *IsolationOptions) { o.Controller = filepath.Join(dir, "no-gate") },
		"no-hour":                           func(o *IsolationOptions) { o.Preset, o.Workload = "workload", filepath.Join(dir, "no-hour") },
	} {
		if _, err := load(change); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
	busy := filepath.Join(dir, "busy")
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	iso := DefaultIsolationOptions()
	iso.Out = busy
	if _, err := Isolation(context.Background(), iso); err == nil {
		t.Error("a file as the output folder: got no error")
	}
	tune := DefaultOptimiseOptions()
	tune.Out = busy
	if _, err := Optimise(context.Background(), tune); err == nil {
		t.Error("a file as the output folder: got no error")
	}
}

// TestCalibrationRun: three loads of 8 s, of half, seven and nine tenths of what one engine can do.
func TestCalibrationRun(t *testing.T) {
	p := &plant{Deployment: defaultDeployment()}
	reqs, err := p.Calibration()
	if err != nil {
		t.Fatal(err)
	}
	load := loads["groups"]
	one := &lab{IsolationOptions: IsolationOptions{Instances: 1}}
	capacity, err := one.measureCapacity(p, &gate{Kind: kindSame, Scale: 1}, load.Draw(999, 4000, 0.3))
	if err != nil {
		t.Fatal(err)
	}
	// All 1200 requests are there from the start, so that the engine is busy until the last of them ends.
	parts, err := (&gate{Kind: kindSame, Scale: 1}).Parts(p, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	res, err := Run(new(specOf("always-admit", "", "fcfs")).Build(parts), load.Draw(999, 4000, 0.3))
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for i := range res.Records {
		last = math.Max(last, float64(res.Records[i].FinishedUs.V)/1e6)
	}
	if whole := float64(len(res.Records)) / last; capacity < whole || capacity > 1.15*whole {
		t.Errorf("got a capacity of %g/s, of the whole run %g/s", capacity, whole)
	}
	at := 0
	for k, share := range []float64{0.5, 0.7, 0.9} {
		for _, want := range load.Draw(int64(1000+k), share*capacity, 8) {
			got := reqs[at]
			if got.ID != fmt.Sprint(at) || got.ArrivalUs != want.ArrivalUs+int64(k)*8e6 || got.PromptTokens != want.PromptTokens || got.OutputTokens != want.OutputTokens {
				t.Fatalf("request %d: got %+v, want %+v %d s later", at, got, want, 8*k)
			}
			at++
		}
	}
	if at != len(reqs) {
		t.Errorf("got %d requests, want %d", len(reqs), at)
	}
}

// TestGatesOfAPlant: a gate that is off by a factor has steps of that factor; one with coefficients has its own engine.
func TestGatesOfAPlant(t *testing.T) {
	p := &plant{Deployment: defaultDeployment()}
	b := sim.NewBatch(nil)
	b.AddDecodes(3, 900, 60)
	us := func(m sim.Model) float64 {
		t.Helper()
		got, err := m.StepUs(b)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	cfg, err := p.Config(7)
	if err != nil || cfg.Seed != 7 || cfg.Noise == nil {
		t.Fatal(cfg, err)
	}
	if got, want := us(scaled{cfg.Latency, 1.3}), 1.3*us(cfg.Latency); !close9(got, want) || want == 0 {
		t.Errorf("got %g us, want %g", got, want)
	}
	other, err := (&plant{Deployment: p.Deployment, Other: true}).Config(7)
	if err != nil || us(other.Latency) == us(cfg.Latency) {
		t.Errorf("another form: got %g us, %v", us(other.Latency), err)
	}
	set := testkit.PlantedOn(p.Deployment)
	own, err := (&plant{Deployment: p.Deployment, Set: set}).Config(7)
	if err != nil || us(own.Latency) == us(cfg.Latency) || own.Noise == nil {
		t.Errorf("coefficients: got %g us, %v", us(own.Latency), err)
	}
	for name, c := range map[string]struct {
		g     gate
		prior bool
	}{"same": {gate{Scale: 1}, false}, "biased": {gate{Scale: 0.7}, false}, "fitted": {gate{Set: set, Scale: 1}, true}} {
		got, err := c.g.Parts(p, 3, 9)
		if err != nil || len(got.Engines) != 3 || len(got.Plants) != 3 || len(got.Controllers) != 3 || got.Seed != 9 || (got.Prior != nil) != c.prior {
			t.Errorf("%s: got %d engines, %d plants, %d gates, seed %d, a prior %v, %v", name, len(got.Engines), len(got.Plants), len(got.Controllers), got.Seed, got.Prior != nil, err)
		}
	}
	impossible := &coeff.Set{}
	if _, err := (&gate{Set: impossible, Scale: 1}).Parts(p, 1, 1); err == nil {
		t.Error("no coefficients: got an engine")
	}
	if _, err := (&gate{Scale: 1}).Parts(&plant{Deployment: p.Deployment, Set: impossible}, 1, 1); err == nil {
		t.Error("a plant without coefficients: got an engine")
	}
}

// TestTextsOfASpec: short forms of a cluster file, and what is refused with its line.
func TestTextsOfASpec(t *testing.T) {
	s, err := parseSpec([]byte("instances: 3\nadmission: token-bucket\n"), "c.yaml")
	if err != nil || s.Instances.Count() != 3 || s.Admission.Policy != "token-bucket" || s.Admission.Capacity != defaultAdmission("token-bucket").Capacity || s.Admission.Capacity == 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	s, err = parseSpec([]byte("instances:\n- {count: 2, role: prefill}\n- {count: 4, role: decode}\nadmission: {policy: token-bucket, capacity: 7}\ntransfer: {bandwidth_gbs: 3}\nrouting: prefix-affinity\n"), "c.yaml")
	if err == nil && (s.Instances.Count() != 6 || s.Admission.Capacity != 7 || s.Instances.Groups[1].Role != "decode") {
		t.Errorf("got %+v, %v", s, err)
	}
	for text, want := range map[string]string{
		" \n":               "cluster: got an empty file, want at least one key",
		"instances: many\n": `instances: got "many", want a number or a list of groups`,
		"admission: {policy: token-bucket, k: 3}":     "admission.k: got it with policy token-bucket, want it with probabilistic",
		"admission: {policy: always-admit, beta0: 3}": "admission.beta0: got it with policy always-admit, want it with predictive-seed",
		"admission: {policy: token-bucket, z: 3}":     "z",
		"admission: {policy: none, k: 3}":             `admission policy: got "none"`,
		"admission: {policy: [1]}":                    "c.yaml:1",
	} {
		if _, err := parseSpec([]byte(text), "c.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if got := havePolicies("queue_depth_threshold"); !slices.Equal(got, []string{"gaie-legacy", "probabilistic"}) && len(got) != 2 {
		t.Errorf("got %q", got)
	}
	for _, c := range []struct {
		r    Routing
		want string
		n    int
	}{
		{Routing{Policy: Weighted, Scorers: "queue-depth:1"}, "", 1}, {Routing{Policy: Weighted}, "", 3}, {Routing{Policy: RoundRobin}, "", 0},
		{Routing{Policy: LLMD, Scorers: "x"}, `routing.scorers: got "x" with policy llmd, want a list of one plugin`, 0},
		{Routing{Policy: RoundRobin, Scorers: "x"}, `routing.scorers: got them with policy "round-robin", want policy weighted`, 0},
	} {
		got, err := c.r.scorers()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || len(got) != c.n {
			t.Errorf("%+v: got %d scorers, %v", c.r, len(got), err)
		}
	}
	controller := defaultSpec()
	for name, want := range map[string]bool{"predictive": true, "size-only": true, "latency-slo": true, "always-admit": false, "token-bucket": false} {
		controller.Admission.Policy = name
		if controller.NeedsController() != want {
			t.Errorf("%s: got %v", name, !want)
		}
	}
	controller.Admission.Policy, controller.Admission.Predictor = "latency-slo", "p.json"
	if controller.NeedsController() {
		t.Error("latency-slo with trees needs coefficients")
	}
	controller.Routing.Policy = LLMD
	if !controller.NeedsController() {
		t.Error("llmd without trees needs coefficients")
	}
	controller.Routing.Predictor = "p.json"
	if controller.NeedsController() {
		t.Error("llmd with trees needs coefficients")
	}
	of := (&Spec{Targets: map[string]targetSpec{"standard": {TTFTMs: 1.5}}, Admission: admission{PredictOn: "best", Eps: map[string]float64{"a": 0.2}, Floor: num(0.25)}}).predictive(&parts{}, nil)
	if !of.Best || of.StandardUs != 1500 || of.Eps["a"] != 0.2 || of.Floor.Share != 0.25 || of.Floor.BudgetShare != 0.05 {
		t.Errorf("got %+v", of)
	}
	if of = (&Spec{Admission: admission{PredictOn: "chosen", Floor: num(0)}}).predictive(&parts{}, nil); of.Best || of.Floor != nil {
		t.Errorf("no floor: got %+v", of)
	}
	none := &Spec{}
	reqs := []sim.Request{{SLOTTFTUs: 3}}
	if got := none.TakeTargets(reqs); len(got) != 1 || got[0].SLOTTFTUs != 3 {
		t.Errorf("no targets: got %+v", got)
	}
	trees := &trees{}
	if p := (&Spec{Admission: admission{Policy: "latency-slo", Predictor: "p"}}).policy(&parts{Trees: trees, Engines: []sim.Config{published()}}, nil); p.(*latencySLO).Estimate != estimator(trees) {
		t.Errorf("got %+v", p)
	}
	for _, c := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Retry = retrySpec{Kind: "backoff", Factor: 1, BaseMs: 0.001, Tries: 2} }, ""}, {func(c *Config) { c.Retry = retrySpec{Kind: "backoff", Factor: 0.99, BaseMs: 1, Tries: 2} }, "retry: got base 1000 us and factor 0.99"},
		{func(c *Config) { c.Retry = retrySpec{Kind: "backoff", Factor: 2, Tries: 2} }, "retry: got base 0 us and factor 2"},
	} {
		cfg := plain(several(1, published()))
		c.change(cfg)
		if _, err := Run(cfg, []sim.Request{{PromptTokens: 5, OutputTokens: 1}}); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v", c.want, err)
		}
	}
}

// failing is an estimator that fails on one instance.
type failing int

func (f failing) TTFT(_ *Request, _ *View, i int) (estimate, error) {
	if i == int(f) {
		return estimate{}, errors.New("no estimate")
	}
	return estimate{TTFT: forecast.TTFT{Us: 5000, LikelyUs: 5000}}, nil
}

// TestEstimatesThatFail: a policy passes the error on; llm-d's router takes the instance as one without a prediction.
func TestEstimatesThatFail(t *testing.T) {
	v := eight(1)
	r := requestOfClass("batch")
	slo := &latencySLO{Estimate: failing(1)}
	if _, err := slo.Decide(r, v, 0); err == nil || err.Error() != "no estimate" {
		t.Errorf("latency-slo: got %v", err)
	}
	r.Priority = 0
	if d, err := slo.Decide(r, v, 0); err != nil || !d.Admit {
		t.Errorf("latency-slo, priority 0: got %+v, %v", d, err)
	}
	p := &predictive{Estimate: failing(0)}
	if _, err := p.Decide(r, v, 0); err == nil {
		t.Error("predictive: got no error")
	}
	p = &predictive{Estimate: failing(1), Best: true}
	if _, err := p.Decide(r, v, 0); err == nil {
		t.Error("predictive on the best: got no error")
	}
	if got := p.eps("x", -1); got != 0.10 {
		t.Errorf("got %g", got)
	}
	if got := p.eps("x", 0); got != 0.05 {
		t.Errorf("got %g", got)
	}
	p.Eps = map[string]float64{"x": 0.3}
	if got := p.eps("x", 0); got != 0.3 {
		t.Errorf("got %g", got)
	}
}

// TestScoresWithoutPredictions: by the share of the cache, of the longest queue and of the prompt.
func TestScoresWithoutPredictions(t *testing.T) {
	all := []endpoint{{kvUsage: 0.25, waiting: 4, match: 0.5}, {kvUsage: 0.5, waiting: 1, match: 0}}
	p := &pluginParameters{CompositeKVWeight: 1, CompositeQueueWeight: 2, CompositePrefixWeight: 1}
	p.setCompositeScores(all)
	if all[0].score != stat.Round((0.75+0+0.5)/4, 2) && all[0].score != 0.31 || all[1].score != 0.5 {
		t.Errorf("got %g and %g, want 0.31 and 0.5", all[0].score, all[1].score)
	}
	(&pluginParameters{}).setCompositeScores(all)
	if all[0].score != 0.75 || all[1].score != 0.5 {
		t.Errorf("without weights: got %g and %g", all[0].score, all[1].score)
	}
	idle := []endpoint{{kvUsage: 0.5}, {kvUsage: 0.5}}
	p.setCompositeScores(idle)
	if idle[0].score != 0.63 { // (0.5 + 2 x 1 + 0) / 4, rounded
		t.Errorf("nothing waits: got %g", idle[0].score)
	}
}

// TestServersOfOneKind: one engine is the engine alone, pools have prefill and decode servers, and a router is named.
func TestServersOfOneKind(t *testing.T) {
	reqs := []sim.Request{{ID: "a", PromptTokens: 50, OutputTokens: 3}, {ID: "b", PromptTokens: 60, OutputTokens: 3, ArrivalUs: 10}, {ID: "c", PromptTokens: 70, OutputTokens: 3, ArrivalUs: 20}}
	engine := published()
	alone, err := sim.Run(engine, reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, engines, err := Servers(engine, 1, RouteRoundRobin, reqs)
	if err != nil || len(engines) != 1 || !reflect.DeepEqual(got, alone.Requests) {
		t.Errorf("one: got %d engines, %v", len(engines), err)
	}
	for _, routing := range []string{RouteRoundRobin, RouteLeastRequests, RoutePrefix} {
		got, engines, err := Servers(engine, 2, routing, reqs)
		if err != nil || len(engines) != 2 || len(got) != 3 || !got[2].FinishedUs.OK {
			t.Errorf("%s: got %d engines, %d results, %v", routing, len(engines), len(got), err)
		}
	}
	if _, _, err := Servers(engine, 2, "any", reqs); err == nil || !strings.Contains(err.Error(), `router: got "any", want `) {
		t.Errorf("got %v", err)
	}
	if _, _, err := Servers(engine, MostServers+1, RouteLeastRequests, reqs); err == nil {
		t.Error("too many servers: got no error")
	}
	bad := []sim.Request{{PromptTokens: -1}}
	for _, n := range []int{1, 2} {
		if _, _, err := Servers(engine, n, RouteRoundRobin, bad); err == nil {
			t.Errorf("%d servers: a prompt of -1 tokens is served", n)
		}
	}
	pool, engines, err := Pools(engine, 1, 2, reqs)
	if err != nil || len(engines) != 3 || len(pool) != 3 || !pool[0].FinishedUs.OK || pool[0].FinishedUs.V <= alone.Requests[0].FinishedUs.V {
		t.Errorf("pools: got %d engines, %+v, %v", len(engines), pool, err)
	}
}
