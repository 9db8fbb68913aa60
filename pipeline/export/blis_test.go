package export

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"gopkg.in/yaml.v3"
)

func forced() Options {
	o := Options{}
	for _, name := range forceable {
		o.Force += string(name) + ","
	}
	return o
}

// The positions written are the positions the fit solves for.
func TestBLISTermsAreTheBasis(t *testing.T) {
	if len(blisBetaTerms) != len(features.TrainedPhysicsBeta()) || len(blisAlphaTerms) != 3 {
		t.Fatalf("got %d beta and %d alpha, want %d and 3", len(blisBetaTerms), len(blisAlphaTerms), len(features.TrainedPhysicsBeta()))
	}
	for i, term := range blisBetaTerms {
		if want := features.TrainedPhysicsBeta()[i]; term.Name != want.Name || term.Units != want.Unit {
			t.Errorf("position %d: got %s %s, basis has %s %s", i, term.Name, term.Units, want.Name, want.Unit)
		}
	}
	if blisBetaTerms[blisAllReduce].Name != "tp_allreduce_attention" || blisBetaTerms[blisMoEDispatch].Name != "moe_dispatch_alltoall" {
		t.Error("the named positions moved")
	}
}

// Every configuration has a file of its own beside the joint one, 3 alpha and 11 beta that a decoder
// as strict as BLIS's reads back, and a command line with the same numbers.
func TestBLISDefaultsRoundTrip(t *testing.T) {
	src := exampleSource()
	src.Fit.Beta.SpecVersion = "1.1"
	src.Fit.FeatureSet.Hash = "f00d"
	src.Library = "2026-01"
	src.Judged = &result.PurposeVerdict{PurposeVerdict: coeff.PurposeVerdict{Verdict: coeff.VerdictPass, Purpose: coeff.PurposeReplay, Scope: "c"}}
	overhead := src.Fit.AlphaNamed(coeff.Overhead) // of c2 alone: 100 rows at 900 us, 300 at 1100
	for run, rows := range []int{100, 300} {
		overhead.AlphaRuns = append(overhead.AlphaRuns, result.AlphaRun{Run: "r", Config: src.Fit.Configs[1].Key,
			Interval: &result.IntervalErrors{Rows: rows, MedianPredUs: testkit.Ptr(float64(900 + 200*run))}})
	}
	out := mustExport(t, src, FormatBLIS, forced())
	var side Sidecar
	if err := result.Read(fileOf(t, out, SidecarSuffix), &side); err != nil {
		t.Fatal(err)
	}
	if *side.SpecVersion != "1.1" || *side.FeatureHash != "f00d" || *side.Purpose != "replay" || *side.Scope != "c" || side.Verdict != "pass" ||
		*side.Library != "2026-01" || side.Configs[0].Seats != 64 {
		t.Errorf("sidecar: spec %q %q, purpose %q, verdict %q, library %q, seats %d", *side.SpecVersion, *side.FeatureHash, *side.Purpose,
			side.Verdict, *side.Library, side.Configs[0].Seats)
	}
	if len(side.Values) != 3*3+3*11 || len(side.Configs) != 2 || side.Inputs[0].SHA256 != "cafe" || len(out.Projections) != 2 {
		t.Fatalf("sidecar: %d values, %d configs, inputs %v", len(side.Values), len(side.Configs), side.Inputs)
	}
	for i, suffix := range []string{"", ".llama-3.1-8b-h100-sxm-80gb-tp1.yaml", ".llama-3.1-8b-h100-sxm-80gb-tp2.yaml"} {
		var doc struct {
			Version string `yaml:"version"`
			Coeffs  struct {
				Alpha []float64 `yaml:"alpha_coeffs"`
				Beta  []float64 `yaml:"beta_coeffs"`
			} `yaml:"trained_physics_coefficients"`
		}
		dec := yaml.NewDecoder(bytes.NewReader(fileOf(t, out, suffix)))
		dec.KnownFields(true)
		if err := dec.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		alpha := []float64{1800.25, 250.5, 0}
		if i == 2 {
			alpha[0] = 1050 // the configuration's own
		}
		if doc.Version == "" || !slices.Equal(doc.Coeffs.Alpha, alpha) || len(doc.Coeffs.Beta) != 11 {
			t.Errorf("%q: version %q alpha %v, %d betas: want a0 from overhead, a1 from egress, a2 0: %v", suffix, doc.Version,
				doc.Coeffs.Alpha, len(doc.Coeffs.Beta), alpha)
		}
		if doc.Coeffs.Beta[blisMoEDispatch] != doc.Coeffs.Beta[blisAllReduce] {
			t.Errorf("%q: dispatch %g, want the all-reduce's %g", suffix, doc.Coeffs.Beta[blisMoEDispatch], doc.Coeffs.Beta[blisAllReduce])
		}
		if i == 0 {
			continue
		}
		c := side.Configs[i-1]
		for _, part := range []string{"--alpha-coeffs " + joined(alpha) + " --beta-coeffs " +
			joined(doc.Coeffs.Beta) + " ", "--total-kv-blocks 4000",
			"--horizon 9007199254740992 --cache-signal-delay 0 ", "--defaults-filepath FILE" + suffix + " "} {
			if !strings.Contains(c.CommandLine, part) {
				t.Errorf("%s: no %q in %q", c.Label, part, c.CommandLine)
			}
		}
		if len(c.Projection) != 4 || !(*c.Projection[0].MAPE <= blisLimits.MAPE) || len(c.Loads) != 2 {
			t.Errorf("%s: projection %+v", c.Label, c.Projection)
		}
	}
}

