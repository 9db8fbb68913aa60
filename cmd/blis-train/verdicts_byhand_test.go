package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/shard"
	"github.com/blis-train/blis-train/trace"
)

// called returns what a call of the program prints and its exit status.
func called(args ...string) (code int, stdout, stderr string) {
	var out, err strings.Builder
	code = run(append([]string{"blis-train"}, args...), strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// judgedGate is a gate of the step time with a result.
func judgedGate(name, scope string, value, threshold float64) result.Gate {
	pass := value < threshold
	return result.Gate{Gate: coeff.Gate{Name: name, Scope: scope, Op: "<", Value: &value, Threshold: threshold, Pass: &pass}, Required: true}
}

// TestEndsOfValidations: the last line of each verdict, and which flags accept it.
func TestEndsOfValidations(t *testing.T) {
	open := judgedGate("ks_ttft", "run", 0, 0.15)
	open.Pass, open.Note = nil, "few"
	failed := []result.Gate{judgedGate("beta_mape", "a", 0.2, 0.15), judgedGate("beta_mape", "b", 0.3, 0.15), judgedGate("bias", "a", 0.01, 0.03), judgedGate("ks_itl", "a", 0.4, 0.15), open}
	loosened := []trace.Finding{{Code: gate.Loosened}, {Code: "other"}, {Code: gate.Loosened}}
	for _, c := range []struct {
		verdict  string
		gates    []result.Gate
		warnings []trace.Finding
		flags    string
		err      string
		printed  string
	}{
		{coeff.VerdictPass, nil, nil, "", "", "verdict for steps: pass\n"}, {coeff.VerdictPass, nil, loosened, "", "", "verdict for steps: pass, 2 of them loosened\n"},
		{coeff.VerdictFail, failed, nil, "", "verdict for steps: fail: 3 gates failed (beta_mape in 2 scopes, the first 20.0 %, want < 15 %; ks_itl 0.400, want < 0.15)", ""},
		{coeff.VerdictFail, failed[:1], nil, "allow-insufficient", "verdict for steps: fail: 1 gate failed (beta_mape 20.0 %, want < 15 %)", ""},
		{coeff.VerdictFail, failed[:1], nil, "ignore-verdict", "", "verdict for steps: fail: 1 gate failed (beta_mape 20.0 %, want < 15 %)\n"},
		{coeff.VerdictInsufficient, failed, nil, "", "verdict for steps: insufficient: ks_ttft of run: few", ""}, {coeff.VerdictInsufficient, failed, nil, "allow-insufficient", "", "verdict for steps: insufficient: ks_ttft of run: few\n"},
		{coeff.VerdictNotApplicable, nil, nil, "", "", "verdict for steps: not applicable: these data have nothing to decide it by\n"}, {coeff.VerdictNotApplicable, nil, nil, "for", "verdict for steps: not applicable: these data have nothing to decide it by", ""},
	} {
		set := flag.NewFlagSet("", flag.ContinueOnError)
		set.Bool("allow-insufficient", c.flags == "allow-insufficient", "")
		set.Bool("ignore-verdict", c.flags == "ignore-verdict", "")
		set.String("for", map[bool]string{true: "steps"}[c.flags == "for"], "")
		p := newPaper()
		err := verdictError(cli.NewContext(nil, set, nil), p.console, &result.Validation{For: "steps", Verdict: c.verdict, Gates: c.gates, Warnings: c.warnings})
		if text(err) != c.err || p.err.String() != c.printed || err != nil && !errors.As(err, new(*pipeline.VerdictError)) {
			t.Errorf("%s with --%s: got %v and %q, want %q and %q", c.verdict, c.flags, err, p.err.String(), c.err, c.printed)
		}
	}
	var many []result.Gate
	for i := range 6 {
		many = append(many, judgedGate(fmt.Sprint("g", i), "a", 2, 1))
	}
	if n, sentences := failedGates(many); n != 6 || strings.Join(sentences, "; ") != "g0 2, want < 1; g1 2, want < 1; g2 2, want < 1; g3 2, want < 1; and 2 more" {
		t.Errorf("got %d, %q", n, sentences)
	}
	if n, sentences := failedGates(many[:4]); n != 4 || len(sentences) != 4 {
		t.Errorf("got %d, %q", n, sentences)
	}
	lines := diagnosisLines(&result.Validation{Diagnoses: []result.Diagnosis{{Scope: "a", Sentence: "x"}, {Scope: "b", Sentence: "x"}, {Scope: "c", Sentence: "y"}}})
	if !slices.Equal(lines, []string{"a: x", "c: y"}) {
		t.Errorf("got %q", lines)
	}
}

// TestStagesOfARun: what the stages get of the console: thresholds of a file unless a flag states them, and how their documents
// are printed.
func TestStagesOfARun(t *testing.T) {
	p := newPaper()
	p.special = true
	p.settings = settings{gates: map[string]float64{"beta_mape": 0.5, "bias": 0.25}, record: &result.Config{File: result.Input{Name: "keys.yaml"}}}
	o := pipeline.DefaultRunOptions()
	o.Validate.SetThreshold("bias", 0.125, "--gate")
	p.reportStages(cli.NewContext(&cli.App{Writer: &p.out}, flag.NewFlagSet("", flag.ContinueOnError), &cli.Context{Context: context.Background()}), &o, "out")
	if v := &o.Validate; v.Thresholds["beta_mape"] != 0.5 || v.Thresholds["bias"] != 0.125 || v.ThresholdsFrom["beta_mape"] != "keys.yaml" || v.ThresholdsFrom["bias"] != "--gate" || !v.Special || v.Config != p.settings.record || v.Progress == nil || v.Warn == nil || v.Changed == nil {
		t.Errorf("got %+v", v)
	}
	if o.Fit.Progress == nil || !o.Extract.Special || o.Extract.Warn == nil {
		t.Errorf("got %+v", o.Extract)
	}
	o.Validate.Changed(&result.Changes{Against: "old"})
	if p.changes == nil || p.changes.Against != "old" {
		t.Errorf("got %+v", p.changes)
	}
	p.changes = nil
	fit := &result.Fit{Runs: []result.FitRun{{Used: true}, {}}, Options: result.FitOptions{Prior: "old.yaml"}, Beta: result.Model{SpecVersion: "1.1", Lambda: testkit.Ptr(0.0321)}, Configs: make([]result.FitConfig, 1)}
	o.Done(fit)
	if got := p.err.String(); got != "fit: 1 of 2 runs, 1 configuration, prior old.yaml, lambda 0.032\n" {
		t.Errorf("got %q", got)
	}
	p.err.Reset()
	val := &result.Validation{For: "steps", Verdict: coeff.VerdictPass, Configs: []result.ConfigErrors{{Scope: "cfg"}}}
	o.Done(val)
	if got := p.err.String(); got != "next: use `out/coefficients.yaml`, or `blis-train export` for BLIS and autoscalers.\nreport: out/report.html\n" && got != "next: use out/coefficients.yaml, or blis-train export for BLIS and autoscalers.\nreport: out/report.html\n" {
		t.Errorf("got %q", got)
	}
	if !strings.Contains(p.out.String(), "cfg: no purpose could be validated\n") {
		t.Errorf("got %q", p.out.String())
	}
	// A server's model in words, and a model that cannot be read.
	p = newPaper()
	m, err := model.LoadBuiltIn(model.Options{ID: "Qwen/Qwen3-8B"})
	if got := p.describeModel(m, err); got == nil || got.ID == "" || p.err.String() != "model: gqa:36 layers, 8.19 B parameters, 7.57 B active, 16.4 GB of weights\n" {
		t.Errorf("got %v, %q", got, p.err.String())
	}
	p.err.Reset()
	if got := p.describeModel(m, trace.Errorf("bad_model", "x")); got != nil || !strings.HasPrefix(p.err.String(), "warning: ") {
		t.Errorf("got %v, %q", got, p.err.String())
	}
	for name, want := range map[string]string{"H100-SXM-80GB": "H100", "L4-24GB": "L4", "mine": "mine", "my-own": "my-own"} {
		if got := shortGPU(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	for args, want := range map[string]bool{"fit --json": true, "fit --json=true": true, "fit --json=false": false, "fit": false} {
		if got := wantsJSON(strings.Fields(args)); got != want {
			t.Errorf("%s: got %v", args, got)
		}
	}
	t.Setenv("BLIS_TRAIN_JSON", "1")
	if !wantsJSON(nil) {
		t.Error("the environment asks for JSON")
	}
}

// TestSharesOfTasks: number I of N does every N-th task of a list, from the I-th on.
func TestSharesOfTasks(t *testing.T) {
	dir := t.TempDir()
	for i, id := range []string{"tables-0", "tables-1", "tables-2", "tables-3", "tables-4"} {
		repo.Write(t, id+"\n", filepath.Join(dir, fmt.Sprint(i)))
	}
	for share, want := range map[string]string{"0/1": "0 1 2 3 4", "0/2": "0 2 4", "1/2": "1 3", "4/5": "4", "6/7": ""} {
		ids, err := shareOf(dir, share)
		if got := strings.ReplaceAll(strings.Join(ids, " "), "tables-", ""); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", share, got, err, want)
		}
	}
	for _, share := range []string{"1/1", "-1/2", "x/2", "0/x", "0", "0/0"} {
		if _, err := shareOf(dir, share); text(err) != fmt.Sprintf("--share: got %q, want I/N with 0 <= I < N", share) {
			t.Errorf("%s: got %v", share, err)
		}
	}
	if _, err := shareOf(filepath.Join(dir, "none"), "0/1"); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "--tasks-dir: ") {
		t.Errorf("got %v", err)
	}
	repo.Write(t, "../x", filepath.Join(dir, "5"))
	if _, err := shareOf(dir, "0/5"); err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, "5")+": task_failed: ") {
		t.Errorf("got %v", err)
	}
	// What no pass needs is listed, and removed where that is asked for.
	job := shard.Job{Dir: t.TempDir()}
	task, err := shard.NewTask("double", "x", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Offer("double", []shard.Task{task}); err != nil {
		t.Fatal(err)
	}
	garbage := job.Folder(".half-x")
	if err := os.MkdirAll(garbage, 0o755); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := called("collect", job.Dir, "--gc"); code != exitOK || out != garbage+"\n" {
		t.Errorf("got %d, %q", code, out)
	}
	if code, out, _ := called("collect", job.Dir, "--gc", "--remove", "--json"); code != exitOK || !strings.Contains(out, `"`+garbage+`"`) {
		t.Errorf("got %d, %q", code, out)
	}
	if _, err := os.Stat(garbage); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if code, _, stderr := called("collect", job.Dir, "--remove"); code != exitUsage || !strings.Contains(stderr, "--remove: goes with --gc only") {
		t.Errorf("got %d, %q", code, stderr)
	}
}

// TestDocumentsOfCommands: keys of the documents that short commands print.
func TestDocumentsOfCommands(t *testing.T) {
	root := repo.Root(t)
	example := filepath.Join(root, "coeff", "testdata", "example", "coefficients.yaml")
	smoke := filepath.Join(root, "testdata", "traces", "smoke")
	keysOf := func(args ...string) map[string]any {
		t.Helper()
		_, out, stderr := called(append(args, "--json")...)
		doc := map[string]any{}
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatalf("%v: %v: %s%s", args, err, out, stderr)
		}
		return doc
	}
	doc := keysOf("check", example, "--against", smoke)
	if doc["against"] != smoke || doc["compatible"] != true || doc["spec_version"] != "1.0" || doc["replayable"] != true {
		t.Errorf("got %v", doc)
	}
	if doc = keysOf("check", example); doc["against"] != nil || doc["compatible"] != true || len(doc["mismatches"].([]any)) != 0 || doc["file"].(map[string]any)["name"] != "coefficients.yaml" {
		t.Errorf("got %v", doc)
	}
	doc = keysOf("init", "--from-cmdline", "vllm serve org/dense --max-model-len 4096", "--hardware", "H100")
	if !strings.Contains(doc["run_yaml"].(string), "max_model_len: 4096") || len(doc["missing"].([]any)) == 0 {
		t.Errorf("got %v", doc)
	}
	if doc = keysOf("extract", smoke, "--dry-run"); len(doc["runs"].([]any)) != 1 {
		t.Errorf("got %v", doc)
	}
	if doc = keysOf("version"); !strings.HasPrefix(doc["version"].(string), "0.") {
		t.Errorf("got %v", doc)
	}
	for _, args := range [][]string{{"validate", "--gate", "list"}, {"run", "--gate", "list"}} {
		code, out, _ := called(append(args, "--json")...)
		if code != exitOK || strings.Count(out, `"name": "beta_mape"`) != 1 {
			t.Errorf("%v: got %d", args, code)
		}
		code, out, stderr := called(args...)
		if code != exitOK || !strings.Contains(out, "beta_mape") || !strings.Contains(stderr, "#gate-beta-mape") {
			t.Errorf("%v: got %d, %s", args, code, stderr)
		}
	}
	// A ledger with lines that are none: three of them are named, and the last two entries have a trend.
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.jsonl")
	lines := "{\n[]\n1\nx\ny\n"
	for _, e := range *documentOf[[]export.Entry](ledger) {
		for range 2 {
			e.SchemaVersion, e.Headline.BetaMAPE = result.SchemaVersion, testkit.Ptr(0.25)
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			lines += string(line) + "\n"
		}
	}
	repo.Write(t, lines, path)
	if doc = keysOf("log", path); len(doc["entries"].([]any)) != 4 || len(doc["bad_lines"].([]any)) != 5 || len(doc["trends"].([]any)) == 0 {
		t.Errorf("got %v", doc)
	}
	for args, want := range map[string]int{"--last 3": 3, "--last 4": 4, "--last 9": 4, "--stage fit": 2, "--stage run --last 1": 1, "--stage validate": 0} {
		if doc = keysOf(append([]string{"log", path}, strings.Fields(args)...)...); len(doc["entries"].([]any)) != want {
			t.Errorf("%s: got %v", args, doc["entries"])
		}
	}
	if _, _, stderr := called("log", path); strings.Count(stderr, "warning: ") != 4 || !strings.HasSuffix(stderr, "warning: "+path+": 2 more lines are no ledger entries\n") {
		t.Errorf("got %s", stderr)
	}
	repo.Write(t, "x\n", path)
	if code, _, stderr := called("log", path); code != exitFailed || !strings.Contains(stderr, path+": no entry") || !strings.Contains(stderr, "hint: blis-train fit OUT --ledger "+path+" appends one") {
		t.Errorf("got %d, %s", code, stderr)
	}
	// The recorded command of a sizing, and a plan that has no room.
	queue := filepath.Join(dir, "queue.json")
	const parameters = `[{"name": "alpha", "value": 8}, {"name": "beta", "value": 0.05}, {"name": "gamma", "value": 0.0001}]`
	repo.Write(t, `{"schema_version": "1", "flavour": "inferno-3p", "servers": [{"id": "a", "model": "m", "accelerator": "H100", "acc_count": 1, "limits": {"max_batch": 64, "queue": 640, "max_batched_tokens": 2048}, "effective": `+parameters+`,
		"load": {"rate_rps": 1, "prompt_tokens": 200, "output_tokens": 60}}]}`, queue)
	for args, want := range map[string]string{
		"--itl-ms 40 --ttft-ms 500":                                   "queue size --itl-ms 40 --output-tokens 0 --prompt-tokens 0 --seed 1 --simulate 0 --tps 0 --ttft-ms 500",
		"--tps 100 --emulate --prompt-tokens 512 --output-tokens 128": "queue size --itl-ms 0 --output-tokens 128 --prompt-tokens 512 --seed 1 --simulate 0 --tps 100 --ttft-ms 0 --emulate",
		"--itl-ms 40 --concurrency 32":                                "queue size --itl-ms 40 --output-tokens 0 --prompt-tokens 0 --seed 1 --simulate 0 --tps 0 --ttft-ms 0 --concurrency 32",
	} {
		code, out, stderr := called(append([]string{"queue", "size", queue, "-o", filepath.Join(dir, "out"), "--json"}, strings.Fields(args)...)...)
		doc := &autoscale.Queue{}
		if err := json.Unmarshal([]byte(out), doc); err != nil || code != exitOK || doc.Command != want || len(doc.Inputs) != 1 || doc.Inputs[0].Name != "queue.json" || doc.Servers[0].Sizing == nil {
			t.Errorf("%s: got %d, %q, %v, %s", args, code, doc.Command, err, stderr)
		}
	}
	fleet := filepath.Join(dir, "fleet.yaml")
	repo.Write(t, "capacity: {H100: 1}\nunit_cost: {H100: 400}\nservers: [{name: one, model: m, rate_rps: 1, itl_ms: 40}, {name: big, model: m, rate_rps: 1000, itl_ms: 40, priority: 2}]\n", fleet)
	code, _, stderr := called("queue", "allocate", queue, fleet, "-o", filepath.Join(dir, "out"), "--quiet")
	if code != exitOK || !strings.Contains(stderr, "warning: greedy plan: no capacity for big\n") || !strings.Contains(stderr, "warning: optimum plan: no capacity for big\n") {
		t.Errorf("got %d, %s", code, stderr)
	}
	// A file of options: lists, groups, and the key that was probably meant.
	keys := filepath.Join(dir, "keys.yaml")
	for yaml, want := range map[string]string{
		"fit: {bootstraps: 7, without: [a, b]}\nvalidate: {seed: 3}\n": keys + " sets --bootstraps 7 --without a --without b\n", "fit: {bootstrap: 7}\n": "error: " + keys + `:1:18: fit: unknown option "bootstrap"` + "\nhint: did you mean \"bootstraps\"?\n",
		"fit: {bootstraps: x}\n": "error: " + keys + `:1:19: fit: bootstraps: --bootstraps: got "x", want a whole number` + "\n", "fitt: {}\n": "error: " + keys + `:1:1: unknown key "fitt"` + "\nhint: did you mean fit?\n", "fit: {bootstraps: 9223372036854775807}\n": "--bootstraps: got 9223372036854775807, want at most 100000",
	} {
		repo.Write(t, yaml, keys)
		if _, _, stderr := called("fit", filepath.Join(dir, "none"), "--config", keys); !strings.Contains(stderr, want) {
			t.Errorf("%s: got %s, want %s", yaml, stderr, want)
		}
	}
	repo.Write(t, "fit: {bootstraps: 7}\n", keys)
	if _, _, stderr := called("fit", filepath.Join(dir, "none"), "--config", keys, "--bootstraps", "9"); strings.Contains(stderr, "sets") {
		t.Errorf("a flag takes precedence: got %s", stderr)
	}
}
