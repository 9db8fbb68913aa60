package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Everything of the artifact is there, in order, and passes the loader's check.
func TestNative(t *testing.T) {
	yes := true
	val := &result.Validation{Gates: []result.Gate{
		{Gate: coeff.Gate{Name: "beta_mape", Scope: "c1", Value: testkit.Ptr(0.05), Op: "<", Threshold: 0.15, Pass: &yes}},
		{Gate: coeff.Gate{Name: "ks_ttft", Scope: "run-a", Op: "<", Threshold: 0.15, Note: "insufficient data"}},
	}}
	doc := testkit.PhysicsFit()
	twice := trace.Findingf("lag_assumed", "run-c: lag 1 assumed")
	doc.Warnings, doc.Beta.Warnings = []trace.Finding{twice}, []trace.Finding{twice, trace.Findingf("drift", "x")}
	set, err := fit.Native(doc, val)
	if err != nil {
		t.Fatal(err)
	}
	if set.SpecVersion != features.V11 || set.BetaTarget != "cadence" || set.Command != "fit --seed 1" || set.Inputs[0].SHA256 != "ab" {
		t.Errorf("head: %s %s %q %v", set.SpecVersion, set.BetaTarget, set.Command, set.Inputs)
	}
	want := coeff.TrainedOn{Models: []string{"meta-llama/Llama-3.1-8B"}, Hardware: []string{"H100-SXM-80GB"}, TPs: []int64{1, 2},
		VLLMVersions: []string{"0.15.1"},
		Date:         "2026-02-17", Samples: 80, Lambda: 1e-4, Gamma: 0.3, HoldOutRMSE: map[string]float64{"cadence": 321.5}}
	if d := cmp.Diff(want, set.TrainedOn); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"egress", "overhead"}, set.AlphaTargets()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]coeff.RunLag{"run-a": {Measured: true}, "run-c": {Lag: 1}}, set.PipelineLag); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]float64{"a": 1.1, "b": 0.9}, set.HardwareFactors); d != "" {
		t.Error(d)
	}
	if len(set.Gates) != 2 || set.Gates[1].Pass != nil || set.Gates[0].Threshold != 0.15 {
		t.Errorf("gates %+v", set.Gates)
	}
	if len(set.Warnings) != 2 {
		t.Errorf("warnings %v: want each once", set.Warnings)
	}
	if len(set.Configs) != 2 || set.Configs[0].Samples != 75 || set.Configs[0].Deployment.Name != "" {
		t.Errorf("configs %+v", set.Configs)
	}
}

