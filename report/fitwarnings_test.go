package report

import (
	"strings"
	"testing"
)

// NotSeparated with one term, a pure sum, several unknown combinations, and none unknown.
func TestNotSeparated(t *testing.T) {
	for _, c := range []struct {
		terms   []string
		unknown int
		sumUs   float64
		want    []string
	}{
		{[]string{"decode_attention"}, 1, 0, []string{"decode_attention has no effect", "contexts of very different length"}},
		{[]string{"decode_attention", "kv_cache_read"}, 1, 8850,
			[]string{"decode_attention and kv_cache_read cannot be told apart: only their sum, 8.85 ms"}},
		{[]string{"decode_attention", "kv_cache_read", "bias", "batch_utilization"}, 2, 1000,
			[]string{"2 combinations of them are unknown; the terms together make 1 ms", "decode_attention, kv_cache_read, bias and batch_utilization"}},
		{[]string{"bias", "batch_utilization"}, 0, 1000, []string{"nearly move together", "batches from 1 to max_num_seqs"}},
	} {
		got := NotSeparated(c.terms, c.unknown, c.sumUs)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("got %q, want it to contain %q", got, want)
			}
		}
	}
}
