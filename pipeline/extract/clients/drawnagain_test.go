package clients

import (
	"fmt"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestDrawnAgain: a second load of the same random prompts shares nothing by its file, unless the prefix cache
// is on and its first tokens came much earlier than those of the first load.
func TestDrawnAgain(t *testing.T) {
	result := func(startS int, inputs, ttfts, more string) string {
		return fmt.Sprintf(`{"dataset_name": "random", "completed": 6, "total_input_tokens": 6, "burstiness": 1, %s
			"input_lens": [%s], "output_lens": [2, 2, 2, 2, 2, 2], "ttfts": [%s], "start_times": [%d, %d, %d, %d, %d, %d],
			"itls": [[0.01], [0.01], [0.01], [0.01], [0.01], [0.01]]}`,
			more, inputs, ttfts, startS, startS+1, startS+2, startS+3, startS+4, startS+5)
	}
	const lengths = "100, 100, 100, 100, 100, 100"
	const slow = "0.1, 0.1, 0.1, 0.1, 0.1, 0.1"
	const justSlow = "0.071, 0.3, 0.3, 0.3, 0.3, 0.3" // quickest: 0.1 quantile over 0.7 of the first load's
	const quick = "0.05, 0.05, 0.05, 0.05, 0.05, 0.05"
	for name, c := range map[string]struct {
		second    string
		isCaching bool
		isDoubted bool
	}{
		"as quick as the first":  {result(100, lengths, slow, ""), true, false},
		"a little quicker":       {result(100, lengths, justSlow, ""), true, false},
		"quicker":                {result(100, lengths, quick, ""), true, true},
		"without prefix caching": {result(100, lengths, quick, ""), false, false},
		"another length":         {result(100, "100, 100, 100, 100, 101, 100", quick, ""), true, false},
		"one seed":               {result(100, lengths, quick, `"seed": 7,`), true, true},
		"two seeds":              {result(100, lengths, quick, `"seed": 8,`), true, false},
		"seeds of another kind":  {result(100, lengths, quick, `"seed": {"a": 1},`), true, false},
	} {
		got := readFiles(t, map[string]string{"a.json": result(0, lengths, slow, `"seed": "7",`), "b.json": c.second})
		dep := &deploy.Deployment{}
		dep.Engine.PrefixCaching = c.isCaching
		got.doubtDrawnAgain(dep)
		if len(got.Requests) != 12 {
			t.Fatalf("%s: got %d requests, want 12", name, len(got.Requests))
		}
		for i, r := range got.Requests {
			if want := !c.isDoubted || i < 6; r.SharesNothing() != want {
				t.Errorf("%s, request %d: shares nothing %v, want %v", name, i, !want, want)
			}
		}
		isNamed := len(got.Findings) > 0 && strings.Contains(got.Findings[len(got.Findings)-1].Message, "b has prompts of the same lengths as a")
		if isNamed != c.isDoubted {
			t.Errorf("%s: got the findings %v", name, got.Findings)
		}
	}
}

// TestThirdDraw: a third load is compared with the first one, which found nothing in the cache, and not with the second.
func TestThirdDraw(t *testing.T) {
	var c Reader
	for load, ttftUs := range []float64{1000, 500, 450} {
		from := len(c.Requests)
		for range 5 {
			c.Requests = append(c.Requests, trace.ObservedRequest{
				PromptTokens: trace.Some(int64(100)),
				TTFTUs:       trace.Some(ttftUs),
				PrefixTokens: trace.Some(int64(0)),
			})
		}
		c.drawn = append(c.drawn, drawnLoad{name: fmt.Sprint(load), startNs: int64(load), from: from, to: len(c.Requests)})
	}
	dep := &deploy.Deployment{}
	dep.Engine.PrefixCaching = true
	c.doubtDrawnAgain(dep)
	for i, r := range c.Requests {
		if want := i < 5; r.SharesNothing() != want {
			t.Errorf("request %d: shares nothing %v, want %v", i, !want, want)
		}
	}
	if len(c.Findings) != 2 || !strings.Contains(c.Findings[1].Message, "2 has prompts of the same lengths as 0") {
		t.Errorf("got the findings %v, want the third load compared with the first", c.Findings)
	}
}
