package gate

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestOutcomeOfOneGate: a value beside a threshold of 10 %: its result, note and fields.
func TestOutcomeOfOneGate(t *testing.T) {
	g := &Gate{Name: "x", Op: "<", Threshold: 0.1, Reason: "why", Spec: "s", Purposes: []string{"replay"}}
	r := &Rules{loosened: map[string]string{}}
	interval := func(lo, hi float64) *[2]float64 { return &[2]float64{lo, hi} }
	for name, c := range map[string]struct {
		in     reading
		pass   string // y, n or -
		note   string
		option bool
	}{
		"no value":             {reading{missing: "m"}, "-", "m", false},
		"no value, optional":   {reading{missing: "m", optional: true}, "-", "m", true},
		"below":                {reading{value: num(0.09), remark: "r"}, "y", "r", false},
		"at":                   {reading{value: num(0.1)}, "n", "", false},
		"few":                  {reading{value: num(0.09), few: "too few"}, "-", "too few", false},
		"19 of them":           {reading{value: num(0.09), size: 19}, "-", "insufficient data: 19 compared, want at least 20", false},
		"20 of them":           {reading{value: num(0.09), size: 20}, "y", "", false},
		"19 windows":           {reading{value: num(0.09), size: 19, windows: true}, "-", "insufficient data: 19 held-out windows of 10 s compared, want at least 20", false},
		"no interval":          {reading{value: num(0.09), estimate: true, size: 25}, "-", "insufficient data: 25 compared, want at least 20", false},
		"a narrow interval":    {reading{value: num(0.09), estimate: true, size: 25, interval: interval(0.08, 0.1)}, "y", "", false},
		"reaches the limit":    {reading{value: num(0.09), estimate: true, size: 25, interval: interval(0.01, 0.1999)}, "y", "", false},
		"twice the threshold":  {reading{value: num(0.09), estimate: true, size: 25, interval: interval(-0.02, 0.2)}, "-", "insufficient data: between -2.0 and +20.0 %, want within 10 %, with 25 compared: ", false},
		"wholly at it":         {reading{value: num(0.15), estimate: true, size: 25, interval: interval(0.1, 0.2)}, "n", "", false},
		"wholly below it":      {reading{value: num(0.15), estimate: true, size: 25, interval: interval(-0.2, -0.1)}, "n", "", false},
		"reaches below it":     {reading{value: num(0.15), estimate: true, size: 25, interval: interval(0.0999, 0.2)}, "-", "insufficient data: between +9.99 and +20.0 %, want within 10 %", false},
		"between, 0 is inside": {reading{value: num(0.15), estimate: true, size: 25, interval: interval(-0.15, 0.45)}, "-", "insufficient data: between -15.0 and +45.0 %", false},
	} {
		out := r.apply(g, "scope", c.in)
		pass := "-"
		if out.Pass != nil {
			pass = map[bool]string{true: "y", false: "n"}[*out.Pass]
		}
		if pass != c.pass || !strings.HasPrefix(out.Note, c.note) || (c.note == "") != (out.Note == "") || out.Required == c.option {
			t.Errorf("%s: got %s, %q, required %v, want %s, %q", name, pass, out.Note, out.Required, c.pass, c.note)
		}
		if out.Name != "x" || out.Scope != "scope" || out.Op != "<" || out.Threshold != 0.1 || out.Source != "why" || out.Spec != "s" || out.Value != c.in.value || out.Interval != c.in.interval || !slices.Equal(out.Purposes, g.Purposes) {
			t.Errorf("%s: got %+v", name, out)
		}
	}
	r.loosened["x"] = "loosened"
	if out := r.apply(g, "", reading{value: num(0), remark: "r"}); out.Note != "loosened, r" {
		t.Errorf("got %q", out.Note)
	}
	if out := r.apply(g, "", reading{value: num(0)}); out.Note != "loosened" {
		t.Errorf("got %q", out.Note)
	}
	for _, c := range []struct {
		op                string
		below, at, beyond bool
	}{{"<", true, false, false}, {"<=", true, true, false}, {">", false, false, true}, {">=", false, true, true}} {
		if passes(1, c.op, 2) != c.below || passes(2, c.op, 2) != c.at || passes(3, c.op, 2) != c.beyond {
			t.Errorf("%s: got %v, %v, %v", c.op, passes(1, c.op, 2), passes(2, c.op, 2), passes(3, c.op, 2))
		}
	}
}

