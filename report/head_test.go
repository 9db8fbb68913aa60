package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func gateOf(name, scope, op string, value, threshold float64) result.Gate {
	pass := op == "<" && value < threshold || op == ">" && value > threshold
	return result.Gate{Gate: coeff.Gate{Name: name, Scope: scope, Value: &value, Op: op, Threshold: threshold, Pass: &pass}, Required: true}
}

// A gate that fails in many scopes stands once with its worst value, on either side of a
// threshold, and gates that mean the same share a sentence.
func TestFailedNameTheWorstValue(t *testing.T) {
	got := Failed([]result.Gate{
		gateOf("beta_mape", "a", "<", 0.20, 0.15), gateOf("beta_skill", "a", ">", 0.4, 0.5), gateOf("beta_mape", "b", "<", 0.41, 0.15),
		gateOf("beta_skill", "b", ">", 0.1, 0.5), gateOf("ks_itl", "all", "<", 0.2, 0.15), gateOf("bias", "fine", "<", 0.01, 0.03),
		gateOf("ks_ttft", "all", "<", 0.3, 0.15),
	})
	want := []string{"beta_mape 41.0 %, want < 15 %: the mean error of a simulated step", "beta_skill 0.1, want > 0.5: most of",
		"ks_itl 0.200, ks_ttft 0.300, want < 0.15: recorded and simulated distributions differ"}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %d sentences", got, len(want))
	}
	for i, s := range got {
		if !strings.HasPrefix(strings.ReplaceAll(s, "\u00a0", " "), want[i]) {
			t.Errorf("got %q, want %q ...", s, want[i])
		}
	}
}

// The head says what to do: a drifting machine comes first, then what the
// diagnoses ask for, then what lacks data; a pass has one step.
func TestNextSteps(t *testing.T) {
	open := gateOf("ks_ttft", "run", "<", 0.1, 0.15)
	open.Pass = nil
	open.Note = "insufficient data: 11 requests"
	in := Input{
		Fit: &result.Fit{Beta: result.Model{Warnings: []trace.Finding{trace.Findingf("machine_drift", "run-1: slower"),
			trace.Findingf("machine_drift", "run-1: faster")}}},
		Validation: &result.Validation{Verdict: coeff.VerdictFail, Gates: []result.Gate{open}, Diagnoses: []result.Diagnosis{
			{Cause: result.CauseModelError, Scope: "c", Regime: "mixed", Term: "prefill_attention", Sentence: "x"},
			{Cause: result.CauseModelError, Scope: "all", Regime: "mixed", Term: "prefill_attention", Sentence: "x"},
			{Cause: result.CauseMachineDrift, Scope: "d"},
			{Cause: result.CauseSaturated, Scope: "run-9"},
			{Cause: result.CauseUnseenRegime, Scope: "e", Regime: "prefill", Term: "kv_cache_read"},
		}},
	}
	got := Next(in)
	starts := []string{"The machine changed speed during run-1: repeat", "Lower the load of run-9:",
		"Record loads like that of the failing steps, kv_cache_read in prefill steps:",
		"Look at the terms that carry the error, prefill_attention in mixed steps:", "Record longer: 1 gate has no verdict"}
	if len(got) != len(starts) {
		t.Fatalf("got %q, want %d steps", got, len(starts))
	}
	for i, want := range starts {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("step %d: got %q, want %q", i+1, got[i], want)
		}
	}
	if head := headOf(in); len(head.Next) != len(got) {
		t.Errorf("the head has %d steps, want %d", len(head.Next), len(got))
	}
	in.Validation.Gates = append(in.Validation.Gates, gateOf("target_floor", "c", ">", 0.01, 1))
	if got := Next(in); !strings.HasPrefix(got[0], "The measured step time is shorter than reading the weights takes") {
		t.Errorf("a target below the floor: got %q first", got[0])
	}
	in.Validation = &result.Validation{Verdict: coeff.VerdictPass}
	if got := Next(in); len(got) != 1 || !strings.Contains(got[0], "coefficients.yaml") {
		t.Errorf("pass: got %q", got)
	}
}

