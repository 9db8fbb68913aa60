package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sizing"
)

// TestProgressOfStages: a bar on a terminal at most every 80 ms and at the end of its stage, a line elsewhere at most every
// two seconds, and none for a stage that is over by then.
func TestProgressOfStages(t *testing.T) {
	started := func(con *console) *stages {
		return &stages{con: con, started: map[string]time.Time{"a": time.Now().Add(-10 * time.Second)}}
	}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	p := newPaper()
	if p.progress() == nil {
		t.Error("got no function")
	}
	s := started(p.console)
	s.show("a", 1, 10, "rows")
	s.show("a", 2, 10, "rows")
	if p.err.Len() > 0 || p.last["a"].IsZero() {
		t.Errorf("got %q before two seconds", p.err.String())
	}
	p.last["a"] = ago(1800 * time.Millisecond)
	s.show("a", 5, 10, "rows")
	p.last["a"] = ago(2100 * time.Millisecond)
	s.show("a", 10, 10, "rows")
	s.show("a", 11, 10, "rows")
	if p.err.Len() > 0 {
		t.Errorf("got %q", p.err.String())
	}
	s.show("a", 5, 10, "rows")
	p.last["a"] = ago(2100 * time.Millisecond)
	s.show("a", 60, 0, "rows")
	if got, want := p.err.String(), "a:  50 % 5 of 10 rows, 0.5 rows/s, 10s left\na: 60 rows (6.0 rows/s)\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.show("b", 1, 10, "rows")
	if p.err.Len() > 80 || s.started["b"].IsZero() {
		t.Errorf("got %q", p.err.String())
	}
	p.quiet = true
	if p.progress() != nil {
		t.Error("got progress with --quiet")
	}

	// A terminal: the bar is cut to its width and cleared at the end of the stage and before a line.
	var raw bytes.Buffer
	con := newPaper().console
	con.err, con.tty, con.width = newOutput(&raw), true, 41
	s = started(con)
	printed := func(what, want string) {
		t.Helper()
		if got := raw.String(); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		raw.Reset()
	}
	s.show("a", 5, 10, "rows")
	printed("the first bar", "\r\x1b[Ka:  50 % [############............] 5 of")
	s.show("a", 6, 10, "rows")
	printed("within 80 ms", "")
	con.last["a"] = ago(90 * time.Millisecond)
	con.width = 200
	s.show("a", 9, 10, "rows")
	printed("after 80 ms", "\r\x1b[Ka:  90 % [#####################...] 9 of 10 rows, 0.9 rows/s, 1s left")
	con.message("info", "x")
	printed("a line", "\r\x1b[Kx\n")
	con.message("warning", "y")
	printed("a further line", "warning: y\n")
	s.show("a", 10, 10, "rows")
	printed("the end", "\r\x1b[Ka: 100 % [########################] 10 of 10 rows, 1.0 rows/s, 0s left\r\x1b[K")
	if con.open {
		t.Error("the bar is cleared")
	}

	// Lines in JSON.
	p = newPaper()
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.String("log-format", "json", "")
	ctx := cli.NewContext(&cli.App{Writer: &p.out, ErrWriter: &p.err, Metadata: map[string]any{sessionKey: &session{}}}, set, nil)
	con, err := newConsole(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s = started(con)
	con.last["a"] = ago(3 * time.Second)
	s.show("a", 5, 10, "rows")
	con.message("warning", "w")
	con.infof("i%d", 7)
	got := regexp.MustCompile(`"time":"[^"]*",`).ReplaceAllString(p.err.String(), "")
	if want := `{"level":"INFO","msg":"progress","stage":"a","done":5,"total":10,"unit":"rows"}` + "\n" + `{"level":"WARN","msg":"w"}` + "\n" + `{"level":"INFO","msg":"i7"}` + "\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if con.width != 100 || con.tty || con.outWidth != 0 || con.session.log != con.log {
		t.Errorf("got %+v", con)
	}
}

