package fit

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Same inputs, same options, the same bytes for any number of workers
// and any order of the runs.
func TestBytesDoNotDependOnWorkersOrOrder(t *testing.T) {
	sources := Bundled(t)
	var want string
	for _, workers := range []int{1, 8} {
		o := DefaultOptions()
		o.Bootstraps = MinBootstraps
		o.Workers = workers
		got := BytesOf(t, fitted(t, sources, o))
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%d workers: other bytes than 1 worker", workers)
		}
		slices.Reverse(sources)
	}
}

// The document is valid against its schema, whatever made it, and has the figures of testdata.
func TestDocumentsFollowTheirSchema(t *testing.T) {
	schema := compiled(t)
	sources := Bundled(t)
	duration := Quick()
	old := Options{Spec: features.V10, Models: []string{}, Bootstraps: MinBootstraps}
	duration.BetaTarget = coeff.Duration
	docs := map[string]*result.Fit{"default": fitted(t, sources, DefaultOptions()), "duration": fitted(t, sources, duration),
		"1.0": fitted(t, sources, old)}
	g, err := Save(context.Background(), sources, Quick(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if docs["gram"], err = FitGrams(context.Background(), []ridge.File{g}, Quick()); err != nil {
		t.Fatal(err)
	}
	for name, doc := range docs {
		doc.Header = result.Header{SchemaVersion: result.SchemaVersion, ToolVersion: "test", Command: "fit", Inputs: []result.Input{}}
		if name != "duration" {
			testkit.Document(t, name, doc)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(BytesOf(t, doc))))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		v.(map[string]any)["beta"].(map[string]any)["colour"] = "blue"
		if schema.Validate(v) == nil {
			t.Errorf("%s: a foreign key passes", name)
		}
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	path := filepath.Join(repo.Root(t), "docs", "schema", "fit.schema.json")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(path, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A saturated run is left out and named, and kept when asked for.
func TestSaturatedRunIsNamed(t *testing.T) {
	sources := Bundled(t)
	k := slices.IndexFunc(sources, func(s Source) bool { return s.ID == "cpu-gqa-async" })
	sources[k].Judge = func(*trace.Run) (string, []rows.Span) { return "queue_growth 0.8 (limit 0.5)", nil }
	o := Quick()
	doc := fitted(t, sources, o)
	if r := doc.Runs[0]; r.Used || !r.Saturated || !Has(r.Findings, rows.Saturated, "queue_growth 0.8") {
		t.Errorf("left out: %+v", r)
	}
	if n := len(doc.Beta.Rows.ByRun); n != 1 || doc.Beta.Rows.ByRun[0].Run != "cpu-gqa-low" {
		t.Errorf("rows of %d runs, want those of cpu-gqa-low alone", n)
	}
	o.KeepSaturated = true
	if r := fitted(t, sources, o).Runs[0]; !r.Used || !r.Saturated || !Has(r.Findings, rows.Saturated, "") {
		t.Errorf("kept: %+v", r)
	}
	o.KeepSaturated = false
	for i := range sources {
		sources[i].Judge = sources[k].Judge
	}
	_, err := Fit(context.Background(), sources, o, nil)
	if trace.CodeOf(err) != CodeNoRows || trace.HintOf(err) == "" {
		t.Errorf("all saturated: %v", err)
	}
}

// A target below the physical floor is named; the cadence is not.
func TestTargetBelowFloor(t *testing.T) {
	o := Quick()
	if doc := fitted(t, Bundled(t), o); Has(doc.Beta.Warnings, Implausible, "the median") {
		t.Error("the cadence is called too short")
	}
	o.BetaTarget = coeff.Duration
	doc := fitted(t, Bundled(t), o)
	for _, r := range doc.Runs {
		if !Has(doc.Beta.Warnings, Implausible, r.ID+": the median duration") {
			t.Errorf("%s: no finding", r.ID)
		}
	}
}

// The lag is measured where prefill in the hold-out says it, and assumed
// from async_scheduling, with a warning, where it does not.
func TestLagVerdicts(t *testing.T) {
	doc := fitted(t, Bundled(t), Quick())
	want := map[string]result.RunLag{"cpu-gqa-async": {Lag: 1}, "cpu-gqa-low": {Lag: 0, Measured: true}}
	for run, lag := range want {
		if got := doc.Beta.PipelineLag[run]; got != lag {
			t.Errorf("%s: got %+v, want %+v", run, got, lag)
		}
	}
	if r := doc.Runs[0]; !Has(r.Findings, LagUncertain, "9 hold-out intervals") {
		t.Errorf("%s: %v", r.ID, r.Findings)
	}
	if n := len(doc.Beta.LagEvidence); n != 6 {
		t.Errorf("%d errors of lags, want 3 for each of 2 runs", n)
	}
	for _, e := range doc.Beta.LagEvidence {
		if e.HoldoutMAPEPrefill == nil {
			t.Errorf("%s lag %d: no error", e.Run, e.Lag)
		}
	}
	forced, o := 0, Quick()
	o.Lag = &forced
	if got := fitted(t, Bundled(t), o).Beta.PipelineLag["cpu-gqa-async"]; got != (result.RunLag{}) {
		t.Errorf("forced to 0: got %+v", got)
	}
}

// A run whose config contradicts the measured lag warns, and the measurement wins.
func TestLagContradiction(t *testing.T) {
	sources := Bundled(t)
	k := slices.IndexFunc(sources, func(s Source) bool { return s.ID == "cpu-gqa-low" })
	sources[k].Deployment.Engine.AsyncScheduling = trace.Some(true)
	lag, _, err := MeasureLag(context.Background(), sources[k], Options{})
	if err != nil || lag != (result.RunLag{Lag: 0, Measured: true}) {
		t.Errorf("got %+v (%v), want the measured 0", lag, err)
	}
	doc := fitted(t, sources[k:k+1], Quick())
	if !Has(doc.Runs[0].Findings, LagUncertain, "measured lag is 0") {
		t.Errorf("%v", doc.Runs[0].Findings)
	}
}

// Read = kept + dropped, whole and per run, for every model.
func TestReadIsKeptPlusDropped(t *testing.T) {
	doc := fitted(t, Bundled(t), DefaultOptions())
	models := slices.Concat([]result.Model{doc.Beta}, doc.Alpha, doc.Models)
	if len(models) != 7 {
		t.Fatalf("%d models, want beta, 3 alphas and 3 others", len(models))
	}
	for _, m := range models {
		var read, kept int
		for _, r := range m.Rows.ByRun {
			n := r.Kept
			for _, d := range r.Dropped {
				n += d
			}
			if n != r.Read || r.Read == 0 {
				t.Errorf("%s %s: read %d, kept and dropped %d", m.Name, r.Run, r.Read, n)
			}
			read, kept = read+r.Read, kept+r.Kept
		}
		if read != m.Rows.Read || kept != m.Rows.Kept {
			t.Errorf("%s: totals %d and %d, runs %d and %d", m.Name, m.Rows.Read, m.Rows.Kept, read, kept)
		}
	}
}

// Utilisation and "not learned" are about hardware times: no alpha has them.
func TestAlphasHaveNoUtilisation(t *testing.T) {
	doc := fitted(t, Bundled(t), Quick())
	for _, m := range doc.Alpha {
		for _, c := range m.Coefficients {
			if c.ImpliedUtilisation != nil || c.NotLearned {
				t.Errorf("%s %s: %+v", m.Name, c.Name, c)
			}
		}
	}
}

// A value outside its interval is named; one inside is not.
func TestEstimateOutsideIntervalIsNamed(t *testing.T) {
	doc := fitted(t, Bundled(t), Quick())
	var outside int
	for _, c := range doc.Beta.Coefficients {
		if ci := c.EstimateCI95; ci != nil {
			out := c.Value < ci[0] || c.Value > ci[1]
			if out {
				outside++
			}
			if out != Has(doc.Beta.Warnings, AtLimit, c.Name) {
				t.Errorf("%s %v in %v: wrong about it", c.Name, c.Value, ci)
			}
		}
	}
	t.Logf("%d values outside", outside)
}

// --without leaves a run out; an unknown name is an error.
func TestWithout(t *testing.T) {
	o := Quick()
	o.Without = []string{"cpu-gqa-async"}
	if doc := fitted(t, Bundled(t), o); len(doc.Runs) != 1 || doc.Runs[0].ID != "cpu-gqa-low" {
		t.Errorf("%+v", doc.Runs)
	}
	o.Without = []string{"nobody"}
	if _, err := Fit(context.Background(), Bundled(t), o, nil); err == nil {
		t.Error("an unknown run is accepted")
	}
}

// Options out of range are refused by name.
func TestOptionsAreChecked(t *testing.T) {
	two := 3
	for _, o := range []Options{
		{Recipe: "loose"}, {BetaTarget: "wall"}, {Split: 2}, {Prior: "mine"}, {Bootstraps: 3}, {Lag: &two},
		{Objective: "best"}, {AlphaTargets: []string{"ingress"}}, {Models: []string{"forest"}}, {Spec: "2.0"},
	} {
		if _, err := o.Resolve(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestDumpHoldsTheRowsOfTheFit: fit --dump-rows writes exactly the rows of the fit.
func TestDumpHoldsTheRowsOfTheFit(t *testing.T) {
	o, dir := Quick(), t.TempDir()
	var n int
	o.Rows = func(d *Dump) error {
		for _, table := range d.Tables {
			n += table.Kept
		}
		return d.Write(dir)
	}
	doc := fitted(t, Bundled(t), o)
	want := doc.Beta.Rows.Kept
	for _, m := range doc.Alpha {
		want += m.Rows.Kept
	}
	if n != want || n == 0 {
		t.Errorf("%d rows, want %d", n, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "rows.parquet")); err != nil || info.Size() == 0 {
		t.Errorf("rows.parquet: %v", err)
	}
}

func fitted(t testing.TB, sources []Source, o Options) *result.Fit {
	t.Helper()
	doc, err := Fit(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestValuesLieInTheirIntervals: the published value in ci95, the estimate without penalty
// in its own; with a prior the interval is the value's and there is no other estimate.
func TestValuesLieInTheirIntervals(t *testing.T) {
	inside := func(what string, v float64, ci *[2]float64) {
		if v < ci[0] || v > ci[1] {
			t.Errorf("%s: %v outside of %v", what, v, *ci)
		}
	}
	known, moved := 0, 0
	o := Quick()
	o.Spec = features.V12
	doc := fitted(t, Bundled(t), o)
	for _, m := range append([]result.Model{doc.Beta}, doc.Alpha...) {
		for _, c := range m.Coefficients {
			if (c.CI95 == nil) != (c.Estimate == nil) || (c.CI95 == nil) != (c.EstimateCI95 == nil) {
				t.Errorf("%s %s: got %v, estimate %v in %v, want all or none", m.Name, c.Name, c.CI95, c.Estimate, c.EstimateCI95)
				continue
			}
			if c.CI95 != nil {
				known++
				inside(m.Name+" "+c.Name, c.Value, c.CI95)
				inside(m.Name+" "+c.Name+" estimate", *c.Estimate, c.EstimateCI95)
				if *c.CI95 != *c.EstimateCI95 {
					moved++
				}
			}
		}
	}
	if known == 0 || moved == known {
		t.Errorf("got %d intervals, %d of them reaching to a value outside", known, moved)
	}

	o.Prior = PriorLibrary
	o.AlphaTargets = []string{}
	o.Library = func(*deploy.Deployment) (*coeff.Set, error) { return priorOf(&doc.Beta), nil }
	known = 0
	for _, c := range fitted(t, Bundled(t), o).Beta.Coefficients {
		if c.Estimate != nil || c.EstimateCI95 != nil || c.CI95 == nil {
			t.Errorf("with a prior: %s: got %v, estimate %v", c.Name, c.CI95, c.Estimate)
			continue
		}
		known++
		inside("with a prior "+c.Name, c.Value, c.CI95)
	}
	if known != len(doc.Beta.Coefficients) {
		t.Errorf("with a prior: got %d intervals of %d terms", known, len(doc.Beta.Coefficients))
	}
}

// priorOf is a set about the values of a fit, each with half of it as standard deviation.
func priorOf(m *result.Model) *coeff.Set {
	set := &coeff.Set{SpecVersion: features.V12}
	for j, c := range m.Coefficients {
		set.Beta = append(set.Beta, coeff.Coefficient{Name: c.Name, Unit: c.Unit, Value: c.Value})
		row := make([]float64, len(m.Coefficients))
		row[j] = c.Value * c.Value / 4
		set.Covariance = append(set.Covariance, row)
	}
	return set
}

// No request of the bundled recordings is preempted: gamma is the default and said to be not identified.
func TestGammaOfBundledRuns(t *testing.T) {
	o := stepsOnly()
	m := &fitted(t, Bundled(t), o).Beta
	if *m.GammaIdentified || *m.GammaEMA != features.DefaultGamma {
		t.Errorf("got gamma %g, identified %v, want the default and false", *m.GammaEMA, *m.GammaIdentified)
	}
}

// The covered region is the most that was recorded, outside what the fit left out; without
// requests of the engine, that of its clients.
func TestCovered(t *testing.T) {
	some := trace.Some[int64]
	run := &trace.Run{Steps: []trace.Step{{TsStartNs: 10, RunningDepth: 7}, {TsStartNs: 20, RunningDepth: 90}}}
	for i := range int64(60) {
		r := trace.Request{ArrivedNs: some(i * 1e9), Success: trace.Some(true), PromptTokens: some(100 + i), OutputTokens: some(5)}
		if i >= 50 { // a burst: the last 51 gaps are a tenth as long
			r.ArrivedNs = some(50e9 + (i-50)*1e8)
		}
		run.Requests = append(run.Requests, r)
	}
	run.Requests[59].Success = trace.Some(false)
	got := coveredBy(run, []rows.Span{{StartNs: 15, EndNs: 30}}, false)
	if got.Running != 7 || got.PromptTokens != 158 || got.OutputTokens != 5 {
		t.Errorf("got %+v, want 7 running outside the span, a finished prompt of 158, outputs of 5", got)
	}
	if want := 50 / 41.9; got.RequestsPerS == nil || *got.RequestsPerS < want*0.999 || *got.RequestsPerS > want*1.001 {
		t.Errorf("rate: got %v, want %g/s over the 50 gaps that took the least time", *got.RequestsPerS, want)
	}
	if got := coveredBy(run, nil, true); got.RequestsPerS != nil || got.Running != 90 {
		t.Errorf("sampled: got %+v, want no rate", got)
	}
	run.Requests = nil
	run.Observed = []trace.ObservedRequest{{SendNs: some(1), Success: trace.Some(true), PromptTokens: some(9), OutputTokens: some(3)}}
	got = coveredBy(run, nil, false)
	if got.PromptTokens != 9 || got.OutputTokens != 3 || got.RequestsPerS != nil {
		t.Errorf("clients: got %+v", got)
	}
	// The clients of an engine that logs passes are counted once, so the rate is theirs.
	ofClients := &trace.Run{Aggregate: &trace.Aggregate{OffsetNs: some(0)}}
	for i := range int64(60) {
		ofClients.Observed = append(ofClients.Observed, trace.ObservedRequest{SendNs: some(i * 1e9)})
	}
	if got := coveredBy(ofClients, nil, false); got.RequestsPerS == nil || *got.RequestsPerS != 1 {
		t.Errorf("clients of a logged engine: got %+v, want a request each second", got)
	}
	rate := 2.0
	sum := Cover(got, &result.Covered{Running: 3, RequestsPerS: &rate, PromptTokens: 1, OutputTokens: 40})
	if sum.Running != 90 || sum.PromptTokens != 9 || sum.OutputTokens != 40 || *sum.RequestsPerS != 2 {
		t.Errorf("union: got %+v", sum)
	}
}

// TestWarningsNameTheirModel: the terms of the delays are those of several models, and every model has a lambda, so that
// a warning about either begins with the name of its model.
func TestWarningsNameTheirModel(t *testing.T) {
	o := Quick()
	o.Without = []string{"cpu-gqa-low"} // a short recording has warnings of every model
	doc := fitted(t, Bundled(t), o)
	ofDelays := 0
	for _, m := range doc.Alpha {
		for _, w := range m.Warnings {
			if ofDelays++; !strings.HasPrefix(w.Message, m.Name+": ") {
				t.Errorf("%s: got %q, want its name first", m.Name, w.Message)
			}
		}
	}
	if ofDelays == 0 {
		t.Error("got no warning about a delay")
	}
	atEdge := []trace.Finding{{Code: AtLimit, Message: "lambda 1 is an end of its grid 1e-06..1"}}
	if got := ofModel("beta", atEdge); len(got) != 1 || got[0].Message != "beta: lambda 1 is an end of its grid 1e-06..1" {
		t.Errorf("got %v", got)
	}
	for _, m := range append([]result.Model{doc.Beta}, doc.Models...) {
		for _, w := range m.Warnings {
			if strings.Contains(w.Message, "end of its grid") && !strings.HasPrefix(w.Message, m.Name+": lambda ") {
				t.Errorf("%s: got %q, want its name first", m.Name, w.Message)
			}
		}
	}
}
