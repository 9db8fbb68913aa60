package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// oneByOne returns options of requests of 100 prompt tokens and 3 output tokens, one after another. A step takes 10 ms, 10 us
// for each token and 2 us for each KV token read; a request 2 ms before the engine and 1 ms behind it.
func oneByOne(t *testing.T, requests int) Options {
	o := onL4(t)
	o.Model, o.Beta, o.Async = "linear3", "10000, 10,2", "off"
	o.InputTokens, o.OutputTokens, o.Requests, o.Concurrency = 100, 3, requests, 1
	o.OverheadUs, o.EgressUs = testkit.Ptr(2000), testkit.Ptr(1000)
	return o
}

// TestOneRequest: the prompt's step reads 100 KV tokens and takes 10 + 1 + 0.2 = 11.2 ms, the decodes read 101 and 102: 10.212
// and 10.214 ms. The first token comes after 2 + 11.2 ms, and the request departs 1 ms after the last one. Behind each request
// the engine makes one empty step.
func TestOneRequest(t *testing.T) {
	o := oneByOne(t, 4)
	dir := filepath.Dir(o.Out)
	o.EventLog, o.EmitOTLP, o.EmitKVEvents = filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "traces.jsonl"), filepath.Join(dir, "kv.jsonl")
	doc, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"TTFT", *doc.Latency("ttft", "mean"), 13.2}, {"ITL", *doc.Latency("itl", "p50"), 10.213}, {"E2E", *doc.Latency("e2e", "p99"), 34.626},
		{"completed", float64(doc.CompletedRequests), 4}, {"output tokens", float64(doc.TotalOutputTokens), 12}, {"steps", float64(doc.Steps), 16},
		{"preemptions", float64(doc.PreemptionCount), 0},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: got %g, want %g", c.name, c.got, c.want)
		}
	}
	events := strings.Count(string(repo.Read(t, o.EventLog)), "\n")
	spans := string(repo.Read(t, o.EmitOTLP))
	kv := strings.Count(string(repo.Read(t, o.EmitKVEvents)), "BlockStored")
	if events == 0 || strings.Count(spans, "llm_core") != 4 || strings.Count(spans, "step.BATCH_SUMMARY") < 12 || kv == 0 {
		t.Errorf("got %d events, %d core spans, %d steps, %d KV events", events, strings.Count(spans, "llm_core"), strings.Count(spans, "step.BATCH_SUMMARY"), kv)
	}
	other := onL4(t)
	other.Model, other.Beta = "linear3", "1,2"
	other.InputTokens, other.OutputTokens, other.Requests, other.RateRPS = 10, 2, 1, 1
	for beta, want := range map[string]string{"1,2": "got 2 values, want 3", "1,x,2": `--beta-coeffs`, "1,-2,3": "got -2 us, want finite and >= 0"} {
		other.Beta = beta
		if _, err := Run(context.Background(), other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--beta-coeffs %s: got %v", beta, err)
		}
	}
}

