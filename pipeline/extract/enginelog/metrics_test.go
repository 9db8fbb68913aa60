package enginelog

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// TestBrokenCounters: sixty variants of an answer of /metrics with something missing, changed or cut give no counters or counts in
// range.
func TestBrokenCounters(t *testing.T) {
	const text = "# HELP vllm:x y\nvllm:prefix_cache_queries_total{engine=\"0\",model_name=\"m\"} 31654.0\n" +
		"vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 21760.0\nvllm:num_preemptions_total{engine=\"0\",model_name=\"m\"} 3.0\n" +
		"vllm:spec_decode_num_draft_tokens_total{engine=\"0\",model_name=\"m\"} 128.0\n"
	rng := rand.New(rand.NewPCG(39, 11))
	faults := 0
	dir := t.TempDir()
	for k := range 60 {
		broken, at := text, 20+rng.IntN(len(text)-21)
		switch k % 5 {
		case 0:
			broken = text[:at]
		case 1:
			broken = strings.Replace(text, "} ", "} "+[]string{"-", "x", "1e40", "NaN ", "+Inf "}[k/5%5], 1+k%3)
		case 2:
			broken = strings.Replace(text, "_total{", "{", 1+k%2)
		case 3:
			broken = strings.Replace(text, "} ", "}", 1+k%4)
		case 4:
			broken = text[:at] + []string{"\n", "}", "{", "\x00", " "}[k/5%5] + text[at:]
		}
		repo.Write(t, broken, dir, "m.prom")
		in := source.Input{Path: filepath.Join(dir, "m.prom"), Name: "m.prom"}
		list, err := ReadCounters(&in, source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 {
			faults++
		} else if c := list[0]; c.Queries < 0 || c.Hits < 0 || c.Drafted < 0 || c.Preempted < 0 || c.Hits > 21760 || c.Queries > 31654 {
			t.Errorf("%d: got %+v of %q", k, c, broken)
		}
	}
	if faults < 25 {
		t.Errorf("%d of 60 broken answers are faults, want at least 25", faults)
	}
}
