package option

// This file refuses counts that can only be typing errors.

import (
	"errors"
	"slices"
	"strconv"
)

// mostOfCount is the largest sensible value of each flag that counts something, in the flag's unit: that in its name
// (bytes, us), bytes for max-client-memory and max-line, tokens for lengths of input and output, the factor for
// max-expansion, else the things that the flag is named after. Beyond it a number is a typo, and would end in memory
// that no machine has.
var mostOfCount = map[string]int64{
	"acc-count":              100_000,
	"calls":                  1_000_000,
	"bootstraps":             100_000,
	"concurrency":            1 << 20,
	"cores":                  1 << 16,
	"dp":                     1 << 16,
	"input-len":              10_000_000,
	"kv-blocks":              1_000_000_000,
	"last":                   1_000_000_000,
	"loads":                  10_000,
	"max-client-memory":      1 << 40,
	"max-concurrency":        10_000_000,
	"max-expansion":          1 << 50,
	"max-gpus":               1 << 16,
	"max-line":               1 << 34,
	"max-num-batched-tokens": 10_000_000,
	"max-num-seqs":           1_000_000,
	"max-requests":           1_000_000_000,
	"max-rows":               1_000_000_000,
	"min-requests":           10_000_000,
	"n":                      10_000_000,
	"num-instances":          64,
	"num-prompts":            10_000_000,
	"output-len":             10_000_000,
	"part-bytes":             1 << 50,
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
	"tp":                     1 << 16,
	"train-seeds":            100_000,
	"workers":                4096,
}

// neverNegative are flags that mean nothing below 0 and are checked by no stage.
var neverNegative = []string{"part-bytes", "seed", "shared-prefix-tokens", "workers"}

// CheckSign returns an error for a negative value of a flag that means nothing below 0, and for a training share of 0,
// which a stage takes for one that was not given.
func CheckSign(name, value string) error {
	if share, err := strconv.ParseFloat(value, 64); name == "split" && err == nil && share == 0 {
		return Misusef("--split: got %s, want a share in (0, 1]", value)
	}
	if !slices.Contains(neverNegative, name) {
		return nil
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && n < 0 {
		return Misusef("--%s: got %q, want a whole number >= 0", name, value)
	}
	return nil
}

// HasMost reports whether a flag counts something and has a largest value.
func HasMost(name string) bool {
	_, ok := mostOfCount[name]
	return ok
}

// CheckCount returns an error for a value beyond the largest sensible one of a flag that counts
// something. A text that is not a whole number is for the flag itself to refuse, unless it has too
// many digits.
func CheckCount(name, value string) error {
	most, known := mostOfCount[name]
	if !known {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	tooLarge := err == nil && (n > most || n < -most)
	if tooLarge || errors.Is(err, strconv.ErrRange) {
		return Misusef("--%s: got %s, want at most %d", name, value, most)
	}
	return nil
}
