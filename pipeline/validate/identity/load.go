package identity

// This file compares loads: Little's law (concurrency = rate * latency), sums of times and the times that
// the kernel library predicts (the prior), for the load levels of a benchmark and the requests of clients.
// A reading (identity.go) has what was compared, how much of it contradicts, and a sentence.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Tolerances of loads.
const (
	littleTolerance = 0.15 // between a concurrency and rate times latency
	sumTolerance    = 0.10 // between E2E and TTFT plus the time of the other tokens
	mostOffLevels   = 0.2  // share of load levels whose E2E may be another sum
	otherUnit       = 3.0  // a mean that differs more from the sum of others has another unit
	wholeTolerance  = 1e-3 // between E2E and the time per token times all tokens, which agree only if TPOT includes the first
	fewestLevels    = 3    // load levels, for a reading
	mostChunks      = 64   // of a prompt whose time the library computes
	queuedTimes     = 5    // times of its prompt that a request waits for the first token if it was queued
	mostEarly       = 0.1  // share of requests or load levels whose first token may come earlier than the prompt's kernels take
)

// clientRequest is one request as a client or a stock span has it.
type clientRequest struct {
	sentUs, ttftUs, e2eUs float64
	prompt, output        float64 // tokens
	cached                float64 // tokens of the prompt; 0 if not known
	knowsCached           bool    // cached is stated, or nothing can be cached
	isPlanned             bool    // sentUs is the planned time
	itlUs                 float64 // mean gap between its tokens (TPOT); 0 for one token
	decoding              float64 // mean number of requests that decode while it does
	isAlone               bool    // no other request was in the server between its send and its first token
}

// listRequests lists the requests of clients, or of stock spans without them, and how many decode at once.
func (f *facts) listRequests() {
	for i := range f.run.Observed {
		observed := &f.run.Observed[i]
		if !observed.Success.Or(true) || observed.N.Or(1) > 1 {
			continue
		}
		ttftUs, e2eUs := observed.TTFTUs, observed.E2EUs
		sentUs := float64(observed.SentNs()) / 1e3
		if !ttftUs.OK && observed.QueuedNs.OK && observed.EngineFirstNs.OK && observed.EngineLastNs.OK {
			// A client within the engine has its stamps alone.
			sentUs = float64(observed.QueuedNs.V) / 1e3
			ttftUs = trace.Some(float64(observed.EngineFirstNs.V-observed.QueuedNs.V) / 1e3)
			e2eUs = trace.Some(float64(observed.EngineLastNs.V-observed.QueuedNs.V) / 1e3)
		}
		if !ttftUs.OK || !e2eUs.OK || sentUs == 0 {
			continue
		}
		f.loads = append(f.loads, clientRequest{
			sentUs: sentUs,
			ttftUs: ttftUs.V,
			e2eUs:  e2eUs.V,
			prompt: float64(observed.PromptTokens.V),
			output: float64(observed.OutputTokens.V),
			cached: float64(observed.CachedTokens.V),
			// Without a prefix cache nothing is cached.
			knowsCached: observed.KnowsCached() || observed.SharesNothing() || !f.dep.Engine.PrefixCaching,
			isPlanned:   !observed.SendNs.OK && observed.ArrivalNs.OK,
		})
	}
	if len(f.loads) == 0 {
		for i := range f.run.Requests {
			span := &f.run.Requests[i]
			if span.Source != trace.SourceStock || !span.StartWallNs.OK || !span.StockTTFTUs.OK || !span.StockE2EUs.OK {
				continue
			}
			f.loads = append(f.loads, clientRequest{
				sentUs: float64(span.StartWallNs.V) / 1e3,
				ttftUs: span.StockTTFTUs.V,
				e2eUs:  span.StockE2EUs.V,
				prompt: float64(span.PromptTokens.V),
				output: float64(span.OutputTokens.V),
			})
		}
	}
	for i := range f.loads {
		if load := &f.loads[i]; load.output > 1 {
			load.itlUs = (load.e2eUs - load.ttftUs) / (load.output - 1)
		}
	}
	countDecoding(f.loads)
	findAlone(f.loads)
}