// TestStreamsThatFail: the first failed write is reported, and nothing is written after it.
func TestStreamsThatFail(t *testing.T) {
	o := newOutput(closedStream{})
	if o.isUsed() {
		t.Error("nothing was written yet")
	}
	o.control("x")
	if n, err := o.Write([]byte("abc")); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if err := o.failure(); !errors.Is(err, os.ErrClosed) || !o.isUsed() || !strings.HasPrefix(err.Error(), "standard output: ") {
		t.Errorf("got %v", err)
	}
	var kept bytes.Buffer
	o.raw = &kept
	if o.control("x"); kept.Len() > 0 {
		t.Errorf("got %q after a failure", kept.String())
	}
	if f, err := os.Create(filepath.Join(t.TempDir(), "x")); err != nil || columns(f) != 0 || columns(newOutput(f)) != 0 || columns(&kept) != 0 {
		t.Errorf("a file is no terminal: %v", err)
	} else {
		f.Close()
	}
}

// TestHintsAboutFlags: what is probably meant by a flag that a command does not have, and by a value that is none.
func TestHintsAboutFlags(t *testing.T) {
	for args, want := range map[string]string{
		"predict --isl 7":                   "unknown flag \"--isl\"\nhint: did you mean --input-len?",
		"predict --qps 7":                   "hint: did you mean --rate?",
		"predict --gpus x":                  "hint: did you mean --hardware?",
		"fit --gpus x":                      "unknown flag \"--gpus\"\nhint: see blis-train fit --help",
		"fit --lamda x":                     "hint: did you mean --lambda? fit chooses it by cross-validation; -v prints it, and fit.json has it",
		"fit --output x":                    "hint: -o names the output",
		"validate --seed 7":                 `hint: set "seed" under "validate" in a file given by --config`,
		"extract --max-num-seqs 7":          "hint: --set vllm.max_num_seqs=VALUE sets what run.yaml does not",
		"predict --max-num-batched-token 7": "unknown flag \"--max-num-batched-token\"",
		"predict --block-size 7":            `hint: give it inside --vllm "--block-size ..."`,
		"predict -x 7":                      `unknown flag "-x"`,
		"init --nothing-like-it":            "hint: quote the server's command: --from-cmdline 'vllm serve ...'",
		"predict --model":                   "--model: got nothing, want a value\nhint: see blis-train predict --help",
		"size --max-gpus 12k":               `--max-gpus: got "12k", want a whole number` + "\nhint: did you mean 12000?",
		"size --max-gpus 1_2":               "want a decimal number\nhint: write it without leading zeros, underscores and prefixes",
		"size --max-gpus 1,2":               `--max-gpus: got "1,2", want a whole number` + "\nhint: did you mean 12?",
		"size --max-gpus x":                 `--max-gpus: got "x", want a whole number` + "\nhint: see blis-train size --help",
		"size --rate 12,000":                `--rate: got "12,000", want a number without commas` + "\nhint: did you mean 12000?",
		"fit --json=maybe":                  `--json: got "maybe", want true or false`,
		"explain ab":                        "ab",
	} {
		code, _, stderr := called(strings.Fields(args)...)
		if code != exitUsage && args != "explain ab" || code == exitOK || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d, %s, want %s", args, code, stderr, want)
		}
	}
	t.Setenv("BLIS_TRAIN_JSON", "maybe")
	if code, _, stderr := called("fit", "x"); code != exitUsage || !strings.Contains(stderr, `BLIS_TRAIN_JSON: got "maybe", want true or false`) {
		t.Errorf("got %d, %s", code, stderr)
	}
}

