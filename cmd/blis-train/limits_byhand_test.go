package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestLimitsOfArguments: what each command refuses before any work, just beyond each limit. A value at the limit goes
// on to the next check, of a latency target without a meaning.
func TestLimitsOfArguments(t *testing.T) {
	const (
		predict = "predict --model qwen3-8b --hardware H100 "
		size    = "size --model qwen3-8b --hardware H100 "
		next    = `--slo: got "x"`
	)
	for _, c := range []struct{ args, want string }{
		{"predict --hardware H100", "predict: missing --model NAME or config.json"}, {"predict --model qwen3-8b", "predict: missing --hardware GPU, such as H100"},
		{predict + "tp=2", `predict: got argument "tp=2", want flags only, or axes after --sweep`},
		{predict + "--input-len 0", "--input-len, --output-len: got 0 and 200, want at least 1 and 2"}, {predict + "--input-len 1 --slo x", next},
		{predict + "--output-len 1", "--input-len, --output-len: got 1000 and 1, want at least 1 and 2"}, {predict + "--output-len 2 --slo x", next},
		{predict + "--rate 1 --concurrency 1", "--concurrency and --rate: got both, want one"},
		{predict + "--concurrency 0", "--concurrency, --rate: got 0 and 0, want 1 to 16384 clients, or a rate above 0 and below 1e6"}, {predict + "--concurrency 1 --slo x", next},
		{predict + "--concurrency 16385", "--concurrency, --rate: got 16385 and 0, want 1 to 16384"}, {predict + "--concurrency 16384 --slo x", next},
		{predict + "--rate 0", "--concurrency, --rate: got 0 and 0, want 1 to 16384"}, {predict + "--rate 1000000", "got 0 and 1e+06, want 1 to 16384"}, {predict + "--rate 999999.5 --slo x", next},
		{predict + "--rate x", `--rate: got "x", want a number of requests per second`}, {predict + "--concurrency 1.5", `--concurrency: got "1.5", want a whole number`},
		{predict + "--step 5", `--step: got "5", want NxCONTEXT, as in 32x1000, or N@CACHED, as in 512@1024`},
		{size + "x", `size: got argument "x", want flags only`}, {"size --hardware H100", "size: missing --model NAME or config.json"}, {"size --model qwen3-8b", "size: missing --hardware GPUS, such as H100,B200"},
		{size, "size: missing --slo TARGETS, such as ttft.p95=1s,tpot.mean=40ms"}, {size + "--slo x", "size: missing the load: --rate, --concurrency or --workload"},
		{size + "--slo x --rate 1 --concurrency 1", "--rate and --concurrency: got both, want one"},
		{size + "--slo x --concurrency 0", "--concurrency: got 0, want 1 to 65536 clients"}, {size + "--slo x --concurrency 65537", "--concurrency: got 65537, want 1 to 65536 clients"}, {size + "--slo x --concurrency 65536", next},
		{size + "--slo x --rate 1 --cached 1", "--cached: got 1, want a share from 0 to below 1"}, {size + "--slo x --rate 1 --cached -0.01", "--cached: got -0.01"}, {size + "--slo x --rate 1 --cached 0.99", next},
		{size + "--slo x --rate 1 --max-gpus 0", "--max-gpus: got 0, want 1 to 65536"}, {size + "--slo x --rate 1 --max-gpus 65536", next}, {size + "--slo x --rate 1 --max-gpus 1", next},
		{size + "--slo x --rate 1 --max-requests 2", "--max-requests: got 2, want at least 2 requests of a --workload"}, {size + "--slo x --workload w --max-requests 1", "--max-requests: got 1, want at least 2"}, {size + "--slo x --workload w --max-requests 2", next},
		{size + "--slo x --workload w --input-len 2", "--workload and --input-len, --output-len: got both, want one"}, {size + "--slo x --workload w --output-len 2", "--workload and --input-len"},
		{size + "--slo ttft=1s --rate 1 --tp 0", `--tp: got "0", want whole numbers of at least 1, such as 1,2,4`}, {size + "--slo ttft=1s --rate 1 --tp 1,1025", `--tp: got "1025"`}, {size + "--slo ttft=1s --rate 1 --tp 1024 --ep x", `--ep: got "x", want true, false or true,false`},
		{"log", "log: got 0 arguments, want one ledger file"}, {"log a b", "log: got 2 arguments"}, {"log a --last -1", "--last: got -1, want 0 or more"}, {"log a --stage x", `--stage: got "x", want`},
		{"diff a", "diff: got 1 arguments, want two coefficient files"}, {"check", "check: got 0 arguments, want one coefficient file"}, {"check a --refit", "check --refit: missing --data PARENT"},
		{"check a --workers 2", "--workers: goes with --refit only"}, {"check a --for x", `check: --for: got "x", want steps, `}, {"check a --refit --data d --against r", "--against: goes with a check without --refit only"},
		{"features a", "features: missing --step N"}, {"features a b --step 1", "features: got 2 arguments, want one extracted folder"}, {"init", "init: missing --from-cmdline or --from-log"},
		{"library build", "library build: missing --kernels or --points"}, {"library build --points a", "library build: missing --out"}, {"library build --kernels a --kernels b", "library build: missing --out"},
		{"predictor rows", "predictor rows: got 0 arguments, want one extracted folder"}, {"predictor fit", "predictor fit: got no argument, want an extracted folder, or run folders and -o"},
		{"predictor evaluate", "predictor evaluate: got no argument"}, {"predictor evaluate a", "predictor evaluate: missing --predictor predictor.json"}, {"predictor evaluate a --predictor p", "missing -o OUT"},
		{"queue fit", "queue fit: got no argument, want an extracted folder or a sweep"}, {"queue validate a", "queue validate: got 1 arguments, want a queue.json and an extracted folder or a sweep"}, {"queue size", "queue size: got 0 arguments, want"}, {"queue allocate a", "queue allocate: got 1 arguments, want"},
		{"inspect", "inspect: got no argument, want a run directory, a parent of them or an extracted folder"}, {"inspect a --model m", "inspect --model: got a, want no run directory with --model"},
		{"export", "export: got 0 arguments, want one fit.json, or --deployment run.yaml"}, {"export a b", "export: got 2 arguments"}, {"export a --deployment d", "export: --coefficients, --deployment: got fit.json as well, want one of them"}, {"export a", "export: missing -o FILE"},
		{"fit", "fit: got 0 arguments, want one extracted folder"}, {"fit a b", "fit: got 2 arguments"}, {"fit --from points a", `fit --from points: got 1 tables and --deployment "", want at least one CSV and a run.yaml`}, {"fit a --deployment d", "deployment: goes with a fit from points only"},
		{"collect", "collect: got 0 arguments"}, {"task a", "task"}, {"validate a b", "validate: got 2 arguments"},
		{"run ../../testdata/traces/smoke --summary csv -o o", `--summary: got "csv", want markdown`}, {"run ../../testdata/traces/smoke --summary markdown --json -o o", "--summary: got --json too, want one of them: both print on stdout"},
		{"log a --log-format xml", `--log-format: got "xml", want text or json`}, {"version x", `version: got argument "x", want flags only`}, {"queue", "queue: got no command, want"}, {"predictor x", `predictor: got "x", want`},
	} {
		var stderr strings.Builder
		code := run(append([]string{"blis-train"}, strings.Fields(c.args)...), strings.NewReader(""), io.Discard, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: exit %d, %.300s, want %q", c.args, code, stderr.String(), c.want)
		}
	}
}

