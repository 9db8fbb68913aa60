package clients

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// benchFile is a result of vllm bench serve of 20 answers with a step of 10 ms and a prefill of 40 ms; change
// changes what the client saw of each.
func benchFile(change func(i int, ttft *float64, gaps *[]float64)) string {
	doc := map[string]any{"total_input_tokens": 1, "completed": 20}
	var inputs, outputs []int
	var ttfts, starts []float64
	var itls [][]float64
	for i := range 20 {
		tokens := 40 + 2*i
		ttft := 0.04 + 0.0001*float64(i%7)
		var gaps []float64
		for k := 1; k < tokens; k++ {
			gaps = append(gaps, 0.01+0.0001*float64((i+k)%5))
		}
		change(i, &ttft, &gaps)
		inputs = append(inputs, 100+i)
		outputs = append(outputs, tokens)
		ttfts = append(ttfts, ttft)
		starts = append(starts, 100+3*float64(i))
		itls = append(itls, gaps)
	}
	doc["input_lens"], doc["output_lens"], doc["ttfts"], doc["start_times"], doc["itls"] = inputs, outputs, ttfts, starts, itls
	text, _ := json.Marshal(doc)
	return string(text)
}

// hide moves the first n gaps into TTFT, as where a client does not show these tokens.
func hide(n int, ttft *float64, gaps *[]float64) {
	for _, gap := range (*gaps)[:n] {
		*ttft += gap
	}
	*gaps = (*gaps)[n:]
}

// TestFirstTokens: a first chunk that is not the first token is recognised, and what is known is kept.
func TestFirstTokens(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(i int, ttft *float64, gaps *[]float64)
		says     string
		withTTFT int // answers whose TTFT remains
	}{
		"as it was":          {func(int, *float64, *[]float64) {}, "", 20},
		"60 % hidden":        {func(_ int, s *float64, g *[]float64) { hide(len(*g)*6/10, s, g) }, "steps behind the prefill", 0},
		"25 tokens hidden":   {func(_ int, s *float64, g *[]float64) { hide(25, s, g) }, "about 25 steps", 0},
		"three in the first": {func(_ int, s *float64, g *[]float64) { hide(2, s, g) }, "about 2 steps", 0},
		"a hole of 16": {func(_ int, _ *float64, g *[]float64) {
			*g = append((*g)[:5:5], append([]float64{0.17}, (*g)[22:]...)...)
		}, "gaps between chunks have time", 20},
		"a hole of other widths": {func(i int, _ *float64, g *[]float64) {
			*g = append((*g)[:5:5], append([]float64{0.01 * float64(11+i)}, (*g)[16+i:]...)...)
		}, "gaps between chunks have time", 20},
		"one chunk": {func(_ int, s *float64, g *[]float64) { hide(len(*g), s, g) }, "20 of 20 answers of several tokens came in one chunk", 0},
		"one chunk of every second": {func(i int, s *float64, g *[]float64) {
			if i%2 == 0 {
				hide(len(*g), s, g)
			}
		}, "10 of 20 answers", 10},
	} {
		c2 := readFiles(t, map[string]string{"bench.json": benchFile(c.change)})
		var said []string
		for _, f := range c2.Findings {
			if f.Code == source.CodeFirstToken {
				said = append(said, f.Message)
			}
		}
		with := 0
		for i := range c2.Requests {
			r := &c2.Requests[i]
			if r.TTFTUs.OK {
				with++
			} else if r.FirstChunkNs.OK || len(r.ChunkGapsUs) > 0 {
				t.Errorf("%s: a first chunk or gaps without a TTFT", name)
			}
			if !r.E2EUs.OK {
				t.Errorf("%s: no E2E", name)
			}
		}
		all := strings.Join(said, "; ")
		if with != c.withTTFT || !strings.Contains(all, c.says) || c.says == "" && all != "" {
			t.Errorf("%s: %d with TTFT, want %d; said %q, want %q", name, with, c.withTTFT, all, c.says)
		}
	}
}