// bent is a model that no straight line follows: one step in two takes ten times as long.
type bent struct{}

func (bent) StepUs(batch []trace.Chunk) (float64, error) {
	if len(batch)%4 < 2 {
		return 1000, nil
	}
	return 10000, nil
}

// quadratic is a model whose prompts cost the square of their length, which BLIS's terms have only
// beside a larger linear part.
type quadratic struct{}

func (quadratic) StepUs(batch []trace.Chunk) (float64, error) {
	us := 2000.0
	for _, c := range batch {
		us += float64(c.New*c.New) / 10
	}
	return us, nil
}

// seen is an affine model that says which of its terms a batch has.
type seen struct{ affine }

func (seen) Features() []float64 { return []float64{1, 0, 2} }

// What BLIS cannot be given is refused, each with its own code, and written only when that code is
// named.
func TestBLISDefaultsRefusals(t *testing.T) {
	terms := func(tags ...string) func(*Source) {
		return func(src *Source) {
			src.Step = func(deploy.Deployment) (StepTimer, error) { return seen{affine{2000, 8, 0.02}}, nil }
			for _, tag := range tags {
				c := result.Coefficient{Coefficient: coeff.Coefficient{Name: "term", Identified: tag}}
				if tag != coeff.PriorOnly {
					c.Value = 1
				}
				src.Fit.Beta.Coefficients = append(src.Fit.Beta.Coefficients, c)
			}
		}
	}
	for _, tc := range []struct {
		name string
		edit func(*Source)
		want trace.Code
		says string
	}{
		{"nothing wrong", func(*Source) {}, "", ""},
		{"a term the deployment never has", terms(coeff.Within, coeff.PriorOnly, coeff.Within), "", ""},
		{"a term it would use", terms(coeff.PriorOnly, coeff.Within, coeff.Within), unlearnedValue, "would use it"},
		{"no line", func(s *Source) {
			s.Step = func(deploy.Deployment) (StepTimer, error) { return bent{}, nil }
		}, PoorProjection, "want at most"},
		{"prompts too short together", func(s *Source) {
			s.Step = func(deploy.Deployment) (StepTimer, error) { return quadratic{}, nil }
		}, PoorProjection, "prefill batches -"},
		{"E2E off", func(s *Source) {
			s.Loads = func(deploy.Deployment, []float64, float64, float64, ConsumerModel) (*OnLoads, error) {
				return &OnLoads{Points: []LoadPoint{{LoadFrac: 0.8, TTFTRatio: 0.97, ITLRatio: 0.96, E2ERatio: 0.85}}}, nil
			}
		}, PoorProjection, "mean E2E 0.85 times the model's at 80 % load"},
		{"TTFT off", func(s *Source) {
			s.Loads = func(deploy.Deployment, []float64, float64, float64, ConsumerModel) (*OnLoads, error) {
				return &OnLoads{Points: []LoadPoint{{LoadFrac: 0.3, TTFTRatio: 1.11, ITLRatio: 1, E2ERatio: 1}}}, nil
			}
		}, PoorProjection, "mean TTFT 1.11 times the model's at 30 % load, want within 10 %"},
		{"ITL off", func(s *Source) {
			s.Loads = func(deploy.Deployment, []float64, float64, float64, ConsumerModel) (*OnLoads, error) {
				return &OnLoads{Points: []LoadPoint{{LoadFrac: 0.6, TTFTRatio: 1, ITLRatio: 0.94, E2ERatio: 0.97}}}, nil
			}
		}, PoorProjection, "mean ITL 0.94 times the model's at 60 % load, want within 5 %"},
		{"nothing to simulate with", func(s *Source) { s.Loads = nil }, NothingToExport, "no coefficients to simulate with"},
		{"no overhead", func(s *Source) { s.Fit.Alpha = s.Fit.Alpha[:1] }, unlearnedValue, "TTFT lacks the API overhead"},
		{"a waiting target", func(s *Source) { s.Fit.Alpha[1].Replay = false }, NothingToExport, "may not be added as a delay"},
	} {
		src := exampleSource()
		tc.edit(&src)
		_, err := Export(src, writerOf(FormatBLIS), Options{})
		if got := trace.CodeOf(err); got != tc.want {
			t.Errorf("%s: got code %q (%v), want %q", tc.name, got, err, tc.want)
			continue
		}
		if err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %q does not say %q", tc.name, err, tc.says)
		}
		if !slices.Contains(forceable, tc.want) {
			continue
		}
		opt := Options{}
		opt.Force = string(tc.want)
		out, err := Export(src, writerOf(FormatBLIS), opt)
		if err != nil || !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == tc.want }) {
			t.Errorf("%s with --force %s: err %v, want a warning with the same code", tc.name, tc.want, err)
		}
		if opt.Force = string(impossibleValue); tc.want != impossibleValue {
			if _, err := Export(src, writerOf(FormatBLIS), opt); trace.CodeOf(err) != tc.want {
				t.Errorf("%s with another code forced: %v", tc.name, err)
			}
		}
	}
}

