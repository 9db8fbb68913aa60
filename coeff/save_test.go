package coeff

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestWithPoints: every exponent has a point before it, and only the text changes.
func TestWithPoints(t *testing.T) {
	in := []any{1e-7, 1e6 * 1e15, -2e-300, 6.5e-7, 0.25, 3, "1e-07"}
	var n yaml.Node
	if err := n.Encode(in); err != nil {
		t.Fatal(err)
	}
	layOutNode(&n)
	want := []string{"1.0e-07", "1.0e+21", "-2.0e-300", "6.5e-07", "0.25", "3", "1e-07"}
	for i, c := range n.Content {
		if c.Value != want[i] {
			t.Errorf("%v: got %s, want %s", in[i], c.Value, want[i])
		}
	}
	var back []any
	if err := n.Decode(&back); err != nil || back[0] != in[0] || back[2] != in[2] || back[6] != in[6] {
		t.Errorf("read back: got %v (%v), want %v", back, err, in)
	}
}

// TestFileExplainsItself: the head of a file states its terms against the founding spec's, and a
// value outside of the spread over the folds has a comment.
func TestFileExplainsItself(t *testing.T) {
	for terms, want := range map[int]string{16: "16 terms of an engine step, those of the founding spec (16 + 11)",
		20: "20 terms of an engine step.\nThe founding spec has 16 + 11. Terms 17 to 20 are for"} {
		s := Set{SpecVersion: "1.1", Beta: make([]Coefficient, terms)}
		if got := s.heading(); !strings.Contains(got, want) {
			t.Errorf("%d terms: got %q, want %q in it", terms, got, want)
		}
	}
	for value, outside := range map[float64]bool{0.5: true, 1: false, 3: true} {
		var n yaml.Node
		if err := n.Encode([]Coefficient{{Name: "a", Value: value, Unit: "us", FoldSpread: &[2]float64{1, 2}}}); err != nil {
			t.Fatal(err)
		}
		layOutNode(&n)
		text, err := yaml.Marshal(&n)
		if got := strings.Contains(string(text), "# value lies outside of fold_spread"); err != nil || got != outside {
			t.Errorf("%g: got a comment %v (%v), want %v:\n%s", value, got, err, outside, text)
		}
	}
}

// TestFileHasEveryField: the form of a coefficient in the file has every field that one has, with the same key.
func TestFileHasEveryField(t *testing.T) {
	keys := func(of reflect.Type) (out []string) {
		for i := range of.NumField() {
			out = append(out, of.Field(i).Tag.Get("yaml"))
		}
		slices.Sort(out)
		return out
	}
	if got, want := keys(reflect.TypeFor[fileCoefficient]()), keys(reflect.TypeFor[Coefficient]()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var full Coefficient
	v := reflect.ValueOf(&full).Elem()
	for i := range v.NumField() {
		switch field := v.Field(i); field.Kind() {
		case reflect.String:
			field.SetString(v.Type().Field(i).Name)
		case reflect.Float64:
			field.SetFloat(float64(i))
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		}
	}
	text, err := yaml.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var got Coefficient
	if err := yaml.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, full) {
		t.Errorf("got %+v, %v, want %+v", got, err, full)
	}
}
