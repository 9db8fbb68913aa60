package clients

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

func some[T any](v T) trace.Opt[T] { return trace.Some(v) }

// TestWholeAnswersByHand: an answer of several tokens in one chunk has no TTFT.
func TestWholeAnswersByHand(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *trace.ObservedRequest)
		drafts bool
		whole  bool
	}{
		"one chunk":             {func(*trace.ObservedRequest) {}, false, true},
		"two chunks":            {func(r *trace.ObservedRequest) { r.Chunks.V = 2 }, false, false},
		"one token":             {func(r *trace.ObservedRequest) { r.OutputTokens.V = 1 }, false, false},
		"two tokens":            {func(r *trace.ObservedRequest) { r.OutputTokens.V = 2 }, false, true},
		"failed":                {func(r *trace.ObservedRequest) { r.Success = some(false) }, false, false},
		"of a pass with drafts": {func(r *trace.ObservedRequest) { r.OutputTokens.V = 32 }, true, false},
		"more than a pass":      {func(r *trace.ObservedRequest) { r.OutputTokens.V = 33 }, true, true},
		"the first is the last": {func(r *trace.ObservedRequest) { r.Chunks.OK, r.Chunks.V = false, 0; r.TTFTUs.V = 500 }, false, true},
		"the first comes first": {func(r *trace.ObservedRequest) { r.Chunks.OK, r.Chunks.V = false, 0; r.TTFTUs.V = 499 }, false, false},
		"no times, no chunks":   {func(r *trace.ObservedRequest) { r.Chunks.OK = false; r.TTFTUs.OK = false }, false, false},
		"no E2E, no chunks":     {func(r *trace.ObservedRequest) { r.Chunks.OK = false; r.E2EUs.OK = false }, false, false},
	} {
		r := trace.ObservedRequest{OutputTokens: some[int64](9), Chunks: some[int64](1), TTFTUs: some(500.), E2EUs: some(500.), FirstChunkNs: some[int64](1), ChunkGapsUs: []float64{1}}
		c.change(&r)
		reader := &Reader{Requests: []trace.ObservedRequest{r, {}}}
		reader.dropWholeAnswers(c.drafts)
		got := &reader.Requests[0]
		if isDropped := len(reader.Findings) == 1; isDropped != c.whole || c.whole && (got.TTFTUs.OK || got.FirstChunkNs.OK || got.ChunkGapsUs != nil || got.Chunks.OK || !got.E2EUs.OK || !strings.Contains(reader.Findings[0].Message, "1 of 1 answers")) {
			t.Errorf("%s: got %+v, %v", name, got, reader.Findings)
		}
	}
}

// TestHiddenAnswersByHand: what the chunks of an answer show of the tokens that have none.
func TestHiddenAnswersByHand(t *testing.T) {
	gaps := func(n int, change func(g []float64)) []float64 {
		out := slices.Repeat([]float64{10}, n)
		if change != nil {
			change(out)
		}
		return out
	}
	for name, c := range map[string]struct {
		r       trace.ObservedRequest
		ok      bool
		missing float64
		inGaps  float64
		stepUs  float64
	}{
		"four chunks":             {trace.ObservedRequest{OutputTokens: some[int64](9), ChunkGapsUs: gaps(3, nil)}, false, 0, 0, 0},
		"five":                    {trace.ObservedRequest{OutputTokens: some[int64](9), ChunkGapsUs: gaps(4, nil)}, true, 4, 0, 10},
		"a gap of three":          {trace.ObservedRequest{OutputTokens: some[int64](9), ChunkGapsUs: gaps(4, func(g []float64) { g[1] = 31 })}, true, 4, 2, 10},
		"more time than tokens":   {trace.ObservedRequest{OutputTokens: some[int64](9), ChunkGapsUs: gaps(4, func(g []float64) { g[1] = 99 })}, true, 4, 4, 10},
		"more chunks":             {trace.ObservedRequest{OutputTokens: some[int64](3), ChunkGapsUs: gaps(4, func(g []float64) { g[1] = 99 })}, true, -2, 0, 10},
		"gaps are not recorded":   {trace.ObservedRequest{OutputTokens: some[int64](9), Chunks: some[int64](5), TTFTUs: some(10.), E2EUs: some(90.)}, true, 4, 0, 20},
		"four without their gaps": {trace.ObservedRequest{OutputTokens: some[int64](9), Chunks: some[int64](4), TTFTUs: some(10.), E2EUs: some(90.)}, false, 0, 0, 0},
	} {
		a, ok := newHiddenAnswer(&c.r)
		if ok != c.ok || ok && (a.missing != c.missing || a.inGaps != c.inGaps || a.stepUs != c.stepUs) {
			t.Errorf("%s: got %+v, %v", name, a, ok)
		}
	}
	a := hiddenAnswer{row: &trace.ObservedRequest{ChunkGapsUs: gaps(1, nil)}, stepUs: 10}
	if got := a.leastFirstUs(7); got != 70 {
		t.Errorf("got %g us", got)
	}
	if a.row.ChunkGapsUs = nil; !near(a.leastFirstUs(7), 56) {
		t.Errorf("of a mean gap: got %g us", a.leastFirstUs(7))
	}
	of := func(missing ...float64) (out []hiddenAnswer) {
		for _, m := range missing {
			out = append(out, hiddenAnswer{missing: m, stepUs: 10, inGaps: -1, row: &trace.ObservedRequest{ChunkGapsUs: gaps(9, nil)}})
		}
		return out
	}
	if got := commonMissing(of(8, 8, 8, 8, 8, 8, 8, 8, 8, 1)); got != 8 {
		t.Errorf("nine of ten: got %g", got)
	}
	if got := commonMissing(of(8, 8, 8, 8, 8, 8, 8, 8, 2, 1)); got != 0 {
		t.Errorf("eight of ten: got %g", got)
	}
	for name, c := range map[string]struct {
		missing float64
		at      int     // of the gap
		us      float64 // that it takes
		of      int     // answers of five
		want    float64
	}{
		"none":                     {8, 0, 10, 5, 0},
		"a hole":                   {8, 3, 73, 5, 8},
		"just no hole":             {8, 3, 72, 5, 0},
		"in four of five":          {8, 3, 73, 4, 8},
		"in three of five":         {8, 3, 73, 3, 0},
		"seven tokens":             {7, 3, 99, 5, 0},
		"at the end":               {3, 8, 33, 5, 3},
		"just not at the end":      {3, 8, 32, 5, 0},
		"too long at the end":      {3, 8, 50, 5, 0},
		"nearly too long, the end": {3, 8, 49, 5, 3},
	} {
		list := of(c.missing, c.missing, c.missing, c.missing, c.missing)
		for i := range c.of {
			list[i].row.ChunkGapsUs[c.at] = c.us
		}
		if placeCommon(list, c.missing); list[0].inGaps != c.want || list[4].inGaps != c.want {
			t.Errorf("%s: got %g in gaps, want %g", name, list[0].inGaps, c.want)
		}
	}
	bare := of(8)
	bare[0].row.ChunkGapsUs = nil
	if placeCommon(bare, 8); bare[0].inGaps != 0 {
		t.Errorf("got %g", bare[0].inGaps)
	}
	if got := alsoShort(0); got != "" {
		t.Errorf("got %q", got)
	}
	if got := alsoShort(3); got != "; nor those of 3 shorter answers with tokens that were not shown" {
		t.Errorf("got %q", got)
	}
	slope, explained := slopeOf([]float64{1, 2, 3}, []float64{5, 7, 9})
	if !near(slope, 2) || !near(explained, 1) {
		t.Errorf("got %g, %g", slope, explained)
	}
}

