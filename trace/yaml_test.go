package trace

import (
	"errors"
	"testing"
)

// The messages are those of gopkg.in/yaml.v3.
func TestYAMLError(t *testing.T) {
	for _, c := range []struct{ in, want, key string }{
		{"yaml: unmarshal errors:\n  line 3: field noodles not found in type workload.Generator\n  line 4: field x not found in type y",
			`f.yaml:3: unknown key "noodles"`, "noodles"},
		{"yaml: unmarshal errors:\n  line 2: cannot unmarshal !!str `many` into int64", `f.yaml:2: got "many", want an integer`, ""},
		{"yaml: unmarshal errors:\n  line 2: cannot unmarshal !!seq into workload.Generator", "f.yaml:2: got a list, want a mapping", ""},
		{"yaml: unmarshal errors:\n  line 2: cannot unmarshal !!map into float64", "f.yaml:2: got a mapping, want a number", ""},
		{"yaml: unmarshal errors:\n  line 2: cannot unmarshal !!str `a` into bool", `f.yaml:2: got "a", want true or false`, ""},
		{"yaml: unmarshal errors:\n  line 2: cannot unmarshal !!seq into string", "f.yaml:2: got a list, want text", ""},
		{"yaml: unmarshal errors:\n  line 2: cannot unmarshal !!int `3` into []string", `f.yaml:2: got "3", want a list`, ""},
		{"yaml: unmarshal errors:\n  line 2: cannot unmarshal !!int `-3` into uint16", `f.yaml:2: got "-3", want an integer`, ""},
		{"yaml: line 7: did not find expected key", "f.yaml:7: did not find expected key", ""},
		{"yaml: found character that cannot start any token", "f.yaml: found character that cannot start any token", ""},
	} {
		e, key := YAMLError("f.yaml", errors.New(c.in))
		if e.Error() != c.want || key != c.key {
			t.Errorf("%q: got %q and %q, want %q and %q", c.in, e, key, c.want, c.key)
		}
	}
}

func TestOneOf(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := OneOf(names); got != want {
			t.Errorf("%q: got %q, want %q", names, got, want)
		}
	}
}
