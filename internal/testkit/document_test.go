package testkit

import (
	"reflect"
	"testing"
)

func TestDifferences(t *testing.T) {
	const want = `{"a": 1.5, "b": ["x", 1774290152709218600], "c": {"d": null}, "e": true}`
	for _, c := range []struct {
		got  string
		want []string
	}{
		{want, nil},
		{`{"a": 1.5000012, "b": ["x", 1774290152709218600], "c": {"d": null}, "e": true}`, nil},
		{`{"a": 1.500003, "b": ["x", 1774290152709218601], "c": {"d": 0}, "e": false}`, []string{
			"a: got 1.500003, want 1.5", "b[1]: got 1774290152709218601, want 1774290152709218600", "c.d: got 0, want null", "e: got false, want true"}},
		{`{"a": "1.5", "b": ["x"], "e": true, "f": 1}`, []string{
			`a: got "1.5", want 1.5`, "b: got 1 elements, want 2", `c: got no such key, want {"d":null}`, "f: got 1, want no such key"}},
		{`[]`, []string{`: got [], want {"a":1.5,"b":["x",1774290152709218600],"c":{"d":null},"e":true}`}},
	} {
		if got := differences("", decoded(t, []byte(c.got)), decoded(t, []byte(want))); !reflect.DeepEqual(got, c.want) {
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
	left := withoutKeys(decoded(t, []byte(`{"a": 1, "b": [{"a": 2, "c": 3}]}`)), []string{"a"})
	if !reflect.DeepEqual(left, decoded(t, []byte(`{"b": [{"c": 3}]}`))) {
		t.Errorf("got %v", left)
	}
}