// TestRunFoldersWithoutRunYAML: it is written from --hardware and what the folder has, and what lacks is named.
func TestRunFoldersWithoutRunYAML(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "run.yaml")
	write := func(hardware string) (string, error) {
		p := newPaper()
		set := flag.NewFlagSet("", flag.ContinueOnError)
		set.String("hardware", hardware, "")
		err := p.writeMissingRunYAML(cli.NewContext(nil, set, nil), dir)
		return p.err.String(), err
	}
	if printed, err := write(""); printed != "" || err != nil {
		t.Errorf("neither a log nor a device: got %q, %v", printed, err)
	}
	assumed := "warning: version_assumed: vllm.version: no log of the folder states it, so " + predict.AssumedVersion + " is assumed, and its defaults and scheduler with it; correct it in " + name + "\n"
	printed, err := write("H100")
	if want := "bad_setting: " + name + ": no such file, and the folder has no log of a server's start to write it from: missing model.config"; text(err) != want || printed != assumed {
		t.Errorf("got %v, %q", err, printed)
	}
	serverLog := filepath.Join(dir, "server.log")
	repo.Write(t, "INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.11.0\n", serverLog)
	if _, err = write("H100"); text(err) != "bad_setting: "+name+": no such file, and "+serverLog+" does not state all of it: missing model.config" {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(serverLog); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(repo.Root(t), "testdata", "traces", "smoke", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	repo.Write(t, string(config), filepath.Join(dir, "config.json"))
	printed, err = write("H100")
	if err != nil || !strings.HasPrefix(printed, assumed) || !strings.HasSuffix(printed, "\nwrote "+name+" from --hardware and vLLM's defaults\n") {
		t.Errorf("got %v, %q", err, printed)
	}
	for hardware, want := range map[string]string{"": "", "H100": "", "H100-SXM-80GB": "", "L4": "--hardware: got L4-24GB, want that of " + name + ", which is H100-SXM-80GB", "x": "--hardware: got x, want that of " + name + ", which is H100-SXM-80GB"} {
		if printed, err := write(hardware); text(err) != want || printed != "" {
			t.Errorf("%s: got %v, %q", hardware, err, printed)
		}
	}
	repo.Write(t, "hardware: [", name)
	if _, err := write("L4"); err != nil {
		t.Errorf("the extraction reports a bad file: got %v", err)
	}

	// The model of a draft: a file elsewhere is copied beside run.yaml, or named if there is no place for it.
	draft := deploy.NewDraft()
	draft.Set("model.config", filepath.Join(dir, "config.json"))
	p := newPaper()
	if m, err := p.modelConfig(draft, ""); m == nil || err != nil || !strings.HasSuffix(p.err.String(), filepath.Join(dir, "config.json")+" is the model's config.json: copy it into the folder of run.yaml, or use -o\n") {
		t.Errorf("got %v, %v, %q", m, err, p.err.String())
	}
	other := t.TempDir()
	p.err.Reset()
	if m, err := p.modelConfig(draft, filepath.Join(other, "run.yaml")); m == nil || err != nil {
		t.Errorf("got %v, %v", m, err)
	}
	if copied, err := os.ReadFile(filepath.Join(other, "config.json")); err != nil || !bytes.Equal(copied, config) {
		t.Errorf("got %v, %q", err, p.err.String())
	}
	if got, _ := draft.Get("model.config").(string); got != "config.json" {
		t.Errorf("got %q", got)
	}
	repo.Write(t, string(config), other, "below", "config.json")
	if err := os.Remove(filepath.Join(other, "config.json")); err != nil {
		t.Fatal(err)
	}
	draft.Set("model.config", "below/config.json")
	if m, err := p.modelConfig(draft, filepath.Join(other, "run.yaml")); m == nil || err != nil || draft.Get("model.config") != "below/config.json" {
		t.Errorf("below the folder of run.yaml: got %v, %v, %v", m, err, draft.Get("model.config"))
	}
}

// TestEndsOfSweeps: a sweep none of whose points can be predicted fails as its first point does, and one of which none
// meets the targets fails as a gate does.
func TestEndsOfSweeps(t *testing.T) {
	const sweep = "predict --model qwen3-8b --hardware H100 --json "
	type point struct {
		TP     int64 `json:"tensor_parallel_size"`
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	}
	for _, c := range []struct {
		args, err string
		code      int
		tps       []int64
	}{
		{"--sweep tp=7,9", "error: bad_knobs: tensor_parallel_size: got 7, want a divisor of 32 heads\nhint: vLLM does not load the model so", exitFailed, nil},
		{"--slo tpot.mean=0.01ms --sweep tp=7,2", "error: predict: no point meets tpot mean <= 0.01 ms\n", exitGate, []int64{7, 2}},
		{"--slo tpot.mean=5.5ms --sweep tp=7,2", "accuracy: ", exitOK, []int64{7, 2}},
	} {
		code, out, stderr := called(strings.Fields(sweep + c.args)...)
		if code != c.code || !strings.Contains(stderr, c.err) {
			t.Errorf("%s: got %d, %s", c.args, code, stderr)
		}
		if c.tps == nil {
			continue
		}
		var tps []int64
		for _, p := range documentOf[struct{ Points []point }](out).Points {
			if tps = append(tps, p.TP); p.Input != 1000 || p.Output != 200 { // without flags
				t.Errorf("%s: got %+v", c.args, p)
			}
		}
		if d := cmp.Diff(c.tps, tps); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.args, d)
		}
	}
}

