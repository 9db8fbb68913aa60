package features

import (
	"math"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
)

// TestEachFieldIsACount: a step is refused if any one of its named fields is negative, infinite or not a number, or if the sum
// of two is infinite.
func TestEachFieldIsACount(t *testing.T) {
	ones := func() (in StepInput) {
		v := reflect.ValueOf(&in).Elem()
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("name") != "" {
				v.Field(i).SetFloat(1)
			}
		}
		return in
	}
	if in := ones(); !in.allCounts() || !new(StepInput).allCounts() {
		t.Error("ones or zeros are no counts")
	}
	fields := 0
	for i := range reflect.TypeFor[StepInput]().NumField() {
		f := reflect.TypeFor[StepInput]().Field(i)
		if f.Tag.Get("name") == "" {
			continue
		}
		fields++
		for value, want := range map[float64]bool{0: true, 1e300: true, -1e-9: false, -1e300: false, math.Inf(1): false, math.Inf(-1): false, math.NaN(): false} {
			in := ones()
			reflect.ValueOf(&in).Elem().Field(i).SetFloat(value)
			if in.allCounts() != want {
				t.Errorf("%s of %g: got %v", f.Name, value, !want)
			}
		}
		in := ones()
		in.PrefillTokens, in.DecodeTokens = math.MaxFloat64, 0
		reflect.ValueOf(&in).Elem().Field(i).SetFloat(math.MaxFloat64)
		if i != 0 && in.allCounts() {
			t.Errorf("%s and prefill tokens whose sum is infinite are counts", f.Name)
		}
	}
	if fields != 15 {
		t.Errorf("%d named fields, want 15", fields)
	}
	for v, want := range map[float64]bool{0: true, math.MaxFloat64: true, -1e-300: false, math.Inf(1): false, math.NaN(): false} {
		if isCount(v) != want {
			t.Errorf("%g: got %v", v, !want)
		}
	}
}

// TestReadsOfTheRoofline: an 8B model reads 131,072 bytes for each token of its KV cache at 3.35 TB/s. A model whose layers reach
// 100 tokens back reads what they reach, where all layers of older specifications read every token.
func TestReadsOfTheRoofline(t *testing.T) {
	step := StepInput{ScheduledTokens: 2, DecodeTokens: 2, NumDecodeReqs: 2, NumSampledSeqs: 2, DecodeContextTokens: 10_000, KVReadTokens: 10_000}
	for _, v := range []Version{V11, V12, V13} {
		s := space(t, v, testkit.Llama8B())
		if got, want := s.Roofline(&step).KVS, 10_000*131072/3.35e12; math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s: got %g s, want %g", v, got, want)
		}
	}
	// Seven layers of 2 heads of 16 at two times two bytes: 128 bytes a token. Every sixth layer has full attention, the sixth here.
	s := space(t, V13, layered(t, "window", 1))
	if len(s.Reaches()) != 1 || s.Reaches()[0].Window != 100 {
		t.Fatalf("got reaches %+v", s.Reaches())
	}
	step.Reached = &Reached{{DecodePairs: 200, Entries: 200}}
	if got, want := s.Roofline(&step).KVS, (10_000*1+200*6)*128/3.35e12; math.Abs(got-want) > 1e-9*want {
		t.Errorf("windows: got %g s, want %g", got, want)
	}
}