// TestReasoningByHand: chunks for the tokens that are no reasoning alone.
func TestReasoningByHand(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *trace.ObservedRequest)
		hidden bool
	}{
		"as many chunks":          {func(*trace.ObservedRequest) {}, true},
		"one fewer":               {func(r *trace.ObservedRequest) { r.Chunks.V = 3 }, true},
		"one more":                {func(r *trace.ObservedRequest) { r.Chunks.V = 5 }, true},
		"two fewer":               {func(r *trace.ObservedRequest) { r.Chunks.V = 2 }, false},
		"two more":                {func(r *trace.ObservedRequest) { r.Chunks.V = 6 }, false},
		"no reasoning":            {func(r *trace.ObservedRequest) { r.Reasoning.V = 0 }, false},
		"all reasoning":           {func(r *trace.ObservedRequest) { r.Reasoning.V = 10 }, false},
		"two answers":             {func(r *trace.ObservedRequest) { r.N = some[int64](2) }, false},
		"failed":                  {func(r *trace.ObservedRequest) { r.Success = some(false) }, false},
		"first chunk is visible":  {func(r *trace.ObservedRequest) { r.VisibleUs, r.Chunks.V = some(10.), 1 }, true},
		"visible later":           {func(r *trace.ObservedRequest) { r.VisibleUs, r.Chunks.V = some(11.), 1 }, false},
		"visible, too many":       {func(r *trace.ObservedRequest) { r.VisibleUs, r.Chunks.V = some(10.), 5 }, false},
		"no TTFT":                 {func(r *trace.ObservedRequest) { r.TTFTUs.OK = false }, false},
		"no number of its chunks": {func(r *trace.ObservedRequest) { r.Chunks.OK = false }, false},
	} {
		r := trace.ObservedRequest{OutputTokens: some[int64](10), Reasoning: some[int64](6), Chunks: some[int64](4), TTFTUs: some(10.)}
		c.change(&r)
		reader := &Reader{Requests: []trace.ObservedRequest{r}}
		reader.dropStatedHidden()
		if (len(reader.Findings) == 1) != c.hidden || c.hidden == reader.Requests[0].TTFTUs.OK && name != "no TTFT" {
			t.Errorf("%s: got %v", name, reader.Findings)
		}
	}
	// The server's first token came 4 ms before the last of five; two steps and 5 ms later is late.
	for behindUs, late := range map[float64]bool{2*1000 + 5000: false, 2*1000 + 5001: true} {
		reader := &Reader{Requests: []trace.ObservedRequest{{OutputTokens: some[int64](5), ServerGenUs: some(4000.), E2EUs: some(50_000.), TTFTUs: some(46_000 + behindUs)}}}
		reader.dropStatedLate()
		if (len(reader.Findings) == 1) != late || reader.Requests[0].TTFTUs.OK == late {
			t.Errorf("%g us behind: got %v", behindUs, reader.Findings)
		}
	}
	reader := &Reader{Requests: []trace.ObservedRequest{{SendNs: some(leastWallNs)}, {SendNs: some(leastWallNs + 1)}}}
	if reader.reportWallClock(); len(reader.Findings) != 1 || !strings.Contains(reader.Findings[0].Message, "1 of 2 requests") {
		t.Errorf("got %v", reader.Findings)
	}
	reader = &Reader{Requests: []trace.ObservedRequest{{SendNs: some(leastWallNs)}, {}}}
	if reader.reportWallClock(); len(reader.Findings) != 0 {
		t.Errorf("got %v", reader.Findings)
	}
	if reader.reportNoStart(); len(reader.Findings) != 1 || !strings.Contains(reader.Findings[0].Message, "1 of 2 requests have no start time") {
		t.Errorf("got %v", reader.Findings)
	}
	uncounted := trace.ObservedRequest{Success: trace.Some(true)}
	counted := trace.ObservedRequest{Success: trace.Some(true), OutputTokens: trace.Some(int64(0))}
	reader = &Reader{Requests: []trace.ObservedRequest{uncounted, counted, {Success: trace.Some(false)}}}
	if reader.reportUncounted(); len(reader.Findings) != 1 || !strings.Contains(reader.Findings[0].Message, "output tokens of 1 of 3 requests") {
		t.Errorf("got %v", reader.Findings)
	}
	reader = &Reader{Requests: []trace.ObservedRequest{counted}}
	if reader.reportUncounted(); len(reader.Findings) != 0 {
		t.Errorf("got %v", reader.Findings)
	}
	for n, ok := range map[int]bool{20: true, 19: false} {
		reader := &Reader{}
		for i := range n {
			tokens := int64(10 + i)
			reader.Requests = append(reader.Requests, trace.ObservedRequest{OutputTokens: some(tokens), TTFTUs: some(50 * float64(tokens)), E2EUs: some(50*float64(tokens) + 100*float64(tokens-1))})
		}
		reader.dropUncounted()
		if r := &reader.Requests[0]; (len(reader.Findings) == 1) != ok || r.TTFTUs.OK == ok || r.E2EUs.OK == ok || r.OutputTokens.OK == ok || r.LoadOnly.V != ok || ok && !strings.Contains(reader.Findings[0].Message, fmt.Sprintf("TTFT of %d answers grows by 0.5 steps", n)) {
			t.Errorf("%d answers: got %v", n, reader.Findings)
		}
	}
}