// findAlone finds the requests that had the server alone until their first token.
func findAlone(loads []clientRequest) {
	order := make([]*clientRequest, len(loads))
	for i := range loads {
		order[i] = &loads[i]
	}
	slices.SortStableFunc(order, func(a, b *clientRequest) int { return cmp.Compare(a.sentUs, b.sentUs) })
	lastEndUs := math.Inf(-1)
	for i, load := range order {
		isNextLater := i+1 == len(order) || order[i+1].sentUs >= load.sentUs+load.ttftUs
		load.isAlone = lastEndUs <= load.sentUs && isNextLater
		lastEndUs = math.Max(lastEndUs, load.sentUs+load.e2eUs)
	}
}

// countDecoding finds how many requests are between first and last token while each is, on average.
func countDecoding(loads []clientRequest) {
	type edge struct {
		at   float64 // us
		open int     // change of the number of requests between first and last token
	}
	var edges []edge
	for i := range loads {
		load := &loads[i]
		edges = append(edges,
			edge{at: load.sentUs + load.ttftUs, open: 1},
			edge{at: load.sentUs + load.e2eUs, open: -1})
	}
	stat.SortStable(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.open, b.open)) })
	requestUs := make([]float64, len(edges)+1) // requests * us up to each edge
	now := 0
	for i := range edges {
		if i > 0 {
			requestUs[i] = requestUs[i-1] + float64(now)*(edges[i].at-edges[i-1].at)
		}
		now += edges[i].open
	}
	areaAt := func(at float64) float64 { // requestUs at the time of an edge
		i, _ := slices.BinarySearchFunc(edges, at, func(e edge, at float64) int { return cmp.Compare(e.at, at) })
		return requestUs[min(i, len(edges)-1)]
	}
	for i := range loads {
		load := &loads[i]
		from, to := load.sentUs+load.ttftUs, load.sentUs+load.e2eUs
		load.decoding = 1
		if to > from {
			load.decoding = math.Max(1, (areaAt(to)-areaAt(from))/(to-from))
		}
	}
}

// priorOfRequests compares the recorded ITL and TTFT with those that the kernel library predicts for as many requests
// in flight. largest is the median ratio of measured to predicted times that is farthest from 1.
func priorOfRequests(f *facts) reading {
	r := priceRequests(f)
	f.weighPrior(&r, priceRequests, priorNamed)
	return r
}

// priceRequests is priorOfRequests for the stated description alone.
func priceRequests(f *facts) reading {
	if f.price == nil {
		return notChecked("the library has no kernel tables of %s for this model", f.dep.Hardware.Name)
	}
	if len(f.loads) == 0 {
		return notChecked("no requests with times of clients or stock spans")
	}
	if f.speculates() {
		return notChecked("steps verify drafted tokens")
	}
	var itlRatios, queuedRatios, ttftRatios []float64 // measured over predicted
	early, known := 0, 0                              // first tokens of prompts of which is known what was cached
	beside := f.newComputedPrompts()
	meanPerUs := beside.tokensUpTo(math.Inf(1)) / f.loadSpanUs()
	for i := range f.loads {
		load := &f.loads[i]
		if load.itlUs > 0 && load.output >= leastStreamed {
			// Other requests' prompts delay the decodes: those that were computed meanwhile, or as many as on
			// average, whose chunks may end later.
			context := load.prompt + load.output/2
			prompt := f.promptBeside(load.prompt-load.cached, load.decoding, context)
			leastPerUs, mostPerUs := 0.0, 0.0 // such prompts in a us
			if computed := load.prompt - load.cached; computed > 0 {
				ownPerUs := beside.tokensPerUs(load)
				leastPerUs = math.Min(ownPerUs, meanPerUs) / computed
				mostPerUs = math.Max(ownPerUs, meanPerUs) / computed
			}
			decode := f.decodeTime(load.decoding, context)
			ratios := &itlRatios
			if load.ttftUs > queuedTimes*prompt.mostUs { // others waited too: any step may have been full of prompts
				full := math.Max(1, float64(f.dep.Engine.MaxNumBatchedTokens)-load.decoding)
				decode.mostUs = math.Max(decode.mostUs, f.mixedTime(full, load.decoding, context).mostUs)
				ratios = &queuedRatios
			}
			*ratios = append(*ratios, prompt.decodeRatio(load.itlUs, leastPerUs, mostPerUs, decode))
		}
		if load.prompt > load.cached {
			ratio := load.ttftUs / f.prefillTime(load.prompt-load.cached).leastUs
			ttftRatios = append(ttftRatios, ratio)
			if load.knowsCached {
				known++
				if ratio < 1/priorNamed {
					early++
				}
			}
		}
	}
	if len(itlRatios) < fewestPriced {
		itlRatios = append(itlRatios, queuedRatios...)
	}
	r := f.requestReading("request", fewestPriced, itlRatios, ttftRatios)
	if known >= fewestPriced {
		r.nameEarly(early, known, "requests", f.dep.Hardware.Name)
	}
	return r
}