// Writing and reading back is exact, and the same set gives the same bytes.
func TestNativeRoundTrip(t *testing.T) {
	set, err := fit.Native(testkit.PhysicsFit(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := set.Save(&first); err != nil {
		t.Fatal(err)
	}
	back, err := coeff.Load(bytes.NewReader(first.Bytes()), "c.yaml", features.CheckSet)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(set, back, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	if err := back.Save(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("saved twice, %d and %d bytes differ (%v)", first.Len(), second.Len(), err)
	}
}

// A target that contains a wait is never marked for replay, whatever the fit says.
func TestNativeReplay(t *testing.T) {
	doc := testkit.PhysicsFit()
	doc.Alpha[1].Target = "admission"
	doc.Alpha[1].Replay = true
	set, err := fit.Native(doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	if set.AlphaModel("admission").Replay || !set.AlphaModel("overhead").Replay {
		t.Error("replay marks follow the fit, not the target")
	}
}

// Names out of order, a wrong length, NaN and an unknown version cannot be written, each with its
// own message.
func TestNativeRefuses(t *testing.T) {
	messages := map[string]bool{}
	for name, edit := range map[string]func(*result.Fit){
		"order":   func(f *result.Fit) { c := f.Beta.Coefficients; c[0], c[1] = c[1], c[0] },
		"length":  func(f *result.Fit) { f.Beta.Coefficients = f.Beta.Coefficients[1:] },
		"NaN":     func(f *result.Fit) { f.Beta.Coefficients[3].Value = math.NaN() },
		"version": func(f *result.Fit) { f.Beta.SpecVersion = "2.0" },
	} {
		doc := testkit.PhysicsFit()
		edit(doc)
		_, err := fit.Native(doc, nil)
		if trace.CodeOf(err) == "" || messages[err.Error()] {
			t.Errorf("%s: got %v, want an error with a code and a message of its own", name, err)
			continue
		}
		messages[err.Error()] = true
	}
}

// TestCheckInputs: a recorded input is verified, changed or absent, and a name that leaves the folder
// is not followed.
func TestCheckInputs(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) string {
		repo.Write(t, text, path)
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	same := write(filepath.Join(dir, "run", "run.yaml"), "a: 1\n")
	outside := write(filepath.Join(parent, "outside"), "x")
	now := write(filepath.Join(dir, "run", "traces.jsonl"), "{}\n")
	got, found, err := CheckInputs([]coeff.Input{{Name: "run/run.yaml", SHA256: same}, {Name: "run/./run.yaml", SHA256: same}, {Name: "run/traces.jsonl", SHA256: same},
		{Name: "run/gone", SHA256: same}, {Name: "run", SHA256: same}, {Name: "../outside", SHA256: outside}}, dir)
	if err != nil || got != (Inputs{Verified: 2, Changed: 1, Absent: 3}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	want := fmt.Sprintf("%s: sha256 %.12s, the coefficients were made from %.12s", filepath.Join(dir, "run", "traces.jsonl"), now, same)
	if len(found) != 1 || found[0].Code != inputChanged || found[0].Message != want {
		t.Errorf("got %v, want %s", found, want)
	}
}

// tracedRequest is one line of a TraceV2 workload.
type tracedRequest struct{ arrivalUs, prompt, output int64 }

// tracedWorkload is Poisson arrivals with bursts of equal stamps.
func tracedWorkload(n int, meanGapUs float64) []tracedRequest {
	rng := rand.New(rand.NewSource(7))
	reqs := make([]tracedRequest, n)
	at := int64(0)
	for i := range reqs {
		if rng.Intn(5) > 0 {
			at += int64(rng.ExpFloat64() * meanGapUs)
		}
		reqs[i] = tracedRequest{at, 1 + rng.Int63n(3000), 1 + rng.Int63n(120)}
	}
	return reqs
}

// writeTraceV2 writes the workload as a header and a CSV.
func writeTraceV2(t *testing.T, dir string, reqs []tracedRequest) {
	t.Helper()
	var b strings.Builder
	b.WriteString("request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens," +
		"output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens," +
		"arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason\n")
	for i, r := range reqs {
		fmt.Fprintf(&b, "%d,c,,standard,,0,,0,true,%d,%d,%d,0,0,0,0,,0,0,%d,0,0,0,0,ok,,\n", i, r.prompt, r.output, r.prompt, r.arrivalUs)
	}
	for name, text := range map[string]string{"TRACE.csv": b.String(), "TRACE.yaml": "trace_version: 2\ntime_unit: us\nmode: " +
		"generated\nwarm_up_requests: 0\n"} {
		repo.Write(t, text, dir, name)
	}
}

// hfConfig is the deployment's model as the Hugging Face file BLIS reads.
func hfConfig(t *testing.T, d deploy.Deployment) []byte {
	t.Helper()
	m := d.Model
	b, err := json.Marshal(map[string]any{
		"model_type": m.ModelType, "architectures": []string{"LlamaForCausalLM"}, "hidden_act": "silu", "num_hidden_layers": m.NumLayers,
		"hidden_size":         m.HiddenSize,
		"num_attention_heads": m.NumHeads, "num_key_value_heads": m.NumKVHeads, "intermediate_size": m.IntermediateSize,
		"vocab_size":  m.VocabSize,
		"torch_dtype": "bfloat16", "max_position_embeddings": 131072, "tie_word_embeddings": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// blisResult is one entry of blis replay's results.
type blisResult struct {
	ID           int     `json:"request_id"`
	TTFTUs       float64 `json:"ttft_us"`
	E2EUs        float64 `json:"e2e_us"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
}

// blisReplay runs one command line of the sidecar in dir and returns the
// results and what it said on stderr.
func blisReplay(t *testing.T, blis, dir, line string) ([]blisResult, string) {
	t.Helper()
	words := strings.Fields(line)
	cmd := exec.Command(blis, words[1:]...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("%s\n%v\n%s\n%s", line, err, out, stderr.Bytes())
	}
	data := repo.Read(t, dir, "results.json")
	var res []blisResult
	if err := json.Unmarshal(data, &res); err != nil {
		t.Fatal(err)
	}
	return res, stderr.String()
}

// With a blis binary on PATH, `blis replay` loads the exported file and the flags line without a
// warning, both give the same results, and every request's TTFT and E2E equal those of our
// trained-physics simulation (the one difference there is, overlap, is checked for its exact size).
func TestBLISReplay(t *testing.T) {
	blis := repo.BLIS(t)
	for _, tc := range []struct {
		name   string
		config int
		gapUs  float64
		blocks int64
	}{
		{"low load", 0, 400_000, 20_000},
		{"busy", 0, 60_000, 20_000},
		{"tp 2", 1, 40_000, 20_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := exampleSource()
			src.Fit.Configs = src.Fit.Configs[tc.config : tc.config+1]
			d := &src.Fit.Configs[0].Deployment
			d.Engine.KVBlocksGPU.V = tc.blocks
			out := mustExport(t, src, FormatBLIS, forced())
			dir := blisFolder(t, out, d)
			reqs := tracedWorkload(300, tc.gapUs)
			writeTraceV2(t, dir, reqs)
			var side Sidecar
			if err := result.Read(fileOf(t, out, SidecarSuffix), &side); err != nil {
				t.Fatal(err)
			}
			fromFile, said := blisReplay(t, blis, dir, side.Configs[0].DefaultsCommandLine)
			if said != "" {
				t.Errorf("blis replay with the file says: %s", said)
			}
			// Without coefficients in the file only the flags can supply them.
			repo.Write(t, "version: none\n", dir, "FILE")
			fromFlags, said := blisReplay(t, blis, dir, side.Configs[0].CommandLine)
			if said != "" {
				t.Errorf("blis replay with the flags says: %s", said)
			}
			for i := range fromFile {
				if i >= len(fromFlags) || fromFile[i] != fromFlags[i] {
					t.Fatalf("request %d: file and flags give different results", i)
				}
			}
			compareWithBLIS(t, d, src, reqs, fromFile)
		})
	}
}

// stepLog keeps what the comparison needs of every step.
type stepLog struct{ steps []loggedStep }

type loggedStep struct {
	start, end int64
	waiting    int64
	members    []int
}

func (l *stepLog) Step(v *sim.StepView) {
	s := loggedStep{start: v.StartUs, end: v.EndUs, waiting: v.Waiting}
	for _, m := range v.Members {
		s.members = append(s.members, m.Request)
	}
	l.steps = append(l.steps, s)
}

func (l *stepLog) Event(*sim.Event) {}

// overlap is a request that reaches the engine during the step in which all
// that was running finishes. BLIS accounts for a finish when the step begins,
// finds its engine empty and starts the request at once, while the last step is
// still executing; we start it at the step's end, as vLLM does. Both then keep
// different batches until the engine is next idle.
type overlap struct {
	first       int   // request
	earlyUs     int64 // how much earlier BLIS starts it
	from, until int64 // requests enqueued in between are affected
}

func overlaps(log *stepLog, res *sim.Result) []overlap {
	var out []overlap
	for k, s := range log.steps {
		if !drains(s, res) {
			continue
		}
		for i := range res.Requests {
			at := res.Requests[i].EnqueuedUs.V
			if at <= s.start || at >= s.end {
				continue
			}
			o := overlap{first: i, earlyUs: s.end - at, from: at, until: math.MaxInt64}
			for _, later := range log.steps[k+1:] {
				if drains(later, res) && !enqueuedDuring(later, res) {
					o.until = later.end
					break
				}
			}
			out = append(out, o)
			break
		}
	}
	return out
}

// drains reports whether nothing is left when the step ends.
func drains(s loggedStep, res *sim.Result) bool {
	if s.waiting > 0 || len(s.members) == 0 {
		return false
	}
	for _, m := range s.members {
		if res.Requests[m].FinishedUs.V != s.end {
			return false
		}
	}
	return true
}

func enqueuedDuring(s loggedStep, res *sim.Result) bool {
	for i := range res.Requests {
		if at := res.Requests[i].EnqueuedUs.V; at > s.start && at < s.end {
			return true
		}
	}
	return false
}

// compareWithBLIS simulates the same requests with the same coefficients: every
// request must agree to the microsecond, but for those in an overlap, whose
// first request must be early in BLIS by exactly the rest of the running step.
func compareWithBLIS(t *testing.T, d *deploy.Deployment, src Source, reqs []tracedRequest, want []blisResult) {
	t.Helper()
	alpha, err := blisAlphas(src.Fit, nil)
	if err != nil {
		t.Fatal(err)
	}
	entries, _, err := blisEntries(src, forced(), src.Fit.Configs)
	if err != nil {
		t.Fatal(err)
	}
	res, log := simulateBLIS(t, d, numbers(alpha), entries[0].beta, reqs)
	if len(want) != len(reqs) {
		t.Fatalf("blis answered %d of %d requests", len(want), len(reqs))
	}
	early := overlaps(log, res)
	equal, explained := 0, 0
	for _, w := range want {
		q := &res.Requests[w.ID]
		ttft, okA := q.TTFTUs()
		e2e, okB := q.E2EUs()
		if !okA || !okB {
			t.Fatalf("request %d finished in blis only", w.ID)
		}
		if ttft == w.TTFTUs && e2e == w.E2EUs {
			equal++
			continue
		}
		if affected(early, w.ID, ttft-w.TTFTUs, q.EnqueuedUs.V) {
			explained++
			continue
		}
		t.Errorf("request %d at %d us (%d + %d tokens): TTFT %g us, blis %g; E2E %g us, blis %g", w.ID, reqs[w.ID].arrivalUs, w.InputTokens,
			w.OutputTokens, ttft, w.TTFTUs, e2e, w.E2EUs)
	}
	t.Logf("%d requests: %d equal to the microsecond, %d in an overlap of BLIS (%d overlaps)", len(want), equal, explained, len(early))
	if 20*explained > len(want) {
		t.Errorf("%d of %d requests are in overlaps: that explains too much", explained, len(want))
	}
}

func affected(early []overlap, id int, lateUs float64, enqueued int64) bool {
	for _, o := range early {
		if id == o.first {
			return lateUs == float64(o.earlyUs)
		}
		if enqueued >= o.from && enqueued <= o.until {
			return true
		}
	}
	return false
}

func exampleSource() Source {
	return Source{
		Fit: testkit.ExampleFit(), FitInput: result.Input{Name: "fit.json", Bytes: 1234, SHA256: "cafe"},
		Step: func(d deploy.Deployment) (StepTimer, error) { return affine{2000, 8 / float64(d.TP), 0.02}, nil },
		Loads: func(deploy.Deployment, []float64, float64, float64, ConsumerModel) (*OnLoads, error) {
			return &OnLoads{Points: []LoadPoint{
				{LoadFrac: 0.3, RateRPS: 2, TTFTMs: 40, ITLMs: 9, E2EMs: 900, TTFTRatio: 1.02, ITLRatio: 1.01, E2ERatio: 1.01},
				{LoadFrac: 0.8, RateRPS: 5, TTFTMs: 90, ITLMs: 18, E2EMs: 1900, TTFTRatio: 0.95, ITLRatio: 0.96, E2ERatio: 0.93}}}, nil
		},
	}
}

// affine is a step time that is exactly the consumers' line: base us, us per
// computed token, us per KV token read.
type affine struct{ base, computed, read float64 }

func (a affine) StepUs(batch []trace.Chunk) (float64, error) {
	us := a.base
	for _, c := range batch {
		us += a.computed*float64(c.New) + a.read*float64(c.Computed+c.New)
	}
	return us, nil
}

func mustExport(t *testing.T, src Source, f Format, opt Options) *Output {
	t.Helper()
	out, err := Export(src, writerOf(f), opt)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func writerOf(f Format) Writer {
	for _, w := range Writers() {
		if w.Format == f {
			return w
		}
	}
	panic(f)
}

func fileOf(t *testing.T, out *Output, suffix string) []byte {
	t.Helper()
	for _, f := range out.Files {
		if f.Suffix == suffix {
			return f.Data
		}
	}
	t.Fatalf("no file with suffix %q", suffix)
	return nil
}
