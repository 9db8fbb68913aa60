package coeff

import (
	"reflect"
	"slices"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestChildrenOfANode: values under a key, and items of a list from the first to the last.
func TestChildrenOfANode(t *testing.T) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte("list: [a, b, c]\n1: one\nnone:\n"), &document); err != nil {
		t.Fatal(err)
	}
	root := document.Content[0]
	list := childNode(root, "list")
	for _, c := range []struct {
		of   *yaml.Node
		key  string
		want string // "": no child
	}{
		{list, "0", "a"}, {list, "2", "c"}, {list, "3", ""}, {list, "-1", ""}, {list, "a", ""}, {list, "", ""},
		{root, "1", "one"}, {root, "0", ""}, {root, "one", ""}, {root, "lis", ""},
		{nil, "0", ""}, {list.Content[0], "0", ""},
	} {
		got := ""
		if n := childNode(c.of, c.key); n != nil {
			got = n.Value
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.key, got, c.want)
		}
	}
	if n := childNode(root, "none"); n == nil || n.Tag != "!!null" {
		t.Errorf("a key without a value: got %+v", n)
	}
}

// TestKeysOfACoefficient: the value with what belongs to it, then the estimate, then the evidence.
func TestKeysOfACoefficient(t *testing.T) {
	one := 1.0
	of := &[2]float64{1, 2}
	c := Coefficient{Name: "a", Value: 1, Unit: "us", CI95: of, CI95Given: GivenPrior, FoldSpread: of, Estimate: &one, EstimateCI95: of, Identified: Within, Range: of, Evidence: "kernels"}
	var n yaml.Node
	if err := n.Encode(c); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i := 0; i < len(n.Content); i += 2 {
		keys = append(keys, n.Content[i].Value)
	}
	if want := []string{"name", "value", "unit", "ci95", "ci95_given", "fold_spread", "identified", "range", "estimate", "estimate_ci95", "evidence"}; !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
	if n := reflect.TypeFor[Coefficient]().NumField(); len(keys) != n {
		t.Errorf("got %d keys, want one of each of %d fields", len(keys), n)
	}
}