// TestShortAnswersBesideHiddenOnes: where first tokens are not shown, answers too short to show the time of a step lose
// their TTFT as well, if they miss tokens.
func TestShortAnswersBesideHiddenOnes(t *testing.T) {
	short := map[string]struct {
		change func(r *trace.ObservedRequest)
		isLike bool
	}{
		"four chunks":       {func(*trace.ObservedRequest) {}, true},
		"a token a chunk":   {func(r *trace.ObservedRequest) { r.OutputTokens.V = 4 }, false},
		"failed":            {func(r *trace.ObservedRequest) { r.Success = trace.Some(false) }, false},
		"two answers":       {func(r *trace.ObservedRequest) { r.N = trace.Some[int64](2) }, false},
		"chunks not known":  {func(r *trace.ObservedRequest) { r.Chunks.OK = false }, false},
		"shown at first":    {func(r *trace.ObservedRequest) { r.VisibleUs = trace.Some(100e3) }, true},
		"shown only later":  {func(r *trace.ObservedRequest) { r.VisibleUs = trace.Some(100e3 + 1) }, false},
		"one answer stated": {func(r *trace.ObservedRequest) { r.N = trace.Some[int64](1) }, true},
	}
	c := &Reader{}
	for i := range 20 { // 30 tokens, of which the last 10 are shown, 10 ms apart
		c.Requests = append(c.Requests, trace.ObservedRequest{OutputTokens: trace.Some[int64](30), Chunks: trace.Some[int64](10),
			ChunkGapsUs: slices.Repeat([]float64{10e3}, 9), TTFTUs: trace.Some(240e3 + float64(i)), E2EUs: trace.Some(330e3 + float64(i))})
	}
	var names []string
	like := 0
	for name, s := range short {
		r := trace.ObservedRequest{OutputTokens: trace.Some[int64](20), Chunks: trace.Some[int64](4), TTFTUs: trace.Some(100e3), E2EUs: trace.Some(130e3)}
		s.change(&r)
		c.Requests = append(c.Requests, r)
		names = append(names, name)
		if s.isLike {
			like++
		}
	}
	c.dropHiddenFirst(testkit.Llama8B())
	if want := fmt.Sprintf("20 answers have 33 %% as many chunks as tokens, and the first chunk lies about 20 steps behind the prefill, as where reasoning is not "+
		"shown: TTFT and ITL of these answers are not used, E2E is; nor those of %d shorter answers with tokens that were not shown", like); len(c.Findings) != 1 || c.Findings[0].Message != want {
		t.Fatalf("got %v, want %q", c.Findings, want)
	}
	for i, name := range names {
		if got := !c.Requests[20+i].TTFTUs.OK; got != short[name].isLike {
			t.Errorf("%s: lost its TTFT: %v", name, got)
		}
	}
}

// TestNoStartTimes: results without start times are named, of vLLM before 0.11 as of SGLang's client.
func TestNoStartTimes(t *testing.T) {
	whole := benchFile(func(int, *float64, *[]float64) {})
	var doc map[string]any
	if err := json.Unmarshal([]byte(whole), &doc); err != nil {
		t.Fatal(err)
	}
	delete(doc, "start_times")
	text, _ := json.Marshal(doc)
	doc["start_times"] = []float64{}
	empty, _ := json.Marshal(doc)
	for name, text := range map[string]string{"absent": string(text), "empty": string(empty), "second of a file": whole + "\n" + string(text)} {
		c := readFiles(t, map[string]string{"bench.json": text})
		want := "20 of 20 requests have no start time"
		if strings.HasPrefix(name, "second") {
			want = "20 of 40 requests have no start time"
		}
		if !strings.Contains(fmt.Sprint(c.Findings), want) || c.Requests[len(c.Requests)-1].SendNs != (trace.Opt[int64]{}) {
			t.Errorf("%s: got %v, want %q", name, c.Findings, want)
		}
	}
}
