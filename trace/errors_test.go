package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
)

func TestErrorsHaveTheirPlaceCodeAndHint(t *testing.T) {
	coded := Errorf("few_rows", "got %d rows", 3).WithHint("record more")
	syntax := &SyntaxError{File: "a.json", Line: 4, Col: 7, Code: "unreadable", Msg: "got x", Hint: "cut the line"}
	for _, c := range []struct {
		err        error
		text, hint string
		code       Code
	}{
		{coded, "few_rows: got 3 rows", "record more", "few_rows"},
		{Errorf("", "got %d rows", 3), "got 3 rows", "", ""},
		{fmt.Errorf("fit: %w", coded), "fit: few_rows: got 3 rows", "record more", "few_rows"},
		{syntax, "a.json:4:7: got x", "cut the line", "unreadable"},
		{&SyntaxError{File: "a.json", Line: 4, Msg: "got x"}, "a.json:4: got x", "", ""},
		{&SyntaxError{File: "a.json", Col: 7, Msg: "got x"}, "a.json: got x", "", ""},
		{Hinted(coded, "try again"), "few_rows: got 3 rows", "try again", "few_rows"},
		{fmt.Errorf("%w: %w", &SyntaxError{File: "a.json", Msg: "got x"}, coded), "a.json: got x: few_rows: got 3 rows", "record more", "few_rows"},
		{errors.New("other"), "other", "", ""},
	} {
		if c.err.Error() != c.text || HintOf(c.err) != c.hint || CodeOf(c.err) != c.code {
			t.Errorf("got %q, hint %q, code %q, want %q, %q, %q", c.err, HintOf(c.err), CodeOf(c.err), c.text, c.hint, c.code)
		}
	}
}

func TestFindings(t *testing.T) {
	got := Findingf("sampled", "%d of %d", 2, 5).About("tracing.rate")
	if want := (Finding{Code: "sampled", Message: "2 of 5", Setting: "tracing.rate"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPosition(t *testing.T) {
	text := []byte("ab\ncde\n")
	for _, c := range []struct{ offset, line, col int64 }{
		{0, 1, 1}, {1, 1, 1}, {2, 1, 2}, {4, 2, 1}, {6, 2, 3}, {7, 3, 1}, {99, 3, 1},
	} {
		if line, col := Position(text, c.offset); line != c.line || col != c.col {
			t.Errorf("%d: got %d:%d, want %d:%d", c.offset, line, col, c.line, c.col)
		}
	}
}

func TestOpt(t *testing.T) {
	var row struct{ A, B, C Opt[int64] }
	if err := json.Unmarshal([]byte(`{"A": 7, "B": null}`), &row); err != nil {
		t.Fatal(err)
	}
	if row.A != Some[int64](7) || row.B.OK || row.C.OK || row.A.Or(3) != 7 || row.B.Or(3) != 3 {
		t.Errorf("got %+v", row)
	}
	text, err := json.Marshal(row)
	if err != nil || string(text) != `{"A":7,"B":null,"C":null}` {
		t.Errorf("got %s, %v", text, err)
	}
	known, _ := row.A.MarshalYAML()
	unknown, _ := row.B.MarshalYAML()
	if known != int64(7) || unknown != nil {
		t.Errorf("YAML: got %v and %v", known, unknown)
	}
	set := Some[int64](1)
	if err := json.Unmarshal([]byte("null"), &set); err != nil || set.OK || set.V != 0 {
		t.Errorf("null over a value: got %+v, %v", set, err)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -999: "-999",
		math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestNs(t *testing.T) {
	for us, want := range map[float64]int64{0: 0, 1: 1000, 1.2345: 1234, -1.2345: -1234, 8.64e10: 86_400_000_000_000} {
		if got := Ns(us); got != want {
			t.Errorf("%g us: got %d ns, want %d", us, got, want)
		}
	}
}

func TestProgressMayBeMissing(t *testing.T) {
	Progress(nil).Report("extract", 1, 2, "files")
	var got string
	Progress(func(stage string, done, total int64, unit string) {
		got = fmt.Sprint(stage, " ", done, " ", total, " ", unit)
	}).Report("extract", 1, 2, "files")
	if got != "extract 1 2 files" {
		t.Errorf("got %q", got)
	}
}
