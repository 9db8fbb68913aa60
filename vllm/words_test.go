package vllm

import (
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestWordsOfLimits: what a warning says of a setting, by what is done about it.
func TestWordsOfLimits(t *testing.T) {
	for _, c := range []struct {
		limit Limit
		want  string
	}{
		{Limit{What: "it"}, "x=1: it; do that"},
		{Limit{What: "it", Refused: true}, "x=1: it is not modelled; fit and simulate refuse it; do that"},
		{Limit{What: "it", Refused: true, Layered: true, Simulated: true}, "x=1: it is in the step times of spec 1.3 alone; do that"},
		{Limit{What: "it", Refused: true, Simulated: true}, "x=1: it is not in the step times; simulate plays it; do that"},
		{Limit{What: "it", Layered: true, Simulated: true}, "x=1: it; do that"},
	} {
		c.limit.Next = "do that"
		h := ReachedLimit{Limit: &c.limit, Got: "x=1"}
		if got := h.Finding(); got.Message != c.want || got.Code != h.Code() {
			t.Errorf("got %+v, want %q", got, c.want)
		}
	}
}

// TestPassesOfAConfiguration: a switch of compilation_config as an object, as JSON, and as text that is none.
func TestPassesOfAConfiguration(t *testing.T) {
	for _, c := range []struct {
		config       any
		on, isStated bool
	}{
		{nil, false, false},
		{map[string]any{"pass_config": map[string]any{"fuse_x": true}}, true, true},
		{map[string]any{"pass_config": map[string]any{"fuse_x": false}}, false, true},
		{map[string]any{"pass_config": map[string]any{"fuse_y": true}}, false, false},
		{`{"pass_config":{"fuse_x":true}}`, true, true},
		{`{"pass_config":{"fuse_x":false}}`, false, true},
		{"-O3 with fuse_x", true, true},
		{"-O3", false, false},
	} {
		e := &Engine{}
		if c.config != nil {
			e.Keep("compilation_config", c.config)
		}
		if on, isStated := e.pass("fuse_x"); on != c.on || isStated != c.isStated {
			t.Errorf("%v: got %t, stated %t, want %t, %t", c.config, on, isStated, c.on, c.isStated)
		}
	}
	var none trace.Opt[int64]
	if got := OptInt(none); got == OptInt(trace.Some(int64(0))) {
		t.Errorf("an unknown number is shown as %s", got)
	}
}
