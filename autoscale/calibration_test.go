package autoscale

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

const docs = "../docs"

func formatsPtr(v float64) *float64 { return &v }

// example is a queue.json of a flavour with numbers that do not round.
func example(f Flavour) *Queue {
	s := QueueServer{
		ID:          "h100",
		Source:      "sweep",
		Model:       "meta-llama/Llama-3.1-8B",
		Accelerator: "H100",
		AccCount:    2,
		Limits:      Limits{MaxBatch: 128, Queue: 1280, MaxBatchedTokens: 8192},
		Load: &queueLoad{
			RateRPS:      3,
			PromptTokens: 512,
			OutputTokens: 127.6,
			TTFTMs:       41.3,
			ITLMs:        8.7,
		},
		Noise: &queueNoise{TTFTResidual: formatsPtr(0.04), ITLResidual: formatsPtr(0.02)},
		Points: []queueOperating{
			{
				Name:         "a",
				RateRPS:      1.5,
				PromptTokens: 512,
				OutputTokens: 128,
				TTFTMs:       40,
				ITLMs:        8,
			}, {
				Name:         "b",
				RateRPS:      2.5,
				PromptTokens: 1024,
				OutputTokens: 64,
				TTFTMs:       60,
				ITLMs:        9,
			},
		},
		Tracks: []queueTrack{{Estimator: "sliding", Flavour: string(f)}, {Estimator: "robust", MeanNIS: formatsPtr(1.9)}},
		Sizing: &QueueSizing{TargetTTFTMs: 500, TargetITLMs: 40},
	}
	values := []float64{6.621754782151419, 0.02039241961647948, 5.418995871597606e-05, 1.0 / 3000}
	for i, name := range f.Parameters() {
		s.Effective = append(s.Effective, queueParameter{
			Name:       name,
			Value:      values[i],
			Identified: "measured",
		})
		s.Tracks[0].Drift = append(s.Tracks[0].Drift, 0.01)
		row := make([]float64, len(f.Parameters()))
		row[i] = 1e-5 * values[i]
		s.Covar = append(s.Covar, row)
	}
	return &Queue{Flavour: string(f), Servers: []QueueServer{s}}
}

// wordsOf are the options of a format with its defaults, a namespace and a service class; words change them.
func wordsOf(f export.Format, words ...string) *queueOptions {
	for _, s := range SettingsOf(f) {
		switch s.Key {
		case "namespace":
			words = append([]string{"namespace=llm"}, words...)
		case "slo-class-name":
			words = append([]string{"slo-class-name=premium"}, words...)
		}
	}
	s, err := export.ParseSettings(f, SettingsOf(f), words)
	if err != nil {
		panic(err)
	}
	return &queueOptions{Settings: s, format: f}
}

// contractFile is one row of the contract.
type contractFile struct {
	Format   export.Format `yaml:"format"`
	Consumer string        `yaml:"consumer"`
	Since    string        `yaml:"since"`
	Until    string        `yaml:"until"`
	Flavours []Flavour     `yaml:"flavours"`
	Schema   string        `yaml:"schema"`
}

func contract(t *testing.T) []contractFile {
	t.Helper()
	data := repo.Read(t, docs, "contracts", "autoscaler.yaml")
	var c struct {
		Files []contractFile `yaml:"files"`
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	return c.Files
}

// TestContract: the table that exports go by is the contract's.
func TestContract(t *testing.T) {
	files := contract(t)
	ofQueue := slices.DeleteFunc(slices.Clone(readers), func(r reader) bool { return r.Flavours == nil }) // others are of a fit alone
	if len(files) != len(ofQueue) || len(Formats) != len(ofQueue) {
		t.Fatalf("got %d files, %d readers, %d formats", len(files), len(ofQueue), len(Formats))
	}
	for i, f := range files {
		r := ofQueue[i]
		if f.Format != r.Format || f.Consumer != r.Consumer || f.Since != r.Since || f.Until != r.Until ||
			!slices.Equal(f.Flavours, r.Flavours) || Formats[i] != r.Format {
			t.Errorf("the contract says %+v, the code %+v", f, r)
		}
	}
}

// checkSchema validates YAML or JSON documents against a schema; anything else must not pass.
func checkSchema(t *testing.T, schema string, data []byte) {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(filepath.Join(docs, "schema", schema))
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	n := 0
	for ; ; n++ {
		var doc any
		if err := dec.Decode(&doc); err != nil {
			break
		}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v\n%s", schema, err, data)
		}
		if m, ok := v.(map[string]any); ok {
			m["surprise"] = true
			if s.Validate(m) == nil {
				t.Errorf("%s accepts a key that its reader does not know", schema)
			}
		}
	}
	if n == 0 {
		t.Errorf("%s: no document in\n%s", schema, data)
	}
}

