package pairing

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// logOf is a log of lines "engine: index, prompts, prompt tokens, decodes, tokens of decodes".
func logOf(t *testing.T, rules Rules, engines int, isAsync bool, lines ...string) *passLog {
	t.Helper()
	p := newPassLog(rules, engines, isAsync)
	for _, line := range lines {
		var e int
		var it trace.Iteration
		if _, err := fmt.Sscanf(line, "%d: %d, %d, %d, %d, %d", &e, &it.Index, &it.ContextReqs, &it.ContextTokens, &it.GenerationReqs, &it.GenerationTokens); err != nil {
			t.Fatal(line, err)
		}
		it.Form = trace.IterationLog
		p.addPass(e, &it)
	}
	return p
}

// sent is a request with its prompt and output tokens, and the times at which it was sent, and its first and last chunk came.
func sent(tokens, out, sendNs, firstNs, lastNs int64) trace.ObservedRequest {
	return trace.ObservedRequest{PromptTokens: trace.Some(tokens), OutputTokens: trace.Some(out), Success: trace.Some(true),
		SendNs: trace.Some(sendNs), FirstChunkNs: trace.Some(firstNs), LastChunkNs: trace.Some(lastNs)}
}

// TestPassLogByHand states every field of the passes of two engines. Of engine 0 the pass with index 2 is missing; the first
// of engine 1 has index 3.
func TestPassLogByHand(t *testing.T) {
	p := newPassLog(Rules{Budget: 512, Chunked: true}, 2, false)
	for _, c := range []struct {
		engine int
		it     trace.Iteration
	}{
		{0, trace.Iteration{ContextReqs: 2, ContextTokens: 100, StampNs: trace.Some[int64](77), ElapsedUs: 3.5}},
		{1, trace.Iteration{Index: 3, ContextReqs: 1, ContextTokens: 512, StampStepNs: trace.Some[int64](1000)}},
		{0, trace.Iteration{Index: 1, GenerationReqs: 2, GenerationTokens: 3}},
		{0, trace.Iteration{Index: 3, GenerationReqs: 1, GenerationTokens: 1}},
		{0, trace.Iteration{Index: 4, Form: trace.IterationSGLang, ContextReqs: 3, ContextTokens: 507, ContextKVTokens: trace.Some[int64](16),
			GenerationReqs: 1, GenerationTokens: 4}},
		{0, trace.Iteration{Index: 5, Form: trace.IterationSGLang, ContextReqs: 1, ContextTokens: 508, GenerationReqs: 1, GenerationTokens: 4}},
	} {
		p.addPass(c.engine, &c.it)
	}
	want := []promptPass{
		{engine: 0, place: 0, index: 0, order: 1, contextReqs: 2, contextTokens: 100, hits: -1, generation: 4, isFresh: true, hasGapBehind: true,
			stampNs: trace.Some[int64](77), stampStepNs: 1e9, elapsedUs: 3.5},
		{engine: 1, place: 0, index: 3, order: 2, contextReqs: 1, contextTokens: 512, hits: -1, isFull: true, isFresh: true, hasGapBefore: true, stampStepNs: 1000},
		{engine: 0, place: 3, index: 4, order: 5, orderBefore: 4, contextReqs: 3, contextTokens: 507, hits: 16, generation: 4, stampStepNs: 1e9},
		{engine: 0, place: 4, index: 5, order: 6, orderBefore: 5, contextReqs: 1, contextTokens: 508, hits: -1, generation: 4, isFull: true, stampStepNs: 1e9},
	}
	for i := range want {
		if got := p.promptPasses[i]; got != want[i] {
			t.Errorf("pass %d: got\n%+v, want\n%+v", i, got, want[i])
		}
	}
	// Of the requests of a pass those have left that the next one does not decode.
	if got := p.engines[0].leaving; !slices.Equal(got, []int64{0, 1, 0, 3, 2}) {
		t.Errorf("engine 0: got %v leaving", got)
	}
	if e := p.engines[0]; e.prefills != 0 || e.index != 5 || e.order != 6 || e.lastPromptPass != 3 || !e.hasPass {
		t.Errorf("engine 0: got %+v", e)
	}
	if e := p.engines[1]; e.prefills != 0 || e.index != 3 || e.order != 2 || e.lastPromptPass != 1 || !slices.Equal(e.leaving, []int64{1}) {
		t.Errorf("engine 1: got %+v", e)
	}
	if p.numPasses != 6 || p.generationReqs != 5 || p.generationTokens != 12 || p.isTorn {
		t.Errorf("got %d passes, %d decodes, %d tokens, torn %v", p.numPasses, p.generationReqs, p.generationTokens, p.isTorn)
	}
	if torn := logOf(t, Rules{}, 1, false, "0: 0, 0, 0, 1, 1"); !torn.isTorn || len(torn.promptPasses) != 0 {
		t.Error("a log that begins with a decode is not called torn")
	}
	if idle := logOf(t, Rules{}, 1, false, "0: 0, 0, 0, 0, 0"); idle.isTorn {
		t.Error("a log that begins with an empty pass is called torn")
	}
}