// TestPercentBesideAThreshold: as many digits as it takes to differ from a threshold that a value is not equal to.
func TestPercentBesideAThreshold(t *testing.T) {
	for _, c := range []struct {
		v         float64
		threshold string
		want      string
	}{{0.05, "10", "+5.0"}, {-0.05, "10", "-5.0"}, {0, "10", "+0.0"}, {0.0996, "10", "+9.96"}, {0.10004, "10", "+10.004"}, {-0.1000001, "10", "-10.0000"}, {0.1, "10", "+10.0000"}} {
		if got := percentBeside(c.v, c.threshold); got != c.want {
			t.Errorf("%g beside %s: got %s, want %s", c.v, c.threshold, got, c.want)
		}
	}
	for needed, want := range map[float64]string{99.2: "about 100 would decide", 20_000: "about 20000 would decide", 20_001: "more than 20000 rows would be needed, which is not within reach"} {
		if got := wouldDecide(needed, "rows"); got != want {
			t.Errorf("%g: got %q", needed, got)
		}
	}
	if (&reading{rows: true}).noun() != "rows" || (&reading{}).noun() != "requests" {
		t.Error("got other nouns")
	}
}

// TestSizeThatDecides: the number of values at which nine of ten drawn recordings would decide, by drawing them.
func TestSizeThatDecides(t *testing.T) {
	decides := func(given int, size, half, threshold, n float64) float64 {
		old, shrunk := half/1.96, half/1.96*math.Sqrt(float64(given)/n)
		decided, draws := 0, 4000
		for i := range draws {
			// Quantiles of a normal distribution in place of random draws.
			z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(draws)-1)
			v := size + z*math.Hypot(old, shrunk)
			far := math.Abs(v) + 1.96*shrunk
			near := math.Abs(v) - 1.96*shrunk
			if near >= threshold || math.Abs(v) < threshold && far < 2*threshold {
				decided++
			}
		}
		return float64(decided) / float64(draws)
	}
	for _, c := range []struct {
		given                 int
		size, half, threshold float64
	}{{50, 0.02, 0.19, 0.1}, {100, 0.05, 0.2, 0.15}, {30, 0.3, 0.25, 0.1}, {400, 0, 0.05, 0.04}} {
		n := estimateSize(c.given, c.size, c.half, c.threshold)
		if math.IsInf(n, 1) || n < float64(c.given)*1.1-1e-9 {
			t.Errorf("%+v: got %g", c, n)
			continue
		}
		// The numbers grow by a tenth at a time.
		if at, before := decides(c.given, c.size, c.half, c.threshold, n), decides(c.given, c.size, c.half, c.threshold, n/1.1); at < 0.85-0.005 || n > float64(c.given)*1.2 && before > 0.85+0.005 {
			t.Errorf("%+v: with %g values %g of recordings decide, with a tenth less %g", c, n, at, before)
		}
	}
	if got := estimateSize(19_000, 0.1, 0.02, 0.1); !math.IsInf(got, 1) {
		t.Errorf("a tenth more than 19,000: got %g", got)
	}
}