// nameEarly adds to a reading without a departure that too many first tokens come earlier than the kernels of their prompts
// take.
func (r *reading) nameEarly(early, all int, what, device string) {
	if r.broken || r.why != "" || share(early, all) <= mostEarly {
		return
	}
	r.broken = true
	r.violated = early
	r.effect = result.IdentityNamed
	r.sentence = fmt.Sprintf("in %d of %d %s the first token comes earlier than the kernels of the prompt allow on %s: TTFT or lengths may stand "+
		"in the wrong rows, prompts may not be counted in tokens, or come from the prefix cache", early, all, what, device)
}

// requestReading returns the comparison of the ratios of measured to predicted times. The TPOT
// must not depart in either direction; a first token may only not come too early, because it
// may have waited for any time.
func (f *facts) requestReading(what string, fewest int, itl, ttft []float64) reading {
	for i := range ttft {
		ttft[i] = math.Min(1, ttft[i])
	}
	r := f.priorReading(what, fewest, []regimeRatios{
		{name: "tokens after the first", ratios: itl},
		{name: "first tokens", ratios: ttft},
	})
	isEarly := len(ttft) >= fewest && 1/stat.Median(ttft) > priorNamed
	if r.broken && isEarly && (len(itl) < fewest || foldChange(stat.Median(itl)) <= priorNamed) {
		r.sentence = fmt.Sprintf("first tokens come in %.3g times what the prompts' kernels take on %s (median of %d %ss): prompts are not counted "+
			"in tokens, or most of them came from the prefix cache", stat.Median(ttft), f.dep.Hardware.Name, len(ttft), what)
	}
	return r
}

// loadSpanUs returns the time from the first send to the last token.
func (f *facts) loadSpanUs() float64 {
	first, last := math.Inf(1), math.Inf(-1)
	for i := range f.loads {
		l := &f.loads[i]
		first = math.Min(first, l.sentUs)
		last = math.Max(last, l.sentUs+l.e2eUs)
	}
	return math.Max(1, last-first)
}

// decodeRatio returns the measured TPOT over the predicted one of a decode step. The
// receiver is the time of one prompt, and leastPerUs to mostPerUs such prompts are computed in a us: their
// time is subtracted, because it is not part of a decode.
func (p priorTime) decodeRatio(itlUs, leastPerUs, mostPerUs float64, decode priorTime) float64 {
	const mostBusy = 0.8 // share of the time that prompts can take
	idle := 1 - math.Min(mostBusy, leastPerUs*p.leastUs)
	busier := 1 - math.Min(mostBusy, mostPerUs*p.mostUs)
	return decode.ratioOf(itlUs*busier, itlUs*idle)
}

// computedPrompts are the prompts of a load in the order of their first tokens, when they were computed.
type computedPrompts struct {
	firstUs []float64 // of the first tokens
	tokens  []float64 // computed up to and with each of them
}

