package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/sizing"
	"github.com/blis-train/blis-train/trace"
)

// paper is a console that keeps what it is given: results above, messages behind "2> ".
type paper struct {
	*console
	out, err bytes.Buffer
}

func newPaper() *paper {
	p := &paper{}
	p.console = &console{out: &p.out, err: &p.err, text: &p.out, width: 100, warned: map[trace.Finding]bool{}, last: map[string]time.Time{}}
	return p
}

func (p *paper) String() string {
	text := p.out.String()
	for line := range strings.Lines(p.err.String()) {
		text += "2> " + line
	}
	return text
}

// times are figures of a latency that grow from least.
func times(least float64) predict.Figures {
	f := func(x float64) *float64 { return testkit.Ptr(least * x) }
	return predict.Figures{Mean: f(1), P50: f(1.1), P90: f(1.3), P95: f(1.7), P99: f(2.3)}
}

// prediction has a figure of its own in every place that is printed.
func prediction() *predict.Prediction {
	yes, no := true, false
	return &predict.Prediction{
		Model: "org/m-8b", Hardware: "H100", TP: 2, DP: 3, GPUs: 6, EP: true, Version: "0.23.0", MaxNumSeqs: 128, TokenBudget: 4096, KVBytes: 1.5, InputTokens: 1500,
		OutputTokens: 1250, Concurrency: 17, TTFT: times(91), TPOT: times(7), ITL: times(8), E2E: times(1900), RequestsPerS: 12.345, RequestsInterval: [2]float64{11.11, 13.57},
		TokensPerS: 2345.6, KVTokens: 123456, KVPeakShare: 0.456, LimitedBy: "reading weights (62 %)", Met: &yes, MetSurely: &no, Trust: &simulate.Trust{Sentence: "trusted so far"},
		Shares:    []predict.Share{{Name: "linear", Share: 0.62}, {Name: "attention", Share: 0.0051}, {Name: "rest", Share: 0.0049}},
		TTFTParts: []predict.TTFTPart{{Name: "queue", MeanMs: 12, LowMs: 11.5, HighMs: 123.4}}, MaxLoad: &predict.MaxLoad{Concurrency: 34, TokensPerS: 3456.7, Breaks: "tpot mean 41 ms"},
		Warnings: []trace.Finding{{Code: "w", Message: "one"}},
	}
}

func targets(goodput float64, limits ...predict.Target) predict.Targets {
	return predict.Targets{Limits: limits, Goodput: goodput}
}

// deployments has two rows that are certain or not, a bound and a refused one.
func deployments() *sizing.Answer {
	figures := func(least float64) (out []sizing.Figure) {
		for _, f := range []struct {
			metric, statistic string
			ms                float64
		}{{"ttft", "p95", 1210}, {"tpot", "mean", 9.1}, {"e2e", "mean", 3340}, {"e2e", "p90", 3560}} {
			ms := f.ms * least
			out = append(out, sizing.Figure{Metric: f.metric, Statistic: f.statistic, Ms: predict.Value{Value: ms, Low: ms * 0.9, High: ms * 1.2}, ErrorLow: ms * 0.8, ErrorHigh: ms * 1.4})
		}
		return out
	}
	value := func(v float64) *predict.Value { return &predict.Value{Value: v} }
	return &sizing.Answer{Model: "org/m-8b", Load: predict.Load{RateRPS: 20.5, InputTokens: 2000, OutputTokens: 300}, Routing: "least_loaded", Version: "0.24.0",
		Targets: targets(0, predict.Target{Metric: "tpot", LimitMs: 40}, predict.Target{Metric: "ttft", Quantile: 0.95, LimitMs: 1500.5}),
		Notes:   []trace.Finding{{Code: "n", Message: "note"}},
		Rows: []sizing.Row{
			{Hardware: "H100", TP: 2, EP: true, DP: 1, Replicas: 3, GPUs: 6, ReplicaLoad: 6.8333, HighestLoad: 9, Headroom: 0.2407, Figures: figures(1), TokensPerS: value(1200), Met: "estimate",
				Goodput: value(0.9512), USDPerHour: testkit.Ptr(15.256), USDPerMToken: testkit.Ptr(1.234), Trust: "long of H100", TrustSummary: "short of H100", Serve: "vllm serve m --tp 2"},
			{Hardware: "B200", TP: 1, DP: 4, Replicas: 1, GPUs: 4, ReplicaLoad: 20.5, HighestLoad: 41, HighestAtLeast: true, Headroom: 0.5, Figures: figures(0.5), TokensPerS: value(1600), Met: "yes",
				Goodput: value(1), USDPerHour: testkit.Ptr(20), USDPerMToken: testkit.Ptr(2.346), Trust: "long of B200", TrustSummary: "short of B200", Serve: "vllm serve m --dp 4"},
			{Hardware: "H100", TP: 4, DP: 1, Pools: true, Drafts: true, Replicas: 5, Prefill: 2, GPUs: 20, ReplicaLoad: 4.1, Figures: figures(0.25), TokensPerS: value(4000), Met: "bound", Bound: true,
				Goodput: value(0.99), USDPerHour: testkit.Ptr(50), USDPerMToken: testkit.Ptr(3.456), Trust: "long of H100", TrustSummary: "short of H100"},
			{Hardware: "L4", TP: 1, DP: 1, Refused: "no room", Hint: "--tp 2"}, {Hardware: "L4", TP: 1, DP: 1, Pools: true, Refused: "no room", Hint: "--tp 2"},
			{Hardware: "A100", TP: 8, DP: 1, Refused: "too slow"},
		}}
}