// TestWhyAReplayIsNotJudged: each reason with a run that has it alone, and whether a result is required all the same.
func TestWhyAReplayIsNotJudged(t *testing.T) {
	good := func(change func(r *result.ValidationRun)) *result.ValidationRun {
		r := &result.ValidationRun{ID: "r", Phase: "p", Replayed: 9, Requests: 9, Metrics: &result.Metrics{}}
		change(r)
		return r
	}
	for name, c := range map[string]struct {
		run          *result.ValidationRun
		fromRequests bool
		note         string
		required     bool
	}{
		"good":                     {good(func(*result.ValidationRun) {}), false, "", true},
		"saturated":                {good(func(r *result.ValidationRun) { r.Saturated = true }), false, "saturated", false},
		"empty phase":              {good(func(r *result.ValidationRun) { r.Replayed, r.Metrics = 0, nil }), false, noteEmpty, false},
		"a run that is empty":      {good(func(r *result.ValidationRun) { r.Phase, r.Replayed, r.Metrics = "", 0, nil }), false, "not replayed", true},
		"not replayed":             {good(func(r *result.ValidationRun) { r.Metrics = nil }), false, "not replayed", true},
		"nothing to compare":       {good(func(r *result.ValidationRun) { r.Requests = 0 }), false, noteEmpty, false},
		"metrics, none replayed":   {good(func(r *result.ValidationRun) { r.Replayed = 0 }), false, "", true},
		"undecided":                {good(func(r *result.ValidationRun) { r.Undecided = "u" }), false, "u", true},
		"undecided, informs":       {good(func(r *result.ValidationRun) { r.Undecided, r.Informs = "u", "i" }), false, "u", false},
		"informs":                  {good(func(r *result.ValidationRun) { r.Informs = "i" }), false, "i", false},
		"clients":                  {good(func(r *result.ValidationRun) { r.Source = "observed" }), false, "observed requests: errors are printed, not gated", false},
		"clients, learned from":    {good(func(r *result.ValidationRun) { r.Source = "observed" }), true, "", true},
		"journeys":                 {good(func(r *result.ValidationRun) { r.Source = result.SourceJourneys }), false, "", true},
		"passes":                   {good(func(r *result.ValidationRun) { r.Source = result.SourcePasses }), false, "", true},
		"sampled":                  {good(func(r *result.ValidationRun) { r.JourneySampleRate = num(0.99) }), false, "journeys are sampled at 0.99: the rest of the load is unknown", true},
		"a rate of 1":              {good(func(r *result.ValidationRun) { r.JourneySampleRate = num(1) }), false, "", true},
		"sampled, rebuilt":         {good(func(r *result.ValidationRun) { r.JourneySampleRate, r.Rebuilt = num(0.5), 1 }), false, "", true},
		"few levels":               {good(func(r *result.ValidationRun) { r.Source, r.Metrics = result.SourcePoints, nil }), true, noteFewLevels, true},
		"levels that are compared": {good(func(r *result.ValidationRun) { r.Source = result.SourcePoints }), true, "", true},
	} {
		if note, required := whyNotJudged(c.run, c.fromRequests); note != c.note || required != c.required {
			t.Errorf("%s: got %q, required %v, want %q, %v", name, note, required, c.note, c.required)
		}
	}
}