// TestLoadsOfASize: each combination of lengths and rates, in order, and what is no length.
func TestLoadsOfASize(t *testing.T) {
	load := func(input, output, rate string) ([]predict.Load, error) {
		set := flag.NewFlagSet("", flag.ContinueOnError)
		for name, value := range map[string]string{"input-len": input, "output-len": output, "rate": rate} {
			set.String(name, value, "")
		}
		return sizeLoads(cli.NewContext(nil, set, nil), predict.Load{InputTokens: 7, OutputTokens: 8, CachedShare: 0.5})
	}
	got, err := load("10,20", "", "1.5,2.5")
	want := []predict.Load{{InputTokens: 10, OutputTokens: 8, RateRPS: 1.5, CachedShare: 0.5}, {InputTokens: 20, OutputTokens: 8, RateRPS: 1.5, CachedShare: 0.5},
		{InputTokens: 10, OutputTokens: 8, RateRPS: 2.5, CachedShare: 0.5}, {InputTokens: 20, OutputTokens: 8, RateRPS: 2.5, CachedShare: 0.5}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, c := range []struct{ input, output, rate, want string }{
		{"1", "2", "0.001", ""}, {"999999", "999999", "999999.5", ""}, {"0", "", "", `--input-len: got "0", want a whole number of at least 1 and below 1e6, or several between commas`}, {"1000000", "", "", `--input-len: got "1000000"`},
		{"1.5", "", "", `--input-len: got "1.5"`}, {"", "1", "", `--output-len: got "1", want a whole number of at least 2`}, {"", "", "0", `--rate: got "0", want a number above 0 and below 1e6`}, {"", "", "1000000", `--rate: got "1000000"`}, {"", "", "x", `--rate: got "x"`},
	} {
		if _, err := load(c.input, c.output, c.rate); !strings.HasPrefix(text(err), c.want) || (err == nil) != (c.want == "") {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// TestTextsOfFigures: durations, trends, gates and words at each change of their form.
func TestTextsOfFigures(t *testing.T) {
	p := testkit.Ptr
	yes, no := true, false
	set := &coeff.Set{SpecVersion: "1.1", Gates: []coeff.Gate{{Pass: &yes}, {Pass: &yes}, {Pass: &yes}, {Pass: &no}, {Pass: &no}, {}}}
	judged := &coeff.Set{SpecVersion: "1.1", Purposes: []coeff.PurposeVerdict{{Purpose: coeff.PurposeWaits, Scope: coeff.ScopeAll, Verdict: "fail"}}}
	dep := &deploy.Deployment{TP: 4}
	dep.Model.ID, dep.Hardware.Name = "m", "H100"
	many := make([]float64, 61)
	many[0] = -100
	for _, c := range []struct{ got, want string }{
		{roughTime(99.4), "99 s"}, {roughTime(100), "2 min"}, {roughTime(5999), "100 min"}, {roughTime(6000), "1.7 h"},
		{sparkline([]float64{0, 1, 2, 3, 4, 5, 6, 7}), "▁▂▃▄▅▆▇█"}, {sparkline([]float64{5, 5}), "▄▄"}, {sparkline(nil), ""}, {sparkline(many), strings.Repeat("▄", 60)}, {sparkline(many[:60])[:6], "▁█"},
		{hundredths(nil), "-"}, {hundredths(p(0.12345)), "12.35 %"}, {decimals(p(1.23456)), "1.235"},
		{compatibleLine("f", set, nil, true), "f: spec 1.1, replayable, gates 3 passed, 2 failed, 1 undecided"}, {compatibleLine("f", judged, dep, false), "f: spec 1.1, replayable with --overhead-us, not validated, waits fail; fits m on H100, tp 4"},
		{gammaWords(&result.Model{}), ""}, {gammaWords(&result.Model{GammaEMA: p(0.25)}), ", gamma 0.25"}, {gammaWords(&result.Model{GammaEMA: p(0.25), GammaIdentified: &no}), ""}, {gammaWords(&result.Model{GammaEMA: p(0.25), GammaIdentified: &yes}), ", gamma 0.25"},
		{priorWords(&result.Fit{Options: result.FitOptions{Prior: fit.PriorRoofline}}), ""}, {priorWords(&result.Fit{Options: result.FitOptions{Prior: "x/old.yaml"}}), "prior old.yaml, "},
		{priorWords(&result.Fit{Options: result.FitOptions{Prior: fit.PriorZero}, Beta: result.Model{SpecVersion: "1.1"}}), "spec 1.1 without a prior, "}, {priorWords(&result.Fit{Options: result.FitOptions{Prior: fit.PriorZero}, Beta: result.Model{SpecVersion: "1.3"}}), ""},
		{specWords(&result.Fit{Beta: result.Model{SpecVersion: "1.1"}}), ""}, {specWords(&result.Fit{Beta: result.Model{SpecVersion: "1.3"}}), "spec 1.3; "},
		{asSentence("word: more"), "Word: more."}, {dashed("o"), "-o"}, {dashed("out"), "--out"}, {environment("max-bad-frac"), "BLIS_TRAIN_MAX_BAD_FRAC"},
		{fmt.Sprint(gateCounts(set)), "map[fail:2 null:1 pass:3]"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	projected := documentOf[export.Projected](`{"label": "cfg", "file": ".1.yaml", "errors": [{"mape": 0.11, "bias": -0.012}, {"mape": 0.13}],
		"simulated_loads": [{"load_frac": 0.2, "ttft_ratio": 1.11, "itl_ratio": 0.92, "e2e_ratio": 1.03}, {"load_frac": 0.8, "ttft_ratio": 2, "itl_ratio": 3, "e2e_ratio": 4}]}`)
	rows := projectionRows("out", []export.Projected{*projected})
	if d := cmp.Diff([]cells{{"cfg", "out.1.yaml", "11.0 % (-1.2)", "13.0 %-", "1.11 / 0.92 / 1.03 at 20 %, 2.00 / 3.00 / 4.00 at 80 %"}}, rows); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestPlaceOfABug: the innermost three functions of this module, without those of workers, below the last panic.
func TestPlaceOfABug(t *testing.T) {
	frame := func(name string) string {
		return "github.com/blis-train/blis-train/" + name + "(0x1, 0x2)\n\t/src/" + strings.ReplaceAll(name, ".", "/") + ".go:12 +0x1\n"
	}
	stack := "goroutine 1\n" + frame("cmd/x.recover") + "\npanic({0x1})\n\truntime.go:1\n" + frame("internal/par.run") + frame("a.one") + "runtime.main()\n\tmain.go:3\n" + frame("b.two") + frame("c.three") + frame("d.four")
	b := recovered("fit", &par.Panic{Value: "v", Stack: []byte(stack)})
	if got, want := b.Error(), "fit: this is our mistake, not yours: v, in a.one (one.go:12) < b.two (two.go:12) < c.three (three.go:12)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (&bug{command: "fit", value: 3}).Error(); got != "fit: this is our mistake, not yours: 3, in a place unknown" {
		t.Errorf("got %q", got)
	}
	if got := hintOf(recovered("fit", 1), "fit"); got != reportHint {
		t.Errorf("got %q", got)
	}
}

// TestStepsThatAreExplained: the specification of the features, and the run where there are several.
func TestStepsThatAreExplained(t *testing.T) {
	set := &coeff.Set{SpecVersion: features.V11}
	for _, c := range []struct {
		asked string
		set   *coeff.Set
		want  features.Version
		bad   string
	}{
		{"", set, features.V11, ""}, {"1.2", nil, features.V12, ""}, {"1.1", set, features.V11, ""},
		{"1.2", set, "", "--spec: got 1.2, but the coefficients are for 1.1"}, {"9", nil, "", "--spec: "},
	} {
		if got, err := featuresVersion(c.asked, c.set, &deploy.Deployment{}); got != c.want || !strings.HasPrefix(text(err), c.bad) || (err == nil) != (c.bad == "") {
			t.Errorf("%q: got %q, %v", c.asked, got, err)
		}
	}
	ext := &result.Extract{Runs: []result.ExtractRun{{ID: "first"}, {ID: "second"}}}
	for id, want := range map[string]string{"": "features: missing --run ID, one of first, second", "x": `no run "x" in the folder, want one of first, second`, "secnd": `no run "secnd" in the folder, want one of first, second`} {
		if _, err := pickRun(ext, id); text(err) != want {
			t.Errorf("%q: got %v", id, err)
		}
	}
	if _, err := pickRun(ext, "secnd"); trace.HintOf(err) != "did you mean --run second?" {
		t.Errorf("got the hint %q", trace.HintOf(err))
	}
	if r, err := pickRun(ext, "second"); err != nil || r != &ext.Runs[1] {
		t.Errorf("got %v, %v", r, err)
	}
	if r, err := pickRun(&result.Extract{Runs: ext.Runs[:1]}, ""); err != nil || r.ID != "first" {
		t.Errorf("got %v, %v", r, err)
	}
}

// TestFilesOfTasks: one file for each open task; those of tasks that are done since are removed.
func TestFilesOfTasks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tasks")
	for _, open := range [][]string{{"a", "b", "c"}, {"d"}, nil} {
		if err := writeTasks(dir, open); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(open) {
			t.Fatalf("got %v, %v", entries, err)
		}
		for i, id := range open {
			if got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i))); err != nil || string(got) != id+"\n" {
				t.Errorf("task %d: got %q, %v", i, got, err)
			}
		}
	}
}

// TestHintsAboutFiles: the name that was probably meant, and what another file looks like.
func TestHintsAboutFiles(t *testing.T) {
	dir := t.TempDir() + "/"
	if err := os.WriteFile(dir+"coefficients.yaml", []byte("x: 1\nphysics_coefficients: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", dir+"link"); err != nil {
		t.Skipf("skipped: no symbolic links here: %v", err)
	}
	for path, want := range map[string]string{
		dir + "coeficients.yaml": "did you mean " + dir + "coefficients.yaml?", dir + "link": dir + "link is a link to nowhere, which does not exist", dir + "qqq": "there is no such file: list the folder with ls " + dir,
		dir + "none/fit.json": "blis-train run RUNDIR -o " + dir + "none writes it", dir + "none/other.json": "there is no folder " + dir + "none/; one for output is made with mkdir -p",
	} {
		if got := absentHint(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	for content, want := range map[string]string{
		"a\nphysics_coefficients:": "a coefficient file", `{"model_type": 1}`: "a model's config.json", "a: 1\nvllm: {}": "a run.yaml", "a: 1\narrivals: 2": "a workload", `{"schema_version": 1}`: "a document that blis-train wrote", `{"model_type": 1, "schema_version": 1}`: "a document that blis-train wrote", "vllm:": "", "": "",
	} {
		if err := os.WriteFile(dir+"kind", []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := kindOfFile(dir + "kind"); got != want {
			t.Errorf("%q: got %q, want %q", content, got, want)
		}
	}
	if got, want := hintOf(&trace.SyntaxError{File: dir + "coefficients.yaml", Msg: "unknown key x"}, ""), dir+"coefficients.yaml looks like a coefficient file: was another file meant?"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, c := range []struct {
		dir, parent string
		want        bool
	}{{dir, dir, true}, {dir + "sub", dir, true}, {dir, dir + "sub", false}, {dir + "..sub", dir, true}} {
		for _, d := range []string{c.dir, c.parent} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := isWithin(c.dir, c.parent); err != nil || got != c.want {
			t.Errorf("%s in %s: got %v, %v", c.dir, c.parent, got, err)
		}
	}
}

// TestStatusOfErrors: the exit status of each kind of error, and its document.
func TestStatusOfErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		args []string
		want int
	}{
		{nil, nil, exitOK}, {errors.New("a"), nil, exitFailed}, {usagef("a"), nil, exitUsage}, {gatef("a"), nil, exitGate}, {fmt.Errorf("x: %w", &pipeline.VerdictError{Msg: "a"}), nil, exitGate}, {trace.Errorf(export.PoorProjection, "a"), nil, exitGate},
		{&trace.SyntaxError{File: deploy.SettingsName, Msg: "a"}, nil, exitUsage}, {&trace.SyntaxError{File: "f", Msg: "a"}, nil, exitFailed}, {trace.Errorf(deploy.UnknownFlag, "a"), nil, exitUsage},
		{&fs.PathError{Op: "open", Path: "/none/f", Err: fs.ErrNotExist}, []string{"fit", "/none/f"}, exitUsage}, {&fs.PathError{Op: "open", Path: "/none/f", Err: fs.ErrNotExist}, []string{"fit", "--fit=/none/f"}, exitUsage},
		{&fs.PathError{Op: "open", Path: "/none/f", Err: fs.ErrNotExist}, []string{"fit", "out"}, exitFailed}, {&fs.PathError{Op: "open", Path: "/none/12", Err: fs.ErrNotExist}, []string{"12"}, exitFailed}, {&fs.PathError{Op: "open", Path: "/none/fit", Err: fs.ErrNotExist}, []string{"fit"}, exitFailed},
		{errors.New("/none/f: it is bad"), []string{"/none/f"}, exitFailed}, {errors.Join(errors.New("a"), usagef("b")), nil, exitUsage},
	} {
		s := &session{command: "fit", args: c.args}
		if got := s.exitCode(io.Discard, c.err); got != c.want {
			t.Errorf("%v of %v: got %d, want %d", c.err, c.args, got, c.want)
		}
	}
	var b bytes.Buffer
	s := &session{command: "fit"}
	s.exitCode(&b, errors.Join(errors.New("a"), usagef("b")))
	if got := b.String(); got != "error: a\nerror: b\nhint: see blis-train fit --help\n" {
		t.Errorf("got %q", got)
	}
	for _, c := range []struct {
		err  error
		want errorInfo
	}{
		{trace.Errorf("code_a", "m").WithHint("h"), errorInfo{"code_a", []string{"code_a: m"}, "h", 5}}, {&trace.SyntaxError{File: "f", Code: "code_b", Msg: "m"}, errorInfo{"code_b", []string{"f: m"}, "blis-train explain code_b", 5}}, {errors.New("m"), errorInfo{"", []string{"m"}, "", 5}},
	} {
		b.Reset()
		s.errorDocument(&b, c.err, 5)
		var doc errorDoc
		if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(errorDoc{result.SchemaVersion, c.want}, doc); d != "" {
			t.Errorf("%v (-want +got):\n%s", c.err, d)
		}
	}
}

// TestOrderOfWords: flags may follow arguments, and what follows -- is an argument.
func TestOrderOfWords(t *testing.T) {
	flags := []cli.Flag{&cli.StringFlag{Name: "out", Aliases: []string{"o"}}, &cli.BoolFlag{Name: "all"}, &cli.Int64Flag{Name: "n"}, &cli.StringFlag{Name: "vllm-version"}, &cli.StringFlag{Name: "input-len"}, &cli.StringFlag{Name: "vllm"}}
	sub := &cli.Command{Name: "size", Flags: flags}
	app := &cli.App{Commands: []*cli.Command{{Name: "fit", Flags: flags}, {Name: "queue", Subcommands: []*cli.Command{sub}}}}
	for _, c := range []struct{ args, want string }{
		{"b fit in --all -o out", "b fit --all -o out -- in"}, {"b fit -o out in more", "b fit -o out -- in more"}, {"b fit in --out=x -- --all", "b fit --out=x -- in --all"}, {"b fit in -o", "b fit -o"}, {"b fit --all", "b fit --all"}, {"b fit in", "b fit -- in"}, {"b fit - in", "b fit -- - in"},
		{"b fit in --what x", "b fit --what -- in x"}, {"b queue size q --all", "b queue size --all -- q"}, {"b queue q --all", "b queue --all -- q"}, {"b nope in --all", "b nope in --all"}, {"b", "b"}, {"b fit", "b fit"},
	} {
		if got := strings.Join(flagsFirst(app, strings.Fields(c.args)), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.args, got, c.want)
		}
	}
	for _, c := range []struct{ words, want string }{
		{"--n 12", ""}, {"--n 010", `-n: got "010", want a decimal number`}, {"--n=0x1", `-n: got "0x1", want a decimal number`}, {"--n", ""}, {"-- --n 010", ""}, {"in --n 010", `-n: got "010"`}, {"--all --n 010", `-n: got "010"`}, {"--out 010", ""}, {"--what 010", ""}, {"- 010", ""},
		{"--out=", "--out: got an empty text, want a value, or leave the flag out"}, {"--vllm=", ""}, {"--vllm-version x", `--vllm-version: got "x", want a release such as `}, {"--vllm-version 0.15.1", ""}, {"--vllm-version 0.1.dev5", ""},
		{"--input-len 5,3,010", `--input-len: got "010", want a decimal number`}, {"--input-len 1,2", ""}, {"--input-len 1,000", `--input-len: got "1,000", want a number without commas`},
	} {
		if err := checkNumbers(sub, strings.Fields(c.words)); !strings.HasPrefix(text(err), c.want) || (err == nil) != (c.want == "") {
			t.Errorf("%s: got %v, want %q", c.words, err, c.want)
		}
	}
	if option.Find(flags, "o") == nil || !slices.Equal(flagNames(flags[:2]), []string{"out", "o", "all"}) {
		t.Error("another list of names")
	}
}

// TestPictureOfLoads: a line with a legend for each server of several points, a name beside a single point, and the limits of targets.
func TestPictureOfLoads(t *testing.T) {
	points := []operatingPoint{{"a", "1", 100, 10, false}, {"a", "2", 200, 20, false}, {"b", "3/s", 400, 40, true}}
	limit := predict.Target{Metric: predict.TPOT, LimitMs: 30}
	svg := string(loadPicture(points, &predict.Targets{Limits: []predict.Target{limit, {Metric: predict.TTFT, LimitMs: 5}}}))
	for word, want := range map[string]int{">1<": 1, ">2<": 1, ">3/s<": 0, ">b (upper bound), 3/s<": 1, ">a<": 1, "<title>1: 100 tokens/s, 10 ms": 1, "<title>3/s: 400 tokens/s, 40 ms": 1, ">target " + limit.String() + "<": 1, ">target ttft": 0, "<circle": 3, `text-anchor="end" fill="#596475">b`: 1} {
		if got := strings.Count(svg, word); got != want {
			t.Errorf("%s: got %d, want %d in\n%s", word, got, want, svg)
		}
	}
	if strings.Contains(string(loadPicture(points, &predict.Targets{})), "target") {
		t.Error("no targets: got a limit")
	}
}