// TestLevelChecksByHand: figures of a level at the ends of what fits.
func TestLevelChecksByHand(t *testing.T) {
	// 100 ms + 10 x 5 ms = 150 ms; 20 requests/s have 3 in flight.
	good := Level{PromptTokens: 100, OutputTokens: 11, TTFTMeanMs: 100, ITLMs: 5, RateRPS: 20, Requests: 100}
	for name, c := range map[string]struct {
		change func(l *Level)
		want   string
	}{
		"whole":                      {func(*Level) {}, ""},
		"ITL at least":               {func(l *Level) { l.ITLMs = 0.01; l.RateRPS = 0 }, ""},
		"ITL below":                  {func(l *Level) { l.ITLMs = 0.01 * 0.99 }, "ITL: got"},
		"ITL at most":                {func(l *Level) { l.ITLMs = 5000.0; l.RateRPS = 0 }, ""},
		"ITL above":                  {func(l *Level) { l.ITLMs = 5000.0 * 1.01 }, "ITL: got"},
		"E2E a tenth":                {func(l *Level) { l.E2EMs = 15; l.RateRPS = 0 }, ""},
		"E2E less than a tenth":      {func(l *Level) { l.E2EMs = 14.9 }, "E2E: got 14.9 ms, want about TTFT + (output - 1) x ITL = 150 ms"},
		"E2E ten times":              {func(l *Level) { l.E2EMs = 1500; l.RateRPS = 0 }, ""},
		"E2E more than ten times":    {func(l *Level) { l.E2EMs = 1501 }, "E2E: got"},
		"by the median":              {func(l *Level) { l.TTFTMeanMs, l.TTFTMedianMs, l.E2EMs = 0, 100, 1501 }, "= 150 ms"},
		"one token":                  {func(l *Level) { l.OutputTokens, l.E2EMs = 1, 1001 }, "= 100 ms"},
		"three clients":              {func(l *Level) { l.Clients = 3 }, ""},
		"a quarter more in flight":   {func(l *Level) { l.Clients, l.RateRPS = 3, 25 }, ""},
		"more than a quarter more":   {func(l *Level) { l.Clients, l.RateRPS = 3, 25.1 }, "clients: got 3, want about requests/s x latency = 3.765"},
		"0.6 times":                  {func(l *Level) { l.Clients = 5 }, ""},
		"less than 0.6 times":        {func(l *Level) { l.Clients = 6 }, "clients: got 6"},
		"of few requests":            {func(l *Level) { l.Clients, l.Requests = 6, 29 }, ""},
		"of enough requests":         {func(l *Level) { l.Clients, l.Requests = 6, 30 }, "clients: got 6"},
		"five of each client":        {func(l *Level) { l.Clients, l.Requests = 20, 100 }, "clients: got 20"},
		"fewer than five of each":    {func(l *Level) { l.Clients, l.Requests = 20, 99 }, ""},
		"1.6 times, an open load":    {func(l *Level) { l.Concurrency, l.RateRPS = 3, 32 }, ""},
		"more than 1.6 times":        {func(l *Level) { l.Concurrency, l.RateRPS = 3, 32.1 }, "requests in flight: got 3"},
		"0.6 times, an open load":    {func(l *Level) { l.Concurrency, l.RateRPS = 3, 12 }, ""},
		"less than 0.6 times, open":  {func(l *Level) { l.Concurrency, l.RateRPS = 3, 11.9 }, "requests in flight: got 3"},
		"few requests, open":         {func(l *Level) { l.Concurrency, l.RateRPS, l.Requests = 3, 11.9, 29 }, ""},
		"by E2E":                     {func(l *Level) { l.Clients, l.E2EMs = 3, 200 }, "= 4 (Little's law)"},
		"nothing to compare it with": {func(l *Level) { l.RateRPS, l.Clients = 0, 999 }, ""},
	} {
		l := good
		c.change(&l)
		if got := l.contradiction(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		change func(l *Level)
		want   string // of a dropped level
		found  string
	}{
		"whole":                 {func(*Level) {}, "", ""},
		"least rate":            {func(l *Level) { l.RateRPS = 1e-6 }, "", ""},
		"less":                  {func(l *Level) { l.RateRPS = 1e-6 * 0.9 }, "request rate or clients", ""},
		"by clients":            {func(l *Level) { l.RateRPS, l.Clients = 0, 1 }, "", ""},
		"offered":               {func(l *Level) { l.RateRPS, l.OfferedRPS = 0, 1 }, "", ""},
		"no load":               {func(l *Level) { l.RateRPS = 0 }, "request rate or clients", ""},
		"no prompt":             {func(l *Level) { l.PromptTokens = 0 }, "prompt tokens: got 0", ""},
		"less than a token":     {func(l *Level) { l.PromptTokens = 0.9 }, "mean lengths", ""},
		"no output":             {func(l *Level) { l.OutputTokens = 0 }, "output tokens: got 0", ""},
		"less than one":         {func(l *Level) { l.OutputTokens = 0.9 }, "mean lengths", ""},
		"too large":             {func(l *Level) { l.PromptTokens = 1e8 * 1.1 }, "prompt tokens: got", ""},
		"no TTFT":               {func(l *Level) { l.TTFTMeanMs = 0 }, "TTFT: got 0", ""},
		"the median alone":      {func(l *Level) { l.TTFTMeanMs, l.TTFTMedianMs = math.NaN(), 5 }, "", "only the median is used"},
		"no ITL":                {func(l *Level) { l.ITLMs = math.NaN() }, "ITL: got NaN", ""},
		"all cached":            {func(l *Level) { l.CachedTokens = some(100.) }, "", ""},
		"more than all cached":  {func(l *Level) { l.CachedTokens = some(101.) }, "", "cached tokens: got 101"},
		"less than none cached": {func(l *Level) { l.CachedTokens = some(-1.) }, "", "cached tokens: got -1"},
		"most clients":          {func(l *Level) { l.Clients = 1e5 }, "", ""},
		"more clients":          {func(l *Level) { l.Clients = 1e5 + 1 }, "clients and parallel sizes: got 100001", ""},
		"more GPUs":             {func(l *Level) { l.TP = 1e5 + 1 }, "clients and parallel sizes", ""},
		"spread of prompts":     {func(l *Level) { l.PromptSD = -1 }, "spread of lengths", ""},
		"spread of outputs":     {func(l *Level) { l.OutputSD = 1e8 * 2 }, "spread of lengths", ""},
		"in flight":             {func(l *Level) { l.Concurrency = math.NaN() }, "spread of lengths", ""},
	} {
		l := good
		c.change(&l)
		f := &LevelFile{Dropped: map[trace.Code]int{}}
		f.addLevel(l, "f:3")
		var texts []string
		for _, x := range f.Findings {
			texts = append(texts, x.Message)
		}
		all := strings.Join(texts, "; ")
		if f.Read != 1 || (len(f.Levels) == 0) != (c.want != "") || !strings.Contains(all, c.want) || !strings.Contains(all, c.found) || (c.want+c.found == "") != (all == "") {
			t.Errorf("%s: got %d levels, %q", name, len(f.Levels), all)
		}
		if c.found != "" && (f.Levels[0].CachedTokens.OK || math.IsNaN(f.Levels[0].TTFTMeanMs)) {
			t.Errorf("%s: got %+v", name, f.Levels[0])
		}
	}
	if firstAbove0(0, -1, 3, 4) != 3 || firstAbove0(-2, 0) != -2 {
		t.Error("got another value above 0")
	}
	// Five levels whose TTFT falls while the load grows; two of more than 0.15 of the pairs make them all suspect.
	falling := func(ttft ...float64) (kept, dropped int) {
		f := &LevelFile{Dropped: map[trace.Code]int{}}
		for i, ms := range ttft {
			f.Levels = append(f.Levels, Level{PromptTokens: 100, OutputTokens: 10, TTFTMeanMs: ms, Clients: []int{1, 2, 4, 8, 16, 32}[i]})
		}
		f.dropFalling()
		return len(f.Levels), int(f.Dropped[source.CodeBadRecord])
	}
	for _, c := range []struct {
		ttft []float64
		want int // kept
	}{
		{[]float64{10, 20, 30, 40, 50}, 5},
		{[]float64{10, 40, 30, 20, 19}, 0},
		{[]float64{99, 20, 30, 40, 50}, 5},     // the lowest load is not compared
		{[]float64{10, 40, 30, 20}, 4},         // four levels
		{[]float64{10, 30, 30, 20, 20}, 5},     // by no more than 1.5
		{[]float64{10, 31, 30, 20, 20}, 0},     // two pairs by more
		{[]float64{10, 31, 30, 20, 21}, 5},     // one pair
		{[]float64{10, 31, 31, 20, 30, 40}, 0}, // two of ten
	} {
		if kept, dropped := falling(c.ttft...); kept != c.want || kept+dropped != len(c.ttft) {
			t.Errorf("%v: kept %d, dropped %d, want %d", c.ttft, kept, dropped, c.want)
		}
	}
	if (&Level{Clients: 3, RateRPS: 9}).load() != 3 || (&Level{RateRPS: 9}).load() != 9 || (&Level{RateRPS: 9, OfferedRPS: 8}).load() != 8 {
		t.Error("got another load")
	}
}

// TestLevelTableByHand: the values of a row, each with its least.
func TestLevelTableByHand(t *testing.T) {
	columns := append(slices.Clone(levelColumns), optionalLevelColumns...)
	table := &levelTable{name: "t.csv", columns: map[string]int{}}
	if err := table.readHeader(columns); err != nil {
		t.Fatal(err)
	}
	row := map[string]string{"input_tokens": "100", "output_tokens": "20", "concurrency": "4", "ttft_ms": "30.5", "tpot_ms": "5.25", "rate_rps": "7", "e2e_ms": "130", "requests": "60", "input_sd": "1.5", "output_sd": "2.5", "cached_tokens": "16", "tp": "2", "ep": "3", "dp": "5"}
	read := func(column, value string) (Level, error) {
		var fields []string
		for _, c := range columns {
			v := row[c]
			if c == column {
				v = value
			}
			fields = append(fields, v)
		}
		return table.level(fields, 9)
	}
	l, err := read("", "")
	l.Strategy = ""
	want := Level{Sweep: "t.csv", Line: 9, PromptTokens: 100, OutputTokens: 20, Clients: 4, OfferedRPS: 7, TTFTMeanMs: 30.5, ITLMs: 5.25, E2EMs: 130, PromptSD: 1.5, OutputSD: 2.5, Requests: 60, TP: 2, EP: 3, DP: 5, CachedTokens: some(16.)}
	if err != nil || l != want {
		t.Errorf("got %+v, %v", l, err)
	}
	for _, c := range []struct{ column, good, bad string }{
		{"input_tokens", "1", "0.99"}, {"output_tokens", "2", "1.99"}, {"concurrency", "1", "0"}, {"concurrency", "100000", "100001"}, {"concurrency", "3", "3.5"}, {"rate_rps", "1e-9", "1e-10"}, {"ttft_ms", "1e-9", "1e-10"}, {"tpot_ms", "1e-9", "0"}, {"e2e_ms", "1e-9", "-1"},
		{"input_sd", "0", "-1"}, {"output_sd", "0", "-0.1"}, {"requests", "1", "0"}, {"tp", "1", "0.5"}, {"ep", "1", "x"}, {"dp", "1", "inf"}, {"cached_tokens", "0", "-1"}, {"tpot_ms", "5", ""}, {"concurrency", "5", ""}, {"tp", "", "0x2"},
	} {
		if _, err := read(c.column, c.good); err != nil {
			t.Errorf("%s %q: got %v", c.column, c.good, err)
		}
		if _, err := read(c.column, c.bad); err == nil || !strings.Contains(err.Error(), c.column+": got") || !strings.Contains(err.Error(), "t.csv:9:1") {
			t.Errorf("%s %q: got %v", c.column, c.bad, err)
		}
	}
	if _, err := table.level([]string{"1"}, 3); err == nil || !strings.Contains(err.Error(), "got 1 fields, want 14") {
		t.Errorf("got %v", err)
	}
	for want, header := range map[string][]string{"": levelColumns, `got column "tp" twice`: append(slices.Clone(columns), "tp"), `got no column "concurrency"`: {"input_tokens", "output_tokens", "ttft_ms", "tpot_ms"}, `got no column "ttft_ms"`: {"input_tokens", "output_tokens", "rate_rps", "tpot_ms"}} {
		table := &levelTable{columns: map[string]int{}}
		if err := table.readHeader(header); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", header, err, want)
		}
	}
	table = &levelTable{columns: map[string]int{}}
	if err := table.readHeader([]string{"input_tokens", "output_tokens", "rate_rps", " ttft_ms ", "tpot_ms", "x"}); err != nil || !slices.Equal(table.unused, []string{`"x"`}) {
		t.Errorf("got %v, %q", err, table.unused)
	}
}