// newComputedPrompts returns the prompts of the run's load.
func (f *facts) newComputedPrompts() *computedPrompts {
	inTime := slices.Clone(f.loads)
	stat.SortStable(inTime, func(a, b clientRequest) int { return cmp.Compare(a.sentUs+a.ttftUs, b.sentUs+b.ttftUs) })
	c := &computedPrompts{}
	tokens := 0.0
	for i := range inTime {
		tokens += inTime[i].prompt - inTime[i].cached
		c.firstUs = append(c.firstUs, inTime[i].sentUs+inTime[i].ttftUs)
		c.tokens = append(c.tokens, tokens)
	}
	return c
}

// tokensUpTo returns the prompt tokens that were computed up to a time.
func (c *computedPrompts) tokensUpTo(us float64) float64 {
	n := sort.Search(len(c.firstUs), func(i int) bool { return c.firstUs[i] > us })
	if n == 0 {
		return 0
	}
	return c.tokens[n-1]
}

// tokensPerUs returns the prompt tokens in a us of which first tokens came while a request decoded: later than half of a
// step after its own first token, which came with those of its step.
func (c *computedPrompts) tokensPerUs(l *clientRequest) float64 {
	from := l.sentUs + l.ttftUs + l.itlUs/2
	to := l.sentUs + l.e2eUs
	if !(to > from) {
		return 0
	}
	return (c.tokensUpTo(to) - c.tokensUpTo(from)) / (to - from)
}

// decodeTime returns the library's time of a step of n decodes.
func (f *facts) decodeTime(n, context float64) priorTime {
	n = math.Max(1, n)
	if most := float64(f.dep.Engine.MaxNumSeqs); most > 0 {
		n = math.Min(n, most)
	}
	return f.price(&library.Batch{Tokens: n, Sequences: n, Decodes: n, DecodeContext: n * context})
}

// prefillTime returns the library's time of one prompt alone, in the chunks that the scheduler makes of it.
func (f *facts) prefillTime(prompt float64) priorTime {
	prompt = math.Max(1, prompt)
	chunk := prompt
	if e := &f.dep.Engine; e.MaxNumBatchedTokens > 0 && e.ChunkedPrefill {
		chunk = float64(e.MaxNumBatchedTokens)
		if e.LongPrefillThreshold > 0 {
			chunk = math.Min(chunk, float64(e.LongPrefillThreshold))
		}
	}
	chunk = math.Max(chunk, prompt/mostChunks)
	var sum priorTime
	for computed := 0.0; computed < prompt; computed += chunk {
		n := math.Min(chunk, prompt-computed)
		sum = sum.plus(f.price(&library.Batch{Tokens: n, Sequences: 1, Prefills: 1, PrefillTokens: n, PrefillPairs: n*computed + n*(n+1)/2}))
	}
	return sum
}

// promptBeside returns the library's time of one prompt: at most as alone, and at least what it adds to a step of n
// decodes, whose weights it shares. Of a mixture of experts that is next to nothing.
func (f *facts) promptBeside(prompt, n, context float64) priorTime {
	p := f.prefillTime(prompt)
	p.leastUs = math.Max(0, math.Min(p.leastUs, f.mixedTime(prompt, n, context).leastUs-f.decodeTime(n, context).leastUs))
	return p
}

// mixedTime returns the library's time of a step of n decodes and one prompt.
func (f *facts) mixedTime(prompt, n, context float64) priorTime {
	n = math.Max(1, n)
	return f.price(&library.Batch{
		Tokens:        n + prompt,
		Sequences:     n + 1,
		Decodes:       n,
		DecodeContext: n * context,
		Prefills:      1,
		PrefillTokens: prompt,
		PrefillPairs:  prompt * (prompt + 1) / 2,
	})
}

