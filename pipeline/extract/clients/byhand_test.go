package clients

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

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
		"of a pass with drafts": {func(r *trace.ObservedRequest) { r.OutputTokens.V = mostPerPass }, true, false},
		"more than a pass":      {func(r *trace.ObservedRequest) { r.OutputTokens.V = mostPerPass + 1 }, true, true},
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
	for n, ok := range map[int]bool{leastUncounted: true, leastUncounted - 1: false} {
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
		"ITL at least":               {func(l *Level) { l.ITLMs = leastITLMs; l.RateRPS = 0 }, ""},
		"ITL below":                  {func(l *Level) { l.ITLMs = leastITLMs * 0.99 }, "ITL: got"},
		"ITL at most":                {func(l *Level) { l.ITLMs = mostITLMs; l.RateRPS = 0 }, ""},
		"ITL above":                  {func(l *Level) { l.ITLMs = mostITLMs * 1.01 }, "ITL: got"},
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
		"least rate":            {func(l *Level) { l.RateRPS = leastRate }, "", ""},
		"less":                  {func(l *Level) { l.RateRPS = leastRate * 0.9 }, "request rate or clients", ""},
		"by clients":            {func(l *Level) { l.RateRPS, l.Clients = 0, 1 }, "", ""},
		"offered":               {func(l *Level) { l.RateRPS, l.OfferedRPS = 0, 1 }, "", ""},
		"no load":               {func(l *Level) { l.RateRPS = 0 }, "request rate or clients", ""},
		"no prompt":             {func(l *Level) { l.PromptTokens = 0 }, "prompt tokens: got 0", ""},
		"less than a token":     {func(l *Level) { l.PromptTokens = 0.9 }, "mean lengths", ""},
		"no output":             {func(l *Level) { l.OutputTokens = 0 }, "output tokens: got 0", ""},
		"less than one":         {func(l *Level) { l.OutputTokens = 0.9 }, "mean lengths", ""},
		"too large":             {func(l *Level) { l.PromptTokens = mostValue * 1.1 }, "prompt tokens: got", ""},
		"no TTFT":               {func(l *Level) { l.TTFTMeanMs = 0 }, "TTFT: got 0", ""},
		"the median alone":      {func(l *Level) { l.TTFTMeanMs, l.TTFTMedianMs = math.NaN(), 5 }, "", "only the median is used"},
		"no ITL":                {func(l *Level) { l.ITLMs = math.NaN() }, "ITL: got NaN", ""},
		"all cached":            {func(l *Level) { l.CachedTokens = some(100.) }, "", ""},
		"more than all cached":  {func(l *Level) { l.CachedTokens = some(101.) }, "", "cached tokens: got 101"},
		"less than none cached": {func(l *Level) { l.CachedTokens = some(-1.) }, "", "cached tokens: got -1"},
		"most clients":          {func(l *Level) { l.Clients = mostCounts }, "", ""},
		"more clients":          {func(l *Level) { l.Clients = mostCounts + 1 }, "clients and parallel sizes: got 100001", ""},
		"more GPUs":             {func(l *Level) { l.TP = mostCounts + 1 }, "clients and parallel sizes", ""},
		"spread of prompts":     {func(l *Level) { l.PromptSD = -1 }, "spread of lengths", ""},
		"spread of outputs":     {func(l *Level) { l.OutputSD = mostValue * 2 }, "spread of lengths", ""},
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
	least, _, ok := dep.TokenTimesUs()
	if !ok {
		t.Fatal("the deployment has no time of a token")
	}
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