// TestReplayGateAndChance: a statistic beside a threshold of 0.1 and what chance alone reaches.
func TestReplayGateAndChance(t *testing.T) {
	g := &Gate{Name: "x", Op: "<", Threshold: 0.1}
	r := &Rules{}
	for name, c := range map[string]struct {
		value, chance *float64
		run           result.ValidationRun
		pass          string
		note          string
	}{
		"no value":              {nil, num(0.01), result.ValidationRun{Rebuilt: 3}, "-", ""},
		"both below":            {num(0.05), num(0.09), result.ValidationRun{}, "y", ""},
		"over both":             {num(0.15), num(0.12), result.ValidationRun{}, "n", ""},
		"over, chance below":    {num(0.15), num(0.09), result.ValidationRun{}, "n", ""},
		"below, chance at":      {num(0.05), num(0.1), result.ValidationRun{Requests: 64}, "-", "insufficient data: chance alone reaches 0.1 with 64 requests, want below 0.1: about 100 would decide"},
		"over, chance as far":   {num(0.12), num(0.12), result.ValidationRun{Requests: 100}, "-", "insufficient data: chance alone reaches 0.12 with 100 requests, want below 0.1: about 225 would decide"},
		"at, chance over":       {num(0.1), num(0.2), result.ValidationRun{Requests: 4, Source: result.SourcePoints}, "-", "insufficient data: chance alone reaches 0.2 with 4 load levels, want below 0.1: about 25 would decide"},
		"unknown chance":        {num(0.05), nil, result.ValidationRun{}, "-", noteNoChance},
		"unknown, levels":       {num(0.05), nil, result.ValidationRun{Source: result.SourcePoints}, "-", noteFewLevels},
		"rebuilt":               {num(0.05), num(0.09), result.ValidationRun{Rebuilt: 1}, "y", "load rebuilt from steps"},
		"unknown chance, built": {num(0.05), nil, result.ValidationRun{Rebuilt: 1}, "-", noteNoChance + ", load rebuilt from steps"},
	} {
		out := r.replayGate(g, &c.run, reading{value: c.value, chance: c.chance})
		pass := "-"
		if out.Pass != nil {
			pass = map[bool]string{true: "y", false: "n"}[*out.Pass]
		}
		if pass != c.pass || out.Note != c.note {
			t.Errorf("%s: got %s, %q, want %s, %q", name, pass, out.Note, c.pass, c.note)
		}
	}
	out := r.replayGate(g, &result.ValidationRun{Requests: 19}, reading{value: num(0.05), estimate: true, interval: &[2]float64{0.04, 0.06}})
	if out.Pass != nil || out.Note != "insufficient data: 19 compared, want at least 20" {
		t.Errorf("an estimate of 19 requests: got %+v", out)
	}
	if out := r.replayGate(g, &result.ValidationRun{Requests: 20}, reading{value: num(0.05), estimate: true, interval: &[2]float64{0.04, 0.06}}); out.Pass == nil || !*out.Pass {
		t.Errorf("an estimate of 20 requests: got %+v", out)
	}
	for _, run := range []result.ValidationRun{{ID: "a"}, {ID: "a", Phase: "p"}, {ID: "a", Phase: "p", Split: result.Split{Kind: result.SplitInSample}}} {
		want := map[bool]string{true: "a", false: "a/p"}[run.Phase == ""]
		if run.Split.Kind == result.SplitInSample {
			want += " (in-sample)"
		}
		if got := ReplayScope(&run); got != want || RunOf(got) != "a" {
			t.Errorf("got %q of run %q, want %q", got, RunOf(got), want)
		}
	}
	no, yes := false, true
	gate := func(name, scope string, pass *bool) result.Gate {
		return result.Gate{Gate: coeff.Gate{Name: name, Scope: scope, Pass: pass}}
	}
	scopes, names := FailedByScope([]result.Gate{gate("a", "s", &yes), gate("b", "t", &no), gate("c", "s", &no), gate("d", "t", nil), gate("b", "t", &no), gate("e", "t", &no)})
	if !slices.Equal(scopes, []string{"t", "s"}) || !reflect.DeepEqual(names, map[string][]string{"t": {"b", "e"}, "s": {"c"}}) {
		t.Errorf("got %v and %v", scopes, names)
	}
}

