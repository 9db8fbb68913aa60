package export

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

var yes, no = true, false

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestMeanLatenciesByHand: steps of 2 ms on a server without other delays. Request a takes steps 1 to 3, b, which comes
// 0.5 ms later, steps 2 and 3, and c, whose prompt is too long, never runs.
func TestMeanLatenciesByHand(t *testing.T) {
	cfg := sim.DefaultConfig(testkit.Small(100), &sim.Blackbox{Beta: []float64{2000, 0, 0}})
	reqs := []sim.Request{{ID: "a", PromptTokens: 4, OutputTokens: 3}, {ID: "b", ArrivalUs: 500, PromptTokens: 4, OutputTokens: 1}, {ID: "c", ArrivalUs: 500, PromptTokens: 1000, OutputTokens: 1}}
	got, err := meanLatencies(&cfg, reqs)
	if want := [3]float64{(2 + 3.5) / 2, 2, (6 + 3.5) / 2}; err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := meanLatencies(&cfg, reqs[2:]); !errors.Is(err, workload.ErrNothingFinished) {
		t.Errorf("nothing finished: got %v", err)
	}
}

// TestReplicaByHand: the state of a replica that KEDA reads, by Little's law over the requests of one draw.
func TestReplicaByHand(t *testing.T) {
	d := testkit.Small(1000)
	m := &sim.Blackbox{Beta: []float64{2000, 10, 0}}
	traffic := workload.ChatTraffic(d, 20, 6)
	traffic.Requests = 40
	traffic.RateRPS = 100
	traffic.Shape.Cached = 5
	var ttft []float64
	var waiting, held, last float64
	drawn := traffic
	reqs, _ := drawn.Draw()
	res, err := sim.Run(sim.DefaultConfig(d, m), reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Requests {
		r := &res.Requests[i]
		us, _ := r.TTFTUs()
		ttft = append(ttft, us/1e3)
		waiting += us * float64(r.PromptTokens) * 0.75 // 15 of 20 tokens are not cached
		held += float64(r.FinishedUs.V-r.ScheduledUs.V) * float64(r.PromptTokens+r.OutputTokens/2)
		last = math.Max(last, float64(r.FinishedUs.V))
	}
	slices.Sort(ttft)
	mean := 0.0
	for _, ms := range ttft {
		mean += ms / float64(len(ttft))
	}
	for statistic, want := range map[string]float64{"mean": mean, "p90": ttft[35] + 0.1*(ttft[36]-ttft[35]), "p99": ttft[38] + 0.61*(ttft[39]-ttft[38])} {
		drawn := traffic
		s := &scaler{Uncached: 15, statistic: statistic}
		got, err := s.simulateReplica(d, m, &drawn)
		if err != nil || !near(got.inflight, waiting/last) || !near(got.usage, held/last/float64(1000*d.Engine.BlockSize)) || !near(got.ttftMs, want) {
			t.Errorf("%s: got %+v, %v, want TTFT of %g ms, %g tokens in flight and %g of the cache", statistic, got, err, want, waiting/last, held/last/float64(1000*d.Engine.BlockSize))
		}
	}
}

// featuredStep is a step time that states its features.
type featuredStep struct {
	perToken
	x []float64
}

func (f featuredStep) Features() []float64 { return f.x }

// TestRateIntervalByHand: features of 3 and 4 with variances of 4 and 9 and a covariance of 1 have the variance
// 9 x 4 + 16 x 9 + 2 x 12 = 204.
func TestRateIntervalByHand(t *testing.T) {
	d := testkit.DeploymentOf(1)
	set := &coeff.Set{SpecVersion: features.V11, Beta: make([]coeff.Coefficient, 2), Covariance: [][]float64{{4, 1}, {1, 9}}}
	src := &Source{Set: func() (*coeff.Set, error) { return set, nil }}
	got, err := src.rateInterval(&d, featuredStep{x: []float64{3, 4}}, 5000, 1000)
	half := 1.96 * math.Sqrt(204)
	if err != nil || got == nil || !near(got[0], 5000/(1000+half)*1e6) || !near(got[1], 5000/(1000-half)*1e6) {
		t.Fatalf("got %v, %v", got, err)
	}
	if got, _ := src.rateInterval(&d, featuredStep{x: []float64{3, 4}}, 5000, 20); !near(got[1], 5000*1e6) {
		t.Errorf("a step as short as its error: got %v", got)
	}
	if got, err := src.rateInterval(&d, perToken{}, 5000, 1000); got != nil || err != nil {
		t.Errorf("a step without features: got %v, %v", got, err)
	}
	if got, err := src.rateInterval(&d, featuredStep{x: []float64{3}}, 5000, 1000); got != nil || err != nil {
		t.Errorf("a covariance of another size: got %v, %v", got, err)
	}
	if got, err := (&Source{}).rateInterval(&d, featuredStep{}, 5000, 1000); got != nil || err != nil {
		t.Errorf("no coefficients: got %v, %v", got, err)
	}
	r := &prefillRate{PerS: 19008.4, Chunk: 8192, TTFTMs: 430.96, CI95: &[2]float64{18000.4, 20000.6}}
	if got := r.Sentence(); got != "V_P 19008 tokens/s (95 %: 18000 to 20001, of the step time's coefficients): a prompt of 8192 tokens on an idle engine has a TTFT of 431.0 ms" {
		t.Errorf("got %s", got)
	}
}

// TestNamesByHand: labels as file names, numbers and texts as people read them.
func TestNamesByHand(t *testing.T) {
	for label, want := range map[string]string{"A": "a", "Z": "z", "az09.-": "az09", "a b@[`{/:c": "a-b------c", ".-x-.": "x", "Llama-3.1-8B on H100, tp 2": "llama-3.1-8b-on-h100--tp-2"} {
		if got := slug(label); got != want {
			t.Errorf("%s: got %s, want %s", label, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 3: "3", -7: "-7", 999_999: "999999", 1e6: "1e+06", -1e6: "-1e+06", 1.5: "1.5", 1234.5: "1.23e+03", 0.12345: "0.123"} {
		if got := three(v); got != want {
			t.Errorf("%g: got %s, want %s", v, got, want)
		}
	}
	if got := markdownText("a|b_c*<d>&`e`[f]#@g\\\nh"); strings.ContainsAny(strings.NewReplacer(`\|`, "", `\_`, "", `\*`, "", `\[`, "", `\]`, "", `\#`, "", `\\`, "", "&lt;", "", "&gt;", "", "&amp;", "", "&#64;", "").Replace(got), "|_*<>&`[]#@\\\n") {
		t.Errorf("got %s", got)
	}
	e := &blisEntry{config: &result.FitConfig{Label: "c"}, suffix: ".c.yaml"}
	if e.valueKey("k") != "c.k" {
		t.Errorf("got %s", e.valueKey("k"))
	}
	if e.suffix = ""; e.valueKey("k") != "k" || (&blisEntry{suffix: ".x"}).valueKey("k") != "k" {
		t.Error("a value of the main file has a label")
	}
	for pass, want := range map[*bool]string{nil: "not judged", &yes: "pass", &no: "fail"} {
		if got := passWord(pass); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, c := range []struct {
		c    result.Coefficient
		want bool
	}{
		{result.Coefficient{Coefficient: coeff.Coefficient{Value: 1}}, true},
		{result.Coefficient{}, false},
		{result.Coefficient{Coefficient: coeff.Coefficient{Value: 1, Identified: "prior-only"}}, false},
		{result.Coefficient{Coefficient: coeff.Coefficient{Value: 1}, NotLearned: true}, false},
	} {
		if got := learned(c.c); got != c.want {
			t.Errorf("%+v: got %v", c.c, got)
		}
	}
	for _, c := range []struct {
		value, lo, hi float64
		want          []float64
	}{{5, 1, 9, []float64{1, 9}}, {5, -1, 9, []float64{0, 9}}, {5, 5, 5, []float64{5, 5}}, {5, 6, 9, nil}, {5, 1, 4, nil}, {-1, -2, 3, nil}} {
		if got := within(c.value, c.lo, c.hi); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	v := hostValue("k", &regEntry{Value: 7, Units: "us", CI95: []float64{6, 9}, Sources: []regSource{{Cite: "cite"}}}, "each request")
	if *v.Value != 7 || v.Key != "k" || v.Name != "k" || v.Unit != "us" || *v.CI95 != [2]float64{6, 9} || v.Origin != "cite" || v.Effect != "charged to each request" || !v.Learned || v.Identified != "measured" {
		t.Errorf("got %+v", v)
	}
	if v := hostValue("k", &regEntry{Sources: []regSource{{}}}, ""); v.CI95 != nil {
		t.Errorf("got %+v", v)
	}
}

// TestOptionsByHand: the lengths and codes of an export at their ends.
func TestOptionsByHand(t *testing.T) {
	for want, o := range map[string]Options{
		"--prompt-tokens: got -1 ": {PromptTokens: -1}, "--prompt-tokens: got 1.0000001e+07 ": {PromptTokens: 1e7 + 1}, "--output-tokens: got NaN ": {OutputTokens: math.NaN()},
		`--force: got "x", want `: {Force: " poor_projection ,x"}, "": {PromptTokens: 1e7, Force: "unlearned_value,, bad_entry"},
	} {
		if err := o.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) && !strings.HasPrefix(want, "--force") {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	for _, code := range forceable {
		o := Options{Force: "x, " + string(code) + " "}
		if !o.Overrules(code) || (&Options{Force: "x"}).Overrules(code) {
			t.Errorf("%s is not overruled by its name, or by another", code)
		}
	}
	p := testkit.Ptr
	for name, c := range map[string]struct {
		o    Options
		fit  result.FitConfig
		want Lengths
		warn bool
	}{
		"given":         {Options{PromptTokens: 7, OutputTokens: 8}, result.FitConfig{MeanPromptTokens: p(70.0)}, Lengths{7, 8}, false},
		"of the fit":    {Options{}, result.FitConfig{MeanPromptTokens: p(70.0), MeanOutputTokens: p(80.0)}, Lengths{70, 80}, false},
		"one of each":   {Options{OutputTokens: 8}, result.FitConfig{MeanPromptTokens: p(70.0)}, Lengths{70, 8}, false},
		"assumed":       {Options{}, result.FitConfig{}, Lengths{512, 128}, true},
		"means of zero": {Options{}, result.FitConfig{MeanPromptTokens: p(0.0), MeanOutputTokens: p(80.0)}, Lengths{512, 80}, true},
	} {
		if got, warn := c.o.MeanLengths(c.fit); got != c.want || (len(warn) == 1) != c.warn || c.warn && warn[0].Message != fmt.Sprintf(": %.0f prompt and %.0f output tokens", got.Prompt, got.Output) {
			t.Errorf("%s: got %+v, %v", name, got, warn)
		}
	}
	known := []Setting{{Key: "n", Number: true, Default: "3"}, {Key: "w", OneOf: []string{"a", "b"}, Default: "a"},
		{Key: "rows", Number: true, Least: 1}, {Key: "d", Resource: true}, {Key: "ns", Label: true}}
	long := strings.Repeat("a", 63)
	for words, want := range map[string]string{"": "", "n=0": "", "n=1e12": "", "n=1000000000001": "number", "n=-1": "number", "n=x": "number", "w=b": "", "w=c": "want a or b", "x=1": "want KEY=VALUE", "n": "want KEY=VALUE",
		"rows=1": "", "rows=0": "want a number from 1 to", "d=a.b-1": "", "d=A": "a name that Kubernetes takes", "d=a..b": "a name that Kubernetes takes",
		"d=": "", "ns=": "", "ns=" + long: "", "ns=" + long + "a": "a name that Kubernetes takes", "ns=a.b": "a name that Kubernetes takes",
		"d=" + strings.Repeat("a", 253): "", "d=" + strings.Repeat("a", 254): "a name that Kubernetes takes"} {
		s, err := ParseSettings("f", known, strings.Fields(words))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", words, err, want)
		}
		if words == "" && (s.Float("n") != 3 || s["w"] != "a" || s.Float("none") != 0) {
			t.Errorf("got %v", s)
		}
	}
	if _, err := ParseSettings("f", nil, []string{"a=b"}); err == nil || !strings.Contains(err.Error(), "format f has no options") {
		t.Errorf("got %v", err)
	}
}

// TestErrorsOfAProjectionByHand: each error is refused beyond its limit and not at it.
func TestErrorsOfAProjectionByHand(t *testing.T) {
	entry := func() *blisEntry {
		e := &blisEntry{config: &result.FitConfig{Label: "c"}, limits: projectionLimits{MAPE: 0.25, Bias: 0.125, TTFT: 0.5, ITL: 0.25, E2E: 0.125}}
		e.fits.Errors = []Error{{MAPE: 0.25}, {Kind: decode, MAPE: 0.1, Bias: -0.125}, {Kind: mixed, MAPE: 0.3, Bias: 0.125}, {Kind: prefill, MAPE: 0.2}}
		e.loads = []LoadPoint{{LoadFrac: 0.3, TTFTRatio: 1.5, ITLRatio: 0.75, E2ERatio: 1.125}}
		return e
	}
	for want, change := range map[string]func(e *blisEntry){
		"": func(*blisEntry) {},
		"steps 26.0 % off on average, want at most 25 %":                   func(e *blisEntry) { e.fits.Errors[0].MAPE = 0.26 },
		"steps NaN % off on average, want at most 25 %":                    func(e *blisEntry) { e.fits.Errors[0].MAPE = math.NaN() },
		"decode batches -13.0 % together, want within 12.5 %":              func(e *blisEntry) { e.fits.Errors[1].Bias = -0.13 },
		"prefill batches +14.0 % together, want within 12.5 %":             func(e *blisEntry) { e.fits.Errors[3].Bias = 0.14 },
		"mean TTFT 1.51 times the model's at 30 % load, want within 50 %":  func(e *blisEntry) { e.loads[0].TTFTRatio = 1.51 },
		"mean ITL 0.74 times the model's at 30 % load, want within 25 %":   func(e *blisEntry) { e.loads[0].ITLRatio = 0.74 },
		"mean E2E 0.87 times the model's at 30 % load, want within 12.5 %": func(e *blisEntry) { e.loads[0].E2ERatio = 0.87 },
		"mean E2E 1.13 times the model's at 30 % load, want within 12.5 %": func(e *blisEntry) { e.loads[0].E2ERatio = 1.13 },
	} {
		e := entry()
		change(e)
		if got := strings.Join(e.errorsBeyondLimits(), "; "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	e := entry()
	if got := e.likelyCause(); !strings.HasPrefix(got, "worst for mixed batches (30.0 % on average); a likely cause: the time of a prompt does not grow") {
		t.Errorf("got %s", got)
	}
	e.fits.Errors[1].MAPE = 0.31
	if got := e.likelyCause(); !strings.HasPrefix(got, "worst for decode batches (31.0 % on average); a likely cause: decode steps are not linear") {
		t.Errorf("got %s", got)
	}
	e.limits = kernelLimits
	e.isKernelMode = true
	if got := e.likelyCause(); !strings.Contains(got, "the kernel mode has no term") {
		t.Errorf("got %s", got)
	}
	if got := e.documentErrors(); len(got) != 4 || got[0].Batches != "all" || got[1].Batches != "decode" || *got[2].MAPE != 0.3 || *got[1].Bias != -0.125 {
		t.Errorf("got %+v", got)
	}
	if got := e.projected(); got.Label != "c" || len(got.Loads) != 1 || got.Limits != kernelLimits || len(got.Errors) != 4 {
		t.Errorf("got %+v", got)
	}
	e.alpha = []blisValue{{value: 100, origin: "o"}, {value: 7}}
	if e.waitNote() != "" || e.alphaValues()[0].origin != "o" {
		t.Error("a wait is stated where there is none")
	}
	e.addWait(30)
	if got := e.waitNote(); e.alpha[0].value != 130 || e.waitUs != 30 || !strings.HasPrefix(got, "30.0 us of it are the wait") || !strings.HasSuffix(got, "needs 100.0 us") || e.alphaValues()[0].origin != "o; "+got || e.alpha[0].origin != "o" {
		t.Errorf("got %+v, %s", e.alpha, got)
	}
	values := sideValues("a", []blisValue{{blisTerm: blisTerm{Name: "x", Units: "us", Role: "steps", Zero: "nothing"}, value: 3, ci95: &[2]float64{2, 4}, identified: "i", learned: true, origin: "o"}, {blisTerm: blisTerm{Zero: "nothing"}}})
	if *values[0].Value != 3 || values[0].Key != "a[0]" || values[0].Unit != "us" || values[0].Effect != "multiplies steps" || values[1].Effect != "0: nothing" || values[1].Key != "a[1]" || *values[0].CI95 != [2]float64{2, 4} {
		t.Errorf("got %+v", values)
	}
	if got := numbers([]blisValue{{value: 3}, {value: 5}}); !slices.Equal(got, []float64{3, 5}) {
		t.Errorf("got %v", got)
	}
	// Times of 10 and 20 us, of which the terms give 11 and 16: 10 % and -20 % off, together -3 of 30.
	p := &Projection{Beta: []float64{2, 1}}
	got := p.errorOf(mixed, &rowSet{x: [][]float64{{5, 1}}, y: []float64{10}}, &rowSet{x: [][]float64{{8, 0}}, y: []float64{20}})
	if got.Kind != mixed || got.Steps != 2 || !near(got.MAPE, 0.15) || !near(got.Worst, -0.2) || !near(got.Bias, -0.1) {
		t.Errorf("got %+v", got)
	}
	l := law{busy: []float64{8}}
	for n, want := range map[int]float64{8: 1, 4: 0.5, 16: 0.5, 32: 1. / 17} {
		if got := l.weightOf(n); !near(got, want) || (&law{}).weightOf(n) != 1 {
			t.Errorf("%d requests: got %g", n, got)
		}
	}
	s := &sampled{}
	s.noteTerms(featuredStep{x: []float64{-3, 1}})
	s.noteTerms(featuredStep{x: []float64{2, -4}})
	if s.noteTerms(perToken{}); !slices.Equal(s.seen, []float64{3, 4}) {
		t.Errorf("got %v", s.seen)
	}
}

// TestDrawsByHand: the batches of a region keep its budget, its longest request and its kind.
func TestDrawsByHand(t *testing.T) {
	r := Region{Prompt: 300, Output: 100, Seats: 6, Budget: 512, Longest: 2000}
	drawn := Draws(r)
	for kind, want := range map[kind]int{decode: 4 * 24, mixed: 4 * 24, prefill: 4 * 8} { // 1, 2, 4 and 6 requests
		if len(drawn[kind]) != want {
			t.Errorf("%s: got %d batches, want %d", kind, len(drawn[kind]), want)
		}
	}
	most := map[kind]int{}
	for kind, list := range drawn {
		for i, batch := range list {
			tokens, prompts := int64(0), 0
			for _, c := range batch {
				tokens += c.New
				if c.Computed < c.Prompt {
					prompts++
				}
				if c.Prompt > 1500 || c.Computed > 2000 || c.New < 1 || c.Prompt < 1 {
					t.Errorf("%s batch %d: got %+v", kind, i, c)
				}
			}
			most[kind] = max(most[kind], len(batch))
			size := []int{1, 2, 4, 6}[i*4/len(list)]
			if kind == mixed && size > 1 { // with a decode beside as many prompts
				size++
			}
			if tokens > 512 || len(batch) > size || kind == decode && (prompts > 0 || len(batch) != []int{1, 2, 4, 6}[i*4/len(list)]) || kind == prefill && prompts != len(batch) || kind == mixed && prompts == 0 {
				t.Errorf("%s batch %d: got %d tokens, %d prompts of %d", kind, i, tokens, prompts, len(batch))
			}
		}
	}
	if most[decode] != 6 || most[mixed] < 6 || most[prefill] < 2 {
		t.Errorf("got at most %v requests", most)
	}
	for _, w := range []struct {
		tokens   float64
		quarters int64
		want     int64
	}{{0.2, 3, 1}, {700.4, 3, 700}, {5000, 3, 1500}, {5000, 1, 500}} {
		if got := r.cut(w.tokens, w.quarters); got != w.want {
			t.Errorf("%g tokens: got %d, want %d", w.tokens, got, w.want)
		}
	}
	if r.Longest = 0; r.cut(5000, 1) != 5000 {
		t.Error("a limit where there is none")
	}
	whole := Region{Prompt: 600, Output: 100, Seats: 4, Budget: 512, Whole: true}
	for _, batch := range Draws(whole)[prefill] {
		for i, c := range batch {
			if i > 0 && c.New != c.Prompt-c.Computed {
				t.Errorf("a prompt of %d is cut at %d behind another", c.Prompt, c.New)
			}
		}
	}
	d := testkit.DeploymentOf(1)
	if got := RegionOf(&d, 30, 7); got.Prompt != 30 || got.Output != 7 || got.Seats != d.Seats(37) || got.Budget != d.Engine.MaxNumBatchedTokens || got.Longest != d.LongestSequence().Or(0) || got.Whole == d.Engine.ChunkedPrefill {
		t.Errorf("got %+v", got)
	}
	one := Draws(Region{Prompt: 10, Output: 10, Seats: 1, Budget: 64})
	if len(one[decode]) != 24 {
		t.Errorf("one request at a time: got %d batches", len(one[decode]))
	}
}

// TestCatalogByHand: sizes of the models in BLIS's catalog.
func TestCatalogByHand(t *testing.T) {
	a := catalogModel{layers: 2, hidden: 8, vocab: 100, routed: 4, topK: 2}
	for _, change := range []func(c *catalogModel){func(c *catalogModel) { c.layers++ }, func(c *catalogModel) { c.hidden++ }, func(c *catalogModel) { c.routed++ }, func(c *catalogModel) { c.topK++ }} {
		o := a
		if change(&o); a.isLike(&o) || o.isLike(&a) {
			t.Errorf("%+v is like %+v", o, a)
		}
	}
	o := a
	if o.vocab++; !a.isLike(&o) {
		t.Error("another vocabulary makes other layers")
	}
	var sizes []string
	for i := range catalogModels {
		c := &catalogModels[i]
		sizes = append(sizes, fmt.Sprintf("%s %d %d %d %d/%d %s", c.name, c.layers, c.hidden, c.vocab, c.topK, c.routed, c.weights))
	}
	testkit.Document(t, "catalog_sizes", sizes)
	if got := a.sizes(); got != "2 layers of 8 with 2 of 4 experts" {
		t.Errorf("got %s", got)
	}
	if a.routed = 0; a.sizes() != "2 layers of 8" {
		t.Errorf("got %s", a.sizes())
	}
	d := testkit.DeploymentOf(1)
	if got := catalogHint(&d.Model); !strings.HasPrefix(got, "--option model=") {
		t.Errorf("got %s", got)
	}
}

// TestCitesByHand: the runs and provenance of a fit, and the error of its own step time on the recordings of the scope, not that of the model
// for comparison; of the library its version.
func TestCitesByHand(t *testing.T) {
	src := Source{Fit: &result.Fit{}, FitInput: result.Input{SHA256: "ab"}}
	src.Fit.ToolVersion = "7"
	src.Fit.Runs = []result.FitRun{{ID: "a", Used: true}, {ID: "b"}, {ID: "c", Used: true}}
	if got := registryCite(src); got != "blis-train 7, fit.json sha256 ab, 2 runs" {
		t.Errorf("got %s", got)
	}
	src.Fit.Configs = []result.FitConfig{{Key: "k", Runs: []string{"c", "a"}, Deployment: deploy.Deployment{Provenance: "y"}}, {Runs: []string{"a"}, Deployment: deploy.Deployment{Provenance: "x"}}, {}}
	src.Fit.Models = []result.Model{{Name: blisModel, Holdout: &result.Errors{Rows: 9, MAPE: testkit.Ptr(0.9)}}}
	cell := func(config string, rows int, mape float64) result.Cell {
		return result.Cell{Config: config, Errors: result.Errors{Rows: rows, MAPE: &mape}}
	}
	src.Fit.Beta.Cells = []result.Cell{cell("k", 30, 0.01), cell("k", 10, 0.05), cell("other", 50, 0.7)}
	if got := registryCite(src); got != "blis-train 7, fit.json sha256 ab, 2 runs (x; y)" {
		t.Errorf("got %s", got)
	}
	e := (&hostScope{cfgs: []*result.FitConfig{&src.Fit.Configs[0], &src.Fit.Configs[1]}}).entry(src, 3, "us")
	if e.Value != 3 || e.Units != "us" || e.Method != "measured" || !e.Fitted || e.Rationale != "" || e.Sources[0].Cite != registryCite(src)+"; recordings a, c; their hold-out rows, not fitted: step-time MAPE 0.0200 over 40 rows" {
		t.Errorf("got %+v", e)
	}
	src.Library = "L"
	if got := registryCite(src); got != "blis-train 7, coefficients of its library L" {
		t.Errorf("got %s", got)
	}
	if e := (&hostScope{}).entry(src, 3, "us"); e.Method != "assumed" || e.Fitted || e.Rationale == "" || e.Value != 3 {
		t.Errorf("got %+v", e)
	}
	scopes := []regScope{{Hardware: []string{"h"}, Model: []string{"m"}, TP: []int64{1}}, {Hardware: []string{"g"}, Model: []string{"m"}, TP: []int64{1}}, {Hardware: []string{"h"}, Model: []string{"n"}, TP: []int64{1}}, {Hardware: []string{"h"}, Model: []string{"m"}, TP: []int64{2}}}
	for i := range scopes {
		for k := range scopes {
			if scopes[i].equal(&scopes[k]) != (i == k) {
				t.Errorf("%+v equals %+v: %v", scopes[i], scopes[k], i != k)
			}
		}
	}
}

// TestVerdictChangesByHand: what is new, and what was never said before.
func TestVerdictChangesByHand(t *testing.T) {
	verdict := func(purpose, scope, v string) coeff.PurposeVerdict {
		return coeff.PurposeVerdict{Purpose: purpose, Scope: scope, Verdict: v}
	}
	notes := func(old []coeff.PurposeVerdict, now ...coeff.PurposeVerdict) []string {
		v := &result.Validation{}
		for _, p := range now {
			v.Purposes = append(v.Purposes, result.PurposeVerdict{PurposeVerdict: p})
		}
		var out result.Changes
		verdictChanges(&out, &Old{Purposes: old}, v)
		return out.Notes
	}
	before := []coeff.PurposeVerdict{verdict(coeff.PurposeSteps, "r", "pass")}
	for name, c := range map[string]struct{ got, want []string }{
		"a scope that is new":   {notes(before, verdict(coeff.PurposeSteps, "s", "pass")), []string{"s is new"}},
		"of another purpose":    {notes(before, verdict(coeff.PurposeReplay, "s", "pass")), nil},
		"of all":                {notes(before, verdict(coeff.PurposeSteps, coeff.ScopeAll, "pass")), nil},
		"nothing was validated": {notes(nil, verdict(coeff.PurposeSteps, "s", "pass")), []string{"no verdicts by purpose before"}},
		"the same":              {notes(before, before...), nil},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %q, want %q", name, c.got, c.want)
		}
	}
	if got := Since(&Old{Set: &coeff.Set{}}, &result.Validation{}, nil); !slices.Contains(got.Notes, "no coefficients to compare with") {
		t.Errorf("got %q", got.Notes)
	}
	if got := Since(&Old{}, &result.Validation{}, &coeff.Set{}); !slices.Contains(got.Notes, "no coefficients to compare with") {
		t.Errorf("got %q", got.Notes)
	}
	of := func(outcome string, failed ...string) *result.PurposeVerdict {
		return &result.PurposeVerdict{PurposeVerdict: verdict(coeff.PurposeSteps, "s", outcome), Failed: failed}
	}
	for v, want := range map[*result.PurposeVerdict]string{
		nil: "no validation of these coefficients", of(coeff.VerdictPass): "", of("unknown"): "verdict for steps of s: unknown",
		of("fail", "a of s", "b of t"): "verdict for steps of s: fail: a of s, b of t",
	} {
		got := verdictWarnings(v)
		if (len(got) == 0) != (want == "") || want != "" && !strings.HasPrefix(got[0].Message, want) || v != nil && want != "" && got[0].Message != want {
			t.Errorf("got %v, want %q", got, want)
		}
	}
	if got := NewHeadline(nil, &result.Validation{Verdict: "v", Gates: []result.Gate{{Gate: coeff.Gate{Name: "ks_itl", Value: testkit.Ptr(0.2)}}, {Gate: coeff.Gate{Name: "ks_itl", Value: testkit.Ptr(0.3)}}, {Gate: coeff.Gate{Name: "ks_itl"}}, {Gate: coeff.Gate{Name: "ks_e2e", Value: testkit.Ptr(0.1)}}}}); *got.KSITL != 0.3 || *got.KSE2E != 0.1 || got.KSTTFT != nil || got.Verdict != "v" || got.Rows != 0 {
		t.Errorf("got %+v", got)
	}
	_, bad := Read(failingReader{}, "l")
	if len(bad) != 1 || !strings.Contains(bad[0].Error(), "ledger l: torn disk") {
		t.Errorf("got %v", bad)
	}
	replay := &coeff.Set{Recipe: "relative", SpecVersion: features.V11, Beta: make([]coeff.Coefficient, len(features.BetaFeatures(features.V11)))}
	for i, f := range features.BetaFeatures(features.V11) {
		replay.Beta[i].Value = -1
		if got := impossible(replay); (len(got) == 1) == f.Free || len(got) == 1 && got[0].Code != coeff.ImpossibleCoefficient {
			t.Errorf("a negative %s: got %v", f.Name, got)
		}
		replay.Beta[i].Value = 0
	}
	if len(impossible(replay)) != 0 {
		t.Error("zeros are impossible")
	}
	if replay.Recipe, replay.Beta[0].Value = "published", -1; impossible(replay) != nil {
		t.Error("published recipes have signs of their own")
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("torn disk") }

// TestProbesByHand: the largest batches that a deployment allows.
func TestProbesByHand(t *testing.T) {
	d := testkit.DeploymentOf(1)
	d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens, d.Engine.MaxModelLen, d.Engine.BlockSize = 4, 512, trace.Some[int64](300), 16
	d.Engine.KVBlocksGPU = trace.Some[int64](40)
	got := probes(&d)
	if len(got) != 2 || got[0].what != "a prompt of 300 tokens in one step" || !slices.Equal(got[0].batch, []trace.Chunk{{Prompt: 300, New: 300}}) {
		t.Errorf("got %+v", got[0])
	}
	seats := d.Seats(1)
	depth := 40/seats*16 - 1
	if got[1].what != fmt.Sprintf("%d decodes at %d tokens of context", seats, depth) || int64(len(got[1].batch)) != seats || got[1].batch[0] != (trace.Chunk{Computed: depth, Prompt: depth, New: 1}) {
		t.Errorf("got %+v", got[1])
	}
	set := &coeff.Set{SpecVersion: features.V11}
	for i := range 3 {
		set.Beta = append(set.Beta, coeff.Coefficient{Name: fmt.Sprint("b", i), Value: 1, Range: &[2]float64{0, 10}})
	}
	ranges := func(x ...float64) []string {
		found, err := featureRanges(set, &d, func(*deploy.Deployment, []trace.Chunk) ([]float64, error) { return x, nil })
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range found {
			out = append(out, f.Message[:strings.Index(f.Message, " with")])
		}
		return out
	}
	if got := ranges(15, 15, 15); got != nil {
		t.Errorf("at 1.5 times: got %q", got)
	}
	if got := ranges(15, 15.5, 0); !slices.Equal(got, []string{"b1: up to 15.5"}) {
		t.Errorf("beyond 1.5 times: got %q", got)
	}
	failed := errors.New("no features")
	if _, err := featureRanges(set, &d, func(*deploy.Deployment, []trace.Chunk) ([]float64, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}