// Diagnoses that say the same are one, with every gate; what lacks data is
// grouped by reason.
func TestSameReasonsAreOne(t *testing.T) {
	ds := mergeDiagnoses([]result.Diagnosis{{Scope: "c", Sentence: "x", Gates: []string{"bias"}},
		{Scope: "all", Sentence: "x", Gates: []string{"bias", "beta_mape"}}, {Scope: "d", Sentence: "y"}})
	if len(ds) != 2 || ds[0].Scope != "c, all" || strings.Join(ds[0].Gates, " ") != "bias beta_mape" {
		t.Errorf("got %+v", ds)
	}
	a := gateOf("ks_ttft", "r", "<", 0, 1)
	b := gateOf("ks_itl", "r", "<", 0, 1)
	c := gateOf("beta_mape_loco", "all", "<", 0, 1)
	a.Pass = nil
	b.Pass = nil
	c.Pass = nil
	a.Note = "few"
	b.Note = "few"
	c.Note = "one configuration"
	if got := Undecided([]result.Gate{a, b, c}); len(got) != 2 || got[0] != "ks_ttft, ks_itl of r: few" ||
		got[1] != "beta_mape_loco of all: one configuration" {
		t.Errorf("got %q", got)
	}
}

// A finding of a run names it once.
func TestFindingsNameTheirRun(t *testing.T) {
	got := namingRun("r-1", []trace.Finding{trace.Findingf("a", "3 steps are missing"), trace.Findingf("b", "run r-1: lost")})
	if got[0].Message != "r-1: 3 steps are missing" || got[1].Message != "run r-1: lost" {
		t.Errorf("got %+v", got)
	}
}

// The bias figure names the runs that leave +-10 %, worst first, each once.
func TestFarthestBlocks(t *testing.T) {
	got := farthestBlocks([]result.DriftBlock{{Run: "a", Block: 1, Bias: 0.05}, {Run: "b", Block: 1, Bias: -0.2},
		{Run: "b", Block: 2, Bias: -0.3}, {Run: "c", Block: 2, Bias: -0.29}, {Run: "d", Block: 3, Bias: 0.11}})
	if len(got) != 2 || got[0].Run != "b" || got[0].Block != 2 || got[1].Run != "d" {
		t.Errorf("got %+v", got)
	}
}

// hostile is a scope that a recording could bring.
const hostile = "a|b<img src=x>@team [x](y) `z`\n# h\x1b"

func judgedForCI() *result.Validation {
	v := &result.Validation{For: coeff.PurposeReplay, Verdict: coeff.VerdictFail, Configs: []result.ConfigErrors{{Scope: hostile}}}
	ks := gateOf("ks_itl", hostile, "<", 0.3, 0.15)
	steps := gateOf("beta_mape", "all", "<", 0.05, 0.15)
	waits := gateOf("admission_window_mape", "all", "<", 0.9, 0.25)
	ks.Purposes = []string{"replay"}
	steps.Purposes = []string{"steps", "replay"}
	waits.Purposes = []string{"waits"}
	open := gateOf("ks_e2e", "all", "<", 0, 0.15)
	open.Pass = nil
	open.Value = nil
	open.Note = "insufficient data: 3 requests"
	open.Purposes = []string{"replay"}
	v.Gates = []result.Gate{ks, steps, waits, open}
	return v
}

// A name from a recording ends no cell, starts no tag and calls nobody.
func TestMarkdownIsSafe(t *testing.T) {
	got := SummaryMarkdown(Input{Validation: judgedForCI()})
	for _, want := range []string{"## blis-train: FAIL", "**1 gate failed**", "#gate-ks-itl"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "<img") || strings.Contains(got, "@team") || strings.Contains(got, "\n# h") || strings.Contains(got, "\x1b") {
		t.Errorf("hostile text came through:\n%s", got)
	}
	want := 0
	for _, l := range strings.Split(got, "\n") {
		cells := strings.Count(strings.ReplaceAll(l, `\|`, ""), "|")
		if !strings.HasPrefix(l, "|") {
			want = 0
			continue
		}
		if want == 0 { // the headings
			want = cells
		}
		if cells != want {
			t.Errorf("%d bars in the table's line %q, want %d", cells, l, want)
		}
	}
}

// What exits with 3 is a failure, and nothing else is: gates of other purposes and
// gates without data are skipped.
func TestJUnit(t *testing.T) {
	text, err := JUnit(judgedForCI(), true)
	if err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(got.Suites) != 2 {
		t.Fatalf("got %d suites, want 2", len(got.Suites))
	}
	if skipped := got.Suites[0].Skipped + got.Suites[1].Skipped; got.Tests != 4 || got.Failures != 1 || skipped != 2 {
		t.Errorf("got %d tests, %d failures, %d skipped; want 4, 1, 2", got.Tests, got.Failures, skipped)
	}
	if f := got.Suites[0].Cases[0].Failure; f == nil || !strings.Contains(f.Message, "ks_itl is 0.300, must be < 0.15") {
		t.Errorf("failure: got %+v", f)
	}
	strict, err := JUnit(judgedForCI(), false)
	if err != nil || !strings.Contains(string(strict), `failures="2"`) {
		t.Errorf("what could not be judged is a failure too: got %s, %v", strict, err)
	}
	if s := got.Suites[1].Cases[1].Skipped; s == nil || !strings.Contains(s.Message, "decides nothing for replay") {
		t.Errorf("a gate of another purpose: got %+v", s)
	}
}