// The overhead and egress targets are the only sources of alphas (spec#delay-targets).
func TestBLISAlphaNeverFromQueue(t *testing.T) {
	src := exampleSource()
	for i := range src.Fit.Alpha {
		src.Fit.Alpha[i].Target = "queue"
		src.Fit.Alpha[i].Name = "queue"
	}
	_, err := Export(src, writerOf(FormatBLIS), Options{})
	if trace.CodeOf(err) != unlearnedValue {
		t.Errorf("got %v, want %s", err, unlearnedValue)
	}
}

func TestExportIsDeterministic(t *testing.T) {
	for _, f := range []Format{FormatBLIS, FormatRegistryHost} {
		a := mustExport(t, exampleSource(), f, forced())
		b := mustExport(t, exampleSource(), f, forced())
		for i := range a.Files {
			if !bytes.Equal(a.Files[i].Data, b.Files[i].Data) {
				t.Errorf("%s: file %q differs between two exports", f, a.Files[i].Suffix)
			}
		}
	}
}

func TestUnknownConfiguration(t *testing.T) {
	opt := forced()
	opt.Config = "nope"
	if _, err := Export(exampleSource(), writerOf(FormatBLIS), opt); trace.CodeOf(err) != NothingToExport {
		t.Errorf("configuration: %v", err)
	}
	opt.PromptTokens = -1
	if _, err := Export(exampleSource(), writerOf(FormatBLIS), opt); err == nil || !strings.Contains(err.Error(), "--prompt-tokens") {
		t.Errorf("lengths: %v", err)
	}
}

func TestValidationIsSaid(t *testing.T) {
	src := exampleSource()
	src.Judged = &result.PurposeVerdict{PurposeVerdict: coeff.PurposeVerdict{Verdict: coeff.VerdictFail}, Failed: []string{"ks_itl of run-a"}}
	out := mustExport(t, src, FormatBLIS, Options{})
	if out.Warnings[0].Code != notValidated || !strings.Contains(out.Warnings[0].Message, "ks_itl of run-a") {
		t.Errorf("got %v", out.Warnings[0])
	}
}

// The command for BLIS is pasted into a shell: a name stays one word.
func TestBLISCommandQuotesNames(t *testing.T) {
	d := testkit.ExampleFit().Configs[0].Deployment
	d.Model.ID = "a; touch x"
	d.Hardware.Name = "$(id)"
	got := blisCommand("", d, "--defaults-filepath FILE")
	if !strings.Contains(got, "--model 'a; touch x' ") || !strings.Contains(got, "--hardware '$(id)' ") {
		t.Errorf("got %s", got)
	}
}