// TestBlocksByHand: the metrics of a row without their names.
func TestBlocksByHand(t *testing.T) {
	for _, c := range []struct {
		a, b, tol float64
		want      bool
	}{{100, 90, 0.1, true}, {100, 89.9, 0.1, false}, {-100, -90, 0.1, true}, {0, 0, 0, true}, {-1, 1, 1, false}} {
		if got := isNear(c.a, c.b, c.tol); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	row := []string{"1", "2", "3", "[a]", "4", "5", "6", "[b]", "7", "x", "9", "[c]", "1", "1", "1", "[d]"}
	if got := metricBlocks(row); !slices.Equal(got, []metricBlock{{1, 2, 3}, {4, 5, 6}}) {
		t.Errorf("got %v", got)
	}
	if got := metricBlocks(row[:3]); got != nil {
		t.Errorf("got %v", got)
	}
	// Latency 2.1 s, iterations, TTFT, TPOT, ITL; requests/s, concurrency; 100 and 21 tokens, 121 in all.
	blocks := func(means ...float64) (out []metricBlock) {
		for i, m := range means {
			out = append(out, metricBlock{mean: m, median: m + 0.5, sd: float64(i)})
		}
		return out
	}
	whole := blocks(2.1, 21, 100, 100, 100, 3, 6.3, 100, 21, 121)
	l, ok := arrangeBlocks(whole, 30, 10, 1)
	if want := (Level{RateRPS: 3, Concurrency: 6.3, PromptTokens: 100, PromptSD: 7, OutputTokens: 21, OutputSD: 8, TTFTMeanMs: 100, TTFTMedianMs: 100.5, ITLMs: 100}); !ok || l != want {
		t.Errorf("got %+v, %v", l, ok)
	}
	if _, ok := arrangeBlocks(whole, 33, 10, 1); ok {
		t.Error("33 requests in 10 s are 3 a second")
	}
	if in, out, ok := findTokens(whole, 6, 1); in != 7 || out != 8 || !ok {
		t.Errorf("got %d, %d, %v", in, out, ok)
	}
	if in, out, ok := findTokens(blocks(2.1, 21, 100, 100, 100, 3, 6.3, 100, 21, 150), 6, 1); in != 0 || out != 0 || ok {
		t.Errorf("tokens that do not add up: got %d, %d, %v", in, out, ok)
	}
	ttft, itl, miss, ok := findLatencies(whole[:5], 21, 1)
	if ttft != 2 || itl != 4 || !ok || !near(miss, 0) {
		t.Errorf("got %d, %d, %g, %v", ttft, itl, miss, ok)
	}
}

// TestUsageByHand: lines of usage belong to the only client's file with as many requests and equal outputs.
func TestUsageByHand(t *testing.T) {
	rows := func(source string, outputs ...int64) (out []trace.ObservedRequest) {
		for i, n := range outputs {
			out = append(out, trace.ObservedRequest{ID: fmt.Sprint(source, i), Source: source, OutputTokens: some(n), PromptTokens: some(n * 10)})
		}
		return out
	}
	c := &Reader{Acc: source.NewAccount(nil)}
	add := func(list []trace.ObservedRequest) {
		from := len(c.Requests)
		c.Requests = append(c.Requests, list...)
		c.requestFiles = append(c.requestFiles, requestFile{from: from, to: len(c.Requests), name: list[0].Source})
	}
	var outputs []int64
	for i := range int64(20) {
		outputs = append(outputs, 5+i)
	}
	add(rows("a", outputs...))
	other := slices.Clone(outputs)
	other[3], other[4] = 99, 98
	add(rows("b", other...)) // 18 of 20
	add(rows(sourceUsage, outputs...))
	partner, ok := c.usagePartner(c.requestFiles[2])
	if !ok || partner.from != 0 {
		t.Errorf("got %+v, %v", partner, ok)
	}
	c.Requests[24].OutputTokens.V = outputs[4] // 19 of 20: two files fit
	if _, ok := c.usagePartner(c.requestFiles[2]); ok {
		t.Error("either of two files is taken")
	}
	c.Requests[24].OutputTokens.V = 98
	for i := 40; i < 60; i++ {
		c.Requests[i].CachedTokens = some[int64](int64(i))
		c.Requests[i].PromptTokens.V = 7
	}
	c.Requests[59].ID = "b2" // by its name
	if c.joinUsage(); len(c.Requests) != 40 || c.Requests[5].CachedTokens.V != 45 || c.Requests[5].PromptTokens.V != 7 || c.Requests[22].CachedTokens.V != 59 || c.Requests[19].CachedTokens.OK || c.Requests[21].CachedTokens.OK {
		t.Errorf("got %d requests, %+v", len(c.Requests), c.Requests[5])
	}
	for unit, want := range map[string]float64{"ns": 1e-6, "us": 1e-3, "ms": 1, "sec": 1000, "s": 1000, "seconds": 1000} {
		if got := unitMs[unit]; got != want {
			t.Errorf("%s: got %g ms", unit, got)
		}
	}
}

// TestSoonerThanTheWeightsByHand: times below half of reading the weights once.
func TestSoonerThanTheWeightsByHand(t *testing.T) {
	dep := dense(t)
	bounds, ok := dep.TokenTimes()
	if !ok {
		t.Fatal("the deployment has no time of a token")
	}
	least := bounds.LeastUs
	plausible := trace.ObservedRequest{OutputTokens: some[int64](5), TTFTUs: some(10 * least), E2EUs: some(20 * least)}
	for name, c := range map[string]struct {
		change func(r *trace.ObservedRequest)
		want   string
	}{
		"plausible":       {func(*trace.ObservedRequest) {}, ""},
		"just long":       {func(r *trace.ObservedRequest) { r.TTFTUs.V = least }, ""},
		"just too short":  {func(r *trace.ObservedRequest) { r.TTFTUs.V = 0.999 * least }, "1 of 3 answers have a TTFT, and 0 an ITL"},
		"ITL just long":   {func(r *trace.ObservedRequest) { r.E2EUs.V = 14 * least }, ""},
		"ITL too short":   {func(r *trace.ObservedRequest) { r.E2EUs.V = 13.9 * least }, "0 of 3 answers have a TTFT, and 1 an ITL"},
		"one token":       {func(r *trace.ObservedRequest) { r.OutputTokens.V = 1; r.E2EUs.V = 10 * least }, ""},
		"failed":          {func(r *trace.ObservedRequest) { r.TTFTUs.V = 0; r.Success = some(false) }, ""},
		"without a TTFT":  {func(r *trace.ObservedRequest) { r.TTFTUs.OK = false }, ""},
		"without its end": {func(r *trace.ObservedRequest) { r.E2EUs.OK = false }, ""},
	} {
		r := plausible
		c.change(&r)
		reader := &Reader{Requests: []trace.ObservedRequest{r, plausible, plausible}}
		reader.dropImpossible(dep)
		if (len(reader.Findings) == 1) != (c.want != "") || c.want != "" && (!strings.Contains(reader.Findings[0].Message, c.want) || reader.Requests[0].TTFTUs.OK) || !reader.Requests[1].TTFTUs.OK {
			t.Errorf("%s: got %v", name, reader.Findings)
		}
	}
}

// TestServerTimesByHand: the server states ms, the row has us; the generation may follow from the gap.
func TestServerTimesByHand(t *testing.T) {
	var r trace.ObservedRequest
	(*serverMetrics)(nil).applyTo(&r)
	if r.QueueUs.OK || r.ServerTTFTUs.OK || r.ServerGenUs.OK || r.Reasoning.OK {
		t.Errorf("no metrics: got %+v", r)
	}
	m := &serverMetrics{Queue: some(1.5), First: some(2.5), Generation: some(30.5), MeanITL: some(7.0)}
	r.OutputTokens = some(int64(5))
	if m.applyTo(&r); r.QueueUs != some(1500.0) || r.ServerTTFTUs != some(2500.0) || r.ServerGenUs != some(30_500.0) {
		t.Errorf("got %+v", r)
	}
	m.Generation = trace.Opt[float64]{}
	for tokens, want := range map[int64]trace.Opt[float64]{5: some(28_000.0), 2: some(7000.0), 1: {}} {
		r = trace.ObservedRequest{OutputTokens: some(tokens)}
		if m.applyTo(&r); r.ServerGenUs != want {
			t.Errorf("%d tokens at 7 ms: got %v, want %v", tokens, r.ServerGenUs, want)
		}
	}
	r = trace.ObservedRequest{OutputTokens: some(int64(5))}
	if m.MeanITL = (trace.Opt[float64]{}); true {
		m.applyTo(&r)
	}
	if r.ServerGenUs.OK {
		t.Errorf("neither is known: got %v", r.ServerGenUs)
	}
	for ms, want := range map[float64]trace.Opt[float64]{0: some(0.0), 0.25: some(250.0), -1: {}, math.Inf(1): {}} {
		if got := fromMs(some(ms)); got != want {
			t.Errorf("%g ms: got %v, want %v", ms, got, want)
		}
	}
	if got := fromSeconds(some(0.25)); got != some(250_000.0) || fromMs(trace.Opt[float64]{}).OK || fromSeconds(some(-1.0)).OK {
		t.Errorf("a quarter of a second: got %v", got)
	}

	row := func(change func(r *trace.ObservedRequest)) trace.ObservedRequest {
		r := trace.ObservedRequest{SendNs: some(int64(1e6)), LastChunkNs: some(int64(61e6)), ServerGenUs: some(40e3), ServerTTFTUs: some(9e3), E2EUs: some(60e3)}
		if change != nil {
			change(&r)
		}
		return r
	}
	c := &Reader{Requests: []trace.ObservedRequest{
		row(nil),
		row(func(r *trace.ObservedRequest) { r.FirstChunkNs = some(int64(7)) }),
		row(func(r *trace.ObservedRequest) { r.LastChunkNs.OK = false }),
		row(func(r *trace.ObservedRequest) { r.ServerGenUs.OK = false }),
		row(func(r *trace.ObservedRequest) { r.ServerTTFTUs.OK = false }),
		row(func(r *trace.ObservedRequest) { r.E2EUs.V = 40e3 }),
		{QueueUs: some(3.0), ClientWaitUs: some(5e3)}, {ClientWaitUs: some(5001.0)}, {ClientWaitUs: some(2.5e6)},
	}}
	c.reportServerTimes()
	if r := c.Requests[0]; r.FirstChunkNs != some(int64(21e6)) || r.TTFTUs != some(20e3) {
		t.Errorf("a first chunk 40 ms before the last: got %v, TTFT %v", r.FirstChunkNs, r.TTFTUs)
	}
	for i := 1; i < 6; i++ {
		if c.Requests[i].TTFTUs.OK {
			t.Errorf("row %d: got a TTFT of %v", i, c.Requests[i].TTFTUs)
		}
	}
	want := []string{
		"1 of 9 answers have the server's queueing delay and its TTFT from scheduling; TTFT less both is the front end and the network",
		"TTFT and ITL of 1 answers whose first chunk is not the first token are those of the server's metrics",
		"the client delayed 2 of 9 requests before it sent them, by up to 2.5 s: that delay is not in the times of the server and not in the queueing delay",
	}
	var got []string
	for _, f := range c.Findings {
		got = append(got, f.Message)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}

	// The first token was 100 ms after the send: 400 ms of generation, 50 ms a token, end at 500 ms. Two steps and 5 ms later it is late.
	stated := func(change func(r *trace.ObservedRequest)) trace.ObservedRequest {
		r := trace.ObservedRequest{ServerGenUs: some(400e3), TTFTUs: some(205_001.0), E2EUs: some(500e3), OutputTokens: some(int64(9))}
		if change != nil {
			change(&r)
		}
		return r
	}
	c = &Reader{Requests: []trace.ObservedRequest{
		stated(nil), stated(func(r *trace.ObservedRequest) { r.TTFTUs.V = 205_000 }), stated(func(r *trace.ObservedRequest) { r.ServerGenUs.OK = false }),
		stated(func(r *trace.ObservedRequest) { r.E2EUs.OK = false }), stated(func(r *trace.ObservedRequest) { r.OutputTokens.V = 1 }), stated(func(r *trace.ObservedRequest) { r.N = some(int64(2)) }),
		stated(func(r *trace.ObservedRequest) { r.N = some(int64(1)) }), stated(func(r *trace.ObservedRequest) { r.OutputTokens.V, r.TTFTUs.V = 2, 905_001 }),
	}}
	c.dropStatedLate()
	kept := ""
	for i := range c.Requests {
		if c.Requests[i].TTFTUs.OK {
			kept += fmt.Sprint(i)
		}
	}
	if kept != "12345" || len(c.Findings) != 1 || !strings.HasPrefix(c.Findings[0].Message, "the first chunk of 3 answers came later") {
		t.Errorf("got TTFT of the rows %s, %v", kept, c.Findings)
	}
}

// TestUncountedTokensByHand: steps of 10 ms, and TTFT grows by 20 ms a token of the answer.
func TestUncountedTokensByHand(t *testing.T) {
	build := func(n int, slopeUs float64) *Reader {
		c := &Reader{}
		for i := range n {
			tokens := int64(10 + i)
			ttft := 100e3 + slopeUs*float64(tokens)
			c.Requests = append(c.Requests, trace.ObservedRequest{OutputTokens: some(tokens), TTFTUs: some(ttft), E2EUs: some(ttft + 10e3*float64(tokens-1))})
		}
		return c
	}
	for _, c := range []struct {
		name    string
		n       int
		slopeUs float64
		change  func(r *trace.ObservedRequest, i int)
		want    int
	}{
		{"two steps a token", 20, 20e3, nil, 20},
		{"half a step", 20, 5001, nil, 20},
		{"less", 20, 4999, nil, 0},
		{"nineteen answers", 19, 20e3, nil, 0},
		{"one failed of 21", 21, 20e3, func(r *trace.ObservedRequest, i int) { r.Success = some(i > 0) }, 20},
		{"one failed of 20", 20, 20e3, func(r *trace.ObservedRequest, i int) { r.Success = some(i > 0) }, 0},
		{"two answers in one", 20, 20e3, func(r *trace.ObservedRequest, i int) { r.N = some(int64(1 + i%2)) }, 0},
		{"no TTFT", 20, 20e3, func(r *trace.ObservedRequest, i int) { r.TTFTUs.OK = i > 0 }, 0},
		{"no E2E", 20, 20e3, func(r *trace.ObservedRequest, i int) { r.E2EUs.OK = i > 0 }, 0},
		{"four tokens", 20, 20e3, func(r *trace.ObservedRequest, i int) {
			if i == 0 {
				r.OutputTokens.V = 4
			}
		}, 0},
		{"shown later", 20, 20e3, func(r *trace.ObservedRequest, i int) { r.VisibleUs = some(r.TTFTUs.V + float64(1-min(i, 1))) }, 0},
		{"the server's delay", 20, 20e3, func(r *trace.ObservedRequest, i int) { r.QueueUs.OK = i == 0 }, 0},
		{"load only", 20, 20e3, func(r *trace.ObservedRequest, i int) { r.LoadOnly = some(i == 0) }, 0},
		{"other reasons", 20, 20e3, func(r *trace.ObservedRequest, i int) {
			shift := 200e3 * float64(i%3)
			r.TTFTUs.V += shift
			r.E2EUs.V += shift
		}, 0},
	} {
		x := build(c.n, c.slopeUs)
		for i := range x.Requests {
			if c.change != nil {
				c.change(&x.Requests[i], i)
			}
		}
		x.dropUncounted()
		got := 0
		for _, r := range x.Requests {
			if !r.OutputTokens.OK && !r.TTFTUs.OK && !r.E2EUs.OK && r.LoadOnly.V {
				got++
			}
		}
		if got != c.want || (got > 0) != (len(x.Findings) == 1) {
			t.Errorf("%s: got %d answers without times, want %d: %v", c.name, got, c.want, x.Findings)
		}
		if c.name == "two steps a token" && len(x.Findings) == 1 && !strings.HasPrefix(x.Findings[0].Message, "TTFT of 20 answers grows by 2.0 steps for each token") {
			t.Errorf("got %v", x.Findings)
		}
	}
}

// TestScrapedLevelsByHand: between two answers of /metrics 4 s apart, ten requests of which each figure has a value of its own.
func TestScrapedLevelsByHand(t *testing.T) {
	series := enginelog.Series{Engine: "0", Model: "m"}
	answer := func(name string, atS float64, n float64) *enginelog.Snapshot {
		text := ""
		for metric, each := range map[string]float64{"time_to_first_token_seconds": 0.25, "inter_token_latency_seconds": 0.02, "e2e_request_latency_seconds": 2, "request_prompt_tokens": 300, "request_generation_tokens": 50} {
			for part, v := range map[string]float64{"count": n, "sum": n * each} {
				text += fmt.Sprintf("vllm:%s_%s{engine=\"0\",model_name=\"m\"} %g\n", metric, part, v)
			}
			for le, share := range map[string]float64{"0.1": 0, "0.3": 1, "+Inf": 1} {
				text += fmt.Sprintf("vllm:%s_bucket{engine=\"0\",model_name=\"m\",le=\"%s\"} %g\n", metric, le, n*share)
			}
		}
		s, err := enginelog.ReadSnapshot([]byte(text), name, int64(atS*1e9))
		if err != nil {
			t.Fatal(err)
		}
		s.IsStamped = true
		s.InFlight = map[enginelog.Series]float64{}
		return s
	}
	f := LevelsBetween([]*enginelog.Snapshot{answer("b", 5, 15), answer("a", 1, 5)}) // sorted by their times
	if len(f.Levels) != 1 {
		t.Fatalf("got %+v", f)
	}
	l := f.Levels[0]
	if l.Sweep != "metrics, engine 0" || l.Strategy != "metrics@2.5" || l.Requests != 10 || !near(l.RateRPS, 2.5) || !near(l.Concurrency, 5) || !near(l.PromptTokens, 300) || !near(l.OutputTokens, 50) ||
		!near(l.TTFTMeanMs, 250) || !near(l.TTFTMedianMs, 200) || !near(l.ITLMs, 20) {
		t.Errorf("got %+v", l)
	}
	for _, c := range []struct {
		name   string
		change func(a, b *enginelog.Snapshot)
		want   string
	}{
		{"nine requests", func(a, b *enginelog.Snapshot) { b.Histogram(series, enginelog.MeasureE2E).Count = 14 },
			"a to b, engine 0: got 9 requests in 4 s, want at least 10 in more than 0 s"},
		{"at the same time", func(a, b *enginelog.Snapshot) { b.AtNs = a.AtNs }, "a to b, engine 0: got 10 requests in 0 s, want at least 10 in more than 0 s"},
		{"started again", func(a, b *enginelog.Snapshot) { b.Histogram(series, enginelog.MeasurePrompt).Count = 4 },
			"a to b, engine 0: prompt counts 4 requests after 5: the server started again"},
		{"a smaller sum", func(a, b *enginelog.Snapshot) { b.Histogram(series, enginelog.MeasureOutput).Sum = 249 },
			"a to b, engine 0: output counts 15 requests after 5: the server started again"},
		{"as in flight", func(a, b *enginelog.Snapshot) { b.IsStamped, a.InFlight[series], b.InFlight[series] = false, 4, 6 }, ""},
		{"fewer in flight", func(a, b *enginelog.Snapshot) { b.IsStamped, a.InFlight[series], b.InFlight[series] = false, 3, 3.26 }, ""}, // 5 of 3.13: 1.6
		{"too few in flight", func(a, b *enginelog.Snapshot) { b.IsStamped, a.InFlight[series], b.InFlight[series] = false, 3, 3.24 }, "a to b, engine 0: their files are 4 s apart, which makes 5 requests in flight"},
		{"more in flight", func(a, b *enginelog.Snapshot) { a.IsStamped, a.InFlight[series], b.InFlight[series] = false, 8, 8.6 }, ""}, // 5 of 8.3: 0.6
		{"too many in flight", func(a, b *enginelog.Snapshot) { a.IsStamped, a.InFlight[series], b.InFlight[series] = false, 8, 8.7 }, "a to b, engine 0: their files are 4 s apart, which makes 5 requests in flight"},
		{"stamped", func(a, b *enginelog.Snapshot) { a.InFlight[series] = 99 }, ""},
	} {
		a, b := answer("a", 1, 5), answer("b", 5, 15)
		c.change(a, b)
		f := LevelsOfScrapes([][2]*enginelog.Snapshot{{a, b}})
		got := ""
		for _, finding := range f.Findings {
			got += finding.Message
		}
		if !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") || (c.want == "") != (len(f.Levels) == 1) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	a, b := answer("a", 1, 5), answer("b", 5, 15)
	for _, s := range []*enginelog.Snapshot{a, b} {
		s.Engines[enginelog.Series{Engine: "0", Model: "other"}] = s.Engines[series]
	}
	if f := LevelsBetween([]*enginelog.Snapshot{a, b}); len(f.Levels) != 2 || f.Levels[0].Sweep != "metrics, engine 0, model m" || f.Levels[1].Sweep != "metrics, engine 0, model other" {
		t.Errorf("two models: got %+v", f.Levels)
	}

	full := Level{Sweep: "s.csv", Line: 4, Strategy: "x", Requests: 5, Clients: 6, OfferedRPS: 7.5, RateRPS: 8.5, PromptTokens: 9.5, PromptSD: 10.5, OutputTokens: 11.5, OutputSD: 12.5, TTFTMeanMs: 13.5,
		TTFTMedianMs: 14.5, ITLMs: 15.5, E2EMs: 16.5, CachedTokens: some(17.5), TP: 18, EP: 19, DP: 20}
	want := trace.LoadPoint{Name: "s.csv:4", Strategy: "x", Requests: some(int64(5)), Clients: some(int64(6)), OfferedRPS: some(7.5), RateRPS: some(8.5), PromptTokens: 9.5, PromptSD: some(10.5),
		OutputTokens: 11.5, OutputSD: some(12.5), TTFTMs: some(13.5), TTFTMedianMs: some(14.5), TPOTMs: 15.5, E2EMs: some(16.5), CachedTokens: some(17.5), TP: some(int64(18)), EP: some(int64(19)),
		DP: some(int64(20)), File: "s.csv", Line: 4}
	if d := cmp.Diff(want, full.LoadPoint()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	bare := Level{Sweep: "s", Line: 1}
	if d := cmp.Diff(trace.LoadPoint{Name: "s:1", File: "s", Line: 1}, bare.LoadPoint()); d != "" {
		t.Errorf("nothing is known (-want +got):\n%s", d)
	}
	for _, c := range []struct {
		l    Level
		want string
	}{{Level{Clients: 3, OfferedRPS: 2}, "concurrent@3"}, {Level{OfferedRPS: 1.23456}, "poisson@1.235"}, {Level{Strategy: "kept"}, "kept"}} {
		if c.l.nameStrategy(); c.l.Strategy != c.want {
			t.Errorf("got %q, want %q", c.l.Strategy, c.want)
		}
	}
	for file, want := range map[string]string{"a/t.itl.csv": "a/t", "t.yaml": "t", "t.csv": "t"} {
		if got := traceStem(file); got != want {
			t.Errorf("%s: got the stem %q, want %q", file, got, want)
		}
	}
}

// TestRequestsOfToolsByHand: a request of GuideLLM and one of inference-perf with a value of its own in each field.
func TestRequestsOfToolsByHand(t *testing.T) {
	g := &guideRequest{RequestID: "q", Start: some(100.0), End: some(103.0), Latency: some(2.0), Prompt: some(40.0), Output: some(11.0), Cached: some(16.0), Total: some(51.0), TTFTMs: some(500.0), ITLMs: some(150.0),
		VisibleMs: some(700.0), Dispatch: some(0.25)}
	g.Info.Timings.First, g.Info.Timings.Last, g.Info.Timings.Chunks = some(100.5), some(102.0), some(9.0)
	g.Args = []byte(`{"stream":true,"body":{"max_tokens":12}}`)
	r := g.request("successful")
	want := trace.ObservedRequest{ID: "q", Source: sourceGuideLLM, SendWallNs: some(int64(100e9)), SendNs: some(int64(100e9)), FirstChunkNs: some(int64(100.5e9)), LastChunkNs: some(int64(102e9)), EndNs: some(int64(103e9)),
		PromptTokens: some(int64(40)), OutputTokens: some(int64(11)), CachedTokens: some(int64(16)), Success: some(true), Aborted: some(false), TTFTUs: some(500e3), E2EUs: some(2e6), VisibleUs: some(700e3),
		ClientWaitUs: some(250e3), Chunks: some(int64(9)), Streaming: some(true), AskedTokens: some(int64(12)), Line: 1}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("GuideLLM (-want +got):\n%s", d)
	}
	g.ResponseID, g.Info.Timings.Last, g.Latency, g.Info.Error = some("chatcmpl-1"), trace.Opt[float64]{}, some(2.75), "gone"
	if r := g.request("incomplete"); r.ID != "chatcmpl-1" || r.Route != some("chat") || r.E2EUs != some(2.75e6) || r.Success != some(false) || r.Aborted != some(true) || r.Error != some("gone") {
		t.Errorf("no last token: got %+v", r)
	}
	g.ResponseID = trace.Opt[string]{}
	for kind, route := range map[string]string{"chat_completions": "chat", "text_completions": "completions"} {
		if g.Type = some(kind); g.request("errored").Route != some(route) {
			t.Errorf("%s: got %v", kind, g.request("errored").Route)
		}
	}
	g.Info.Timings.Last, g.Latency = some(102.0), some(3.0)
	for name, c := range map[string]struct {
		change func(g *guideRequest)
		want   string
	}{
		"consistent":    {func(g *guideRequest) {}, ""},
		"latency":       {func(g *guideRequest) { g.Latency.V = 3.1 }, "request_latency states 3.1, its other figures give 3"},
		"ITL":           {func(g *guideRequest) { g.ITLMs.V = 140 }, "inter_token_latency_ms states 140, its other figures give 150"},
		"TTFT":          {func(g *guideRequest) { g.TTFTMs.V = 520 }, "time_to_first_token_ms states 520, its other figures give 500"},
		"tokens":        {func(g *guideRequest) { g.Total.V = 60 }, "total_tokens states 60, its other figures give 51"},
		"within 2 %":    {func(g *guideRequest) { g.Total.V = 52 }, ""},
		"no end":        {func(g *guideRequest) { g.Latency.V, g.End.OK = 9, false }, ""},
		"no start":      {func(g *guideRequest) { g.Latency.V, g.TTFTMs.V, g.Start.OK = 9, 900, false }, ""},
		"no first":      {func(g *guideRequest) { g.ITLMs.V, g.TTFTMs.V, g.Info.Timings.First.OK = 9, 900, false }, ""},
		"no last":       {func(g *guideRequest) { g.ITLMs.V, g.Info.Timings.Last.OK = 9, false }, ""},
		"one token":     {func(g *guideRequest) { g.Output.V, g.Total.V, g.ITLMs.V = 1, 41, 9 }, ""},
		"nothing to be": {func(g *guideRequest) { g.Total.V = 0 }, ""},
	} {
		own := *g
		c.change(&own)
		var s requestSums
		for range 5 {
			own.addTo(&s)
		}
		got := s.contradictingFor
		if got != c.want || (c.want != "") != (len(s.contradictions()) == 1) || s.requests != 5 || s.prompts != 200 || s.outputs != 5*own.Output.V || !near(s.ttftS, 5*own.TTFTMs.V/1e3) || !near(s.endS, 5*own.Latency.V) {
			t.Errorf("%s: got %q, %+v", name, got, s)
		}
	}
	s := &requestSums{requests: 10, prompts: 400, outputs: 110, ttftS: 5, ttfts: 10, endS: 30, ends: 10, derived: 100, contradicting: 4}
	if got := s.contradictions(); got != nil {
		t.Errorf("four of 100: got %q", got)
	}
	if s.contradicting = 5; len(s.contradictions()) != 1 {
		t.Error("five of 100 are not told")
	}
	if s.derived = 167; s.contradictions() != nil { // 3 % of 167 are 5.01
		t.Error("less than 3 % are told")
	}
	for key, c := range map[string]struct {
		count, mean float64
		want        string
	}{
		"prompt_token_count":     {10, 50, "prompt_token_count states 50 prompt tokens on average, its requests have 40"},
		"output_token_count":     {10, 15, "output_token_count states 15 output tokens on average, its requests have 11"},
		"time_to_first_token_ms": {10, 600, "time_to_first_token_ms states 600 ms to the first token on average, its requests have 500"},
		"request_latency":        {10, 4, "request_latency states 4 s of a request on average, its requests have 3"},
	} {
		for n, want := range map[float64]string{c.count: c.want, c.count + 1: ""} {
			var out statedLoad
			guideTotals(&out, map[string]any{key: map[string]any{"successful": map[string]any{"count": n, "mean": c.mean}}}, s)
			if got := strings.Join(out.totals, "; "); got != want {
				t.Errorf("%s of %g: got %q, want %q", key, n, got, want)
			}
		}
	}

	j := &inferencePerfRequest{Start: some(10.0), End: some(19.0)}
	j.Info.Input, j.Info.Output, j.Info.Times = some(int64(30)), some(int64(4)), numberList{10.5, 11, 11, 12.5}
	want = trace.ObservedRequest{ID: "7", Source: sourceInferencePerf, Line: 1, PromptTokens: some(int64(30)), OutputTokens: some(int64(4)), Success: some(true), EndNs: some(int64(19e9)), SendNs: some(int64(10e9)),
		FirstChunkNs: some(int64(10.5e9)), LastChunkNs: some(int64(12.5e9)), TTFTUs: some(500e3), E2EUs: some(2.5e6), Chunks: some(int64(3)), ChunkGapsUs: []float64{500e3, 1500e3}, Streaming: some(true)}
	if d := cmp.Diff(want, j.request(7)); d != "" {
		t.Errorf("inference-perf (-want +got):\n%s", d)
	}
	j = &inferencePerfRequest{Start: some(10.0), End: some(19.0)}
	j.Error = &struct {
		Type    string `json:"error_type"`
		Message string `json:"error_msg"`
	}{"Timeout", "too late"}
	if r := j.request(7); r.Error != some("Timeout: too late") || r.Success != some(false) || r.E2EUs != some(9e6) || r.TTFTUs.OK || r.Streaming != some(false) {
		t.Errorf("an error: got %+v", r)
	}
	if j.End.OK = false; j.request(7).E2EUs.OK {
		t.Error("no end has an E2E")
	}
}
