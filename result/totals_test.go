package result

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// The totals of extract.json are the same sums as the runs' counts; a count
// that one run does not know is unknown in all.
func TestTotalsAreSumsOverRuns(t *testing.T) {
	run := func(n int64) ExtractRun {
		return ExtractRun{
			Records: Records{Read: 10 * n, Kept: 9 * n, Dropped: map[string]int64{"warm_up": n}, BadFrac: float64(n) / 100},
			Tables:  map[string]int64{"steps": n, "requests": 2 * n},
			Steps: ExtractSteps{StepTotals: StepTotals{Summaries: n, Missing: 2 * n, WithSnapshots: 3 * n, Reconstructed: trace.Some(4 * n),
				Unknown: trace.Some(5 * n), Contradictions: trace.Some(6 * n)}},
			Requests: ExtractRequests{Engine: n, Failed: 2 * n}, Losses: Losses{OrphanSnapshots: n},
		}
	}
	e := &Extract{Runs: []ExtractRun{run(1), run(2)}, Totals: ExtractTotals{BytesRead: 7, LinesRead: 8, Summaries: 99}}
	for range 2 { // a second call changes nothing
		e.SumRuns()
	}
	s := e.Totals.Steps
	switch {
	case !e.Totals.Records.Balanced() || e.Totals.Records.Read != 30 || e.Totals.Records.BadFrac != 0.02:
		t.Errorf("records: got %+v", e.Totals.Records)
	case e.Totals.Tables["steps"] != 3 || e.Totals.Tables["requests"] != 6:
		t.Errorf("tables: got %v", e.Totals.Tables)
	case s.Summaries != 3 || s.Missing != 6 || s.WithSnapshots != 9 || s.Reconstructed.V != 12 || s.Unknown.V != 15 ||
		s.Contradictions != trace.Some[int64](18):
		t.Errorf("steps: got %+v", s)
	case e.Totals.Requests.Failed != 6 || e.Totals.Losses.OrphanSnapshots != 3 || e.Totals.Summaries != 3 || e.Totals.BytesRead != 7 ||
		e.Totals.LinesRead != 8:
		t.Errorf("got %+v", e.Totals)
	}
	e.Runs[1].Steps.Unknown = trace.Opt[int64]{}
	if e.SumRuns(); e.Totals.Steps.Unknown.OK || !e.Totals.Steps.Reconstructed.OK {
		t.Errorf("unknown: got %+v", e.Totals.Steps)
	}
}

// TestDigestBindsADocument: every change of a value or a key is seen, another layout
// is not, and the digest does not depend on the one that was there before.
func TestDigestBindsADocument(t *testing.T) {
	doc := &Inspect{Header: NewHeader("1.2.3", "inspect"), Unfit: []string{"a \n  \"document_digest\": \"\" b"}, Pass: true}
	text, err := Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var back Inspect
	if err := Read(text, &back); err != nil || len(back.Digest) != 64 || !Intact(text) {
		t.Fatalf("got %v, digest %q, intact %v\n%s", err, back.Digest, Intact(text), text)
	}
	if again, err := Marshal(&back); err != nil || !bytes.Equal(again, text) {
		t.Errorf("written again: %v\n%s", err, again)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil || !Intact(compact.Bytes()) {
		t.Errorf("compact: %v, intact %v", err, Intact(compact.Bytes()))
	}
	if sum, err := textDigest([]byte("{")); err == nil || sum != "" {
		t.Errorf("no JSON: got the digest %q, %v", sum, err)
	}
	for _, edit := range [][2]string{{"1.2.3", "1.2.4"}, {"true", "false"}, {`"unfit"`, `"Unfit"`}, {back.Digest, strings.Repeat("0", 64)},
		{`"pass"`, `"pass": false, "pass"`}} {
		changed := strings.Replace(string(text), edit[0], edit[1], 1)
		if changed == string(text) || Intact([]byte(changed)) {
			t.Errorf("%s -> %s is not seen", edit[0], edit[1])
		}
	}
	if old := strings.Replace(string(text), back.Digest, "", 1); !Intact([]byte(old)) {
		t.Error("a document without a digest counts as changed")
	}
}

// TestCurvesOfManyRunsAreThoseThatCount: every comparison keeps its curves up to
// the limit; beyond it those that gate and then those that differ most.
func TestCurvesOfManyRunsAreThoseThatCount(t *testing.T) {
	runs := make([]ValidationRun, 3*64)
	for i := range runs {
		runs[i] = ValidationRun{Figures: &RunFigures{}, Saturated: i%6 != 0, Metrics: &Metrics{E2E: &Metric{KSD: float64(i)}}}
	}
	if drawn, _ := (&Validation{Runs: runs[:64]}).LimitFigures(); drawn != 64 || runs[63].Figures == nil {
		t.Errorf("at the limit: got %d drawn, want all of %d kept", drawn, 64)
	}
	if drawn, _ := (&Validation{Runs: runs}).LimitFigures(); drawn != len(runs) {
		t.Errorf("got %d, want %d", drawn, len(runs))
	}
	kept := 0
	for i := range runs {
		if runs[i].Figures != nil {
			kept++
		} else if runs[i].Judged() {
			t.Errorf("run %d gates and lost its curves", i)
		}
	}
	if kept != 64 || runs[len(runs)-1].Figures == nil {
		t.Errorf("got %d kept, want %d and the largest KS among them", kept, 64)
	}
}

// TestOnLines: lists of numbers stand on one line, nothing else moves, and the values
// stay.
func TestOnLines(t *testing.T) {
	text := []byte(`{
  "text": "[ 1,\n \"2 ]",
  "curve": [
    [
      0.5,
      -1e-9
    ],
    [
      1,
      null
    ]
  ],
  "none": [],
  "names": [
    "a"
  ],
  "list": [
    {
      "x": [
        1,
        2
      ]
    }
  ]
}
`)
	want := `{
  "text": "[ 1,\n \"2 ]",
  "curve": [[0.5, -1e-9], [1, null]],
  "none": [],
  "names": [
    "a"
  ],
  "list": [
    {
      "x": [1, 2]
    }
  ]
}
`
	got := numberListsOnOneLine(text)
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var a, b bytes.Buffer
	if json.Compact(&a, text) != nil || json.Compact(&b, got) != nil || a.String() != b.String() {
		t.Error("values differ")
	}
}

// TestValidationIsShort: its curves are lines, its digest holds, and it is read back.
func TestValidationIsShort(t *testing.T) {
	v := &Validation{Runs: []ValidationRun{{Drift: []DriftPoint{}, Figures: &RunFigures{ECDF: []Curve{{Points: [][2]float64{{1.5, 0.5}, {2, 1}}}}}}}}
	b, err := Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, numberListsOnOneLine(b)) || !Intact(b) {
		t.Error("got lists of several lines, or another digest")
	}
	if !bytes.Contains(b, []byte(`"points": [[1.5,0.5],[2,1]]`)) && !bytes.Contains(b, []byte(`"points": [[1.5, 0.5], [2, 1]]`)) {
		t.Errorf("got %s", b)
	}
	for text, want := range map[string]int{"[1]": 3, "[[1, 2],\n [3]] ": 14, "[]": 0, "[1": 0, `["a"]`: 0, "[1, {}]": 0, "": 0} {
		if got := numbersEnd([]byte(text)); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}