// What the registry's validator takes, schema v0.2.2 (blis-schemas vocab/vocab.go and
// spec/coefficient/validate.go, blis-registry docs/reference/format.md@81bd9a6).
var (
	registryFields = []string{"value", "units", "method", "fitted", "scope", "ci95", "sources", "rationale", "copied_from"}
	registryUnits  = []string{"dimensionless", "us_per_layer", "us_per_request", "us_per_step", "us_per_token", "us_per_transfer",
		"bytes_per_us", "tokens"}
	registryMethods = []string{"measured", "vendor_spec", "literature", "copied", "assumed", "not_charged"}
	registryKinds   = []string{"discussion", "publication", "datasheet", "model", "vendor_doc"}
	registryRoles   = []string{"primary", "supporting", "upper_bound"}
)

// hostSource is a fit whose egress and overhead were learned, the overhead with a slope.
func hostSource() Source {
	src := exampleSource()
	term := func(name string, value float64) result.Coefficient {
		return result.Coefficient{Coefficient: coeff.Coefficient{Name: name, Value: value, Identified: coeff.Within,
			CI95: &[2]float64{0.5 * value, 1.5 * value}}}
	}
	for i, c := range src.Fit.Configs {
		src.Fit.Beta.Cells = append(src.Fit.Beta.Cells, result.Cell{Config: c.Key, Errors: result.Errors{Rows: 30 + i, MAPE: testkit.Ptr(0.03 + 0.01*float64(i))}})
	}
	src.Fit.Alpha[0].Coefficients = []result.Coefficient{term("base_bias", 200)}
	src.Fit.Alpha[1].Coefficients = []result.Coefficient{term("admission_compute", 40)}
	src.OverheadUs = func(d deploy.Deployment, tokens int64) (float64, error) {
		return 1500 + 0.4*float64(tokens)/float64(d.TP), nil
	}
	return src
}