// TestJUnitForm: no element, attribute or child that junit-10.xsd of Jenkins' xunit plugin
// does not know, none missing that it requires.
func TestJUnitForm(t *testing.T) {
	type form struct{ required, optional, children []string }
	words := form{optional: []string{"type", "message"}}
	forms := map[string]form{
		"":           {children: []string{"testsuites"}},
		"testsuites": {optional: []string{"name", "time", "tests", "failures", "errors"}, children: []string{"testsuite"}},
		"testsuite": {required: []string{"name", "tests", "failures", "errors"}, optional: []string{"skipped", "time", "timestamp", "hostname",
			"id", "package"}, children: []string{"testcase"}},
		"testcase": {required: []string{"name"}, optional: []string{"classname", "time"}, children: []string{"failure", "skipped"}},
		"failure":  words, "skipped": words,
	}
	text, err := JUnit(judgedForCI(), true)
	if err != nil {
		t.Fatal(err)
	}
	path, seen := []string{""}, map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			name, parent := e.Name.Local, path[len(path)-1]
			if !slices.Contains(forms[parent].children, name) {
				t.Errorf("<%s> in <%s>", name, parent)
			}
			var has []string
			for _, a := range e.Attr {
				has = append(has, a.Name.Local)
				if !slices.Contains(slices.Concat(forms[name].required, forms[name].optional), a.Name.Local) {
					t.Errorf("<%s> has %s", name, a.Name.Local)
				}
			}
			for _, want := range forms[name].required {
				if !slices.Contains(has, want) {
					t.Errorf("<%s> has no %s", name, want)
				}
			}
			path = append(path, name)
			seen[name]++
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
	if seen["testcase"] != 4 || seen["failure"] != 1 || seen["skipped"] != 2 {
		t.Errorf("elements: got %v", seen)
	}
}

// TestNextStepsAreTrue: drift that was followed in vain is not given as the reason, and batches that are
// reproduced do not send the reader to the scheduler's limits.
func TestNextStepsAreTrue(t *testing.T) {
	share := 0.98
	in := Input{
		Fit: &result.Fit{Warnings: []trace.Finding{trace.Findingf("machine_drift", "run-1: it changed speed")}},
		Validation: &result.Validation{
			Verdict:   "fail",
			Gates:     []result.Gate{gateOf("ks_itl", "run-1", "<", 0.3, 0.15)},
			Diagnoses: []result.Diagnosis{{Scope: "run-1", Cause: result.CauseUnknown}},
			Runs:      []result.ValidationRun{{ID: "run-1", Replay: &result.ReplayQuality{IdenticalBatchesShare: &share}}},
		},
	}
	got := strings.Join(Next(in), "\n")
	if strings.Contains(got, "changed speed") || strings.Contains(got, "scheduler limits") || !strings.Contains(got, "record the loads") {
		t.Errorf("got %q", got)
	}
	in.Validation.Diagnoses[0].Cause = result.CauseMachineDrift
	if got := Next(in); len(got) != 1 || !strings.Contains(got[0], "changed speed during run-1") {
		t.Errorf("got %q", got)
	}
	in.Validation.Gates[0].Pass = nil
	in.Validation.Gates[0].Note = gate.InsufficientData + ": more than 20000 requests would be needed, which is " + gate.NotWithinReach
	if got := strings.Join(Next(in), "\n"); strings.Contains(got, "Record longer") || !strings.Contains(got, "no recording of reasonable length") {
		t.Errorf("got %q", got)
	}
}

// TestFiguresAtAThreshold print enough digits to differ from it.
func TestFiguresAtAThreshold(t *testing.T) {
	for _, c := range []struct {
		name             string
		value, threshold float64
		want             string
	}{
		{"beta_mape", 0.15002, 0.15, "15.002"},
		{"beta_mape", 0.1512, 0.15, "15.1"},
		{"ks_itl", 0.15004, 0.15, "0.15004"},
		{"beta_max_error", 2.99999, 3, "2.99999"},
		{"beta_mape", 0.15, 0.15, "15.0"},
	} {
		g := gateOf(c.name, "r", "<", c.value, c.threshold)
		if got := strings.TrimSuffix(GateFigure(&g), percentSign); got != c.want {
			t.Errorf("%s %v of %v: got %q, want %q", c.name, c.value, c.threshold, got, c.want)
		}
	}
}