// TestRecordedWorkload: the arrivals of a recording come from its folder, from its tables, and from the one run of an output
// folder; two runs are an error that names one of them.
func TestRecordedWorkload(t *testing.T) {
	smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	out := t.TempDir()
	found, err := extract.Discover([]string{smoke})
	if err != nil {
		t.Fatal(err)
	}
	eo := extract.DefaultOptions()
	eo.Out = out
	ext, err := extract.Run(context.Background(), found, eo)
	if err != nil {
		t.Fatal(err)
	}
	id := ext.Runs[0].ID
	for _, dir := range []string{smoke, out, table.RunDir(out, id)} {
		o := DefaultOptions()
		o.Deployment = smoke
		o.Out = t.TempDir()
		o.Workload = dir
		s, err := New(context.Background(), &o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.LoadWorkload(); err != nil {
			t.Fatal(err)
		}
		reqs, err := s.Requests(1)
		if err != nil {
			t.Fatal(err)
		}
		if len(reqs) != 20 {
			t.Errorf("%s: got %d requests", filepath.Base(dir), len(reqs))
		}
		if isFolder := dir == smoke; isFolder != slices.ContainsFunc(s.Inputs, func(in result.Input) bool { return strings.HasSuffix(in.Name, "traces.jsonl") }) {
			t.Errorf("%s: got the inputs %+v", filepath.Base(dir), s.Inputs)
		}
	}
	if err := os.CopyFS(filepath.Join(out, "tables", "run=other"), os.DirFS(table.RunDir(out, id))); err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Deployment, o.Out, o.Workload = smoke, t.TempDir(), out
	s, err := New(context.Background(), &o)
	if err == nil {
		err = s.LoadWorkload()
	}
	var misuse *option.Misuse
	if !errors.As(err, &misuse) || misuse.Msg != "--workload: "+out+" holds 2 runs, want one" || !strings.HasPrefix(misuse.Hint, "give one of them, such as "+filepath.Join(out, "tables", "run=")) {
		t.Errorf("two runs: got %v", err)
	}
}

// onH100 returns a deployment whose predictions were validated.
func onH100(t *testing.T) *deploy.Deployment {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.yaml")
	repo.Write(t, "model: {id: meta-llama/Llama-3.1-8B}\nhardware: {name: H100}\nvllm: {version: 0.15.1, max_num_seqs: 64, max_num_batched_tokens: 2048, max_model_len: 4096, kv_blocks_total_gpu: 9000}\n", path)
	d, err := deploy.LoadRunFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d.TP = 2
	return d
}

// TestPartsOfASimulation: copies do not share notes and inputs, parts that were not validated make the whole so, and a load
// beyond the server's capacity is stated.
func TestPartsOfASimulation(t *testing.T) {
	o := DefaultOptions()
	o.InputTokens, o.OutputTokens, o.Requests, o.RateRPS = 120, 12, 30, 2
	var said []string
	o.Say = func(s string) { said = append(said, s) }
	d := onH100(t)
	s, err := For(context.Background(), d, &o)
	if err != nil || s.LatencyModel != ModelTables || s.Trust == nil || s.Trust.Judged == nil || len(said) != 1 || !strings.HasPrefix(said[0], "step times: kernels of ") {
		t.Fatalf("got %+v, %q and %v", s, said, err)
	}
	if s.asked.InputTokens != 120 || s.asked.OutputTokens != 12 || s.asked.RateRPS != 2 || s.asked.Saturated {
		t.Errorf("got %+v", s.asked)
	}
	calm := s.Trust.Sentence
	s.MarkSaturated()
	loaded := s.Trust.Sentence
	s.MarkSaturated()
	if loaded == calm || s.Trust.Sentence != loaded || !s.asked.Saturated {
		t.Errorf("got %q, then %q", calm, s.Trust.Sentence)
	}
	(&Simulation{}).MarkSaturated()

	own := o
	own.RateRPS = 3
	s.Inputs = []result.Input{{Name: "a"}}
	s.notes = []trace.Finding{{Code: "x", Message: "one"}}
	copied := s.With(&own)
	copied.AddNotes([]trace.Finding{{Code: "x", Message: "one"}, {Code: "y", Message: "two"}})
	if copied.o.RateRPS != 3 || s.o.RateRPS != 2 || copied.Inputs != nil || len(copied.notes) != 2 || len(s.notes) != 1 {
		t.Errorf("got %+v and %+v", copied.notes, s.notes)
	}
	part := &Simulation{Inputs: []result.Input{{Name: "b"}}, notes: []trace.Finding{{Code: "z", Message: "three"}}, Trust: &Trust{Family: "other", Judged: s.Trust.Judged}}
	judged := s.Trust
	s.Join(part)
	if len(s.Inputs) != 2 || len(s.notes) != 2 || s.Trust != judged {
		t.Errorf("got %+v, %+v", s.Inputs, s.notes)
	}
	part.Trust.Judged = nil
	if s.Join(part); s.Trust != part.Trust {
		t.Error("the step times of a part were not validated")
	}
	for name, change := range map[string]func(o *Options){
		"pipeline stages": nil, "physics": func(o *Options) { o.Model = ModelPhysics },
	} {
		d := onH100(t)
		o := o
		if change != nil {
			change(&o)
		} else {
			d.PP = 2
		}
		s, err := For(context.Background(), d, &o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if name == "physics" && s.LatencyModel != ModelPhysics || change == nil && (s.Trust.Judged != nil || !slices.Contains(s.Step.Unjudged, name)) {
			t.Errorf("%s: got %s, %+v", name, s.LatencyModel, s.Trust)
		}
	}
	o.EmitOTLP = "x"
	two := onH100(t)
	two.DP = 2
	if _, err := For(context.Background(), two, &o); err == nil || !strings.Contains(err.Error(), "--emit-otlp: got 2 data-parallel ranks, want one engine") {
		t.Errorf("got %v", err)
	}
	two.Hardware.Name = "nothing"
	o.EmitOTLP = ""
	if s, err := For(context.Background(), two, &o); err == nil && s.LatencyModel == ModelTables {
		t.Errorf("a GPU without tables: got %s", s.LatencyModel)
	}
	if _, _, err := TablesFile(filepath.Join(t.TempDir(), "none"), false); err == nil {
		t.Error("a missing file of tables was read")
	}
}

// TestCoefficientsFor: the library's coefficients with a sentence of where they come from, and those of a file without one.
func TestCoefficientsFor(t *testing.T) {
	d := onH100(t)
	for _, path := range []string{"", LibraryWord} {
		set, in, sentence, err := CoefficientsFor(path, d, false)
		if err != nil || in.Name != "library" || in.Bytes == 0 || sentence != fmt.Sprintf("coefficients: library %s; %s", set.Library.Version, set.Library.Judged) {
			t.Errorf("%q: got %+v, %q and %v", path, in, sentence, err)
		}
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := testkit.PlantedOn(d).Save(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	set, in, sentence, err := CoefficientsFor(path, d, false)
	if err != nil || in.Name != "c.yaml" || sentence != "" || set.Beta[5].Value != 60000 {
		t.Errorf("got %+v, %q and %v", in, sentence, err)
	}
	o := oneByOne(t, 2)
	o.Model, o.Beta, o.Coefficients, o.OverheadUs = ModelAuto, "", path, nil
	doc, err := Run(context.Background(), o)
	if err != nil || doc.LatencyModel != ModelPhysics || len(doc.Warnings) == 0 {
		text, _ := json.Marshal(doc)
		t.Errorf("got %.300s and %v", text, err)
	}
	o.Noise = "residual"
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "the coefficient file holds no residual quantiles") {
		t.Errorf("got %v", err)
	}
}
