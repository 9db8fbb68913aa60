package trace

import (
	"strings"
	"testing"
)

// wide is a struct of 4 KiB, such as a configuration in fit.json.
type wide struct {
	Name  string       `json:"name"`
	Sums  [512]float64 `json:"-"`
	Rows  []float64
	Inner *wide `json:"inner"`
}

// TestCheckMemory: a list whose elements become far larger in memory than in the text is refused,
// whatever the elements are; lists of numbers, and values that are skipped, are not.
func TestCheckMemory(t *testing.T) {
	var doc struct {
		Runs   []wide          `json:"runs"`
		Links  []*wide         `json:"links"`
		ByName map[string]wide `json:"by_name"`
		Curve  [][2]float64    `json:"curve"`
		Opt    []Opt[int64]    `json:"opt"`
		Any    []any           `json:"any"`
	}
	const n = 1_030 // elements of 4,136 bytes are just above 4 MiB
	many := func(piece string) string { return strings.TrimSuffix(strings.Repeat(piece+",", n), ",") }
	for _, c := range []struct {
		name, text string
		refused    bool
	}{
		{"objects", `{"runs":[` + many("{}") + `]}`, true},
		{"nulls", `{"runs":[` + many("null") + `]}`, true},
		{"numbers", `{"runs":[` + many("0") + `]}`, true},
		{"texts", `{"runs":[` + many(`""`) + `]}`, true},
		{"key in capitals", `{"RUNS":[` + many("0") + `]}`, true},
		{"pointers", `{"links":[` + many("0") + `]}`, true},
		{"pointers in one object", `{"runs":[` + strings.Repeat(`{"inner":{}},`, n/2) + `]}`, true},
		{"a map", `{"by_name":{` + many(`"a":0`) + `}}`, true},
		{"behind an escaped quote", `{"x\"":1,"runs":[` + many("0") + `]}`, true},
		{"fewer", `{"runs":[` + strings.Repeat("0,", n-20) + `0]}`, false},
		{"an unknown key", `{"walks":[` + many("{}") + many("{}") + `]}`, false},
		{"a field without a tag", `{"runs":[{"rows":[` + many("0") + `]}]}`, false},
		{"pairs", `{"curve":[` + many("[1,2]") + `]}`, false},
		{"many numbers", `{"curve":[[` + strings.Repeat("0,", 1_000_000) + `0]]}`, false},
		{"many optional values", `{"opt":[` + strings.Repeat("1,", 1_000_000) + `1]}`, true},
		{"optional values", `{"opt":[` + many("1") + `]}`, false},
		{"a list in place of an object, with the names of its fields", `{"runs":[[` + many(`"inner",{}`) + `]]}`, false},
		{"a list in place of an object", `{"links":[[` + many("0") + many("0") + `]]}`, false},
		{"an object in place of a list", `{"runs":{` + many(`"a":0`) + many(`"a":0`) + `}}`, false},
		{"a list in place of a map", `{"by_name":[` + many("0") + many("0") + `]}`, false},
		{"any", `{"any":[` + many("{}") + `]}`, false},
		{"brackets", strings.Repeat("[", 3*n), false},
		{"deeper than JSON may be", `{"runs":` + strings.Repeat("[", 10_000) + `{"runs":[` + many("{}"), false},
		{"closed twice", `}}]]{"runs":[` + many("{}"), true},
	} {
		if err := CheckMemory([]byte(c.text), &doc); (err != nil) != c.refused {
			t.Errorf("%s: got %v, want refused %v", c.name, err, c.refused)
		}
	}
	if err := UnmarshalJSON([]byte(`{"runs":[`+many("{}")+`]}`), &doc); err == nil || !strings.Contains(err.Error(), "more than 4 MiB in memory") || doc.Runs != nil {
		t.Errorf("decoded: got %d runs, %v", len(doc.Runs), err)
	}
	if err := UnmarshalJSON([]byte(`{"runs":[`), &doc); err == nil {
		t.Error("half a text was decoded")
	}
	err := CheckMemory([]byte("{\n\"runs\":["+many("{}")), &doc)
	if err == nil || !strings.HasPrefix(err.Error(), "2:3043: got values that take more than 4 MiB in memory from 3,099 bytes of text") {
		t.Errorf("got %v", err)
	}
}
