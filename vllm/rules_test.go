package vllm

import (
	"reflect"
	"testing"
)

// Each field of Rules has one row of the table, and no row names a release that ends before it begins.
func TestEveryRuleHasARow(t *testing.T) {
	var r Rules
	rowOf := map[any]string{}
	for i := range rules {
		row := &rules[i]
		field := row.value(&r)
		if other, twice := rowOf[field]; twice {
			t.Errorf("%s and %s set the same field", other, row.name)
		}
		rowOf[field] = row.name
		if row.until != (Release{}) && !row.since.Before(row.until) {
			t.Errorf("%s: got until %s, want a release after %s", row.name, row.until, row.since)
		}
	}
	if fields := reflect.TypeFor[Rules]().NumField(); len(rowOf) != fields {
		t.Errorf("got rows for %d fields, want %d", len(rowOf), fields)
	}
}

func TestParseRelease(t *testing.T) {
	for version, want := range map[string]string{"0.15.1 (fork)": "0.15", "v0.11.0rc1": "0.11", "0.16rc1": "0.16", "1.2": "1.2"} {
		if r, ok := ParseRelease(version); !ok || r.String() != want {
			t.Errorf("%s: got %s, %t, want %s", version, r, ok, want)
		}
	}
	for _, version := range []string{"", "main", "0", "0.x", "0.1.dev12345+g0123abc"} {
		if r, ok := ParseRelease(version); ok {
			t.Errorf("%q: got %s, want no release", version, r)
		}
	}
}
