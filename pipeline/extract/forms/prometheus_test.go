package forms

import "testing"

// FuzzSnapshot: no text panics the reader of /metrics, and what it takes can be
// compared with itself.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte("# HELP vllm:x y\nvllm:request_prompt_tokens_sum{engine=\"0\"} 3 17\n" +
		"vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\"} 3\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadSnapshot(data, "m", 0)
		if err != nil {
			return
		}
		if got := Between([]*Snapshot{s, s}); len(got.Points) > 0 {
			t.Errorf("got %+v between equal answers", got.Points)
		}
	})
}