// TestOptionsThatDepend: options that are derived from several flags.
func TestOptionsThatDepend(t *testing.T) {
	for ttft, want := range map[string][2]bool{"": {}, "mean": {true, false}, "median": {false, true}} {
		q := &queueInputs{ttft: ttft, window: 20 * time.Second}
		if err := q.resolve(); err != nil && !strings.Contains(err.Error(), "flavour") || q.options.Sweep.Mean != want[0] || q.options.Sweep.Median != want[1] || q.options.Cut.WindowNs != 20e9 || q.options.Cut.HopNs != 20e9 {
			t.Errorf("%s: got %v, %+v", ttft, err, q.options)
		}
	}
	q := &queueInputs{ttft: "p50", window: 20 * time.Second, hop: 5 * time.Second}
	if err := q.resolve(); text(err) != `--ttft: got "p50", want median or mean` || q.options.Cut.HopNs != 5e9 || q.options.Cut.WindowNs != 20e9 {
		t.Errorf("got %v, %+v", err, q.options.Cut)
	}

	// A validated fit is replaced only on request.
	dir := t.TempDir()
	set := flag.NewFlagSet("", flag.ContinueOnError)
	if err := set.Parse([]string{dir}); err != nil {
		t.Fatal(err)
	}
	ctx := cli.NewContext(nil, set, nil)
	if err := keepJudged(ctx, &pipeline.FitOptions{}, false); err != nil {
		t.Errorf("no validation: got %v", err)
	}
	repo.Write(t, "{}", filepath.Join(dir, folder.ValidationFile))
	for _, c := range []struct {
		o         pipeline.FitOptions
		fromGrams bool
		want      string
	}{{want: "fit: " + dir + " holds a validated fit (validation.json), which the new one would replace; got neither -o nor --force"}, {fromGrams: true}, {o: pipeline.FitOptions{Out: "o"}}, {o: pipeline.FitOptions{Force: true}}, {o: pipeline.FitOptions{From: fit.FromPoints.Name}}} {
		if err := keepJudged(ctx, &c.o, c.fromGrams); text(err) != c.want {
			t.Errorf("%+v: got %v", c, err)
		}
	}

	// Step times of a predictor.
	physics := func(name string) (string, string, error) {
		set := flag.NewFlagSet("", flag.ContinueOnError)
		set.String("fit", name, "")
		o := &predictor.TrainOptions{}
		_, file, err := predictorPhysics(cli.NewContext(nil, set, nil), newPaper().console, dir, o)
		return o.PhysicsReason, file, err
	}
	example := filepath.Join(repo.Root(t), "coeff", "testdata", "example", "coefficients.yaml")
	for _, c := range []struct{ name, reason, file string }{{"none", "--fit none", ""}, {"", "there is no fit.json beside the rows; blis-train fit makes one", ""}, {example, "", "coefficients.yaml"}} {
		if reason, file, err := physics(c.name); reason != c.reason || file != c.file || err != nil {
			t.Errorf("%s: got %q, %q, %v", c.name, reason, file, err)
		}
	}
	if _, _, err := physics(filepath.Join(dir, "none", "fit.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}

	// The page of a predictor does not replace that of a validation.
	for range 2 {
		p := newPaper()
		if err := p.writeScores(dir, &predictor.Scores{}); err != nil {
			t.Fatal(err)
		}
		_, page := os.Stat(filepath.Join(dir, folder.PredictorPage))
		_, report := os.Stat(filepath.Join(dir, folder.ReportFile))
		_, judged := os.Stat(filepath.Join(dir, folder.ValidationFile))
		if (page == nil) != (judged == nil) || (report == nil) == (judged == nil) {
			t.Errorf("got %v, %v with %v", page, report, judged)
		}
		os.Remove(filepath.Join(dir, folder.ValidationFile))
		os.Remove(filepath.Join(dir, folder.PredictorPage))
	}

	// A ledger's entry lists its inputs even if there are none.
	path := filepath.Join(dir, "ledger.jsonl")
	if err := newPaper().appendLedger(path, "fit", result.Header{}, nil, nil, ""); err != nil {
		t.Fatal(err)
	}
	if line, err := os.ReadFile(path); err != nil || !strings.Contains(string(line), `"inputs":[]`) {
		t.Errorf("got %s, %v", line, err)
	}
	defer func() {
		if got := recover(); got != "pipeline.yaml has no group x" {
			t.Errorf("got %v", got)
		}
	}()
	(&pipelineConfig{}).group("x")
}

// TestRequestsOfASize: the first requests of a workload, and a sizing of several loads.
func TestRequestsOfASize(t *testing.T) {
	workload := filepath.Join(t.TempDir(), "w.csv")
	repo.Write(t, "arrival_s,input_tokens,output_tokens\n0,10,20\n1,11,21\n2,12,22\n", workload)
	for most, want := range map[string]int{"": 3, "2": 2, "3": 3, "4": 3} {
		set := flag.NewFlagSet("", flag.ContinueOnError)
		for name, value := range map[string]string{"workload": workload, "hardware": "H100,L4", "slo": "ttft=1s", "tp": "1,2", "ep": "true,false", "rate": "", "concurrency": "", "vllm-version": ""} {
			set.String(name, value, "")
		}
		set.Int("max-requests", 0, "")
		set.Int64("dp", 0, "")
		args := []string{"--vllm-version", "0.11.0"}
		if most != "" {
			args = append(args, "--max-requests", most, "--dp", "4")
		}
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		q := &sizing.Question{MostGPUs: 8}
		q.Server.Model = "m"
		err := completeSizeQuestion(cli.NewContext(nil, set, nil), newPaper().console, q)
		if err != nil || q.Load.Workload == nil || len(q.Load.Workload.Requests) != want {
			t.Errorf("--max-requests %s: got %v, %+v", most, err, q.Load)
		}
		settings := map[bool]string{true: "data_parallel_size=4 vllm.version=0.11.0", false: "vllm.version=0.11.0"}[most != ""]
		if strings.Join(q.Server.Set, " ") != settings || !cmp.Equal(q.TP, []int64{1, 2}) || !cmp.Equal(q.EP, []bool{true, false}) || !cmp.Equal(q.Hardware, []string{"H100", "L4"}) {
			t.Errorf("got %+v", q)
		}
	}
	picture := filepath.Join(t.TempDir(), "p.svg")
	code, out, stderr := called("size", "--model", "qwen3-8b", "--hardware", "H100", "--tp", "1", "--slo", "tpot.mean=0.01ms", "--concurrency", "1", "--input-len", "100,200", "-o", picture, "--json")
	if code != exitGate || !strings.Contains(stderr, "size: no deployment meets tpot mean <= 0.01 ms with 2 of 2 loads") || strings.Count(out, `"targets"`) != 2 || !strings.Contains(out, `"variants"`) {
		t.Errorf("got %d, %s", code, stderr)
	}
}

// TestVersionOfTheProgram: the commit and date that the linker set.
func TestVersionOfTheProgram(t *testing.T) {
	defer func(commit, date string) { releaseCommit, releaseDate = commit, date }(releaseCommit, releaseDate)
	for _, c := range []struct{ commit, date, want string }{{"abc", "2026-01-02", `^0\.\S+ \(commit abc, 2026-01-02, go1\.\S+, \w+/\w+, specs 1\.0, 1\.1.*\)$`}, {"abc", "", `^0\.\S+ \(commit abc, go1\.\S+, \w+/\w+, specs `}} {
		releaseCommit, releaseDate = c.commit, c.date
		if got := versionText(); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("got %q, want %s", got, c.want)
		}
	}
}

// TestCallsThatWriteNothing: what is refused, or only listed, leaves no folder.
func TestCallsThatWriteNothing(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	file := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		repo.Write(t, content, name)
		return name
	}
	judged := filepath.Dir(file("judged/validation.json", "{}"))
	empty := filepath.Dir(file("empty/notes", ""))
	trained := file("predictor.json", `{"schema_version": "1", "options": {"rows": {}}}`)
	queue := file("queue.json", `{"schema_version": "1", "flavour": "inferno-3p", "servers": []}`)
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"fit", judged}, exitUsage, "", "fit: " + judged + " holds a validated fit (validation.json), which the new one would replace; got neither -o nor --force\nhint: -o FOLDER keeps it, --force replaces it"},
		{[]string{"predictor", "fit", smoke, "-o", out, "--dry-run"}, exitOK, "smoke\t" + smoke + "\n", ""},
		{[]string{"predictor", "evaluate", smoke, "--predictor", trained, "-o", out, "--dry-run"}, exitOK, "smoke\t" + smoke + "\n", ""},
		{[]string{"predictor", "fit", smoke}, exitUsage, "", "missing -o OUT"},
		{[]string{"predictor", "fit", empty}, exitFailed, "", "open " + filepath.Join(empty, "extract.json")},
		{[]string{"predictor", "fit", empty, "-o", out}, exitFailed, "", "open " + filepath.Join(empty, "extract.json")},
		{[]string{"queue", "validate", queue, filepath.Join(dir, "none"), "-o", out, "--flavour", "wva-4p"}, exitUsage, "", `--flavour: got "wva-4p", want "inferno-3p": the parameters are of that one`},
		{[]string{"plan", smoke}, exitUsage, "", "missing -o FOLDER"},
	} {
		code, stdout, stderr := called(c.args...)
		if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.stderr) || strings.Contains(stderr, "panic") {
			t.Errorf("%q: got %d, %q, %s", c.args, code, stdout, stderr)
		}
		if _, err := os.Stat(filepath.Join(out, folder.ExtractFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: wrote %s", c.args, out)
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got a folder: %v", err)
	}
	for _, flavour := range []string{"", "inferno-3p"} { // that of the file, stated or not
		args := []string{"queue", "validate", queue, filepath.Join(dir, "none"), "-o", out}
		if flavour != "" {
			args = append(args, "--flavour", flavour)
		}
		if code, _, stderr := called(args...); code != exitUsage || !strings.Contains(stderr, filepath.Join(dir, "none")) || strings.Contains(stderr, "--flavour") {
			t.Errorf("%q: got %d, %s", flavour, code, stderr)
		}
	}
	// Logs are found by their names.
	for name, want := range map[string]bool{"server.log": true, "server.log.old": true, "start.txt": true, "log": true, "start.out": false, "server.json": false} {
		text := file(strings.ReplaceAll(name, ".", "-")+"/"+name, "INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.11.0\n")
		if found, stated := findStartLog(filepath.Dir(text)); (found == text) != want || (stated != nil) != want {
			t.Errorf("%s: got %q, %v", name, found, stated)
		}
	}
}