// TestExportsFollowTheContract: every format in every flavour its reader has, against its schema.
func TestExportsFollowTheContract(t *testing.T) {
	for _, f := range contract(t) {
		for _, flavour := range flavours {
			out, _, err := calibrationFile(example(flavour), wordsOf(f.Format))
			if !slices.Contains(f.Flavours, flavour) {
				if trace.CodeOf(err) != unknownFormat {
					t.Errorf("%s with %s: got %v, want %s", f.Format, flavour, err, unknownFormat)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s with %s: %v", f.Format, flavour, err)
				continue
			}
			schema := f.Schema
			checkSchema(t, schema, out)
			if again, _, err := calibrationFile(example(flavour), wordsOf(f.Format)); err != nil || !bytes.Equal(again, out) {
				t.Errorf("%s: other bytes the second time", f.Format)
			}
		}
	}
}

// TestRoundTrip: what a reader parses is the number that was fitted, bit for bit.
func TestRoundTrip(t *testing.T) {
	want := func(f Flavour) []float64 {
		var x []float64
		for _, p := range example(f).Servers[0].Effective {
			x = append(x, p.Value)
		}
		return x
	}
	render := func(f Flavour, format export.Format, words ...string) []byte {
		out, _, err := calibrationFile(example(f), wordsOf(format, words...))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	same := func(what string, got, want []float64) {
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	var va variantAutoscaling
	dec := yaml.NewDecoder(bytes.NewReader(render(wvA4P, QueueWVA4P, "version=v0.4.2", "unit-cost=412.5")))
	dec.KnownFields(true)
	if err := dec.Decode(&va); err != nil {
		t.Fatal(err)
	}
	p := va.Spec.Profile.Accelerators[0].PerfParms
	var got []float64
	for _, text := range []string{p.Decode["alpha"], p.Decode["beta"], p.Prefill["gamma"], p.Prefill["delta"]} {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	same("wva-4p", got, want(wvA4P))
	if va.Spec.SLOClassRef != nil || va.Spec.VariantCost != "825" {
		t.Errorf("v0.4.2 has no sloClassRef and a cost per replica: got %+v", va.Spec)
	}
	if text := render(wvA4P, QueueWVA4P, "unit-cost=412.5"); !bytes.Contains(text, []byte("variantCost: \"825\"")) {
		t.Errorf("a unit cost without a version is not written:\n%s", text)
	}
	for version, missing := range map[string]int{"": 1, "v0.0.4": 0, "v0.0.5": 1} {
		text, warnings, err := calibrationFile(example(wvA4P), wordsOf(QueueWVA4P, "version="+version))
		said := bytes.Count(text, []byte("spec.variantCost (cents per replica and hour) is missing"))
		if err != nil || said != missing || len(warnings) != missing {
			t.Errorf("%q without a price: got %d comments and warnings %v (%v), want %d", version, said, warnings, err, missing)
		}
	}
	_, _, err := calibrationFile(example(wvA4P), wordsOf(QueueWVA4P, "unit-cost=412.5", "version=v0.0.4"))
	if trace.CodeOf(err) != export.BadEntry {
		t.Errorf("a unit cost for a version without one: got %v, want it refused", err)
	}
	for _, key := range []string{"perfParms", "serviceParms"} {
		var models struct{ Models []modelEntry }
		if err := json.Unmarshal(render(inferno3P, InfernoModels, "key="+key), &models); err != nil {
			t.Fatal(err)
		}
		m := models.Models[0]
		q := m.PerfParms
		if key == "serviceParms" {
			q = m.ServiceParms
		}
		same(key, []float64{q.Alpha, q.Beta, q.Gamma}, want(inferno3P))
	}
	var c configData
	if err := json.Unmarshal(render(wvA3P, TunerConfig), &c); err != nil {
		t.Fatal(err)
	}
	same("tuner-config", c.Model.InitState, want(wvA3P))
	if got := c.Filter.ErrorLevel / c.Filter.TPercentile; math.Abs(got/(1.4826*0.04)-1) > 1e-12 ||
		math.Abs(c.Model.PercentChange[0]/(1.4826*0.01)-1) > 1e-12 {
		t.Errorf("noise %g and drift %v, want the measured ones", got, c.Model.PercentChange)
	}
	var specs []serverSpec
	if err := json.Unmarshal(render(corrected, TunerCalibrate), &specs); err != nil {
		t.Fatal(err)
	}
	if l := specs[1].CurrentAlloc.Load; l.ArrivalRate != 150 || l.AvgInTokens != 1024 {
		t.Errorf("got %+v, want 150 requests per minute of 1024 tokens", l)
	}
	var m configMap
	if err := yaml.Unmarshal(render(corrected, wvaSLO), &m); err != nil {
		t.Fatal(err)
	}
	for _, text := range m.Data {
		checkSchema(t, "autoscaler/wva-slo-entry.schema.json", []byte(text))
	}
	var e sloEntry
	if err := yaml.Unmarshal([]byte(m.Data["blis-train-llama-3.1-8b"]), &e); err != nil || e.TTFT != 500 || e.ITL != 40 {
		t.Errorf("got %+v, %v, want the targets of the sizing", e, err)
	}
}

// TestVersions: a reader that has lost the file is named with the reason.
func TestVersions(t *testing.T) {
	for version, gone := range map[string]bool{"": false, "v0.0.1": false, "v0.4.2": false, "0.4.2": false, "v0.5.0": true,
		"v0.5.0-rc.1": true, "v0.10.0": true, "v1.0": true} {
		_, _, err := calibrationFile(example(wvA4P), wordsOf(QueueWVA4P, "version="+version))
		if gone != (trace.CodeOf(err) == unknownFormat) || gone && !strings.Contains(err.Error(), "v0.5.0 removed spec.modelProfile") {
			t.Errorf("%q: got %v, want a refusal with the reason: %t", version, err, gone)
		}
	}
	if _, _, err := calibrationFile(example(wvA4P), wordsOf(QueueWVA4P, "version=main")); trace.CodeOf(err) != unknownFormat {
		t.Errorf("main: got %v", err)
	}
}

func TestRefusals(t *testing.T) {
	q := example(inferno3P)
	q.Servers = append(q.Servers, q.Servers[0])
	q.Servers[1].ID = "again"
	if _, _, err := calibrationFile(q, wordsOf(InfernoModels)); trace.CodeOf(err) != export.BadEntry {
		t.Errorf("two entries of one key: got %v", err)
	}
	o := wordsOf(InfernoModels)
	o.config = "again"
	if _, _, err := calibrationFile(q, o); err != nil {
		t.Error(err)
	}
	q = example(inferno3P)
	q.Servers[0].Effective = nil
	if _, _, err := calibrationFile(q, wordsOf(InfernoModels)); trace.CodeOf(err) != export.NothingToExport {
		t.Errorf("no parameters: got %v", err)
	}
	q = example(inferno3P)
	q.Servers[0].Accelerator = ""
	if _, _, err := calibrationFile(q, wordsOf(InfernoModels)); trace.CodeOf(err) != export.NothingToExport {
		t.Errorf("no accelerator: got %v", err)
	}
	q = example(inferno3P)
	q.Servers[0].Sizing = nil
	if _, _, err := calibrationFile(q, wordsOf(wvaSLO, "ttft-ms=500")); trace.CodeOf(err) != export.NothingToExport {
		t.Errorf("one target alone: got %v", err)
	}
}

func ptr(v float64) *float64 { return &v }

func calibration() *Queue {
	return &Queue{
		Header:  result.Header{Command: "queue fit --flavour corrected"},
		Flavour: "corrected",
		Servers: []QueueServer{
			{
				ID: "a<b>",
				Effective: []queueParameter{{
					Name:       "alpha",
					Unit:       "ms/iteration",
					Value:      6.6,
					CI95:       &[2]float64{6.5, 6.7},
					Identified: "held",
					Shift:      ptr(1.25),
				}},
				Windows: queueAccount{Read: 9, Kept: 7, Dropped: map[string]int{"few_requests": 2}},
				Scores: []queueScore{
					{
						Estimator: "effective",
						Set:       "train",
						Windows:   5,
						TTFTWape:  ptr(0.11),
						ITLWape:   ptr(0.05),
					}, {
						Estimator: "effective",
						Set:       "hold_out",
						Windows:   2,
						TTFTWape:  ptr(0.17),
						ITLWape:   ptr(0.08),
					},
				},
				Identify: &queueIdentify{
					Rank:  2,
					Null:  []queueDirection{{Names: []string{"alpha", "gamma"}}},
					Sweep: []queuePoint{{PromptTokens: 512, OutputTokens: 128, RateRPS: 2}},
				},
				Tracks: []queueTrack{{
					Estimator: "replica:wva",
					Flavour:   "wva-3p",
					Final:     []float64{1, 2, 3},
					LockedOut: 5,
					Verdict:   "locked out",
				}},
				Sizing: &QueueSizing{RateRPS: 3.5, Binding: "itl"},
			},
			{ID: "b", Reason: "saturated: queue_rising_r2 0.97"},
		},
		Plan: &QueuePlan{Servers: []queueGiven{{Name: "chat", Accelerator: "H100", Replicas: 2}}, Cost: 800},
	}
}

// TestPage: every part of the document is on the page, escaped, and the same the second time.
func TestPage(t *testing.T) {
	one, _, err := Page(calibration())
	two, _, again := Page(calibration())
	if err != nil || again != nil || !bytes.Equal(one, two) {
		t.Fatalf("other bytes the second time, or %v", err)
	}
	page := string(one)
	for _, want := range []string{"1 of 2 servers have effective parameters", "saturated: queue_rising_r2", "a&lt;b&gt;", "held", "6.5 to 6.7",
		"few_requests", "alpha with gamma", "512/128 at 2/s",
		"17.0", "locked out", "replica:wva", "800", "blis-train queue fit --flavour corrected"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "a<b>") {
		t.Error("a server's name is not escaped")
	}
	if _, _, err := Page(&Queue{}); err != nil {
		t.Errorf("an empty document: %v", err)
	}
}

// TestSimulatedModel: the line's terms in the keys of vLLM's simulated model (02b4cb9), of one engine.
func TestSimulatedModel(t *testing.T) {
	one := modelEntry{PerfParms: &parms{8, 0.04, 3e-5}}
	got, err := simulatedModel([]modelEntry{one})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Latency struct {
			Type    string   `json:"type"`
			Base    *float64 `json:"base_ms"`
			Prefill *float64 `json:"prefill_ms_per_token"`
			Decode  *float64 `json:"decode_ms_per_seq"`
			Context *float64 `json:"ctx_ms_per_ktoken"`
			Is      *bool    `json:"deterministic_length"`
		} `json:"latency"`
	}
	dec := json.NewDecoder(bytes.NewReader(got))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	// 1,000 prompt tokens beside 10 decodes of 2,000 tokens each, ms: 8 + 40 + 0.4 + 0.6
	l := doc.Latency
	if ms := *l.Base + *l.Prefill*1000 + *l.Decode*10 + *l.Context*20; l.Type != "linear" || !*l.Is || math.Abs(ms-49) > 1e-9 {
		t.Errorf("got %s: a step of %g ms", got, ms)
	}
	if _, err := simulatedModel([]modelEntry{one, one}); trace.CodeOf(err) != export.BadEntry {
		t.Errorf("two configurations: %v", err)
	}
}
