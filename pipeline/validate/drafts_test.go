package validate

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestSpreadDrafts: the passes of a request yield its tokens, with the means asked for and at least one draft a pass.
func TestSpreadDrafts(t *testing.T) {
	for _, c := range []struct {
		name                            string
		tokens                          int64
		acceptedMean, proposedMean, at0 float64
		most                            int64
		accepted, proposed              []uint8
	}{
		{"half a draft each", 6, 0.5, 2, 0, 4, []uint8{0, 1, 0, 1}, []uint8{2, 2, 2, 2}},
		{"starting at another part", 6, 0.5, 2.5, 0.5, 4, []uint8{1, 0, 1, 0}, []uint8{3, 2, 3, 2}},
		{"all accepted", 6, 2, 2, 0, 2, []uint8{2, 2}, []uint8{2, 2}},
		{"the last pass is cut", 5, 2, 2, 0, 2, []uint8{2, 1}, []uint8{2, 2}},
		{"more accepted than verified on average", 4, 1, 0, 0, 4, []uint8{1, 1}, []uint8{1, 1}},
		{"never more than the most", 4, 3, 9, 0, 1, []uint8{1, 1}, []uint8{1, 1}},
		{"none", 2, 0, 0, 0, 4, []uint8{0, 0}, []uint8{1, 1}},
		{"one token", 0, 1, 1, 0, 4, nil, nil},
	} {
		accepted, proposed := spreadDrafts(c.tokens, c.acceptedMean, c.proposedMean, c.at0, c.most)
		if !reflect.DeepEqual(accepted, c.accepted) || !reflect.DeepEqual(proposed, c.proposed) {
			t.Errorf("%s: got %v and %v, want %v and %v", c.name, accepted, proposed, c.accepted, c.proposed)
		}
	}
}

// TestStreamedPasses: chunks show the passes of a request unless they have more tokens than a pass can yield,
// or belong to several answers.
func TestStreamedPasses(t *testing.T) {
	row := func(tokens int64, gaps int, answers int64) *trace.ObservedRequest {
		return &trace.ObservedRequest{OutputTokens: trace.Some(tokens), ChunkGapsUs: make([]float64, gaps), N: trace.Some(answers)}
	}
	for _, c := range []struct {
		name string
		row  *trace.ObservedRequest
		ok   bool
	}{
		{"two tokens a pass", row(9, 4, 1), true},
		{"a token a pass", row(5, 4, 1), true},
		{"more chunks than tokens", row(4, 4, 1), false},
		{"as many as 1 + 4 drafts", row(21, 4, 1), true},
		{"more than 1 + 4 drafts", row(22, 4, 1), false},
		{"one chunk", row(9, 0, 1), false},
		{"two answers", row(9, 4, 2), false},
		{"no row", nil, false},
		{"no count of tokens", &trace.ObservedRequest{ChunkGapsUs: make([]float64, 4)}, false},
	} {
		passes, tokens, ok := streamedPasses(c.row, 4)
		if ok != c.ok || ok && (passes != 4 || tokens != c.row.OutputTokens.V-1) {
			t.Errorf("%s: got %d passes, %d tokens and %v", c.name, passes, tokens, ok)
		}
	}
}

// TestDraftReplay: drafts of a log are replayed as the chunks of a request show, else as the server counted,
// with the drafted tokens of the phase's own passes; where nothing shows what was accepted there is no replay.
func TestDraftReplay(t *testing.T) {
	dep := *testkit.Llama8B()
	dep.Engine.SpeculativeDecoding = true
	dep.Engine.Extra = vllm.Values{"speculative_config": map[string]any{"method": "eagle", "model": "m", "num_speculative_tokens": 3.0}}
	run := &trace.Run{
		Steps: []trace.Step{{ID: 10, TsStartNs: 5}, {ID: 11, TsStartNs: 15}, {ID: 12, TsStartNs: 25}},
		Aggregate: &trace.Aggregate{Drafts: true, First: 10, Totals: []trace.StepTotals{
			{Decode: 8, DecodeReqs: 2}, {Decode: 9, DecodeReqs: 4}, {Decode: 6, DecodeReqs: 2},
		}},
		Observed: []trace.ObservedRequest{{}},
	}
	phases := []deploy.Phase{{Name: "a", StartNs: 0, EndNs: 20}, {Name: "b", StartNs: 20, EndNs: 30}}
	for name, d := range map[string]*Drafts{"nothing is known": nil, "no drafter": {Deployment: testkit.Llama8B()}, "no counts": {Deployment: &dep}} {
		if r, why := newDraftReplay(run, d, phases); r != nil || !strings.Contains(why, "what each pass accepted") {
			t.Errorf("%s: got %v and %q", name, r, why)
		}
	}
	counted := &result.DraftCounts{DraftedTokens: 200, AcceptedTokens: 50, Source: "the log"}
	r, why := newDraftReplay(run, &Drafts{Deployment: &dep, Counted: counted}, phases)
	if why != "" {
		t.Fatal(why)
	}
	// (8 + 9 - 6) drafted tokens in 6 decodes, and (6 - 2) in 2.
	if math.Abs(r.perDecode["a"]-11.0/6) > 1e-15 || r.perDecode["b"] != 2 || r.acceptedFrac != 0.25 || r.most != 3 {
		t.Errorf("got %+v", r)
	}
	if err := r.dep.CheckSimulated(); err != nil {
		t.Error(err)
	}
	if s, err := dep.Engine.Speculation(); err != nil || s.Rates != nil {
		t.Errorf("the recorded deployment has rates now: %+v, %v", s, err)
	}
	content := r.content(func(_ *Request, s *sim.Request) { s.CachedTokens = trace.Some[int64](7) }, &phases[1])
	var byCounts, byChunks sim.Request
	byCounts.OutputTokens, byChunks.OutputTokens = 31, 31
	content(&Request{}, &byCounts)
	content(&Request{Row: &trace.ObservedRequest{OutputTokens: trace.Some[int64](31), ChunkGapsUs: make([]float64, 10)}}, &byChunks)
	// A quarter of 2 drafts is accepted: 1.5 tokens in each of 20 passes. The chunks show 3 tokens in each of 10.
	if len(byCounts.Accepted) != 20 || len(byChunks.Accepted) != 10 || byCounts.CachedTokens.V != 7 {
		t.Errorf("got %d and %d passes, want 20 and 10", len(byCounts.Accepted), len(byChunks.Accepted))
	}
	found := r.finding(run, []Request{{}, {Row: &trace.ObservedRequest{OutputTokens: trace.Some[int64](31), ChunkGapsUs: make([]float64, 10)}}})
	if found.Code != ReplayAssumes || !strings.Contains(found.Message, "1 of 2 requests") || !strings.Contains(found.Message, "accept 25.0 % of their drafts, as the log counts") {
		t.Errorf("got %+v", found)
	}
}