// TestLoosenedThresholds: a warning for each threshold that is less strict than its default, either way, with what set it.
func TestLoosenedThresholds(t *testing.T) {
	upper, lower := "", ""
	for _, g := range All() {
		if upper == "" && strings.HasPrefix(g.Op, "<") && g.followsGate == "" {
			upper = g.Name
		}
		if lower == "" && strings.HasPrefix(g.Op, ">") && g.followsGate == "" {
			lower = g.Name
		}
	}
	for name, by := range map[string]float64{upper: 1, lower: -1} {
		standard := Named(name)
		for sign, want := range map[float64]int{by: 1, -by: 0, 0: 0} {
			threshold := standard.Threshold + 0.25*sign
			r, err := NewRules(map[string]float64{name: threshold})
			if err != nil {
				t.Fatal(err)
			}
			var own []trace.Finding
			for _, f := range r.Loosen(map[string]string{name: "my file"}) {
				if strings.HasPrefix(f.Message, name+":") {
					own = append(own, f)
				}
			}
			if len(own) != want || want > 0 && (own[0].Code != Loosened || own[0].Message != fmt.Sprintf("%s: %s %g (my file), the default is %s %g", name, standard.Op, threshold, standard.Op, standard.Threshold)) {
				t.Errorf("%s %g: got %v", name, threshold, own)
			}
			if note := r.loosened[name]; (note != "") != (want > 0) || want > 0 && note != fmt.Sprintf("loosened: the default is %s %g", standard.Op, standard.Threshold) {
				t.Errorf("%s %g: got the note %q", name, threshold, note)
			}
			if got := r.Thresholds(); got[name] != threshold || len(got) != len(table) || r.named(name).Reason != "my file" {
				t.Errorf("%s: got %g of %d, by %q", name, got[name], len(got), r.named(name).Reason)
			}
		}
	}
	for value, want := range map[float64]string{math.NaN(): "gates: " + upper + ": got NaN, want a finite number", math.Inf(1): "gates: " + upper + ": got +Inf, want a finite number"} {
		if _, err := NewRules(map[string]float64{upper: value}); trace.CodeOf(err) != badGate || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v", err)
		}
	}
	for name, want := range map[string]bool{"all": true, "steps": true, "replay": true, "waits": true, "transfer": true, "": false, "x": false} {
		if IsPurpose(name) != want {
			t.Errorf("purpose %q: got %v", name, !want)
		}
	}
	for name, want := range map[string][3]bool{BetaMAPE: {true, false, false}, certificate: {false, false, false}, contradictionsSteps: {false, false, true}, contradictionsReplay: {false, false, true}, contradictionsWaits: {false, false, true}, contradictionsTransfer: {false, false, true}, "none": {false, false, false}} {
		if got := [3]bool{JudgesSteps(name), JudgesReplay(name), JudgesStreams(name)}; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestValuesOfGates: the figures that gates take from documents, and those that are not there.
func TestValuesOfGates(t *testing.T) {
	steps := func(rows int, mape *float64) result.ConfigErrors {
		return result.ConfigErrors{Steps: &result.Errors{Rows: rows, MAPE: mape, MAPEInterval: &[2]float64{1, 2}}}
	}
	v := &result.Validation{Configs: []result.ConfigErrors{steps(5, num(0.1)), steps(0, num(0.9)), steps(7, num(0.3)), steps(9, num(0.2)), steps(9, nil), {}}}
	if r, ok := worstMAPE(v); !ok || *r.value != 0.3 || r.size != 7 || !r.rows || !r.estimate || r.interval == nil {
		t.Errorf("the worst: got %+v", r)
	}
	if r, ok := worstMAPE(&result.Validation{}); !ok || r.value != nil || r.missing != noteNoRows {
		t.Errorf("none: got %+v", r)
	}
	all := func(*result.ConfigErrors) bool { return true }
	for rows, missing := range map[int]string{0: noteNoRows, 1: ""} {
		c := steps(rows, num(0.1))
		if r, ok := stepMAPE(all)(&c, nil); !ok || (r.value == nil) != (missing != "") || r.value == nil && r.missing != missing {
			t.Errorf("%d rows: got %+v", rows, r)
		}
		if _, ok := ofSteps(func(*result.ConfigErrors) reading { return reading{} })(&c, nil); ok != (rows > 0) {
			t.Errorf("%d rows: applies %v", rows, ok)
		}
	}
	if _, ok := stepMAPE(isUnseen)(&result.ConfigErrors{TestRun: true, Seen: true}, nil); ok {
		t.Error("a seen configuration is held out")
	}
	for _, c := range []struct{ test, seen, want bool }{{true, false, true}, {true, true, false}, {false, false, false}} {
		if got := isUnseen(&result.ConfigErrors{TestRun: c.test, Seen: c.seen}); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	plain := func(*result.TargetErrors) reading { return reading{} }
	queue := &result.ConfigErrors{Alpha: &result.AlphaErrors{Queue: &result.TargetErrors{Rows: 31}, Admission: &result.TargetErrors{Windows: 17}}}
	if r, ok := ofQueue(plain)(queue, nil); !ok || r.size != 31 {
		t.Errorf("queue: got %+v, %v", r, ok)
	}
	if r, ok := ofWindows(plain)(queue, nil); !ok || r.size != 17 || !r.windows {
		t.Errorf("windows: got %+v, %v", r, ok)
	}
	queue.Alpha.Admission.Windows = 0
	if r, _ := ofWindows(plain)(queue, nil); r.size != 1 {
		t.Errorf("no windows: got %+v", r)
	}
	for name, c := range map[string]*result.ConfigErrors{"no delays": {}, "others": {Alpha: &result.AlphaErrors{}}} {
		_, hasQueue := ofQueue(plain)(c, nil)
		_, hasWindows := ofWindows(plain)(c, nil)
		_, hasWaits := ofWaits(longDelays, aboveFloor)(c, nil)
		if hasQueue || hasWindows || hasWaits {
			t.Errorf("%s: got %v, %v, %v", name, hasQueue, hasWindows, hasWaits)
		}
		for _, gate := range []string{"overhead_of_ttft", "egress_of_e2e"} {
			if _, ok := Named(gate).ofConfig(c, nil); ok {
				t.Errorf("%s: %s applies", name, gate)
			}
		}
	}
	if r, ok := ofWaits(longDelays, aboveFloor)(queue, nil); !ok || r.value != nil || r.missing != "insufficient data: no such request, want at least 20" {
		t.Errorf("no long delays: got %+v", r)
	}
	for _, c := range []struct {
		mape, floor *float64
		want        float64 // below 0: none
	}{{num(0.3), num(0.1), 0.2}, {num(0.1), num(0.3), 0}, {nil, num(0.1), -1}, {num(0.1), nil, -1}} {
		got := aboveFloor(&result.RegimeErrors{MAPE: c.mape, MAPEFloor: c.floor})
		if (got == nil) != (c.want < 0) || got != nil && math.Abs(*got-c.want) > 1e-12 {
			t.Errorf("got %v, want %g", got, c.want)
		}
	}
	if r := largestError(num(3), 5, 200, num(40)); r.remark != "5 of 200 rows are outliers (2.5 %; left out here up to 1 %), the largest error 40 times the median" || *r.value != 3 {
		t.Errorf("got %+v", r)
	}
	if r := largestError(num(3), 1, 200, num(40)); !strings.HasPrefix(r.remark, "1 of 200 rows are outliers (0.5 %") {
		t.Errorf("one outlier: got %+v", r)
	}
	if r := largestError(num(3), 0, 200, nil); r.remark != "" {
		t.Errorf("no outliers: got %+v", r)
	}

	cert := func(ok bool) *result.Certificate { return &result.Certificate{OK: ok} }
	for name, c := range map[string]struct {
		beta  *result.Certificate
		alpha []*result.Certificate
		want  float64 // below 0: none
	}{"all hold": {cert(true), []*result.Certificate{cert(true), nil}, 1}, "one does not": {cert(true), []*result.Certificate{cert(false), cert(true)}, 0}, "the first does not": {cert(false), []*result.Certificate{cert(true)}, 0}, "none": {nil, nil, -1}} {
		fit := &result.Fit{Beta: result.Model{Certificate: c.beta}}
		for _, a := range c.alpha {
			fit.Alpha = append(fit.Alpha, result.Model{Certificate: a})
		}
		r := certified(fit)
		if (r.value == nil) != (c.want < 0) || r.value != nil && *r.value != c.want {
			t.Errorf("%s: got %+v", name, r)
		}
	}
	for kept, few := range map[int]bool{30: false, 31: true, 129: true, 130: false} {
		fit := &result.Fit{Beta: result.Model{Name: "beta", FoldFingerprints: []string{"1", "2", "1", "3", "1"}}, Alpha: []result.Model{{FoldFingerprints: []string{"1", "2"}}}}
		fit.Beta.Rows.Kept, fit.Beta.Rows.Holdout = kept, 30
		r := repeatedFolds(fit)
		if *r.value != 2 || (r.few != "") != few || few && r.few != fmt.Sprintf("insufficient data: beta has %d rows in 5 folds, want at least 20 in each", kept-30) {
			t.Errorf("%d rows: got %+v", kept, r)
		}
	}
	for _, c := range []struct {
		name, identified string
		value            float64
		hi               *float64
		want             float64 // below 0: none is identified
	}{{"decode_weight_load", coeff.Within, 1, nil, 0}, {"decode_weight_load", coeff.Within, 0, nil, 0}, {"decode_weight_load", coeff.Within, 0, num(0), 1}, {"decode_weight_load", coeff.Within, 0, num(0.1), 0}, {"decode_weight_load", coeff.Within, -1, num(5), 1},
		{"bias", coeff.Within, 0, nil, 0}, {"bias", coeff.Within, -1, nil, 1}, {"other", coeff.Within, -1, nil, -1}, {"decode_weight_load", coeff.PriorOnly, -1, nil, -1}} {
		b := coeff.Coefficient{Name: c.name, Identified: c.identified, Value: c.value}
		if c.hi != nil {
			b.CI95 = &[2]float64{0, *c.hi}
		}
		r := impossibleSigns(&coeff.Set{Beta: []coeff.Coefficient{b}})
		if (r.value == nil) != (c.want < 0) || r.value != nil && *r.value != c.want || r.optional != (c.want < 0) {
			t.Errorf("%+v: got %+v", c, r)
		}
	}
	for _, c := range []struct {
		lo, hi *float64
		want   bool
	}{{num(-2), num(1), true}, {nil, num(1), false}, {num(1), nil, false}} {
		r := ofEstimate(&result.Estimate{Value: -0.5, Lo: c.lo, Hi: c.hi})
		if *r.value != 0.5 || !r.estimate || (r.interval != nil) != c.want || c.want && *r.interval != [2]float64{-2, 1} {
			t.Errorf("got %+v", r)
		}
	}
	if r := ofEstimate(nil); r.value != nil || r.estimate {
		t.Errorf("no estimate: got %+v", r)
	}
	runs := []result.ValidationRun{{ID: "a", Metrics: &result.Metrics{TTFT: &result.Metric{NReal: 10, RealMs: result.SampleStats{P50: 50}}}}, {ID: "a", Metrics: &result.Metrics{TTFT: &result.Metric{NReal: 30, RealMs: result.SampleStats{P50: 90}}}},
		{ID: "b", Metrics: &result.Metrics{TTFT: &result.Metric{NReal: 99, RealMs: result.SampleStats{P50: 1}}}}, {ID: "a", Saturated: true, Metrics: runs0()}, {ID: "a"}, {ID: "a", Metrics: &result.Metrics{}}}
	c := &result.ConfigErrors{Runs: []string{"a"}}
	if got := recordedMedianMs(c, runs, ttftOf); got == nil || *got != 80 {
		t.Errorf("got a median of %v", got)
	}
	if r := shareOfMedian(num(4000), c, runs, ttftOf); *r.value != 0.05 || r.optional {
		t.Errorf("got %+v, want 4 of 80 ms", r)
	}
	if r := shareOfMedian(num(4000), &result.ConfigErrors{}, runs, ttftOf); r.value != nil || !r.optional || r.missing != noteNoReplay {
		t.Errorf("not replayed: got %+v", r)
	}
	if r := shareOfMedian(nil, c, runs, ttftOf); r.value != nil || r.optional {
		t.Errorf("no error: got %+v", r)
	}
	one := func(c ...result.ConfigErrors) *result.Validation {
		return &result.Validation{Configs: c, Steps: &result.Errors{Rows: 4, Bias: num(-0.25)}}
	}
	unseen := steps(3, num(1))
	unseen.TestRun = true
	for name, x := range map[string]struct {
		v       *result.Validation
		applies bool
		value   bool
	}{"one": {one(steps(3, num(1))), false, false}, "two": {one(steps(3, num(1)), steps(4, num(1))), true, true}, "one without steps": {one(steps(3, num(1)), steps(0, nil)), false, false}, "one unseen": {one(unseen), true, true}, "none": {one(), true, true}, "no steps": {&result.Validation{}, true, false}} {
		r, applies := pooledBias(x.v)
		if applies != x.applies || (r.value != nil) != x.value || r.value != nil && (*r.value != 0.25 || r.size != 4) {
			t.Errorf("%s: got %+v, %v", name, r, applies)
		}
	}
}

// runs0 are the metrics of a replay that may not count.
func runs0() *result.Metrics {
	return &result.Metrics{TTFT: &result.Metric{NReal: 1000, RealMs: result.SampleStats{P50: 7}}}
}

// TestLeftOutScopes: configurations that cross-validation held out, by model, with the scope under which they are judged.
func TestLeftOutScopes(t *testing.T) {
	r, err := NewRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	loco := []result.Loco{{Config: "a", Label: "A", Rows: 40, MAPE: num(0.1), MAPEWindow10s: num(0.2)}, {Config: "b", Label: "B", Rows: 50, Windows: 30, MAPEWindow10s: num(0.3)}, {Config: "c"}}
	configs := []result.ConfigErrors{{Config: "a", Scope: "test of a", TestRun: true}, {Config: "a", Scope: "scope of a"}}
	for i, want := range []string{"scope of a", "B", "c"} {
		if got := leftOutScope(&loco[i], configs); got != want {
			t.Errorf("%s: got %q, want %q", loco[i].Config, got, want)
		}
	}
	for _, model := range []string{"beta", "admission"} {
		with, without := r.leftOutOf(model, loco, configs, "x"), r.leftOutOf(model, nil, configs, "x")
		if len(with) != 3*len(without) || len(without) == 0 || without[0].Note != "x" || without[0].Required || without[0].Scope != ScopeAll || !with[0].Required || with[0].Scope != "scope of a" {
			t.Errorf("%s: got %+v and %+v", model, with, without)
		}
	}
	for _, g := range r.leftOutOf("admission", loco[:1], configs, "") {
		if g.Value != nil && g.Note != "insufficient data: 1 held-out windows of 10 s compared, want at least 20" {
			t.Errorf("no windows: got %+v", g)
		}
	}
	gates := []result.Gate{{Gate: coeff.Gate{Name: certificate}, Required: true}, {Gate: coeff.Gate{Name: BetaMAPE}, Required: true}, {Gate: coeff.Gate{Name: BetaMAPE, Value: num(1)}, Required: true}, {Gate: coeff.Gate{Name: "overhead_of_ttft"}, Required: true}}
	waiveStepGates(gates)
	for i, want := range []bool{false, false, true, true} {
		if gates[i].Required != want || (gates[i].Note == noteNoSteps) == want {
			t.Errorf("%s: got %+v", gates[i].Name, gates[i])
		}
	}
	if learnedFromRequests(nil) || learnedFromRequests(&result.Fit{}) || !learnedFromRequests(&result.Fit{Requests: &result.RequestLevel{}}) {
		t.Error("what was learned from")
	}
	id := func(s string) *result.Identity { return &result.Identity{Sentence: s} }
	if got := sentences([]*result.Identity{id("a"), id("b"), id("a")}); got != "a; b" {
		t.Errorf("got %q", got)
	}
	e := goodEvidence()
	e.fit = nil
	withoutFit := 0
	for _, g := range e.decide(t, nil).Gates {
		if g.Note == noteNoFit {
			if withoutFit++; g.Required || g.Pass != nil || g.Scope != ScopeAll {
				t.Errorf("got %+v", g)
			}
		}
	}
	if withoutFit < 3 {
		t.Errorf("got %d gates without a fit", withoutFit)
	}
	for name, c := range map[string]struct {
		asked     string
		stepsOnly bool
		want      string
	}{"open": {"", false, coeff.PurposeReplay}, "steps only": {"", true, coeff.PurposeSteps}, "asked": {coeff.PurposeWaits, false, coeff.PurposeWaits}} {
		e := goodEvidence()
		e.fit.Requests = &result.RequestLevel{}
		e.v.Runs[0].Metrics = nil
		e.v.Options.StepsOnly = c.stepsOnly
		r.Decide(e.v, e.fit, e.set, c.asked)
		if e.v.For != c.want {
			t.Errorf("learned from requests, %s: got a verdict for %s, want %s", name, e.v.For, c.want)
		}
	}
	m := goodEvidence().v.Runs[0].Metrics
	for _, metric := range []*result.Metric{m.TTFT, m.ITL, m.E2E} {
		metric.PairedErr, metric.MedianRelErr = nil, 0
	}
	if !r.ReplayPasses(m) || r.ReplayPasses(nil) {
		t.Error("good distributions do not pass, or none do")
	}
	m.ITL.MedianRelErr = 9
	if r.ReplayPasses(m) {
		t.Error("a median that is far off passes")
	}
	m.ITL.MedianRelErr, m.E2E.BeyondD = 0, num(0.9)
	if r.ReplayPasses(m) {
		t.Error("a distance that is far off passes")
	}
	if m.E2E = nil; !r.ReplayPasses(m) {
		t.Error("without end-to-end times the others do not pass")
	}
}