// levelSums compares E2E of each load level with TTFT plus the time of the other tokens. largest is the logarithm of
// the ratio of the two.
func levelSums(f *facts) reading {
	var r reading
	whole := 0 // levels whose time per token includes the first one's
	for i := range f.run.Points {
		p := &f.run.Points[i]
		if !p.E2EMs.OK || !p.TTFTMs.OK || !(p.E2EMs.V > 0) {
			continue
		}
		r.checked++
		if math.Abs(p.OutputTokens*p.TPOTMs/p.E2EMs.V-1) < wholeTolerance {
			whole++
		}
		want := p.TTFTMs.V + (p.OutputTokens-1)*p.TPOTMs
		off := math.Abs(math.Log(want / p.E2EMs.V))
		r.largest = math.Max(r.largest, off)
		if off > sumTolerance {
			r.violated++
		}
	}
	if r.checked == 0 {
		return notChecked("no load level has TTFT and E2E")
	}
	r.broken = float64(r.violated) > mostOffLevels*float64(r.checked) || r.largest > math.Log(otherUnit)
	r.sentence = fmt.Sprintf("in %d of %d load levels E2E is not TTFT plus the time of the other tokens, by a factor of up to %.3g: one of the columns has "+
		"another unit or another order, or lengths are not in tokens", r.violated, r.checked, math.Exp(r.largest))
	if whole >= fewestLevels && float64(whole) > (1-mostOffLevels)*float64(r.checked) {
		r.broken = true
		r.violated = whole
		r.sentence = fmt.Sprintf("in %d of %d load levels the time per output token is E2E divided by all tokens: it includes the time to the first", whole,
			r.checked)
	}
	return r
}

// levelLoad compares the clients of each closed level with rate times latency (Little's law). largest is the logarithm
// of the ratio of the two.
func levelLoad(f *facts) reading {
	var r reading
	for i := range f.run.Points {
		p := &f.run.Points[i]
		e2eMs := p.E2EMs.Or(p.TTFTMs.V + (p.OutputTokens-1)*p.TPOTMs)
		if !p.Clients.OK || !p.RateRPS.OK || !p.TTFTMs.OK && !p.E2EMs.OK || p.DP.Or(1) > 1 || p.RateRPS.V <= 0 {
			continue
		}
		r.checked++
		ratio := p.RateRPS.V * e2eMs / 1e3 / float64(p.Clients.V)
		off := math.Abs(math.Log(ratio))
		r.largest = math.Max(r.largest, off)
		if ratio > 1+littleTolerance || ratio < 1-2*littleTolerance { // clients idle at the ends of a level
			r.violated++
		}
	}
	if r.checked == 0 {
		return notChecked("no load level states its clients, its rate and its latency")
	}
	r.broken = 2*r.violated > r.checked || r.largest > math.Log(otherUnit)
	r.sentence = fmt.Sprintf("in %d of %d load levels the clients are not rate times latency, by a factor of up to %.3g: concurrency, rate or times are "+
		"of another unit or of other rows", r.violated, r.checked, math.Exp(r.largest))
	return r
}

// levelsDiffer returns a reading with the number of load levels that occur twice in the data.
func levelsDiffer(f *facts) reading {
	seen := map[trace.LoadPoint]bool{}
	underOther := 0 // levels with the times of another one at another load
	r := reading{checked: len(f.run.Points)}
	for i := range f.run.Points {
		p := f.run.Points[i] // a copy without what two equal levels may differ in
		p.Line = 0
		p.File = ""
		p.Name = ""
		for _, v := range []*float64{&p.TTFTMs.V, &p.TPOTMs, &p.E2EMs.V, &p.RateRPS.V} {
			*v = stat.Round(*v, 5)
		}
		if seen[p] {
			r.violated++
		} else if isFine := p.TTFTMs.OK && p.TTFTMs.V != stat.Round(p.TTFTMs.V, 3) && p.TPOTMs != stat.Round(p.TPOTMs, 3); isFine {
			// Its times alone, which no other level of other clients or another rate has.
			times := trace.LoadPoint{PromptTokens: p.PromptTokens, OutputTokens: p.OutputTokens, TTFTMs: p.TTFTMs, TPOTMs: p.TPOTMs}
			if seen[times] {
				underOther++
			}
			seen[times] = true
		}
		seen[p] = true
	}
	if r.checked < 2 {
		return notChecked("fewer than two load levels")
	}
	r.broken = r.violated > 0
	r.largest = float64(r.violated)
	r.sentence = fmt.Sprintf("%d of %d load levels stand in the data twice, to 5 digits: they count as independent measurements", r.violated, r.checked)
	if !r.broken && underOther > 0 {
		r.broken = true
		r.violated = underOther
		r.largest = float64(underOther)
		r.sentence = fmt.Sprintf("%d of %d load levels have the times of another one, to 5 digits, at another load: rows were copied", underOther, r.checked)
	}
	return r
}