// TestAgreementOfRefits: how a coefficient file that was made again agrees with the first.
func TestAgreementOfRefits(t *testing.T) {
	deviation := 1.26e-10
	for _, c := range []struct {
		doc          pipeline.RefitResult
		printed, err string
	}{
		{pipeline.RefitResult{Identical: true, Equal: true, File: result.Input{Bytes: 1234, SHA256: "abc"}}, "identical: 1234 bytes, sha256 abc\n", ""},
		{pipeline.RefitResult{Equal: true, RecordedOn: "go1 a", Platform: "go1 b", LargestDeviation: &deviation}, "equal: made on go1 a, this is go1 b; numbers differ by at most 1e-10 relative\n", ""},
		{pipeline.RefitResult{Differences: []string{"beta differs", "alpha differs"}}, "beta differs\nalpha differs\n", "c.yaml: not reproduced"},
	} {
		p := newPaper()
		if err := p.showRefit("c.yaml", &c.doc); text(err) != c.err || p.err.String() != c.printed || p.out.Len() > 0 {
			t.Errorf("got %v, %q", err, p.err.String())
		}
	}
	if got := peakRSS(); got.OK && (got.V < 1<<20 || got.V > 1<<36) {
		t.Errorf("got %d bytes of memory", got.V)
	}
}

