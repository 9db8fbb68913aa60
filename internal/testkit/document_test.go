package testkit

import (
	"reflect"
	"testing"
)

func TestDifferences(t *testing.T) {
	type object = map[string]any
	want := object{"a": 1.0, "b": []any{"x", 2e6}, "c": object{"d": nil}, "e": true}
	for _, c := range []struct {
		got  any
		want []string
	}{
		{object{"a": 1.0, "b": []any{"x", 2e6}, "c": object{"d": nil}, "e": true}, nil},
		{object{"a": 1.0000009, "b": []any{"x", 2e6 + 1}, "c": object{"d": nil}, "e": true}, nil},
		{object{"a": 1.000002, "b": []any{"x", 2e6 + 3}, "c": object{"d": 0.0}, "e": false}, []string{
			"a: got 1.000002, want 1", "b[1]: got 2000003, want 2000000", "c.d: got 0, want null", "e: got false, want true"}},
		{object{"a": "1", "b": []any{"x"}, "e": true, "f": 1.0}, []string{
			`a: got "1", want 1`, "b: got 1 elements, want 2", `c: got no such key, want {"d":null}`, "f: got 1, want no such key"}},
		{[]any{}, []string{`: got [], want {"a":1,"b":["x",2000000],"c":{"d":null},"e":true}`}},
	} {
		if got := differences("", c.got, want); !reflect.DeepEqual(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"got 3 of 4.5 rows", "3 rows of 4.5", true},
		{"got 3 of 4.5 rows", "got 3 of 4.6 rows", false},
		{"got 3 of 1,000 rows", "got 3 of 1,001 rows", false},
		{"got 3", "got3", false},
		{"steps", "replay", false},
	} {
		if got := len(differences("", c.a, c.b)) == 0; got != c.want {
			t.Errorf("%q and %q: got equal %t", c.a, c.b, got)
		}
	}
	left := withoutKeys(object{"a": 1.0, "b": []any{object{"a": 2.0, "c": 3.0}}}, []string{"a"})
	if !reflect.DeepEqual(left, object{"b": []any{object{"c": 3.0}}}) {
		t.Errorf("got %v", left)
	}
}
