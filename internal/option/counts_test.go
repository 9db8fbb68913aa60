package option

import (
	"fmt"
	"testing"
)

// TestLargestCounts: the largest value of every flag that counts something passes, and the next one,
// either sign, is refused with the largest in the message.
func TestLargestCounts(t *testing.T) {
	largest := map[string]int64{
		"acc-count":              100_000,
		"calls":                  1_000_000,
		"bootstraps":             100_000,
		"concurrency":            1_048_576,
		"cores":                  65_536,
		"dp":                     65_536,
		"input-len":              10_000_000,
		"kv-blocks":              1_000_000_000,
		"last":                   1_000_000_000,
		"loads":                  10_000,
		"max-client-memory":      1_099_511_627_776,
		"max-concurrency":        10_000_000,
		"max-expansion":          1_125_899_906_842_624,
		"max-gpus":               65_536,
		"max-line":               17_179_869_184,
		"max-num-batched-tokens": 10_000_000,
		"max-num-seqs":           1_000_000,
		"max-requests":           1_000_000_000,
		"max-rows":               1_000_000_000,
		"min-requests":           10_000_000,
		"n":                      10_000_000,
		"num-instances":          64,
		"num-prompts":            10_000_000,
		"output-len":             10_000_000,
		"part-bytes":             1_125_899_906_842_624,
		"points":                 1_000_000,
		"replications":           10_000,
		"requests":               10_000_000,
		"seeds":                  100_000,
		"shared-prefix-tokens":   10_000_000,
		"simulate":               10_000_000,
		"staleness-us":           1_000_000_000_000,
		"start":                  10_000,
		"step":                   10_000_000,
		"test-seeds":             100_000,
		"tp":                     65_536,
		"train-seeds":            100_000,
		"workers":                4_096,
	}
	for name, most := range largest {
		if !HasMost(name) {
			t.Errorf("--%s has no largest value", name)
		}
		for _, sign := range []int64{1, -1} {
			if err := CheckCount(name, fmt.Sprint(sign*most)); err != nil {
				t.Error(err)
			}
			over := fmt.Sprint(sign * (most + 1))
			want := fmt.Sprintf("--%s: got %s, want at most %d", name, over, most)
			if err := CheckCount(name, over); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
	if n := len(mostOfCount); n != len(largest) {
		t.Errorf("got %d flags with a largest value, want %d", n, len(largest))
	}
}

// TestNegativeCounts: flags that mean nothing below 0 are refused there, by their name; others check themselves.
func TestNegativeCounts(t *testing.T) {
	for _, name := range []string{"workers", "part-bytes", "seed", "shared-prefix-tokens"} {
		for _, good := range []string{"0", "7", "x", "1,2"} {
			if err := CheckSign(name, good); err != nil {
				t.Errorf("--%s %s: got %v", name, good, err)
			}
		}
		want := fmt.Sprintf("--%s: got \"-7\", want a whole number >= 0", name)
		if err := CheckSign(name, "-7"); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := CheckSign("step", "-1"); err != nil {
		t.Errorf("got %v", err)
	}
	if err := CheckSign("split", "0.0"); err == nil || err.Error() != "--split: got 0.0, want a share in (0, 1]" {
		t.Errorf("got %v", err)
	}
	if err := CheckSign("split", "0.1"); err != nil {
		t.Errorf("got %v", err)
	}
}
