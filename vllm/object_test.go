package vllm

import "testing"

// TestFirstWrongMemberIsNamed: of several wrong members of an object the same one is named each time.
func TestFirstWrongMemberIsNamed(t *testing.T) {
	value := map[string]any{"mode": 9.0, "level": 7.0, "cudagraph_mode": "SOME", "max_cudagraph_capture_size": -1.0}
	for range 50 {
		if got, want := RefusedValue("compilation_config", value), "cudagraph_mode: got SOME, want NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}