// printed are the texts of testdata/*.txt.
var printed = map[string]func(p *paper){
	"prediction": func(p *paper) {
		q := &predict.Question{SLO: targets(0, predict.Target{Metric: "tpot", LimitMs: 40}), Set: []string{"tensor_parallel_size=2", "block_size=32"}, Serve: "--block-size 32"}
		showPrediction(p.console, q, prediction())
		showTTFTParts(p.console, prediction())
		d := &predictDoc{KernelsMs: 1.2345, StepMs: 2.3456, Operators: []kernelDoc{{"op", 36, "2x3", "bf16", "table", "kernel", "measured", "a note", 0.1234}, {Name: "op2", Count: 1, Ms: 1.1}}}
		d.showStep(p.console, "a step")
	},
	"prediction_bound": func(p *paper) {
		x := prediction()
		no := false
		x.Concurrency, x.RateRPS, x.DP, x.EP, x.Bound, x.Saturated, x.Version, x.Met, x.Missed = 0, 12.5, 1, false, true, true, predict.AssumedVersion, &no, "ttft p90 1,200 ms"
		x.Start = &predict.Start{TTFT: times(93), E2E: times(2100)}
		x.MaxLoad = &predict.MaxLoad{RateRPS: 8.765, TokensPerS: 1234.5}
		x.LimitedBy, x.Shares, x.Warnings = "", nil, nil
		showPrediction(p.console, &predict.Question{SLO: targets(0.95, predict.Target{Metric: "ttft", LimitMs: 1200})}, x)
	},
	"sweep": func(p *paper) {
		a, b, c := prediction(), prediction(), prediction()
		b.TP, b.TokensPerS, b.TTFT, b.Saturated = 4, 987.6, times(44), true
		c.Bound, c.Hardware, c.TP = true, "H200", 8
		gone := &predict.Prediction{Model: "org/m-8b", Hardware: "L4", Refused: "no room", Hint: "--tp 2"}
		points := []*predict.Prediction{a, b, c, gone, gone}
		showSweep(p.console, points, &predict.Targets{})
		showSweepRefusals(p.console, points)
		showAccuracies(p.console, points)
	},
	"sweep_targets": func(p *paper) {
		a, b, c := prediction(), prediction(), prediction()
		no := false
		b.Concurrency, b.Met, b.MaxLoad, b.Model, b.EP = 18, &no, nil, "org/other", false
		c.Bound, c.MaxLoad, c.Concurrency, c.RateRPS, c.InputTokens = true, &predict.MaxLoad{RateRPS: 12.345}, 0, 2.5, 2500
		t := targets(0, predict.Target{Metric: "itl", Quantile: 0.99, LimitMs: 1234.5}, predict.Target{Metric: "ttft", LimitMs: 2000})
		showSweep(p.console, []*predict.Prediction{a, b, c}, &t)
	},
	"sizes":        func(p *paper) { showSizes(p.console, deployments(), false) },
	"sizes_at_all": func(p *paper) { showSizes(p.console, deployments(), true) },
	"sizes_goodput": func(p *paper) {
		a := deployments()
		a.Targets, a.Load = targets(0.95, predict.Target{Metric: "ttft", Quantile: 0.9, LimitMs: 2000}), predict.Load{Clients: 64}
		a.Rows = slices.Concat(a.Rows[1:2], a.Rows[3:])
		showSizes(p.console, a, false)
	},
	"sizes_none": func(p *paper) {
		a := deployments()
		a.Rows = a.Rows[2:]
		showSizes(p.console, a, false)
	},
	"features": func(p *paper) {
		lag := 1
		showFeatures(p.console, &pipeline.StepExplanation{Run: "r", Step: 77, Source: "rich", Lag: &lag, MeasuredUs: testkit.Ptr(4567.8), Members: []pipeline.BatchMember{{Request: "q", Phase: "decode", Computed: 1024, Prompt: 900, New: 1}},
			Warnings: []trace.Finding{{Code: "c", Message: "careful"}}, Explanation: &features.Explanation{SpecVersion: "1.1", PredictionUs: testkit.Ptr(4321.6), FloorUs: testkit.Ptr(1234.4),
				Inputs: []features.Quantity{{Name: "tokens", Value: 12.5, Unit: "tokens", Formula: "a + b"}}, Constants: []features.Quantity{{Name: "bytes", Value: 123456789, Unit: "B", Formula: "2 x n"}}, Factors: []features.Factor{{Name: "gpu", Value: 1.25, AddedUs: 86.44}},
				Features: []features.Explained{{Slot: 1, Name: "per_decode", Value: 12.3456789, Unit: "1", Coefficient: testkit.Ptr(3.21098), ContributionUs: testkit.Ptr(39.64), Formula: "n", Numbers: "12"},
					{Slot: 2, Name: "kv", Value: 0.5, Unit: "1/s", BoundHit: true, Formula: "b", Numbers: "1"}}}})
	},
	"inspection": func(p *paper) {
		r := &result.InspectRun{ID: "r", Tier: "requests", Identities: []result.Identity{{Status: "holds"}, {Status: "holds"}, {Status: "violated"}, {Status: "not checked"}},
			Usable:    []result.PurposeUse{{Purpose: "steps", Status: "usable"}, {Purpose: "replay", Status: "usable"}, {Purpose: "capacity", Status: "insufficient", Because: []string{"loss", "time"}}},
			Sources:   []result.InspectSource{{Source: "steps", Found: true, Got: "12 rows", Teaches: "cost"}, {Source: "log", Got: "9", Teaches: "lag", Adds: "--flag"}},
			Learnable: []result.LearnableDirection{{Direction: "weights", ShownBy: "decodes", Shown: true, Got: "5"}, {Direction: "prefill", ShownBy: "prompts", Got: "1", Adds: "longer prompts"}}, NoiseFloor: &result.RequestNoise{TTFTFrac: 0.0456, SpanFrac: 0.0123},
			Planned: []result.PlannedPoint{{InputTokens: 1000, OutputTokens: 200, Clients: 8}, {InputTokens: 2000, OutputTokens: 300, Clients: 16}}}
		showUsable(p.console, r)
		showSources(p.console, r)
		showLearnable(p.console, r)
		showPlanned(p.console, r)
		empty := &result.InspectRun{ID: "empty", Identities: []result.Identity{{Status: "not checked"}}}
		showUsable(p.console, empty)
		showLearnable(p.console, empty)
		showIdentify(p.console, nil)
		showIdentify(p.console, &result.Identify{Terms: []result.IdentifyTerm{{Name: "alpha", Identified: "within", DF: testkit.Ptr(12.345), VIF: testkit.Ptr(2.3456), HalfWidth: testkit.Ptr(0.1234)}, {Name: "beta", Identified: "prior-only"}},
			Experiments: []result.Experiment{{Description: "longer prompts", Term: "alpha", HalfWidth: testkit.Ptr(0.34), After: testkit.Ptr(0.12), GainLogDet: 3.456}}, NullDirections: []string{"a + b"}, MissingRegimes: []string{"mixed"},
			Warnings: []trace.Finding{{Code: "c", Message: "careful"}}})
		unfitError(p.console, &result.Inspect{Runs: []result.InspectRun{{}}})
		unfitError(p.console, &result.Inspect{Runs: []result.InspectRun{{}, {}}})
		err := unfitError(p.console, &result.Inspect{Runs: []result.InspectRun{{Unfit: true, Reason: "a"}, {}, {Unfit: true, Reason: "b"}}})
		p.note(fmt.Sprint(err))
	},
	"model": func(p *paper) {
		showModel(p.console, &model.Sizes{TotalParams: 8.127e9, ActiveParams: 2.345e9, WeightBytes: 16.254e9, WeightBytesPerGPU: 4.127e9, KVBytesPerToken: 131072, BytesPerKV: 1.5, KVBytesPerTokenGPU: 32768,
			WindowBytes: 12.34e6, StateBytesPerRequest: 56.78e6, Layers: []model.Folded{{Count: 36, Mixer: "attention", FFN: "dense", Params: 217.65e6, Weights: []string{"q", "k"}}},
			KV: &model.KVPool{Groups: []model.KVGroup{{Block: 16}, {Block: 32}}, BlockBytes: 1.234e6}, Defaulted: []string{"a", "b"}, Warnings: []string{"odd"}}, model.Parallel{TP: 4, DP: 2})
	},
	"extraction": func(p *paper) {
		doc := &result.Extract{Runs: make([]result.ExtractRun, 2)}
		doc.Totals.Records = result.Records{Read: 12345, Kept: 12345}
		doc.Totals.Requests = result.ExtractRequests{Engine: 1000, APIOnly: 200, Stock: 34}
		doc.Totals.Steps.Summaries = 5678
		doc.Totals.Tables = map[string]int64{"observed_requests": 1233}
		p.printExtractSummary(doc)
		doc.Totals.Records = result.Records{Read: 12345, Kept: 12340, Dropped: map[string]int64{"duplicate": 3, "unreadable": 2}}
		doc.Totals.Tables = map[string]int64{"observed_requests": 1235}
		doc.Runs[0] = result.ExtractRun{Files: []result.ExtractFile{{Kind: "iterations"}, {Kind: "passes"}}, Tables: map[string]int64{"iterations": 4001}}
		doc.Runs[1] = result.ExtractRun{Files: []result.ExtractFile{{Kind: "passes"}}, Tables: map[string]int64{"iterations": 5002}}
		p.printExtractSummary(doc)
		doc.Totals.Steps.Summaries = 0
		doc.Runs = doc.Runs[:1]
		doc.Runs[0].Warnings = []trace.Finding{{Code: "chunk_steps"}}
		p.printExtractSummary(doc)
	},
	"warnings": func(p *paper) {
		p.brief = true
		list := func(codes ...string) (out []trace.Finding) {
			for i, c := range codes {
				out = append(out, trace.Finding{Code: trace.Code(c), Message: fmt.Sprint("number ", i)})
			}
			return out
		}
		p.deferWarnings(list("b", "a", "b"))
		p.flushWarnings()
		p.deferWarnings(list("b", "a", "b")) // printed before
		p.flushWarnings()
		p.deferWarnings(list("d", "c", "d", "c", "c", "e", "file_cut"))
		p.flushWarningsBeside("pass")
		p.deferWarnings(list("f", "streams_disagree", "g", "h"))
		p.flushWarningsBeside("pass")
		p.deferWarnings(list("x", "y", "z", "v"))
		p.flushWarningsBeside("fail")
		p.brief = false
		p.deferWarnings(list("long"))
		p.quiet = true
		p.warn(list("quiet"))
		p.infof("not printed")
		p.note("not printed")
		p.quiet = false
		p.infof("%d printed", 1)
	},
}