// TestAsynchronousPasses: the prompts that ended in the pass before count as prompts of one token once more; where one
// of as many has more tokens than that, the line stays as it is.
func TestAsynchronousPasses(t *testing.T) {
	p := logOf(t, Rules{Budget: 512, Chunked: true}, 1, true, "0: 0, 2, 100, 0, 0", "0: 1, 3, 42, 1, 1", "0: 2, 2, 9, 0, 0", "0: 3, 2, 2, 0, 0")
	type counts struct{ reqs, tokens, generation int64 }
	var got []counts
	for _, l := range p.promptPasses {
		got = append(got, counts{l.contextReqs, l.contextTokens, l.generation})
	}
	// Of the second pass two are first decodes; of the third one of its two; of the last one.
	if want := []counts{{2, 100, 0}, {1, 40, 3}, {1, 8, 1}, {1, 1, 1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !p.promptPasses[3].mayRepeatLast || p.promptPasses[1].mayRepeatLast || p.promptPasses[2].mayRepeatLast {
		t.Error("a pass of one token for each prompt may repeat the last, and no other may")
	}
	// The only prompt may be the first decode of the pass before, or have 9 tokens: nobody knows.
	if l := logOf(t, Rules{Budget: 512}, 1, true, "0: 0, 1, 100, 0, 0", "0: 1, 1, 9, 0, 0").promptPasses[1]; l.contextReqs != 1 || l.contextTokens != 9 || l.generation != 0 {
		t.Errorf("got %+v", l)
	}
	// Synchronous lines stay as they are.
	if l := logOf(t, Rules{Budget: 512}, 1, false, "0: 0, 1, 100, 0, 0", "0: 1, 1, 1, 0, 0").promptPasses[1]; l.contextReqs != 1 || l.mayRepeatLast {
		t.Errorf("got %+v", l)
	}
}

// TestStretchesByHand: a log is cut where every engine was idle.
func TestStretchesByHand(t *testing.T) {
	rules := Rules{Budget: 512, Chunked: true}
	for name, c := range map[string]struct {
		engines int
		lines   []string
		want    []stretch
	}{
		"one engine": {1, []string{"0: 0, 2, 512, 0, 0", "0: 1, 1, 40, 1, 1", "0: 2, 0, 0, 2, 2", "0: 3, 1, 30, 0, 0"},
			[]stretch{{0, 2, 3, 3, 1, false}, {2, 3, 1, 0, 0, false}}},
		"passes missing before": {1, []string{"0: 0, 1, 10, 0, 0", "0: 2, 1, 20, 0, 0", "0: 3, 1, 30, 0, 0"},
			[]stretch{{0, 1, 1, 0, 0, true}, {1, 2, 1, 0, 0, true}, {2, 3, 1, 0, 0, false}}},
		"a cut prompt of a broken stretch may go on": {1, []string{"0: 1, 1, 512, 0, 0", "0: 2, 1, 20, 0, 0", "0: 3, 1, 30, 0, 0"},
			[]stretch{{0, 1, 1, 0, 1, true}, {1, 2, 1, 0, 0, true}, {2, 3, 1, 0, 0, false}}},
		"passes missing behind": {1, []string{"0: 0, 1, 10, 0, 0", "0: 2, 0, 0, 1, 1", "0: 3, 1, 20, 0, 0"},
			[]stretch{{0, 1, 1, 1, 0, true}, {1, 2, 1, 0, 0, false}}},
		"torn":       {1, []string{"0: 0, 0, 0, 1, 1", "0: 1, 1, 20, 0, 0"}, []stretch{{0, 1, 1, 0, 0, true}}},
		"not fresh":  {1, []string{"0: 0, 1, 20, 1, 1"}, []stretch{{0, 1, 1, 1, 0, true}}},
		"both idle":  {2, []string{"0: 0, 1, 10, 0, 0", "1: 0, 1, 20, 0, 0", "0: 1, 1, 30, 0, 0", "1: 1, 1, 40, 0, 0"}, []stretch{{0, 1, 1, 0, 0, false}, {1, 2, 1, 0, 0, false}, {2, 3, 1, 0, 0, false}, {3, 4, 1, 0, 0, false}}},
		"other busy": {2, []string{"0: 0, 1, 10, 0, 0", "1: 0, 1, 20, 0, 0", "0: 1, 1, 30, 0, 0", "1: 1, 1, 40, 1, 1"}, []stretch{{0, 1, 1, 0, 0, false}, {1, 4, 3, 1, 0, false}}},
		"other runs on": {2, []string{"1: 0, 1, 20, 0, 0", "0: 0, 1, 10, 0, 0", "1: 1, 0, 0, 1, 1"},
			[]stretch{{0, 2, 2, 1, 0, false}}},
	} {
		got := logOf(t, rules, c.engines, false, c.lines...).stretches()
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

// TestPeriodsByHand: a request that is sent when the last chunk of those before has come begins no new period, one that is sent later does.
func TestPeriodsByHand(t *testing.T) {
	rules := &Rules{Block: 16, Caching: true}
	rows := []trace.ObservedRequest{
		sent(33, 5, 100, 150, 300),
		sent(32, 3, 300, 350, 400),
		sent(17, 1, 401, 450, 500),
		sent(20, 2, 600, 650, 700),
	}
	rows[2].CachedTokens = trace.Some[int64](16)
	rows[3].SendNs = trace.Opt[int64]{}
	got := periodsOf(rows, rules)
	want := [][]prompt{
		{{row: 0, rank: 0, tokens: 33, outputTokens: 5, firstNs: 150, isFirst: true, mostCached: 32},
			{row: 1, rank: 1, tokens: 32, outputTokens: 3, firstNs: 350, isFirst: true, mostCached: 16}},
		{{row: 2, tokens: 17, outputTokens: 1, firstNs: 450, isFirst: true, cached: trace.Some[int64](16), mostCached: 16}},
		{{row: 3, tokens: 20, outputTokens: 2, firstNs: 650, isFirst: true, mostCached: 16}},
	}
	generation := []int64{6, 0, 1}
	if len(got) != len(want) {
		t.Fatalf("got %d periods: %+v", len(got), got)
	}
	for i := range want {
		if !slices.Equal(got[i].prompts, want[i]) || got[i].generation != generation[i] || got[i].isUnusable || got[i].hasFailed {
			t.Errorf("period %d: got\n%+v, want\n%+v and %d tokens", i, got[i], want[i], generation[i])
		}
	}
	// What makes a period unusable, marks it, or does neither.
	for name, c := range map[string]struct {
		change             func(*trace.ObservedRequest)
		isUnusable, failed bool
		prompts            int
	}{
		"whole":            {func(*trace.ObservedRequest) {}, false, false, 1},
		"no first chunk":   {func(r *trace.ObservedRequest) { r.FirstChunkNs.OK = false }, false, false, 1},
		"no last chunk":    {func(r *trace.ObservedRequest) { r.LastChunkNs.OK = false }, false, false, 1},
		"no chunks":        {func(r *trace.ObservedRequest) { r.FirstChunkNs.OK, r.LastChunkNs.OK = false, false }, true, false, 0},
		"one prompt token": {func(r *trace.ObservedRequest) { r.PromptTokens.V = 1 }, false, false, 1},
		"no prompt tokens": {func(r *trace.ObservedRequest) { r.PromptTokens.V = 0 }, true, false, 0},
		"no output tokens": {func(r *trace.ObservedRequest) { r.OutputTokens.V = 0 }, true, false, 0},
		"one answer":       {func(r *trace.ObservedRequest) { r.N = trace.Some[int64](1) }, false, false, 1},
		"two answers":      {func(r *trace.ObservedRequest) { r.N = trace.Some[int64](2) }, true, false, 0},
		"failed":           {func(r *trace.ObservedRequest) { r.FirstChunkNs.OK, r.Success.V = false, false }, false, true, 0},
		"failed later":     {func(r *trace.ObservedRequest) { r.Success.V = false }, false, false, 1},
		"not said":         {func(r *trace.ObservedRequest) { r.FirstChunkNs.OK, r.Success = false, trace.Opt[bool]{} }, false, false, 1},
	} {
		r := sent(40, 4, 100, 150, 300)
		c.change(&r)
		p := periodsOf([]trace.ObservedRequest{r}, rules)[0]
		if p.isUnusable != c.isUnusable || p.hasFailed != c.failed || len(p.prompts) != c.prompts {
			t.Errorf("%s: got %+v", name, p)
		}
		if name == "no first chunk" && (p.prompts[0].firstNs != 100 || p.prompts[0].isFirst) {
			t.Errorf("%s: got %+v, want the time of its send", name, p.prompts[0])
		}
	}
	// Requests without any stamp are one period, in their order.
	bare := []trace.ObservedRequest{sent(40, 4, 0, 0, 0), sent(50, 2, 0, 0, 0)}
	for i := range bare {
		bare[i].SendNs, bare[i].FirstChunkNs, bare[i].LastChunkNs = trace.Opt[int64]{}, trace.Opt[int64]{}, trace.Opt[int64]{}
	}
	if p := periodsOf(bare, rules); len(p) != 1 || len(p[0].prompts) != 2 || p[0].isUnusable {
		t.Errorf("without stamps: got %+v", p)
	}
	for _, stamp := range []func(*trace.ObservedRequest){
		func(r *trace.ObservedRequest) { r.SendNs = trace.Some[int64](1) },
		func(r *trace.ObservedRequest) { r.FirstChunkNs = trace.Some[int64](1) },
		func(r *trace.ObservedRequest) { r.LastChunkNs = trace.Some[int64](1) },
	} {
		r := bare[0]
		stamp(&r)
		if isTimeless([]trace.ObservedRequest{bare[1], r}) || !isTimeless(bare) {
			t.Error("a request with one stamp is called timeless, or those without are not")
		}
	}
}

// TestOrdersByHand: prompts whose first chunks came less than a millisecond apart may have ended in the order of their sends.
func TestOrdersByHand(t *testing.T) {
	order := func(firstNs ...int64) [][]int {
		p := period{}
		for rank, ns := range firstNs {
			p.prompts = append(p.prompts, prompt{rank: rank, firstNs: ns})
		}
		p.orderPrompts()
		var out [][]int
		for _, o := range p.orders {
			var ranks []int
			for _, q := range o {
				ranks = append(ranks, q.rank)
			}
			out = append(out, ranks)
		}
		return out
	}
	for name, c := range map[string]struct {
		firstNs []int64
		want    [][]int
	}{
		"in order":         {[]int64{0, 10, 20}, [][]int{{0, 1, 2}}},
		"close":            {[]int64{1e6 - 1, 0, 9e6}, [][]int{{1, 0, 2}, {0, 1, 2}, {0, 1, 2}}},
		"just not close":   {[]int64{1e6, 0, 9e6}, [][]int{{1, 0, 2}, {0, 1, 2}}},
		"close and far":    {[]int64{9e6, 5, 0, 20e6}, [][]int{{2, 1, 0, 3}, {1, 2, 0, 3}, {0, 1, 2, 3}}},
		"each close to it": {[]int64{18e5, 9e5, 0}, [][]int{{2, 1, 0}, {0, 1, 2}, {0, 1, 2}}},
	} {
		if got := order(c.firstNs...); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestHitsOfAChainByHand: a chain of three passes and three prompts of 100, 200 and 300 tokens has 192 hits. The
// last prompt alone was computed by the later passes, so that of it at most 96 tokens were cached. Each is guessed to have
// the 32 of the only exact one; what is missing goes to those sent last.
func TestHitsOfAChainByHand(t *testing.T) {
	p := logOf(t, Rules{Block: 16, Budget: 200, Chunked: true, Caching: true}, 1, false, "0: 10, 3, 200, 0, 0", "0: 11, 1, 200, 0, 0", "0: 12, 1, 4, 0, 0", "0: 13, 1, 28, 0, 0")
	rows := []trace.ObservedRequest{sent(100, 2, 1, 1e9, 9e9), sent(200, 2, 2, 2e9, 9e9), sent(300, 2, 3, 3e9, 9e9), sent(60, 2, 4, 4e9, 9e9)}
	g := &Pairing{rows: rows, rules: p.rules, log: p}
	all := periodsOf(rows, &p.rules)[0].prompts
	g.chains = []chain{{passes: []int{0, 1, 2}, prompts: all[:3], hits: 196 - 4}, {passes: []int{3}, prompts: all[3:], hits: 32}}
	g.Fill()
	type filled struct {
		iteration, lo, hi, tokens int64
		source                    string
	}
	want := []filled{
		{10, 0, 96, 32, trace.CachedBound},
		{10, 0, 192, 64, trace.CachedBound},
		{12, 0, 96, 96, trace.CachedBound},
		{13, 32, 32, 32, trace.CachedExact},
	}
	for i := range want {
		r := &rows[i]
		got := filled{r.Iteration.V, r.CachedMin.V, r.CachedMax.V, r.CachedTokens.V, r.CachedSource.V}
		if got != want[i] || r.Engine.OK {
			t.Errorf("request %d: got %+v, want %+v", i, got, want[i])
		}
	}
	// A chain whose hits are near the most that can be: each prompt has at least the rest.
	c := chain{prompts: []prompt{{mostCached: 96}, {mostCached: 192}}, hits: 256}
	if got := c.promptBounds(); !slices.Equal(got, []bounds{{64, 96}, {160, 192}}) {
		t.Errorf("got %v", got)
	}
	if c.mostCached() != 288 {
		t.Errorf("got %d tokens at most", c.mostCached())
	}
}

// TestExchangedPromptsByHand: two prompts whose first chunks came close together may belong to each other's chain, if the
// hits of both allow it.
func TestExchangedPromptsByHand(t *testing.T) {
	bound := func(elapsedUs float64, apartNs, longer int64, firstA bool) []bounds {
		g := &Pairing{rules: Rules{Block: 16, Caching: true}, log: &passLog{promptPasses: []promptPass{{}, {elapsedUs: elapsedUs}}}}
		g.chains = []chain{
			{passes: []int{0}, prompts: []prompt{{firstNs: 5e9, isFirst: firstA, tokens: 100, mostCached: 96}}, hits: 32},
			{passes: []int{1}, prompts: []prompt{{firstNs: 5e9 + apartNs, isFirst: true, tokens: 100 + longer, mostCached: 128}}, hits: 64},
		}
		all := [][]bounds{{{32, 32}}, {{64, 64}}}
		g.widenBounds(all)
		return []bounds{all[0][0], all[1][0]}
	}
	own := []bounds{{32, 32}, {64, 64}}
	// Chain 0 with the longer prompt has 32 + 16 hits, chain 1 with the shorter one 64 - 16.
	wide := []bounds{{32, 48}, {48, 64}}
	for name, c := range map[string]struct {
		elapsedUs float64
		apartNs   int64
		longer    int64
		firstA    bool
		want      []bounds
	}{
		"within a millisecond":              {0, 999_999, 16, true, wide},
		"a millisecond apart":               {0, 1_000_000, 16, true, own},
		"within half the later pass":        {5000, 2_499_999, 16, true, wide},
		"half the later pass apart":         {5000, 2_500_000, 16, true, own},
		"no whole blocks":                   {0, 10, 17, true, own},
		"paired by their sends":             {0, 10, 16, false, own},
		"chain 1 would have less than none": {0, 10, 80, true, own},
	} {
		if got := bound(c.elapsedUs, c.apartNs, c.longer, c.firstA); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	// Of a chain of two prompts, with 96 and 64 tokens at most, that has 112 hits, the second becomes one of 128 at most and 16 more tokens.
	c := chain{prompts: []prompt{{mostCached: 96}, {mostCached: 64}}, hits: 112}
	if got, ok := c.boundsWith(&prompt{mostCached: 128}, &c.prompts[1], 16); !ok || got != (bounds{32, 128}) {
		t.Errorf("got %v, %v", got, ok)
	}
	if _, ok := c.boundsWith(&prompt{mostCached: 32}, &c.prompts[1], 16); !ok {
		t.Error("128 hits of at most 96 + 32 are refused")
	}
	if _, ok := c.boundsWith(&prompt{mostCached: 32}, &c.prompts[1], 17); ok {
		t.Error("129 hits of at most 96 + 32 are possible")
	}
	if _, ok := c.boundsWith(&prompt{mostCached: 32}, &c.prompts[1], -112); !ok {
		t.Error("no hits are refused")
	}
}

// TestGuessesByHand: a request without exact hits gets those of the previous turn, of its group's prefix, the commonest of the
// phase, or the middle of its bounds.
func TestGuessesByHand(t *testing.T) {
	g := &Pairing{rules: Rules{Block: 16, Caching: true}, rows: []trace.ObservedRequest{{PromptTokens: trace.Some[int64](100), OutputTokens: trace.Some[int64](44)}}}
	turns := map[turn]int{{"s", 3}: 0}
	common := map[string]int64{"warm": 64}
	base := trace.ObservedRequest{CachedMin: trace.Some[int64](16), CachedMax: trace.Some[int64](192), Phase: trace.Some("cold")}
	for name, c := range map[string]struct {
		change func(*trace.ObservedRequest)
		tokens int64 // of the prompt
		want   int64
		source string
	}{
		"next turn":               {func(r *trace.ObservedRequest) { r.Session, r.Turn = trace.Some("s"), trace.Some[int64](4) }, 300, 128, trace.CachedSession}, // of 100 + 44 - 1 = 143
		"next turn, short prompt": {func(r *trace.ObservedRequest) { r.Session, r.Turn = trace.Some("s"), trace.Some[int64](4) }, 129, 128, trace.CachedSession},
		"first turn, no session":  {func(r *trace.ObservedRequest) { r.Session, r.Turn.V = trace.Some("s"), 4 }, 300, 96, trace.CachedBound},
		"same turn":               {func(r *trace.ObservedRequest) { r.Session, r.Turn = trace.Some("s"), trace.Some[int64](3) }, 300, 96, trace.CachedBound}, // half of 208 is 104
		"other session":           {func(r *trace.ObservedRequest) { r.Session, r.Turn = trace.Some("x"), trace.Some[int64](4) }, 300, 96, trace.CachedBound},
		"group":                   {func(r *trace.ObservedRequest) { r.PrefixGroup, r.PrefixTokens = trace.Some("g"), trace.Some[int64](90) }, 300, 80, trace.CachedGroup},
		"group, short prompt":     {func(r *trace.ObservedRequest) { r.PrefixGroup, r.PrefixTokens = trace.Some("g"), trace.Some[int64](90) }, 81, 80, trace.CachedGroup},
		"group, shorter prompt":   {func(r *trace.ObservedRequest) { r.PrefixGroup, r.PrefixTokens = trace.Some("g"), trace.Some[int64](90) }, 80, 64, trace.CachedGroup},
		"shares nothing":          {func(r *trace.ObservedRequest) { r.PrefixTokens = trace.Some[int64](0) }, 300, 16, trace.CachedGroup},
		"common":                  {func(r *trace.ObservedRequest) { r.Phase = trace.Some("warm") }, 300, 64, trace.CachedBound},
		"common, at the most":     {func(r *trace.ObservedRequest) { r.Phase, r.CachedMax = trace.Some("warm"), trace.Some[int64](64) }, 300, 64, trace.CachedBound},
		"common, too much":        {func(r *trace.ObservedRequest) { r.Phase, r.CachedMax = trace.Some("warm"), trace.Some[int64](48) }, 300, 16, trace.CachedBound},
		"above the bounds": {func(r *trace.ObservedRequest) {
			r.PrefixGroup, r.PrefixTokens = trace.Some("g"), trace.Some[int64](250)
		}, 300, 192, trace.CachedGroup},
	} {
		r := base
		c.change(&r)
		if o := g.guessHits(&r, c.tokens, turns, common); o.tokens != c.want || o.source != c.source || o.row != &r {
			t.Errorf("%s: got %d tokens, %s, want %d, %s", name, o.tokens, o.source, c.want, c.source)
		}
	}
	// Guesses of 40 each, between 0 and 100. With 30 too little, the weakest source and the last sent are raised first; with 30
	// too much, the first sent are lowered first.
	for name, c := range map[string]struct {
		sum  int64
		want [4]int64 // counter sent last, bound sent first, bound sent later, session
	}{
		"equal":            {160, [4]int64{40, 40, 40, 40}},
		"too little":       {190, [4]int64{70, 40, 40, 40}},
		"much too little":  {230, [4]int64{100, 40, 50, 40}},
		"by far too small": {330, [4]int64{100, 90, 100, 40}},
		"too much":         {130, [4]int64{10, 40, 40, 40}},
		"much too much":    {110, [4]int64{0, 30, 40, 40}},
		"by far too large": {70, [4]int64{0, 0, 30, 40}},
		"impossible":       {500, [4]int64{100, 100, 100, 100}},
	} {
		var list []*guess
		for i, source := range []string{trace.CachedCounter, trace.CachedBound, trace.CachedBound, trace.CachedSession} {
			r := sent(200, 2, int64([]int{9, 1, 2, 0}[i]), 10, 11)
			r.CachedMin, r.CachedMax = trace.Some[int64](0), trace.Some[int64](100)
			list = append(list, &guess{row: &r, source: source, tokens: 40})
		}
		adjustGuesses(slices.Clone(list), c.sum)
		for i, o := range list {
			if o.tokens != c.want[i] {
				t.Errorf("%s: guess %d is %d, want %d", name, i, o.tokens, c.want[i])
			}
		}
	}
	exact := func(phase string, tokens int64) trace.ObservedRequest {
		return trace.ObservedRequest{Phase: trace.Some(phase), CachedTokens: trace.Some(tokens), CachedSource: trace.Some(trace.CachedExact),
			Session: trace.Some(phase), Turn: trace.Some(tokens)}
	}
	g.rows = []trace.ObservedRequest{exact("a", 16), exact("a", 32), exact("a", 16), exact("a", 32), exact("b", 64), exact("b", 48), exact("c", 0), {}}
	g.rows[4].CachedSource.V = trace.CachedUsage
	if got := g.commonestHits(); !reflect.DeepEqual(got, map[string]int64{"a": 32, "b": 48, "c": 0}) {
		t.Errorf("got %v", got)
	}
	if got := g.turns(); len(got) != 5 || got[turn{"a", 32}] != 3 || got[turn{"c", 0}] != 6 {
		t.Errorf("got %v", got)
	}
}

// TestCountersByHand: answers of /metrics after 0, 2 and 3 of four requests of 100, 200, 300 and 400 tokens.
func TestCountersByHand(t *testing.T) {
	pairing := func() *Pairing {
		g := &Pairing{rules: Rules{Block: 16, Caching: true}, chainOf: []int32{-1, -1, 0, 0}}
		for i := range int64(4) {
			r := sent(100*(i+1), 2, i, 10*i, 10*i+5)
			r.Phase = trace.Some([]string{"a", "a", "b", "c"}[i])
			g.rows = append(g.rows, r)
		}
		return g
	}
	g := pairing()
	answers := []enginelog.Counters{{Name: "2", Queries: 7300, Hits: 1048}, {Name: "0", Queries: 7000, Hits: 1000}, {Name: "3", Queries: 7600, Hits: 1208}}
	if found := g.Check(answers); len(found) != 0 {
		t.Fatalf("got %v", found)
	}
	if !reflect.DeepEqual(g.deltas, map[string]int64{"a": 48, "b": 160}) {
		t.Errorf("got %v", g.deltas)
	}
	// 48 tokens of at most 96 + 192: a third and two thirds of them.
	for i, want := range []int64{16, 32, 160} {
		if r := &g.rows[i]; r.CachedTokens.V != want || r.CachedSource.V != trace.CachedCounter || r.CachedMin.V != 0 || !r.CachedMin.OK || r.CachedMax.V != []int64{96, 192, 288}[i] {
			t.Errorf("request %d: got %+v of %+v to %+v, want %d", i, r.CachedTokens, r.CachedMin, r.CachedMax, want)
		}
	}
	g.rows[1].CachedSource.V = trace.CachedUsage
	g.rows[0].CachedMax.V = 0
	g.rows[0].Engine = trace.Some[int64](2)
	some := func(v int64) trace.Opt[int64] { return trace.Some(v) }
	want := []result.CachedTokens{
		{Phase: "a", Requests: 2, PromptTokens: 300, HitTokens: 48, Usage: 1, Exact: 1, CounterTokens: some(48)},
		{Phase: "b", Requests: 1, PromptTokens: 300, HitTokens: 160, Chains: 1, Bounded: 1, CounterTokens: some(160)},
		{Phase: "c", Requests: 1, PromptTokens: 400, Unpaired: 1},
	}
	if got := g.Account(0); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	if got := g.Account(2); len(got) != 1 || got[0].Requests != 1 || got[0].PromptTokens != 100 || got[0].CounterTokens.OK || got[0].CounterTokens.V != 48 {
		t.Errorf("of engine 2: got %+v", got)
	}

	// The counters differ from what is known: what the server returned stays, the rest is unknown.
	g = pairing()
	g.rows[0].CachedTokens, g.rows[0].CachedSource = trace.Some[int64](16), trace.Some(trace.CachedUsage)
	g.rows[1].CachedTokens, g.rows[1].CachedSource = trace.Some[int64](32), trace.Some(trace.CachedExact)
	found := g.Check([]enginelog.Counters{{Name: "x", Queries: 0, Hits: 0}, {Name: "y", Queries: 300, Hits: 64}, {Name: "z", Queries: 450, Hits: 64}})
	if len(found) != 2 || !strings.Contains(found[0].Message, "from x to y the server counted 64 cached tokens, the passes give 48 to 48, so the cached tokens of these 1 requests are unknown") ||
		!strings.Contains(found[1].Message, "1 of 3 answers") || !strings.Contains(found[1].Message, "the first is z") {
		t.Errorf("got %+v", found)
	}
	if !g.rows[0].CachedTokens.OK || g.rows[1].CachedTokens.OK || g.rows[1].CachedSource.OK {
		t.Errorf("got %+v and %+v", g.rows[0].CachedTokens, g.rows[1].CachedTokens)
	}

	// Shares: 0, the most, one block more, a part of a block.
	for rest, ok := range map[int64]bool{-16: false, 0: true, 288: true, 304: false, 24: false} {
		g := pairing()
		found, most, got := g.shareCounted([]int{0, 1}, rest)
		if got != ok || found != 0 || most != 288 {
			t.Errorf("%d tokens: got %d, %d, %v", rest, found, most, got)
		}
		if r := &g.rows[1]; ok && (r.CachedMax.V == 0) != (rest == 0) {
			t.Errorf("%d tokens: got at most %d", rest, r.CachedMax.V)
		}
	}
	if got := pairing().countPhase([]int{0, 1, 2, 3}, "a"); got != 2 {
		t.Errorf("got %d requests of the phase", got)
	}
	for difference, want := range map[int64]string{-1: "special tokens", 1: "begins a text", 2: "begins a text", 3: "chat template"} {
		if got := causeOf(difference); !strings.Contains(got, want) {
			t.Errorf("%d tokens: got %q", difference, got)
		}
	}
}

// TestDraftsByHand: two requests of 11 and 7 tokens in 5 and 3 chunks have 16 tokens after the first in 6 passes.
func TestDraftsByHand(t *testing.T) {
	g := &Pairing{log: &passLog{generationReqs: 6, generationTokens: 20}, rows: []trace.ObservedRequest{
		{Chunks: trace.Some[int64](5), OutputTokens: trace.Some[int64](11)}, {Chunks: trace.Some[int64](3), OutputTokens: trace.Some[int64](7)},
		{Chunks: trace.Some[int64](1), OutputTokens: trace.Some[int64](90)}, {Chunks: trace.Some[int64](9), OutputTokens: trace.Some[int64](1)}}}
	const want = "speculative decoding: 14 tokens were drafted in 6 decodes of requests; the server counted 15; a pass yields 2.67 tokens a request"
	if got := g.Drafts([]enginelog.Counters{{Drafted: 3}, {Drafted: 15}}); got != want {
		t.Errorf("got %s", got)
	}
	if got := g.Drafts(nil); strings.Contains(got, "counted") {
		t.Errorf("got %s", got)
	}
}

// TestRequestsLeaveByHand: a prompt with three tokens after it leaves three passes later; an engine that plans ahead runs one more.
func TestRequestsLeaveByHand(t *testing.T) {
	for name, c := range map[string]struct {
		leaving     []int64
		outputs     []int64
		rules       Rules
		isAsync     bool
		decoded     int64 // tokens beyond the decodes
		leavesOfAll bool
	}{
		"leaves":           {leaving: []int64{0, 0, 0, 1}, outputs: []int64{3}, leavesOfAll: true},
		"not then":         {leaving: []int64{0, 1, 1, 0, 1}, outputs: []int64{3}},
		"log ended":        {leaving: []int64{0, 1, 1}, outputs: []int64{3}},
		"two":              {leaving: []int64{0, 1, 0, 1}, outputs: []int64{3, 1}, leavesOfAll: true},
		"one of two":       {leaving: []int64{0, 0, 0, 1}, outputs: []int64{3, 1}},
		"late":             {leaving: []int64{0, 0, 0, 0, 1}, outputs: []int64{3}, isAsync: true, leavesOfAll: true},
		"late, ahead":      {leaving: []int64{0, 0, 0, 0, 1}, outputs: []int64{3}, rules: Rules{Ahead: true}, leavesOfAll: true},
		"late, at the end": {leaving: []int64{0, 0, 0, 0}, outputs: []int64{3}, isAsync: true},
		"too late":         {leaving: []int64{0, 0, 0, 0, 0, 1}, outputs: []int64{3}, isAsync: true},
		"drafts":           {leaving: []int64{0}, outputs: []int64{3}, rules: Rules{Speculative: true}, leavesOfAll: true},
		"recomputes":       {leaving: []int64{0}, outputs: []int64{3}, decoded: 1, leavesOfAll: true},
		"one engine":       {outputs: []int64{3}, leavesOfAll: true},
	} {
		p := &passLog{rules: c.rules, isAsync: c.isAsync, engines: []engineState{{}, {leaving: c.leaving}}, generationReqs: 5, generationTokens: 5 + c.decoded}
		var prompts []prompt
		for _, n := range c.outputs {
			prompts = append(prompts, prompt{outputTokens: n})
		}
		if got := p.requestsLeave(prompts, &promptPass{engine: 1, place: 1}); got != c.leavesOfAll {
			t.Errorf("%s: got %v", name, got)
		}
	}
	var next []prompt
	for _, n := range []int64{10, 12, 5, 30, 1, 1, 1, 40, 90} {
		next = append(next, prompt{tokens: n})
	}
	if got := longerPrompt(next); got != 30 {
		t.Errorf("the longest of eight is %d longer, want 30", got)
	}
	if got := longerPrompt(next[:1]); got != 0 {
		t.Errorf("one prompt: got %d", got)
	}
}

// TestOvertakenByHand: a chain with passes between those of another engine's chain makes both uncertain.
func TestOvertakenByHand(t *testing.T) {
	for name, c := range map[string]struct {
		a, b   []int
		engine int
		want   bool
	}{
		"between":          {[]int{2, 5}, []int{3}, 1, true},
		"before":           {[]int{2, 5}, []int{1}, 1, false},
		"at the first":     {[]int{2, 5}, []int{2}, 1, false},
		"at the last":      {[]int{2, 5}, []int{5}, 1, false},
		"the same engine":  {[]int{2, 5}, []int{3}, 0, false},
		"one pass":         {[]int{2}, []int{3}, 1, false},
		"begins between":   {[]int{2, 5}, []int{4, 7}, 1, true},
		"lies around both": {[]int{3, 4}, []int{2, 5}, 1, true},
	} {
		list := []chain{{engine: 0, passes: c.a}, {engine: c.engine, passes: c.b}}
		markConcurrent(list)
		if list[0].isUncertain != c.want || list[1].isUncertain != c.want {
			t.Errorf("%s: got %v and %v", name, list[0].isUncertain, list[1].isUncertain)
		}
	}
}

// TestOffsetsByHand: the log's clock less the client's is in the range of most chains.
func TestOffsetsByHand(t *testing.T) {
	p := &passLog{}
	var all []chain
	for _, ns := range []int64{5e9, 7e9, 7.2e9, 20e9} { // offsets by the stamps; the first chunks come at 1 s
		p.promptPasses = append(p.promptPasses, promptPass{stampNs: trace.Some(ns + 1e9), stampStepNs: 1000})
		all = append(all, chain{passes: []int{99, len(p.promptPasses) - 1}, prompts: []prompt{{}, {firstNs: 1e9, isFirst: true}}})
	}
	lo, hi, ok := p.offsetRange(&all[0])
	if lo != 4_700_000_000 || hi != 5_300_001_000 || !ok {
		t.Errorf("got %d to %d, %v", lo, hi, ok)
	}
	p.promptPasses[3].stampNs.OK = false
	if _, _, ok := p.offsetRange(&all[3]); ok {
		t.Error("a pass without a stamp has an offset")
	}
	p.promptPasses[3].stampNs.OK = true
	m := &matcher{log: p}
	if got := m.commonOffset([]match{{chains: all[:2]}, {chains: all[2:]}}); got != 6_900_000_000 {
		t.Errorf("got an offset of %d ns", got)
	}
	m.offsetNs = 5_300_001_000
	for name, c := range map[string]struct {
		chains []chain
		slack  int64
		off    int64
		want   bool
	}{
		"within":         {all[:1], 0, 0, false},
		"at the low end": {all[:1], 0, -600_001_000, false},
		"below":          {all[:1], 0, -600_001_001, true},
		"above":          {all[:1], 0, 1, true},
		"slack below":    {all[:1], 5, -600_001_005, false},
		"slack above":    {all[:1], 5, 5, false},
		"beyond slack":   {all[:1], 5, 6, true},
		"half":           {all[:2], 0, 0, false},
		"most":           {all[:3], 0, 0, true},
		"none":           {nil, 0, 0, false},
	} {
		m := &matcher{log: p, offsetNs: 5_300_001_000 + c.off}
		if got := m.isOffClock(c.chains, c.slack); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// shiftable is a log of one-prompt stretches with so many prompt tokens each, and periods of one request each with so many.
func shiftable(t *testing.T, passes, requests []int64) *matcher {
	t.Helper()
	rules := Rules{Block: 16, Budget: 512, Chunked: true}
	var lines []string
	for i, n := range passes {
		lines = append(lines, fmt.Sprintf("0: %d, 1, %d, 0, 0", i, n))
	}
	p := logOf(t, rules, 1, false, lines...)
	var rows []trace.ObservedRequest
	for i, n := range requests {
		at := int64(i+1) * 10
		rows = append(rows, sent(n, 1, at, at+1, at+2))
	}
	return &matcher{log: p, periods: periodsOf(rows, &rules), stretches: p.stretches()}
}

// TestMatchesByHand: periods take the stretches with their tokens, in order; what does not fit is skipped.
func TestMatchesByHand(t *testing.T) {
	for name, c := range map[string]struct {
		passes, requests []int64
		want             []match // without chains
		only             []int   // periods whose match is the only one
	}{
		"all":                      {[]int64{10, 20, 30}, []int64{10, 20, 30}, []match{{0, 0, 1, nil}, {1, 1, 2, nil}, {2, 2, 3, nil}}, []int{0, 1, 2}},
		"a stretch more":           {[]int64{10, 99, 20}, []int64{10, 20}, []match{{0, 0, 1, nil}, {1, 2, 3, nil}}, []int{0, 1}},
		"a period more":            {[]int64{10, 20}, []int64{10, 99, 20}, []match{{0, 0, 1, nil}, {2, 1, 2, nil}}, []int{0, 2}},
		"either of two stretches":  {[]int64{10, 20, 20, 30}, []int64{10, 20, 30}, []match{{0, 0, 1, nil}, {1, 1, 2, nil}, {2, 3, 4, nil}}, []int{0, 2}},
		"either of two periods":    {[]int64{10, 20, 30}, []int64{10, 20, 20, 30}, []match{{0, 0, 1, nil}, {1, 1, 2, nil}, {3, 2, 3, nil}}, []int{0, 3}},
		"the log ends too early":   {[]int64{10, 20}, []int64{10, 20, 30}, []match{{0, 0, 1, nil}, {1, 1, 2, nil}}, []int{0}},
		"a full pass may go on":    {[]int64{10, 512, 20}, []int64{10, 532}, []match{{0, 0, 1, nil}, {1, 1, 3, nil}}, []int{0, 1}},
		"nothing":                  {[]int64{10}, []int64{20}, nil, nil},
		"two shift into a stretch": {[]int64{10, 20, 20, 20, 30}, []int64{10, 20, 20, 30}, []match{{0, 0, 1, nil}, {1, 1, 2, nil}, {2, 2, 3, nil}, {3, 4, 5, nil}}, []int{0, 3}},
	} {
		m := shiftable(t, c.passes, c.requests)
		found := m.findMatches()
		var got []match
		for _, x := range found {
			got = append(got, match{x.period, x.from, x.to, nil})
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		var only []int
		for _, x := range m.onlyMatches(found) {
			only = append(only, x.period)
		}
		if !slices.Equal(only, c.only) {
			t.Errorf("%s: got only %v, want %v", name, only, c.only)
		}
	}
	// Where a shifted match would begin or end.
	m := shiftable(t, []int64{20, 20, 10, 20, 20, 40}, []int64{20})
	x := &match{period: 0, from: 1, to: 2}
	for limit, want := range map[int]int{3: -1, 4: 3, 5: 4, 6: 4} {
		if got := m.latestStart(x, limit); got != want {
			t.Errorf("latest start before %d: got %d, want %d", limit, got, want)
		}
	}
	x = &match{period: 0, from: 4, to: 5}
	for limit, want := range map[int]int{0: 1, 1: 2, 2: 4, 3: 4, 4: -1} {
		if got := m.earliestEnd(x, limit); got != want {
			t.Errorf("earliest end from %d: got %d, want %d", limit, got, want)
		}
	}
	// A period without prompts takes no stretch, wherever it begins.
	m.periods[0].prompts = nil
	if _, end := m.fit(0, 2, 2); end != 2 {
		t.Errorf("no prompts: got %d, want 2", end)
	}
	// A stretch whose stamp is a second and more off the common offset does not count.
	for off, want := range map[int64]int{0: 1, 1_300_000_000: 1, 1_300_000_001: -1} {
		m := shiftable(t, []int64{20}, []int64{20})
		m.log.promptPasses[0].stampNs = trace.Some[int64](11)
		m.log.promptPasses[0].stampStepNs = 0
		m.offsetNs = off
		if got := m.fitEnd(0, 0, 0); got != want {
			t.Errorf("%d ns off: got %d, want %d", off, got, want)
		}
	}
	for requests, want := range map[string]bool{"20 20 99": false, "20 30 99": true} {
		var tokens [3]int64
		if _, err := fmt.Sscan(requests, &tokens[0], &tokens[1], &tokens[2]); err != nil {
			t.Fatal(err)
		}
		m := shiftable(t, []int64{20}, tokens[:])
		if got := m.isDistinct(&match{period: 0, from: 0, to: 1}); got != want {
			t.Errorf("requests of %s tokens: got distinct %v", requests, got)
		}
	}
}

// TestProofByHand: n chains of prompts of so many lengths must have 20 bits.
func TestProofByHand(t *testing.T) {
	chains := func(n, lengths int) []chain {
		var out []chain
		for i := range n {
			out = append(out, chain{prompts: []prompt{{tokens: int64(i % lengths)}}})
		}
		return out
	}
	for name, c := range map[string]struct {
		n, lengths int
		rules      Rules
		want       bool
	}{
		"ten of four lengths":           {10, 4, Rules{}, true},
		"nine of four lengths":          {9, 4, Rules{}, false},
		"one length":                    {1000, 1, Rules{}, false},
		"blocks of four, nine":          {9, 8, Rules{Caching: true, Block: 4}, false},
		"blocks of four, ten":           {10, 8, Rules{Caching: true, Block: 4}, true},
		"blocks of one, nineteen":       {19, 19, Rules{Caching: true, Block: 1}, false},
		"blocks of one, twenty":         {20, 20, Rules{Caching: true, Block: 1}, true},
		"lengths count for more blocks": {10, 4, Rules{Caching: true, Block: 1024}, true},
	} {
		for exceptions := range 3 {
			got := (&passLog{rules: c.rules}).isProven(chains(c.n, c.lengths), exceptions)
			if want := c.want && exceptions == 0; got != want {
				t.Errorf("%s: got %v with %d exceptions", name, got, exceptions)
			}
		}
		// Three more chains of two bits have more than an exception takes away.
		if got := (&passLog{rules: Rules{}}).isProven(chains(13, 4), 1); !got {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestFailedByHand: a failed request is put between those that were sent before and after it; it may have a pass or none.
func TestFailedByHand(t *testing.T) {
	rules := Rules{Block: 16, Budget: 512, Chunked: true}
	failed := func(tokens, sentMs int64) trace.ObservedRequest {
		r := sent(tokens, 0, sentMs, 0, 1000)
		r.FirstChunkNs = trace.Opt[int64]{}
		r.Success = trace.Some(false)
		return r
	}
	for name, passes := range map[string][]string{
		"[0][10] [1][77] [2][40]": {"0: 0, 1, 10, 0, 0", "0: 1, 1, 77, 0, 0", "0: 2, 1, 40, 0, 0"},
		"[0][10] [1][40]":         {"0: 0, 1, 10, 0, 0", "0: 1, 1, 40, 0, 0"},
	} {
		p := logOf(t, rules, 1, false, passes...)
		q := periodsOf([]trace.ObservedRequest{sent(10, 1, 1, 8, 1000), failed(77, 2), sent(40, 1, 3, 9, 1000)}, &rules)[0]
		if len(q.prompts) != 2 || len(q.failed) != 1 || !q.hasFailed {
			t.Fatalf("%d prompts, %d failed", len(q.prompts), len(q.failed))
		}
		var text []string
		chains, n, _ := p.alignLoosely(q.withFailed(q.prompts), 0, len(p.promptPasses), trace.Opt[clockOffsets]{})
		for _, c := range chains {
			text = append(text, fmt.Sprintf("%v[%d]", c.passes, c.prompts[0].tokens))
		}
		if got := strings.Join(text, " "); got != name || n != 0 {
			t.Errorf("got %s with %d exceptions, want %s", got, n, name)
		}
	}
}

// TestBesideExceptionsByHand: of five prompts the third is in no chain, so those beside it are dropped.
func TestBesideExceptionsByHand(t *testing.T) {
	var prompts []prompt
	for row := range 5 {
		prompts = append(prompts, prompt{row: row})
	}
	var kept []int
	for _, c := range dropAdjacentToExceptions([]chain{{prompts: prompts[:1]}, {prompts: prompts[1:2]}, {prompts: prompts[3:4]}, {prompts: prompts[4:]}}, prompts) {
		kept = append(kept, c.prompts[0].row)
	}
	if !slices.Equal(kept, []int{0, 4}) {
		t.Errorf("kept %v", kept)
	}
}

// TestNoneIsPaired: requests of another run than the log have no exceptions that others are paired around.
func TestNoneIsPaired(t *testing.T) {
	rules := Rules{Block: 16, Budget: 512, Chunked: true}
	var lines []string
	var rows []trace.ObservedRequest
	for i := range int64(40) {
		lines = append(lines, fmt.Sprintf("0: %d, 1, %d, 0, 0", i, 10+i))
		rows = append(rows, sent(100+3*i, 1, 10*i+1, 10*i+5, 10*i+6))
	}
	g := pairRows(rows, logOf(t, rules, 1, false, lines...))
	if g.Paired != 0 || g.Exceptions != 0 || g.Unpaired != 40 {
		t.Errorf("another run: got %d paired, %d exceptions, %d unpaired, want 0, 0, 40", g.Paired, g.Exceptions, g.Unpaired)
	}
	for i := range rows {
		rows[i].PromptTokens.V = 10 + int64(i)
	}
	if g := pairRows(rows, logOf(t, rules, 1, false, lines...)); g.Paired != 40 || g.Unpaired != 0 {
		t.Errorf("the same run: got %d paired, %d unpaired, want 40, 0", g.Paired, g.Unpaired)
	}
}

// TestLooseByHand aligns prompts with passes of which one prompt is another client's, or one is not in the log.
func TestLooseByHand(t *testing.T) {
	align := func(passes []string, tokens ...int64) (string, int, bool) {
		rules := Rules{Block: 16, Budget: 512, Chunked: true}
		p := logOf(t, rules, 1, false, passes...)
		var rows []trace.ObservedRequest
		for i, n := range tokens {
			rows = append(rows, sent(n, 1, int64(i+1), int64(i+2), 1000))
		}
		chains, n, ok := p.alignLoosely(periodsOf(rows, &rules)[0].prompts, 0, len(p.promptPasses), trace.Opt[clockOffsets]{})
		var text []string
		for _, c := range chains {
			var own []int64
			for _, q := range c.prompts {
				own = append(own, q.tokens)
			}
			text = append(text, fmt.Sprintf("%v%v", c.passes, own))
		}
		return strings.Join(text, " "), n, ok
	}
	lines := func(specs ...string) (out []string) {
		for i, s := range specs {
			out = append(out, fmt.Sprintf("0: %d, %s, 0, 0", i, s))
		}
		return out
	}
	for name, c := range map[string]struct {
		passes     []string
		tokens     []int64
		want       string
		exceptions int
	}{
		"exact":         {lines("1, 10", "2, 50", "1, 40"), []int64{10, 20, 30, 40}, "[0][10] [1][20 30] [2][40]", 0},
		"one not sent":  {lines("1, 10", "1, 77", "1, 40"), []int64{10, 40}, "[0][10] [2][40]", 1},
		"one not shown": {lines("1, 10", "1, 40"), []int64{10, 99, 40}, "[0][10] [1][40]", 1},
		"a cut prompt":  {lines("2, 512", "1, 20", "1, 40"), []int64{10, 522, 40}, "[0 1][10 522] [2][40]", 0},
		"two of three":  {lines("1, 10", "3, 95", "1, 40"), []int64{10, 20, 30, 40}, "[0][10] [2][40]", 1},
		"three missing": {lines("1, 10", "1, 71", "1, 72", "1, 73", "1, 40"), []int64{10, 40}, "", 3},
		"two missing":   {lines("1, 10", "1, 71", "1, 72", "1, 40"), []int64{10, 40}, "[0][10] [3][40]", 2},
		"either of two": {lines("1, 10", "1, 10", "1, 40"), []int64{10, 40}, "[2][40]", 1},
		"no prompts":    {lines("1, 10"), nil, "", 0},
	} {
		if c.tokens == nil {
			if got, n, ok := (&passLog{engines: make([]engineState, 1)}).alignLoosely(nil, 0, 1, trace.Opt[clockOffsets]{}); got != nil || n != 0 || ok {
				t.Errorf("%s: got %v, %d, %v", name, got, n, ok)
			}
			continue
		}
		if got, n, _ := align(c.passes, c.tokens...); got != c.want || n != c.exceptions {
			t.Errorf("%s: got %s with %d exceptions, want %s with %d", name, got, n, c.want, c.exceptions)
		}
	}
}

// TestRecountByHand: 25 prompts whose lengths the client counts 5 too short, and by factors near 1.2.
func TestRecountByHand(t *testing.T) {
	recount := func(rules Rules, pairedNow int, client func(i int, tokens int64) int64) ([]int64, string) {
		var rows []trace.ObservedRequest
		var its []trace.Iteration
		for i := range 25 {
			tokens := int64(100 + 37*i%311)
			its = append(its, trace.Iteration{Index: int64(i), Form: trace.IterationLog, ContextReqs: 1, ContextTokens: tokens})
			rows = append(rows, sent(client(i, tokens), 1, int64(i+1), int64(i+2), 1000))
		}
		got, text, err := Recount(rows, rules, 1, pairedNow, reader(its))
		if err != nil {
			t.Fatal(err)
		}
		return got, text
	}
	plain := Rules{Block: 16, Budget: 8192, Chunked: true}
	shorter := func(_ int, n int64) int64 { return n - 5 }
	got, text := recount(plain, 0, shorter)
	if !strings.Contains(text, "25 of 25 prompts of the log are 5 tokens longer than the client says (a chat template)") {
		t.Errorf("got %q", text)
	}
	for i, n := range got {
		if n != int64(100+37*i%311) {
			t.Errorf("prompt %d: got %d tokens", i, n)
		}
	}
	// Either stamp of an answer shows that its prompt ran; a file without any stamp does not say otherwise.
	for name, change := range map[string]func(r *trace.ObservedRequest){
		"the last chunk alone":  func(r *trace.ObservedRequest) { r.FirstChunkNs.OK = false },
		"the first chunk alone": func(r *trace.ObservedRequest) { r.LastChunkNs.OK = false },
		"no stamps": func(r *trace.ObservedRequest) {
			r.SendNs, r.FirstChunkNs, r.LastChunkNs = trace.Opt[int64]{}, trace.Opt[int64]{}, trace.Opt[int64]{}
		},
	} {
		var rows []trace.ObservedRequest
		var its []trace.Iteration
		for i := range 25 {
			tokens := int64(100 + 37*i%311)
			its = append(its, trace.Iteration{Index: int64(i), Form: trace.IterationLog, ContextReqs: 1, ContextTokens: tokens})
			r := sent(tokens-5, 1, int64(i+1), int64(i+2), 1000)
			change(&r)
			rows = append(rows, r)
		}
		if _, text, err := Recount(rows, plain, 1, 0, reader(its)); err != nil || !strings.Contains(text, "25 of 25 prompts of the log are 5 tokens longer") {
			t.Errorf("%s: got %q, %v", name, text, err)
		}
	}
	// Four of five prompts that pair are enough.
	if got, _ := recount(plain, 20, shorter); got != nil {
		t.Error("lengths that pair are counted again")
	}
	if got, _ := recount(plain, 19, shorter); got == nil {
		t.Error("lengths of which 19 of 25 pair are not counted again")
	}
	for longer, want := range map[int64]bool{8192: true, 8193: false} {
		p := &passLog{promptPasses: []promptPass{{contextReqs: 1, contextTokens: 9000}}}
		if got := p.constants([]trace.ObservedRequest{sent(9000-longer, 1, 1, 2, 3)}); (len(got) == 1) != want {
			t.Errorf("%d tokens longer: got %v", longer, got)
		}
	}
	for shorter, want := range map[int64]bool{512: true, 513: false, 0: false} {
		p := &passLog{promptPasses: []promptPass{{contextReqs: 1, contextTokens: 100}}}
		if got := p.constants([]trace.ObservedRequest{sent(100+shorter, 1, 1, 2, 3)}); (len(got) == 1) != want {
			t.Errorf("%d tokens shorter: got %v", shorter, got)
		}
	}
	// Passes of several prompts, full ones and those after them say nothing of one prompt.
	p := &passLog{promptPasses: []promptPass{{contextReqs: 2, contextTokens: 101}, {contextReqs: 1, contextTokens: 102, isFull: true}, {contextReqs: 1, contextTokens: 103},
		{contextReqs: 1, contextTokens: 104}}}
	if got := p.constants([]trace.ObservedRequest{sent(100, 1, 1, 2, 3)}); !slices.Equal(got, []int64{4}) {
		t.Errorf("got %v, want 4", got)
	}
	// The commonest first, of equal ones the smaller, then the longer; four of them.
	p = &passLog{}
	for _, n := range []int64{107, 107, 103, 97, 110, 120, 130} {
		p.promptPasses = append(p.promptPasses, promptPass{contextReqs: 1, contextTokens: n})
	}
	if got := p.constants([]trace.ObservedRequest{sent(100, 1, 1, 2, 3)}); !slices.Equal(got, []int64{7, 3, -3, 10}) {
		t.Errorf("got %v", got)
	}

	// Factors of 1.1 to 1.3: the passes' tokens are those of their prompts.
	got, text = recount(plain, 0, func(i int, n int64) int64 { return int64(math.Round(float64(n) / (1.1 + 0.05*float64(i%5)))) })
	if !strings.Contains(text, "the log computed 6") || !strings.Contains(text, "times as many and by another factor in each") || len(got) != 25 || got[3] != 211 {
		t.Errorf("got %q, %v", text, got)
	}
}

// TestProportionsByHand: passes of 60 and 300 tokens ran prompts of 20 and 30, and of 250, as the client counts: 360 of 300 tokens.
func TestProportionsByHand(t *testing.T) {
	p := logOf(t, Rules{Block: 16, Budget: 512, Chunked: true}, 1, false, "0: 0, 2, 60, 0, 0", "0: 1, 1, 300, 0, 0")
	rows := []trace.ObservedRequest{sent(20, 1, 1, 2, 9), sent(30, 1, 2, 3, 9), sent(250, 1, 3, 4, 9)}
	out, computed, counted := p.proportional(rows)
	if computed != 360 || counted != 300 || len(out) != 3 || out[0].PromptTokens.V != 24 || out[1].PromptTokens.V != 36 || out[2].PromptTokens.V != 300 {
		t.Errorf("got %+v, %d of %d", out, computed, counted)
	}
	// Where prompts may be cached, more tokens are needed than were counted.
	p.rules.Caching = true
	if out, _, _ := p.proportional(rows); out == nil {
		t.Error("360 tokens of 300 are refused")
	}
	p.promptPasses[1].contextTokens = 240
	if out, _, _ := p.proportional(rows); out != nil {
		t.Error("300 tokens of 300 may be cached ones, and are taken")
	}
	p.rules.Caching = false
	if out, _, _ := p.proportional(rows); out == nil {
		t.Error("300 tokens of 300 without a cache are refused")
	}
	// A number of prompts that the passes do not have, and one of unknown length.
	if out, _, _ := p.proportional([]trace.ObservedRequest{sent(0, 1, 1, 2, 9)}); out != nil {
		t.Error("a prompt of unknown length is given tokens")
	}
	// Tokens of passes that do not follow those of their prompts.
	p = logOf(t, p.rules, 1, false, "0: 0, 1, 300, 0, 0", "0: 1, 1, 60, 0, 0", "0: 2, 1, 310, 0, 0", "0: 3, 1, 50, 0, 0")
	if out, _, _ := p.proportional([]trace.ObservedRequest{sent(50, 1, 1, 2, 9), sent(250, 1, 2, 3, 9), sent(40, 1, 3, 4, 9), sent(260, 1, 4, 5, 9)}); out != nil {
		t.Errorf("short prompts in long passes: got %+v", out)
	}
}

// TestFitsByHand: a period takes stretches with its prompts, and with its tokens or, where the engine plans ahead, up to one
// more of each.
func TestFitsByHand(t *testing.T) {
	for name, c := range map[string]struct {
		generation int64 // tokens that the log has after the prompt pass
		rules      Rules
		isAsync    bool
		change     func(*matcher)
		want       int
	}{
		"as many":               {generation: 3, want: 1},
		"one more":              {generation: 4, want: -1},
		"one fewer":             {generation: 2, want: -1},
		"one more, ahead":       {generation: 4, rules: Rules{Ahead: true}, want: 1},
		"one more, async":       {generation: 4, isAsync: true, want: 1},
		"two more, ahead":       {generation: 5, rules: Rules{Ahead: true}, want: -1},
		"drafts":                {generation: 9, rules: Rules{Speculative: true}, want: 1},
		"drafts, fewer":         {generation: 1, rules: Rules{Speculative: true}, want: 1},
		"broken":                {generation: 3, change: func(m *matcher) { m.stretches[0].isBroken = true }, want: -1},
		"unusable":              {generation: 3, change: func(m *matcher) { m.periods[0].isUnusable = true }, want: -1},
		"no prompts":            {generation: 3, change: func(m *matcher) { m.periods[0].prompts = nil }, want: 0},
		"failed":                {generation: 3, change: func(m *matcher) { m.periods[0].hasFailed = true }, want: 1},
		"failed in a full pass": {generation: 3, change: func(m *matcher) { m.periods[0].hasFailed, m.stretches[0].full = true, 1 }, want: -1},
	} {
		c.rules.Block, c.rules.Budget = 16, 512
		p := logOf(t, c.rules, 1, c.isAsync, "0: 0, 1, 20, 0, 0", fmt.Sprintf("0: 1, 0, 0, 1, %d", c.generation))
		m := &matcher{log: p, periods: periodsOf([]trace.ObservedRequest{sent(20, 4, 1, 2, 9)}, &c.rules), stretches: p.stretches()}
		if c.change != nil {
			c.change(m)
		}
		chains, got := m.fit(0, 0, 0)
		if got != c.want || (got == 1) != (len(chains) == 1) {
			t.Errorf("%s: got %v and %d, want %d", name, chains, got, c.want)
		}
	}
}

// TestCountedHitsByHand: SGLang's lines count the hits of their prompts, which must be those of the chain.
func TestCountedHitsByHand(t *testing.T) {
	chains := func(hits int64, tokens ...int64) ([]chain, bool) {
		p := &passLog{rules: Rules{Block: 1, Caching: true}, engines: make([]engineState, 1)}
		p.promptPasses = []promptPass{{contextReqs: int64(len(tokens)), contextTokens: 60, hits: hits}}
		var prompts []prompt
		for _, n := range tokens {
			prompts = append(prompts, prompt{tokens: n, mostCached: n - 1})
		}
		return p.chainsOf(prompts, 0, 1)
	}
	for name, c := range map[string]struct {
		hits   int64
		tokens []int64
		want   int64 // hits of the chain; -1: none
	}{
		"as counted":  {40, []int64{70, 30}, 40},
		"one more":    {41, []int64{70, 30}, -1},
		"one fewer":   {39, []int64{70, 30}, -1},
		"not counted": {-1, []int64{70, 30}, 40},
		"none":        {0, []int64{60}, 0},
		"none of one": {0, []int64{61}, -1},
	} {
		got, ok := chains(c.hits, c.tokens...)
		if ok != (c.want >= 0) || ok && (len(got) != 1 || got[0].hits != c.want || got[0].isUncertain) {
			t.Errorf("%s: got %+v, %v", name, got, ok)
		}
	}
}
