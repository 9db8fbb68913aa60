package trace

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestLimitsAreThoseOfTheBook: the table of spec#value-limits and the code name the same ranges.
func TestLimitsAreThoseOfTheBook(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repo.Root(t), "docs", "spec.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), `id="value-limits"`)
	table, _, _ = strings.Cut(table, "Rows with a unit")
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for name := range strings.SplitSeq(cells[1], ",") {
				rows[strings.Trim(name, " `")] = strings.TrimSpace(cells[2]) + " to " + strings.TrimSpace(cells[3])
			}
		}
	}
	for _, ranges := range []map[string]Range{unitRange, columnRange} {
		for name, r := range ranges {
			if want := fmt.Sprintf("%.0f to %.0f", r.From, r.To); rows[name] != want {
				t.Errorf("%s: the book says %q, the code %q", name, rows[name], want)
			}
		}
	}
	if n := len(rows) - 2; n != len(unitRange)+len(columnRange) {
		t.Errorf("the book has %d rows, the code %d", n, len(unitRange)+len(columnRange))
	}
}

// TestEveryNumberHasALimit: no numeric column with a unit is without a range.
func TestEveryNumberHasALimit(t *testing.T) {
	for _, row := range []any{Request{}, JourneyEvent{}, Step{}, Snapshot{}, KVEvent{}, ObservedRequest{}, Iteration{}, LoadPoint{}} {
		for f := range reflect.TypeOf(row).Fields() {
			unit := f.Tag.Get("unit")
			if _, ok := RangeOf(f.Tag.Get("col"), unit); unit != "" && !ok {
				t.Errorf("%T: %s in %s has no range", row, f.Tag.Get("col"), unit)
			}
		}
	}
}

func TestInt(t *testing.T) {
	for v, want := range map[float64]int64{0: 0, -1.5: -2, 2.5: 3, 1e18: 1e18, 1 << 63: math.MaxInt64, 1e308: math.MaxInt64,
		-1e308:      math.MinInt64,
		math.Inf(1): math.MaxInt64, math.Inf(-1): math.MinInt64, math.NaN(): math.MinInt64} {
		if got := Int(v); got != want {
			t.Errorf("%g: got %d, want %d", v, got, want)
		}
	}
	if Count(5) != 5 || Count(5.5) != math.MinInt64 || Count(1e-300) != math.MinInt64 || Count(math.NaN()) != math.MinInt64 {
		t.Errorf("parts of a token count: %d, %d, %d", Count(5.5), Count(1e-300), Count(math.NaN()))
	}
}

func TestRanges(t *testing.T) {
	ranges := RangesOf[ObservedRequest]()
	for want, row := range map[string]ObservedRequest{
		"": {PromptTokens: Some[int64](1 << 24), TTFTUs: Some(0.0), ChunkGapsUs: []float64{0, 8.64e10}, SendNs: Opt[int64]{V: -5}},
		"prompt_tokens: got 16777217, want 0 to 16777216": {PromptTokens: Some[int64](1<<24 + 1)},
		"ttft_us: got -1, want 0 to 8.64e+10":             {TTFTUs: Some(-1.0)},
		"chunk_gaps_us: got no number":                    {ChunkGapsUs: []float64{1, math.NaN()}},
		"send_ns: got no number, or one beyond 64 bits":   {SendNs: Some(Int(1e30))},
	} {
		if got := ranges.Check(&row); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTwiceKey(t *testing.T) {
	many := strings.Repeat(`"k":0,`, 1)
	for i := range 100 {
		many += fmt.Sprintf(`"k%d":{"a":[1,{"a":2}]},`, i)
	}
	for text, want := range map[string]string{
		`{"a":1,"b":{"a":1},"c":["a","a",{"a":"a"}]}`: "", `{"a":"{\"a\":1,\"a\":2}"}`: "", "{\n \"a\":1,\n \"a\":1}": "3:3: got the key \"a\" twice",
		`[{"b":1},{"b":1,"c":{"d":1,"d":2}}]`: `got the key "d" twice`, "{" + many + `"z":1}`: "", "{" + many + `"k7":1}`: `got the key "k7" twice`,
		`{"a\\":1,"a":2}`: "", `{"é":1,"x":[],"é":2}`: `got the key "é" twice`,
	} {
		var v any
		if err := UnmarshalJSON([]byte(text), &v); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", text, err, want)
		}
	}
}