// TestPrintedByHand compares what commands print of values of which each has a figure of its own.
func TestPrintedByHand(t *testing.T) {
	testkit.Scripts(t, *updateScripts, func(t *testing.T, head string) string {
		p := newPaper()
		printed[strings.TrimSpace(head)](p)
		var lines []string
		for _, line := range strings.Split(p.String(), "\n") {
			lines = append(lines, strings.TrimRight(line, " "))
		}
		return strings.Join(lines, "\n")
	})
	quiet := newPaper()
	quiet.json = true
	for name, show := range printed {
		if name == "sizes_goodput" || name == "sizes" || name == "sizes_at_all" || name == "prediction" || name == "model" {
			if show(quiet); quiet.out.Len() > 0 {
				t.Errorf("%s: with --json stdout has %q besides the document", name, quiet.out.String())
			}
		}
	}
}

func TestNumbersOfTheTerminal(t *testing.T) {
	p := testkit.Ptr
	for _, c := range []struct{ got, want string }{
		{number(nil), "-"}, {number(p(1234.5)), "1.23e+03"}, {number(p(0.123456)), "0.123"}, {percent(nil), "-"}, {percent(p(0.12345)), "12.3 %"}, {micros(p(1234.5678)), "1235"},
		{shortMs(nil), "-"}, {shortMs(p(99.94)), "99.9"}, {shortMs(p(100)), "100"}, {shortMs(p(1234.5)), "1234"}, {shortMs(p(0.0123)), "0.0123"},
		{amount(1.5e6, "B"), "1.5 MB"}, {amount(9.94, "x"), "9.9 x"}, {amount(9, "x"), "9 x"}, {amount(10.4, "x"), "10 x"}, {amount(0, "x"), "0 x"}, {amount(1500.4, "x"), "1500 x"},
		{progressText("read", 3e6, 12e6, "B", 2*time.Second, false), "read:  25 % 3.0 MB of 12.0 MB, 1.5 MB/s, 6s left"},
		{progressText("fit", 30, 40, "steps", 10*time.Second, true), "fit:  75 % [##################......] 30 of 40 steps, 3 steps/s, 3s left"},
		{progressText("fit", 40, 40, "steps", 10*time.Second, true), "fit: 100 % [########################] 40 of 40 steps, 4 steps/s, 0s left"},
		{progressText("fit", 50, 40, "steps", 10*time.Second, true)[:34], "fit: 125 % [######################"},
		{progressText("fit", 3, 0, "steps", 2*time.Second, true), "fit: 3 steps (1.5 steps/s)"}, {progressText("fit", 3, 0, "steps", 0, true), "fit: 3 steps (3000 steps/s)"},
		{wrapped("", 10), ""}, {wrapped("   ", 10), "   "}, {wrapped("one two three", 80), "one two three"}, {wrapped("  one two three", 9), "  one two\n    three"},
		{wrapped("12\u00a0ms and 13\u00a0ms", 12), "12 ms and\n  13 ms"},
		{plural(1, "a", "b"), "a"}, {plural(0, "a", "b"), "b"}, {plural(2, "a", "b"), "b"}, {nextWords("Use `coefficients.yaml` now", "out/coefficients.yaml"), "use out/coefficients.yaml now"},
		{strings.Join(splitList("a, b,,c d"), "|"), "a|b|c|d"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	rows := tableOf("x", cells{"a", "b", "c"}, []cells{{1, "1234", 12345678.5}, {int64(-98765), "123456789012", "word"}, {uint64(3), "1234.25", int32(1)}})
	var got []string
	for _, r := range rows.Rows {
		for _, cell := range r.Cells {
			got = append(got, cell.Text)
		}
	}
	if d := cmp.Diff([]string{"1", "1,234", "1.23456785e+07", "-98,765", "123456789012", "word", "3", "1,234.25", "1"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !rows.Cols[0].Num || rows.Cols[1].Num || rows.Cols[2].Num {
		t.Errorf("got numeric columns %+v, want the first alone", rows.Cols)
	}
}

func TestBatchesAndPrices(t *testing.T) {
	batch, err := parseBatch("2x1000,512@1024,1@0")
	want := []trace.Chunk{{Computed: 1000, Prompt: 1, New: 1}, {Computed: 1000, Prompt: 1, New: 1}, {Computed: 1024, Prompt: 1536, New: 512}, {Computed: 0, Prompt: 1, New: 1}}
	if d := cmp.Diff(want, batch); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for text, ok := range map[string]bool{"1x1": true, "0x1": false, "1x0": false, "1048577x1": false, "0@5": false, "5@-1": false, "5": false, "": false, "1x1,": false,
		"32x1000k": false, "1x1e3": false, "512@1k": false, "1x2x3": false, "1@9223372036854775807": false, "1@1099511627776": true} {
		if _, err := parseBatch(text); (err == nil) != ok {
			t.Errorf("%q: got %v", text, err)
		}
	}
	prices, err := parsePrices([]string{"A=2.5,B=1", "C=0.25"}, []string{"A", "B", "C"})
	if d := cmp.Diff(map[string]float64{"A": 2.5, "B": 1, "C": 0.25}, prices); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if prices, err := parsePrices(nil, []string{"A"}); prices != nil || err != nil {
		t.Errorf("none: got %v, %v", prices, err)
	}
	for word, want := range map[string]string{
		"A=0": `--price: got "A=0", want GPU=USD per hour of one of the candidates, as in A=2.5`, "A=-1": `--price: got "A=-1", want GPU=USD per hour of one of the candidates, as in A=2.5`,
		"A=Inf": `--price: got "A=Inf", want GPU=USD per hour of one of the candidates, as in A=2.5`, "Z=1": `--price: got "Z=1", want GPU=USD per hour of one of the candidates, as in A=2.5`,
		"A": `--price: got "A", want GPU=USD per hour of one of the candidates, as in A=2.5`, "A=1": "--price: got none of B, want one for every candidate, or none",
	} {
		if _, err := parsePrices([]string{word}, []string{"A", "B"}); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", word, err, want)
		}
	}
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{{"", 7, true}, {"12", 12, true}, {"12,13", 12, true}, {"1.5", 7, false}, {"1,000", 7, false}, {"x", 7, false}} {
		n := int64(7)
		if err := firstWhole("input-len", c.text, &n); n != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %d, %v", c.text, n, err)
		}
	}
	for _, c := range []struct {
		text, thousands, number string
	}{
		{"2,000", "--len: got \"2,000\", want a number without commas", ""}, {"2,500", "", ""}, {"2000", "", ""}, {"1,234,000", "--len: got \"1,234,000\", want a number without commas", ""},
		{"0,000", "", ""}, {"1,00", "", ""}, {"12", "", ""}, {"-3", "", ""}, {"1e3", "", ""}, {"010", "", `--len: got "010", want a decimal number`}, {"0x10", "", `--len: got "0x10", want a decimal number`},
		{"NaN", "", `--len: got "NaN", want a number`}, {"word", "", ""}, {"", "", ""},
	} {
		for what, got := range map[string][2]string{"thousands": {text(checkThousands("len", c.text)), c.thousands}, "number": {text(checkNumber("len", c.text)), c.number}} {
			if what == "number" && strings.Contains(c.text, ",") {
				continue
			}
			if got[0] != got[1] {
				t.Errorf("%s of %q: got %q, want %q", what, c.text, got[0], got[1])
			}
		}
	}
	if got := trace.HintOf(checkThousands("len", "1,234,000")); got != "" {
		t.Errorf("got the hint %q", got)
	}
	if got := hintOf(checkThousands("len", "1,234,000"), "fit"); got != "did you mean 1234000?" {
		t.Errorf("got the hint %q", got)
	}
}

// text is the message of an error; "" of none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestHintsByHand(t *testing.T) {
	dir := t.TempDir()
	misuse := func(msg, hint string) error { return &option.Misuse{Msg: msg, Hint: hint} }
	for _, c := range []struct {
		err     error
		command string
		want    string
	}{
		{misuse("a", "own"), "fit", "own"}, {misuse("a", ""), "fit", "see blis-train fit --help"}, {misuse("a", ""), "", ""},
		{trace.Hinted(errors.New("a"), "its own"), "fit", "its own"}, {trace.Errorf("no_input", "a"), "fit", "blis-train explain no_input"}, {errors.New("a"), "fit", ""},
		{errors.New(`format: got "markdwn", want markdown or json`), "", `did you mean "markdown"?`}, {errors.New(`x: got "q", want markdown or json`), "", ""},
		{errors.New("x: got 95, want a share of 0 to 1"), "", "95 % is 0.95"}, {errors.New("x: got 5, want 0..1"), "", "5 % is 0.05"}, {errors.New("x: got 0, want a share in (0, 1]"), "", ""},
		{errors.New(`x: got "true", want true or false`), "", "quotes make it a text: write true"}, {errors.New(`x: got "Yes", want true or false`), "", "write true"},
		{errors.New(`x: got "0", want true or false`), "", "write false"}, {errors.New(`x: got "fals", want true or false`), "", `did you mean "false"?`},
		{errors.New(`x: got "4", want an integer`), "", "quotes make it a text: write 4"}, {errors.New(`x: got "4.5", want an integer`), "", ""},
		{errors.New(`x: got "0.9", want a number in share of device memory`), "", "quotes make it a text: write 0.9"},
		{errors.New(`x: got "4x", want an integer`), "", ""}, {errors.New("x: got 100, want 0..1"), "", ""},
		{errors.New("write: no space left on device"), "", "free some space, or write elsewhere: df -h shows what is left"},
		{&fs.PathError{Op: "open", Path: "/a/b/c", Err: fs.ErrPermission}, "", "choose another place: ls -ld /a/b shows who may write or read here"},
		{&fs.PathError{Op: "open", Path: dir + "/none/c", Err: fs.ErrNotExist}, "", "there is no folder " + dir + "/none/; one for output is made with mkdir -p"},
		{&fs.PathError{Op: "open", Path: dir + "/c", Err: fs.ErrNotExist}, "", "there is no such file: list the folder with ls " + dir + "/"},
		{&trace.SyntaxError{File: "x/run.yaml", Msg: "bad"}, "", "docs/run-yaml.md lists every key with its type"}, {&trace.SyntaxError{File: "x/other.yaml", Msg: "bad"}, "", ""},
	} {
		if got := hintOf(c.err, c.command); got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
	a, b := errors.New("a"), errors.New("b")
	if got := errorMessages(errors.Join(a, errors.Join(b, a), b)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q, want each once", got)
	}
	if got := errorMessages(a); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %q", got)
	}
}

// TestColumnsOfSweeps: which latencies a table shows, and where they stand in a prediction.
func TestColumnsOfSweeps(t *testing.T) {
	mean := func(m string) predict.Target { return predict.Target{Metric: m} }
	at := func(m string, q float64) predict.Target { return predict.Target{Metric: m, Quantile: q} }
	for _, c := range []struct {
		t           predict.Targets
		sweep, size string
	}{
		{targets(0), "ttft mean, ttft p95, tpot mean", "ttft p95, tpot mean, e2e mean"},
		{targets(0, mean("e2e")), "ttft mean, tpot mean, e2e mean", "ttft p95, tpot mean, e2e mean"},
		{targets(0, at("tpot", 0.9), at("ttft", 0.99)), "ttft p99, tpot p90", "ttft p99, tpot p90, e2e mean"},
		{targets(0, at("itl", 0.9), at("e2e", 0.99), at("e2e", 0.9)), "itl p90, e2e p99, e2e p90", "ttft p95, itl p90, e2e p99, e2e p90"},
		{targets(0.9, at("itl", 0.9)), "ttft mean, tpot mean", "ttft p95, tpot mean, e2e mean"},
	} {
		name := func(list []predict.Target) string {
			var out []string
			for _, f := range list {
				out = append(out, f.Metric+" "+f.Figure())
			}
			return strings.Join(out, ", ")
		}
		if got := name(sweepFigures(&c.t)); got != c.sweep {
			t.Errorf("%+v: got the columns %s of predict, want %s", c.t, got, c.sweep)
		}
		if got := name(columnsOf(&sizing.Answer{Targets: c.t})); got != c.size {
			t.Errorf("%+v: got the columns %s of size, want %s", c.t, got, c.size)
		}
	}
	p := prediction()
	for _, c := range []struct {
		t    predict.Target
		want float64
	}{{mean("ttft"), 91}, {at("ttft", 0.5), 100.1}, {at("tpot", 0.9), 9.1}, {at("itl", 0.95), 13.6}, {at("e2e", 0.99), 4370}} {
		if got := predictedFigure(p, c.t); got == nil || math.Abs(*got-c.want) > 1e-9 {
			t.Errorf("%+v: got %v, want %g", c.t, got, c.want)
		}
	}
	if got := predictedFigure(p, at("ttft", 0.999)); got != nil {
		t.Errorf("a statistic that is not predicted: got %g", *got)
	}
	// Each warning is told with the first point that has it.
	w := func(n ...string) (out []trace.Finding) {
		for _, m := range n {
			out = append(out, trace.Finding{Message: m})
		}
		return out
	}
	points := []*predict.Prediction{{Warnings: w("a", "b")}, {Warnings: w("b", "c")}, {Warnings: w("a", "c")}}
	for i, want := range []string{"a b", "c", ""} {
		var got []string
		for _, f := range newWarnings(points, points[i]) {
			got = append(got, f.Message)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("point %d: got %q, want %q", i, got, want)
		}
	}
}

// TestOperatingPoints: throughput is that of a GPU, and of two points that none beats both are capitals.
func TestOperatingPoints(t *testing.T) {
	a, b, c := prediction(), prediction(), prediction()
	b.RateRPS, b.Model, b.Bound = 2.5, "other", true
	c.Refused = "x"
	zero := prediction()
	zero.TPOT.Mean = testkit.Ptr(0)
	all := []*predict.Prediction{a, b, c, zero, {}}
	if d := cmp.Diff([]operatingPoint{{"org/m-8b, 6 x H100, 1500 + 1250 tokens", "17", 2345.6, 7, false}, {"other, 6 x H100, 1500 + 1250 tokens", "2.5/s", 2345.6, 7, true}},
		predictedPoints(all), cmp.AllowUnexported(operatingPoint{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b.Bound = false
	if d := cmp.Diff([]operatingPoint{{"6 x H100", "", 2345.6, 7, false}, {"other on 6 x H100", "", 2345.6, 7, false}}, paretoPoints(all), cmp.AllowUnexported(operatingPoint{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	sized := []operatingPoint{{"3 x H100 tp 2 ep", "6.83/s", 200, 9.1, false}, {"1 x B200 tp 1 dp 4", "20.5/s", 400, 4.55, false}, {"2+3 x H100 tp 4 drafts", "4.1/s", 200, 2.275, true}}
	if d := cmp.Diff(sized, sizedPoints(deployments(), true), cmp.AllowUnexported(operatingPoint{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := sizedPoints(deployments(), false); len(got) != 2 {
		t.Errorf("without bounds: got %+v", got)
	}
	points := []operatingPoint{{"x", "", 100, 10, false}, {"x", "", 50, 5, false}, {"y", "", 50, 20, false}}
	plot := paretoPlot(points)
	want := []string{"    200 output tokens/s of a user; capitals: no other point is better in both", "        ┤" + strings.Repeat(" ", 32) + "A"}
	for i := range 10 {
		line := "        │"
		switch i {
		case 5 - 1: // half of the eleven rows above the bottom, which rounds up
			line += strings.Repeat(" ", 63) + "A"
		case 7:
			line += strings.Repeat(" ", 32) + "b"
		}
		want = append(want, line)
	}
	want = append(want, "        │", "       0└"+strings.Repeat("─", 64), "        0"+strings.Repeat(" ", 35)+"100 output tokens/s of a GPU", "        A x", "        b y", "")
	if d := cmp.Diff(want, strings.Split(plot, "\n")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := paretoPlot(points[:2]); got != "" {
		t.Errorf("two points: got %q", got)
	}
	var many []operatingPoint
	for i := range 27 {
		many = append(many, operatingPoint{fmt.Sprint(i), "", float64(i + 1), 1, false})
	}
	if paretoPlot(many) != "" || paretoPlot(many[:26]) == "" {
		t.Error("26 servers have letters, 27 do not")
	}
}

func TestWordsOfLoads(t *testing.T) {
	p := prediction()
	none := &predict.Targets{}
	one := &predict.Targets{Limits: []predict.Target{{Metric: "tpot", LimitMs: 40}}}
	yes, no := true, false
	for _, c := range []struct{ got, want string }{
		{loadText(p), "17 clients"}, {loadText(&predict.Prediction{Concurrency: 1}), "1 client"}, {loadText(&predict.Prediction{RateRPS: 2.5}), "2.5 requests/s"},
		{questionText(p), "org/m-8b on 6 x H100, dp 3, EP, 17 clients, 1,500 + 1,250 tokens"}, {questionText(&predict.Prediction{Model: "m", GPUs: 1, Hardware: "L4", DP: 1}), "m on 1 x L4, 0 clients, 0 + 0 tokens"},
		{highestText(&predict.MaxLoad{Concurrency: 1, TokensPerS: 9.6}, one, ""), "1 client, 10 output tokens/s per GPU, with tpot mean <= 40 ms"}, {highestText(&predict.MaxLoad{}, one, ""), "none meets tpot mean <= 40 ms"},
		{highestText(&predict.MaxLoad{Breaks: "x"}, one, "< "), "none meets tpot mean <= 40 ms; the lowest that was tried: x"},
		{highestText(&predict.MaxLoad{RateRPS: 14, TokensPerS: 20}, one, "< "), "< 14 requests/s, < 20 output tokens/s per GPU, with tpot mean <= 40 ms"},
		{highestText(&predict.MaxLoad{RateRPS: 1.2345, TokensPerS: 20, Breaks: "x"}, one, ""), "1.23 requests/s, 20 output tokens/s per GPU, with tpot mean <= 40 ms; above it x"},
		{highestLoad(nil, "<"), ""}, {highestLoad(&predict.MaxLoad{RateRPS: 1.2345}, "< "), "< 1.23/s"}, {highestLoad(&predict.MaxLoad{Concurrency: 1234}, ""), "1,234"},
		{serverText(&sizing.Row{Hardware: "H100-SXM-80GB", TP: 4, DP: 2, PP: 3, EP: true}), "H100 tp 4 ep dp 2 pp 3"}, {serverText(&sizing.Row{Hardware: "L4-24GB", TP: 1, DP: 1}), "L4 tp 1"},
		{metMark(&predict.Prediction{Met: &no, Bound: true}), "no"}, {metMark(&predict.Prediction{Met: &yes, Bound: true}), "bound"}, {metMark(&predict.Prediction{Met: &yes}), "yes"},
		{markOf(&sizing.Row{Met: "yes"}), "yes"}, {markOf(&sizing.Row{Met: "estimate"}), "?"}, {markOf(&sizing.Row{Met: "bound"}), "bound"},
		{targetsText(none), ""}, {targetsText(&predict.Targets{Goodput: 0.955, Limits: []predict.Target{{Metric: "ttft", Quantile: 0.9, LimitMs: 1500}, {Metric: "tpot", LimitMs: 40.5}}}),
			"95.5 % of requests with ttft <= 1,500 ms, tpot <= 40.5 ms"},
		{lengthsText(&predict.Load{InputTokens: 2000, OutputTokens: 1300}), "2,000 + 1,300 tokens"}, {lengthsText(&predict.Load{}), "lengths of the workload"},
		{sizeTitle(&sizing.Answer{Model: "m", Version: "v", Load: predict.Load{Clients: 5}}), "m, 5 clients, lengths of the workload, vLLM v (latencies in ms)"},
		{sizeTitle(&sizing.Answer{Model: "m", Version: "v"}), "m, the workload's arrivals, lengths of the workload, vLLM v (latencies in ms)"},
		{figureText(&deployments().Rows[0], predict.Target{Metric: "e2e", Quantile: 0.9}), "3560"}, {figureText(&deployments().Rows[0], predict.Target{Metric: "e2e", Quantile: 0.99}), ""},
		{predict.FlagOfSetting("vllm.version"), "vllm-version"}, {predict.FlagOfSetting("data_parallel_size"), "dp"}, {predict.FlagOfSetting("block_size"), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestSizeCommandOfAPrediction: a rate, also one below 1 per second, or clients.
func TestSizeCommandOfAPrediction(t *testing.T) {
	q := &predict.Question{Model: "org/m", SLO: predict.Targets{Limits: []predict.Target{{Metric: "ttft", Quantile: 0.99, LimitMs: 250}}}}
	p := &predict.Prediction{}
	p.Hardware, p.InputTokens, p.OutputTokens, p.Concurrency = "H100", 100, 10, 7
	for rate, want := range map[float64]string{0: "--concurrency 7", 0.5: "--rate 0.5", 1: "--rate 1"} {
		p.RateRPS = rate
		if got, want := sizeCommandFor(q, p), "blis-train size --model org/m --hardware H100 "+want+" --input-len 100 --output-len 10 --slo ttft.p99=250ms"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