// TestHostRegistry: egress and the slope of overhead, measured, each with interval, source and
// recordings, in a file that the registry's rules take.
func TestHostRegistry(t *testing.T) {
	out := mustExport(t, hostSource(), FormatRegistryHost, Options{})
	var doc struct {
		Kind         string                `yaml:"kind"`
		Name         string                `yaml:"name"`
		Coefficients []map[string]regEntry `yaml:"coefficients"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(fileOf(t, out, "")))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Kind != "CoefficientSet" || doc.Name != "cost-model-host-overheads" || len(doc.Coefficients) != 8 {
		t.Fatalf("kind %q, name %q, %d entries", doc.Kind, doc.Name, len(doc.Coefficients))
	}
	want := []struct {
		name          string
		value, lo, hi float64
		units         string
		tp            []int64
	}{{"host_completion", 250.5, 150.5, 350.5, "us_per_request", []int64{1}},
		{"host_admission_per_request", 1500, 0, 0, "us_per_request", []int64{1}},
		{"host_admission_per_token", 0.4, 0.2, 0.6, "us_per_token", []int64{1}},
		{"host_completion", 250.5, 150.5, 350.5, "us_per_request", []int64{2}},
		{"host_admission_per_request", 1500, 0, 0, "us_per_request", []int64{2}},
		{"host_admission_per_token", 0.2, 0.1, 0.3, "us_per_token", []int64{2}}}
	for i, tp := range []int64{1, 2} {
		if e := doc.Coefficients[4*i+3]["host_output_token"]; e.Value != 0 || e.Method != "not_charged" || e.Fitted ||
			e.Rationale == "" || !slices.Equal(e.Scope.TP, []int64{tp}) {
			t.Errorf("output token: %+v", e)
		}
	}
	doc.Coefficients = slices.Concat(doc.Coefficients[:3], doc.Coefficients[4:7])
	for i, w := range want {
		e, ok := doc.Coefficients[i][w.name]
		if w.hi == 0 { // without an interval
			w.lo = 1
			w.hi = 1
			e.CI95 = []float64{1, 1}
		}
		if !ok || len(e.CI95) != 2 || len(e.Sources) != 1 {
			t.Fatalf("entry %d: %+v", i, doc.Coefficients[i])
		}
		for _, d := range []float64{e.Value / w.value, e.CI95[0] / w.lo, e.CI95[1] / w.hi} {
			if d < 1-1e-9 || d > 1+1e-9 {
				t.Errorf("%s: %g in %v, want %g in %g to %g", w.name, e.Value, e.CI95, w.value, w.lo, w.hi)
			}
		}
		s := e.Sources[0]
		if e.Units != w.units || !slices.Contains(registryUnits, e.Units) || e.Method != "measured" ||
			!slices.Contains(registryMethods, e.Method) || !e.Fitted ||
			!slices.Contains(registryKinds, s.Kind) || !slices.Contains(registryRoles, s.Role) ||
			!slices.Equal(e.Scope.TP, w.tp) || !slices.Equal(e.Scope.Hardware, []string{"h100"}) {
			t.Errorf("%s: %+v", w.name, e)
		}
		if !strings.Contains(s.Cite, "fit.json sha256 cafe") || !strings.Contains(s.Cite, "recordings run-") {
			t.Errorf("%s: cites %q", w.name, s.Cite)
		}
	}
	var raw struct {
		Coefficients []map[string]map[string]any `yaml:"coefficients"`
	}
	if err := yaml.Unmarshal(fileOf(t, out, ""), &raw); err != nil {
		t.Fatal(err)
	}
	for _, entry := range raw.Coefficients {
		for name, fields := range entry {
			for k := range fields {
				if !slices.Contains(registryFields, k) {
					t.Errorf("%s: field %q is none of the schema's", name, k)
				}
			}
		}
	}
}

// TestHostRegistryRefuses parts outside the catalog and fits without egress; a flat overhead leaves
// its entry out and says so.
func TestHostRegistryRefuses(t *testing.T) {
	src := hostSource()
	src.Fit.Configs[0].Deployment.Hardware.Name = "xeon"
	if _, err := Export(src, writerOf(FormatRegistryHost), Options{}); trace.CodeOf(err) != BadEntry {
		t.Errorf("a part outside the catalog: %v", err)
	}
	src = hostSource()
	src.Fit.Alpha = src.Fit.Alpha[1:]
	if _, err := Export(src, writerOf(FormatRegistryHost), Options{}); trace.CodeOf(err) != unlearnedValue {
		t.Errorf("without egress: %v", err)
	}
	src = hostSource()
	src.Fit.Alpha[1].Coefficients[0].Value = 0
	out := mustExport(t, src, FormatRegistryHost, Options{})
	if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool {
		return f.Code == unlearnedValue && strings.Contains(f.Message, "does not grow")
	}) || bytes.Contains(fileOf(t, out, ""), []byte(hostAdmission)) {
		t.Errorf("a flat overhead: %v", out.Warnings)
	}
}

// TestWaitIsStated: the part of the delay before the queue that a simulator with asynchronous scheduling has already is stated in the
// file, as a number to take away, and the file of blis-defaults states that it is legacy.
func TestWaitIsStated(t *testing.T) {
	src := hostSource()
	src.Fit.Configs = src.Fit.Configs[:1]
	own := src.Fit.Configs[0]
	src.Fit.Configs[0].Deployment.Engine.MaxModelLen = trace.Some[int64](4096)
	src.Step = func(deploy.Deployment) (StepTimer, error) { return affine{9000, 30, 0.05}, nil }
	loads := src.Loads
	src.Loads = func(d deploy.Deployment, a []float64, p, o float64, m ConsumerModel) (*OnLoads, error) {
		on, err := loads(d, a, p, o, m)
		on.WaitUs = 1234.5
		return on, err
	}
	us, _, _ := src.Fit.MedianDelayUs(coeff.Overhead, &own)
	want := fmt.Sprintf("1234.5 us of it are the wait for the step that async scheduling has begun when a request arrives, which BLIS does not "+
		"model; a simulator with async scheduling, such as blis-train simulate, needs %.1f us", us)
	text := string(fileOf(t, mustExport(t, src, FormatBLIS, forced()), ""))
	head := "# " + defaultsLegacy + ".\n# alpha_coeffs[0]: " + want + ".\nversion: "
	if first := fmt.Sprintf("alpha_coeffs: [%g, ", us+1234.5); !strings.HasPrefix(text, head) || !strings.Contains(text, first) {
		t.Errorf("got\n%s\nwant the head\n%s\nand %s", text, head, first)
	}
	opt := forced()
	opt.Settings = Settings{"model": "llama-3.1-8b-instruct"}
	for _, f := range mustExport(t, src, FormatScenario, opt).Files {
		if strings.HasPrefix(f.Suffix, ".registry/") && !strings.Contains(strings.Join(strings.Fields(string(f.Data)), " "), want) {
			t.Errorf("%s does not state the wait", f.Suffix)
		}
	}
}

// TestBLISCatalog: from September 2026 on the command has --catalog, and the folder is written: model.yaml as the schema has it (strict;
// its name is the folder's), config.json read back as the sizes that were projected on.
func TestBLISCatalog(t *testing.T) {
	src := exampleSource()
	for i := range src.Fit.Configs { // a mixture with experts in every second layer
		m := &src.Fit.Configs[i].Deployment.Model
		m.NumExperts = 16
		m.TopK = 1
		m.MoEIntermediateSize = 8192
		m.NumMoELayers = m.NumLayers / 2
		m.SharedExpertSize = 0
	}
	opt := forced()
	opt.Settings = Settings{"version": blisCatalog}
	out := mustExport(t, src, FormatBLIS, opt)
	folder := ".catalog/models/llama-3.1-8b/"
	var card struct {
		Name   string `yaml:"name"`
		Source struct {
			Provider  string `yaml:"provider"`
			Repo      string `yaml:"repo"`
			Revision  string `yaml:"revision"`
			Retrieved string `yaml:"retrieved"`
		} `yaml:"source"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(fileOf(t, out, folder+"model.yaml")))
	dec.KnownFields(true)
	if err := dec.Decode(&card); err != nil || "/"+card.Name+"/" != strings.TrimPrefix(folder, ".catalog/models") ||
		card.Source.Provider == "" || card.Source.Repo == "" || card.Source.Revision == "" {
		t.Errorf("model.yaml: %+v, %v", card, err)
	}
	golden(t, "testdata/catalog.yaml", string(fileOf(t, out, folder+"model.yaml")))
	golden(t, "testdata/catalog.json", string(fileOf(t, out, folder+"config.json")))
	want := &src.Fit.Configs[0].Deployment.Model
	m, err := model.Load(bytes.NewReader(fileOf(t, out, folder+"config.json")), "config.json", model.Options{ID: want.ID,
		NumMLPProj: trace.Some[int64](3)})
	if err != nil {
		t.Fatal(err)
	}
	a, b := m.AsBLISReads(), want.AsBLISReads()
	for _, x := range [][2]int64{{a.NumMoELayers, b.NumMoELayers}, {a.NumExperts, b.NumExperts}, {a.TopK, b.TopK},
		{a.NumKVHeads, b.NumKVHeads},
		{a.MoEIntermediateSize, b.MoEIntermediateSize}, {a.IntermediateSize, b.IntermediateSize}, {a.SharedExpertSize, b.SharedExpertSize},
		{a.HiddenSize, b.HiddenSize}, {a.NumLayers, b.NumLayers}} {
		if x[0] != x[1] {
			t.Errorf("config.json: got %+v, want %+v", a, b)
			break
		}
	}
	for _, c := range sidecarOf(t, out).Configs {
		if !strings.Contains(c.CommandLine, "--model llama-3.1-8b --catalog FILE.catalog ") || strings.Contains(c.CommandLine, "config-folder") {
			t.Errorf("command: %s", c.CommandLine)
		}
	}
	src.Fit.Configs[0].Deployment.Model.NumMoELayers--
	if _, err := Export(src, writerOf(FormatBLIS), opt); trace.CodeOf(err) != BadEntry {
		t.Errorf("a layout that BLIS cannot read: %v", err)
	}
	opt.Settings = Settings{"version": "kernel"}
	if _, err := Export(src, writerOf(FormatBLIS), opt); trace.CodeOf(err) != NothingToExport {
		t.Errorf("kernel: %v", err)
	}
	golden(t, "testdata/host.yaml", string(fileOf(t, mustExport(t, hostSource(), FormatRegistryHost, Options{}), "")))
}

func sidecarOf(t *testing.T, out *Output) *Sidecar {
	t.Helper()
	side := &Sidecar{}
	if err := result.Read(fileOf(t, out, SidecarSuffix), side); err != nil {
		t.Fatal(err)
	}
	return side
}
