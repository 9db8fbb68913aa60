package fit

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// Null directions as sentences: one term, a pure sum, several unknown combinations.
func TestNullSentences(t *testing.T) {
	terms := []Term{{Name: "decode_attention"}, {Name: "kv_cache_read"}, {Name: "bias"}, {Name: "batch_utilization"}}
	for _, c := range []struct {
		g    ridge.NullGroup
		want []string
	}{
		{ridge.NullGroup{Terms: []int{0}, Dim: 1}, []string{"decode_attention leaves no mark", "contexts of very different length"}},
		{ridge.NullGroup{Terms: []int{0, 1}, Dim: 1, SumUs: 8850},
			[]string{"decode_attention and kv_cache_read cannot be told apart: only their sum, 8.85 ms"}},
		{ridge.NullGroup{Terms: []int{0, 1, 2, 3}, Dim: 2, SumUs: 1000},
			[]string{"2 combinations of them are unknown; together they make 1 ms", "decode_attention, kv_cache_read, bias and batch_utilization"}},
		{ridge.NullGroup{Terms: []int{2, 3}, Dim: 0, SumUs: 1000}, []string{"nearly move together", "batches from 1 to max_num_seqs"}},
	} {
		got := NullSentence(terms, c.g, 1)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("got %q, want it to hold %q", got, want)
			}
		}
	}
}