// priorOfLevels compares the times of load levels with the library's. largest is the median ratio that is farthest from
// 1.
func priorOfLevels(f *facts) reading {
	r := priceLevels(f)
	f.weighPrior(&r, priceLevels, priorNamed)
	return r
}

// priceLevels is priorOfLevels for the stated description alone.
func priceLevels(f *facts) reading {
	if len(f.run.Points) == 0 {
		return notChecked("no load levels")
	}
	prices := map[int64]*facts{} // with the library's times, by tensor-parallel size
	var itl, ttft []float64      // measured over predicted
	for i := range f.run.Points {
		p := &f.run.Points[i]
		dep := *f.dep
		dep.TP = p.TP.Or(dep.TP)
		if p.EP.Or(1) > 1 || p.DP.Or(1) > 1 || dep.Model.IsMoE() {
			continue
		}
		priced := prices[dep.TP]
		if priced == nil {
			priced = &facts{dep: &dep}
			priced.price = priced.pricer()
			prices[dep.TP] = priced
		}
		if priced.price == nil {
			continue
		}
		decoding := inFlight(p)
		prompt := priced.prefillTime(p.PromptTokens)
		decode := priced.decodeTime(decoding, p.PromptTokens+p.OutputTokens/2)
		itl = append(itl, prompt.decodeRatio(p.TPOTMs*1e3, levelRate(p)/1e6, levelRate(p)/1e6, decode))
		if p.TTFTMs.OK {
			ttft = append(ttft, p.TTFTMs.V*1e3/prompt.leastUs)
		}
	}
	if len(itl) < fewestLevels {
		return notChecked("the library has no kernel tables of %s for this model, or fewer than %d levels of it", f.dep.Hardware.Name, fewestLevels)
	}
	early := 0
	for _, ratio := range ttft {
		if ratio < 1/priorNamed {
			early++
		}
	}
	r := f.requestReading("level", fewestLevels, itl, ttft)
	r.nameEarly(early, len(ttft), "load levels", f.dep.Hardware.Name)
	return r
}

// levelRate returns the rate of a level in requests a second, 0 if it is not known.
func levelRate(p *trace.LoadPoint) float64 {
	if p.RateRPS.OK {
		return p.RateRPS.V
	}
	if e2eMs := p.TTFTMs.V + (p.OutputTokens-1)*p.TPOTMs; p.Clients.OK && e2eMs > 0 {
		return float64(p.Clients.V) / e2eMs * 1e3
	}
	return p.OfferedRPS.V
}

// inFlight returns how many requests of a level decode at once, by Little's law: rate times the time from
// first to last token.
func inFlight(p *trace.LoadPoint) float64 {
	return math.Max(1, levelRate(p)*(p.OutputTokens-1)*p.TPOTMs/1e3)
}

// modelNames compares the model that spans name with that of run.yaml. largest is the share of such spans.
func modelNames(f *facts) reading {
	want := model.NameKey(f.dep.Model.ID)
	var r reading
	other := ""
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if !q.Model.OK || q.Model.V == "" {
			continue
		}
		r.checked++
		got := model.NameKey(q.Model.V)
		if !strings.Contains(got, want) && !strings.Contains(want, got) {
			r.violated++
			other = q.Model.V
		}
	}
	if r.checked == 0 {
		return notChecked("no span names a model")
	}
	r.largest = share(r.violated, r.checked)
	r.broken = r.violated > 0
	r.sentence = fmt.Sprintf("%d of %d spans name the model %q, run.yaml names %q: the recording is of another model, or run.yaml of another server",
		r.violated, r.checked, other, f.dep.Model.ID)
	return r
}