// TestExplanations: a code is matched with either sign between its words; a part of it, from four letters on, names all
// that contain it.
func TestExplanations(t *testing.T) {
	p := newPaper()
	for arg, want := range map[string]string{
		"no_input": "no_input (error, pipeline/extract)\n  A file that was named does not exist ", "No-Input": "no_input (error, pipeline/extract)\n", "bias": "bias (gate, pipeline/validate)\n  Total bias of the step time: ",
		"o_inpu": "no_input (error, pipeline/extract)\n", "input_chan": "input_changed (",
	} {
		p.out.Reset()
		if err := explain(p.console, []string{arg}); err != nil || !strings.HasPrefix(p.out.String(), want) {
			t.Errorf("%s: got %v, %q", arg, err, p.out.String())
		}
	}
	for arg, hint := range map[string]string{"o_i": "blis-train explain lists every code", "no_inptu": `did you mean "no_input"?`} {
		if err := explain(p.console, []string{arg}); err == nil || !strings.HasSuffix(err.Error(), `no code "`+arg+`"`) || hintOf(err, "explain") != hint {
			t.Errorf("%s: got %v, %q", arg, err, hintOf(err, "explain"))
		}
	}
	p.out.Reset()
	if err := explain(p.console, []string{"no_input", "input_changed"}); err != nil || strings.Count(p.out.String(), "\n\n") != 1 {
		t.Errorf("got %v, %q", err, p.out.String())
	}
	p.out.Reset()
	if err := explain(p.console, nil); err != nil || strings.Contains(p.out.String(), "\n\n") || !strings.Contains(p.out.String(), "\nbias                             gate     Total bias of the step time: ") {
		t.Errorf("got %v", err)
	}
	for _, e := range gateReasons() {
		if first := e.Meaning[:1]; first != strings.ToUpper(first) || !strings.HasSuffix(e.Meaning, ".") || strings.Contains(e.Meaning, "..") {
			t.Errorf("%s: got %q", e.Code, e.Meaning)
		}
	}
	if got := asSentence("ab cd"); got != "Ab cd." {
		t.Errorf("got %q", got)
	}
}
