package clients

import (
	"fmt"
	"math"
	"slices"

	gonum "gonum.org/v1/gonum/stat"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file finds requests whose TTFT is not the time of their first token (spec#client-first-token): whole
// answers in one chunk, answers whose first tokens (reasoning) the client did not see, and times that no
// server can have. Their TTFT is not used, their E2E is.

// DropFirstToken makes the time of the first token unknown, and with it the times between tokens.
func DropFirstToken(r *trace.ObservedRequest) {
	r.FirstChunkNs = trace.Opt[int64]{}
	r.TTFTUs = trace.Opt[float64]{}
	r.ChunkGapsUs = nil
	r.Chunks = trace.Opt[int64]{}
}

// mostPerPass is the largest number of tokens of a pass of speculative decoding, which come in one chunk.
const mostPerPass = 32

// reportUncounted reports answers of which the files state no tokens.
func (c *Reader) reportUncounted() {
	n := 0
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Success.V && !r.OutputTokens.OK {
			n++
		}
	}
	if n > 0 {
		c.addFinding(CodeClientFile, "nobody counted the output tokens of %d of %d requests: they load a replay, and their times are compared with "+
			"nothing; let the client ask for the server's usage (stream_options.include_usage)", n, len(c.Requests))
	}
}

// reportNoStart reports requests without the time at which they were sent.
func (c *Reader) reportNoStart() {
	n := 0
	for i := range c.Requests {
		if c.Requests[i].SentNs() == 0 && !c.Requests[i].SendNs.OK {
			n++
		}
	}
	if n == 0 {
		return
	}
	c.addFinding(CodeNoStart, "%d of %d requests have no start time (results of vLLM before 0.11 and of SGLang's client "+
		"have none): they are not replayed, and nothing is learned from their times; record with a newer client, or write "+
		"the loads' means with max_concurrency and use fit --from points", n, len(c.Requests))
}

// dropWholeAnswers finds answers of several tokens that came in one chunk: its time is the E2E. With
// speculative decoding (drafts) a short answer may be one pass of the engine, and then its chunk is the first token.
func (c *Reader) dropWholeAnswers(drafts bool) {
	whole := 0
	answers := 0
	for i := range c.Requests {
		r := &c.Requests[i]
		hasTimes := r.TTFTUs.OK && r.E2EUs.OK
		if !r.Success.Or(true) || r.OutputTokens.V < 2 || !r.Chunks.OK && !hasTimes {
			continue
		}
		answers++
		isOnePass := drafts && r.OutputTokens.V <= mostPerPass
		// A file without a number of chunks shows one chunk by a first that is the last.
		isWhole := r.Chunks.V == 1 || !r.Chunks.OK && r.TTFTUs.V >= r.E2EUs.V
		if isWhole && !isOnePass {
			DropFirstToken(r)
			whole++
		}
	}
	if whole > 0 {
		c.addFinding(source.CodeFirstToken, "%d of %d answers of several tokens came in one chunk: the time of that chunk is their E2E, and there "+
			"is no TTFT and no ITL of them (a proxy or parser that buffers, or an answer that is not streamed); the server's own figures "+
			"remain where the file has them", whole, answers)
	}
}

// dropStatedHidden finds answers of which the server counts reasoning tokens that the client did not see: it has as
// many chunks as the answer has other tokens, or states that its first chunk is no reasoning.
func (c *Reader) dropStatedHidden() {
	hidden := 0
	stated := 0 // answers with reasoning tokens that can be compared
	for i := range c.Requests {
		r := &c.Requests[i]
		shown := r.OutputTokens.V - r.Reasoning.V // tokens that are not reasoning
		if !r.Success.Or(true) || r.N.Or(1) != 1 || r.Reasoning.V < 1 || shown < 1 || !r.TTFTUs.OK || !r.Chunks.OK {
			continue
		}
		stated++
		// The client's first chunk is its first text that is not reasoning (VisibleUs).
		isFirstShown := r.VisibleUs.OK && r.VisibleUs.V <= r.TTFTUs.V && r.Chunks.V <= shown
		// A chunk for each such token, up to one: the last may be without a token.
		isEachShown := !r.VisibleUs.OK && r.Chunks.V >= shown-1 && r.Chunks.V <= shown+1
		if isFirstShown || isEachShown {
			DropFirstToken(r)
			hidden++
		}
	}
	if hidden > 0 {
		c.addFinding(source.CodeFirstToken, "%d of %d answers with reasoning tokens have chunks for the other tokens alone: their first chunk comes after the "+
			"reasoning, so TTFT and ITL of these answers are not used, E2E is", hidden, stated)
	}
}

// Rules by which tokens that came before the first chunk are recognised.
const (
	fewerChunks     = 0.5 // of the answers must have fewer chunks than tokens
	leastAgreeing   = 0.8 // of those must have the others at one place: before the first chunk, in one gap, or between chunks
	leastStepsShare = 0.8 // of the time of their steps, for a time to hold missing tokens: a step is known roughly
	sameNumber      = 0.9 // of those must miss the same number of tokens for it to be a habit of the server or the client
	leastHole       = 8   // tokens of a stretch that was not shown: fewer look like a pass with a prompt
	hiddenInGaps    = 0.5 // share of the missing tokens that may lie between chunks
	hiddenSlope     = 0.5 // steps that a hidden token adds to TTFT, at least, where the numbers of hidden tokens differ
	largeHidden     = 0.2 // share of the tokens above which chunks may be merged evenly, and more evidence is needed
	leastGaps       = 4   // of an answer, for the time of a step
)

// hiddenAnswer is an answer with fewer chunks than tokens.
type hiddenAnswer struct {
	row     *trace.ObservedRequest
	chunks  int64
	missing float64 // tokens without a chunk of their own
	inGaps  float64 // of these, tokens that were made between chunks, by the time of the gaps; 0 where gaps are not recorded
	stepUs  float64 // median gap, or the mean where the gaps are not recorded
}

// newHiddenAnswer compares the chunks of an answer with its tokens. ok is false where the answer does not show
// the time of a step. Some clients record the number of chunks, and not the gaps between them.
func newHiddenAnswer(r *trace.ObservedRequest) (a hiddenAnswer, ok bool) {
	a.row = r
	a.chunks = int64(len(r.ChunkGapsUs)) + 1
	if len(r.ChunkGapsUs) == 0 {
		a.chunks = r.Chunks.V
	}
	if a.chunks <= leastGaps {
		return a, false
	}
	a.missing = float64(r.OutputTokens.V - a.chunks)
	if len(r.ChunkGapsUs) == 0 {
		a.stepUs = (r.E2EUs.V - r.TTFTUs.V) / float64(a.chunks-1)
		return a, true
	}
	a.stepUs = stat.Median(slices.Clone(r.ChunkGapsUs))
	// A gap of n steps has time for n-1 tokens that have no chunk.
	for _, gap := range r.ChunkGapsUs {
		if a.stepUs > 0 {
			a.inGaps += math.Max(0, math.Round(gap/a.stepUs)-1)
		}
	}
	a.inGaps = math.Max(0, math.Min(a.inGaps, a.missing))
	return a, true
}

// dropHiddenFirst finds answers whose first tokens came before the first chunk, because the client did not
// show them: their TTFT holds the steps of these tokens. The time between chunks decides: where each gap is
// one step, the missing tokens were made before the first chunk; where the gaps have time for them, chunks
// hold several tokens, or a stretch in the middle was not shown, and TTFT is right.
func (c *Reader) dropHiddenFirst(dep *deploy.Deployment) {
	if dep.Engine.SpeculativeDecoding {
		return
	}
	var found []hiddenAnswer // answers with fewer chunks than tokens
	answers := 0             // that were compared
	chunks := int64(0)       // of found
	tokens := int64(0)       // of found
	for i := range c.Requests {
		r := &c.Requests[i]
		if !r.Success.Or(true) || r.N.Or(1) != 1 || !r.TTFTUs.OK || !r.E2EUs.OK || r.VisibleUs.Or(0) > r.TTFTUs.V {
			continue
		}
		a, ok := newHiddenAnswer(r)
		if !ok {
			continue
		}
		answers++
		if a.missing < 1 || !(a.stepUs > 0) {
			continue
		}
		chunks += a.chunks
		tokens += r.OutputTokens.V
		found = append(found, a)
	}
	if len(found) < leastAnswers || float64(len(found)) < fewerChunks*float64(answers) {
		return
	}
	// Where nearly all answers miss the same number of tokens, they miss them at the same place.
	if common := commonMissing(found); common > 0 {
		placeCommon(found, common)
	}
	atFirst := 0 // answers whose missing tokens lie before the first chunk
	between := 0 // answers whose missing tokens lie between chunks
	for _, a := range found {
		hidden := a.missing - a.inGaps
		switch {
		case a.inGaps > hiddenInGaps*a.missing:
			between++
		case a.row.TTFTUs.V > a.leastFirstUs(hidden): // TTFT has time for their steps
			atFirst++
		}
	}
	if float64(between) >= leastAgreeing*float64(len(found)) {
		c.addFinding(source.CodeFirstToken, "%d of %d answers have fewer chunks than tokens (%d of %d), and the gaps between chunks have time for "+
			"the others: chunks hold several tokens or a stretch was not shown; TTFT is used, a gap is no ITL, and ITL is the time from first "+
			"to last chunk over the tokens", len(found), answers, chunks, tokens)
		return
	}
	if float64(atFirst) < leastAgreeing*float64(len(found)) || !isHiddenFirst(found, dep) {
		return
	}
	var stepsBefore []float64
	for _, a := range found {
		stepsBefore = append(stepsBefore, a.missing-a.inGaps)
		DropFirstToken(a.row)
	}
	// Answers too short to show the time of a step are like the others.
	short := 0
	for i := range c.Requests {
		r := &c.Requests[i]
		isShort := r.Success.Or(true) && r.N.Or(1) == 1 && r.TTFTUs.OK && r.Chunks.OK && r.Chunks.V <= leastGaps
		if isShort && r.OutputTokens.V > r.Chunks.V && r.VisibleUs.Or(0) <= r.TTFTUs.V {
			DropFirstToken(r)
			short++
		}
	}
	c.addFinding(source.CodeFirstToken, "%d answers have %.0f %% as many chunks as tokens, and the first chunk lies about %.0f steps behind the prefill, "+
		"as where reasoning is not shown: TTFT and ITL of these answers are not used, E2E is%s", len(found),
		100*float64(chunks)/float64(tokens), stat.Median(stepsBefore), alsoShort(short))
}

// alsoShort returns the end of a sentence about answers that are too short to be judged alone.
func alsoShort(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; nor those of %d shorter answers with tokens that were not shown", n)
}

// leastFirstUs returns the least TTFT, us, of an answer of which that many first tokens (hidden) were not
// shown: the time of their steps. Without the gaps a step is the mean one, which contains passes with prompts
// and is too long, so less than all of the steps is asked for.
func (a *hiddenAnswer) leastFirstUs(hidden float64) float64 {
	if len(a.row.ChunkGapsUs) == 0 {
		return leastStepsShare * hidden * a.stepUs
	}
	return hidden * a.stepUs
}

// commonMissing returns the number of missing tokens that nearly all answers (the share sameNumber)
// have in common; 0 if they have none in common.
func commonMissing(found []hiddenAnswer) float64 {
	count := map[float64]int{}
	for _, a := range found {
		count[a.missing]++
		if float64(count[a.missing]) >= sameNumber*float64(len(found)) {
			return a.missing
		}
	}
	return 0
}

// placeCommon decides where the tokens are that nearly all answers miss, common of each: in one gap that is
// as long as their steps, or else before the first chunk. Passes with prompts also make gaps of several steps,
// so many short gaps do not show where the tokens are. The result is inGaps of each answer.
func placeCommon(found []hiddenAnswer, common float64) {
	holes := 0 // answers with a gap that has time for all of them
	atEnd := 0 // answers whose last gap has just that time, as of tokens that end an answer
	for _, a := range found {
		gaps := a.row.ChunkGapsUs
		if len(gaps) == 0 {
			continue
		}
		stepsUs := (common + 1) * a.stepUs // of the missing tokens and of the chunk behind them
		if common >= leastHole && slices.Max(gaps) > leastStepsShare*stepsUs {
			holes++
		}
		if last := gaps[len(gaps)-1]; last > leastStepsShare*stepsUs && last < stepsUs/leastStepsShare {
			atEnd++
		}
	}
	inGaps := 0.0
	if least := leastAgreeing * float64(len(found)); float64(holes) >= least || float64(atEnd) >= least {
		inGaps = common
	}
	for i := range found {
		found[i].inGaps = inGaps
	}
}

// isHiddenFirst reports whether answers with many missing tokens have them before the first chunk, and not
// evenly in all chunks: then TTFT grows with their number, or the time between chunks, over all tokens, is
// below a step.
func isHiddenFirst(found []hiddenAnswer, dep *deploy.Deployment) bool {
	var missing, ttfts, perToken, shares, steps []float64
	withGaps := 0
	for _, a := range found {
		if len(a.row.ChunkGapsUs) > 0 {
			withGaps++
		}
		missing = append(missing, a.missing-a.inGaps)
		ttfts = append(ttfts, a.row.TTFTUs.V)
		steps = append(steps, a.stepUs)
		perToken = append(perToken, (a.row.E2EUs.V-a.row.TTFTUs.V)/float64(a.row.OutputTokens.V-1))
		shares = append(shares, a.missing/float64(a.row.OutputTokens.V))
	}
	if 2*withGaps > len(found) && (commonMissing(found) > 0 || stat.Median(shares) < largeHidden) {
		return true // chunks of one token and a few of two would show in the gaps
	}
	// In the time after the first chunk not all tokens can be decoded: less than reading the weights once
	// is left for each.
	if bounds, ok := dep.TokenTimes(); ok && stat.Median(perToken) < bounds.ReadUs {
		return true
	}
	meanMissing := stat.Mean(missing)
	variance := 0.0
	for _, m := range missing {
		variance += (m - meanMissing) * (m - meanMissing)
	}
	isVaried := variance > 0.01*meanMissing*meanMissing*float64(len(missing)) // by more than 10 % of the mean
	slope, _ := slopeOf(missing, ttfts)
	return isVaried && slope > hiddenSlope*stat.Median(steps)
}

// dropStatedLate finds answers whose first chunk came later than the server's first token: the server states the
// time from its first token to the last, and the client the time to the last.
func (c *Reader) dropStatedLate() {
	late := 0
	for i := range c.Requests {
		r := &c.Requests[i]
		if !r.ServerGenUs.OK || !r.TTFTUs.OK || !r.E2EUs.OK || r.OutputTokens.V < 2 || r.N.Or(1) != 1 {
			continue
		}
		stepUs := r.ServerGenUs.V / float64(r.OutputTokens.V-1)
		firstUs := r.E2EUs.V - r.ServerGenUs.V // TTFT by the server's time of generation
		if behindUs := r.TTFTUs.V - firstUs; behindUs > LateSteps*stepUs+LateUs {
			DropFirstToken(r)
			late++
		}
	}
	if late > 0 {
		c.addFinding(source.CodeFirstToken, "the first chunk of %d answers came later than their first token by the server's metrics, as where "+
			"reasoning is not shown: TTFT is not the client's", late)
	}
}

// A first chunk may lie behind the first token of the server (of its metrics or its log) by LateSteps steps and
// LateUs in addition, because the two stamps are not delivered in the same way.
const (
	LateSteps = 2
	LateUs    = 5e3 // for the network and the client
)

// Rules by which TTFT is found to hold tokens that nobody counted.
const (
	leastUncounted = 20  // answers, below which a correlation may be chance
	uncountedFit   = 0.9 // share of the variance of TTFT that the length of the answer must explain
)

// dropUncounted finds answers whose TTFT grows with their length by half a step a token or more, and by hardly
// anything else: before the first chunk the server made tokens that the client neither saw nor counted, in
// proportion to the others. Neither TTFT nor the number of tokens is known then, and without it no E2E either.
func (c *Reader) dropUncounted() {
	var tokens, ttfts, steps []float64
	var answers []*trace.ObservedRequest
	for i := range c.Requests {
		r := &c.Requests[i]
		if !r.Success.Or(true) || r.N.Or(1) != 1 || !r.TTFTUs.OK || !r.E2EUs.OK || r.OutputTokens.V <= leastGaps ||
			r.VisibleUs.Or(0) > r.TTFTUs.V || r.QueueUs.OK || r.LoadOnly.V {
			continue
		}
		answers = append(answers, r)
		tokens = append(tokens, float64(r.OutputTokens.V))
		ttfts = append(ttfts, r.TTFTUs.V)
		steps = append(steps, (r.E2EUs.V-r.TTFTUs.V)/float64(r.OutputTokens.V-1))
	}
	if len(answers) < leastUncounted {
		return
	}
	slope, explained := slopeOf(tokens, ttfts)
	stepUs := stat.Median(steps)
	if !(explained > uncountedFit) || !(stepUs > 0) || slope < hiddenSlope*stepUs {
		return
	}
	for _, r := range answers { // all of them: it is how the server or the client works
		DropFirstToken(r)
		r.E2EUs = trace.Opt[float64]{}
		r.OutputTokens = trace.Opt[int64]{}
		r.LoadOnly = trace.Some(true)
	}
	c.addFinding(source.CodeFirstToken, "TTFT of %d answers grows by %.1f steps for each token of the answer: before the first chunk the server made "+
		"tokens that the client neither saw nor counted, as where reasoning is not shown and the answers have no usage: their TTFT, E2E and "+
		"numbers of tokens are not used; record with usage (stream_options.include_usage)", len(answers), slope/stepUs)
}

// slopeOf returns the slope of y over x by least squares, and the share of the variance of y that it explains; NaN
// where x or y is constant.
func slopeOf(x, y []float64) (slope, explained float64) {
	_, slope = gonum.LinearRegression(x, y, nil, false)
	r := gonum.Correlation(x, y, nil)
	return slope, r * r
}

// dropImpossible finds times that no server of this deployment can have: a TTFT shorter than half of reading
// the weights once, or a TPOT that short. Such an answer was not made by this model: a cache of
// answers, a first chunk without a token, or times of another unit.
func (c *Reader) dropImpossible(dep *deploy.Deployment) {
	bounds, ok := dep.TokenTimes()
	if !ok {
		return
	}
	leastUs := bounds.LeastUs
	shortTTFT := 0
	shortITL := 0
	shortE2E := 0 // answers whose tokens are too quick even over all their time
	answers := 0
	var firsts, itls []*trace.ObservedRequest
	for i := range c.Requests {
		r := &c.Requests[i]
		if !r.Success.Or(true) || !r.TTFTUs.OK {
			continue
		}
		answers++
		n := r.OutputTokens.V
		// With speculative decoding a pass makes several tokens, so no time of a token is too short.
		if !r.E2EUs.OK || !dep.Engine.SpeculativeDecoding && r.E2EUs.V < leastUs*float64(n) {
			shortE2E++
		}
		if r.TTFTUs.V < leastUs {
			shortTTFT++
			firsts = append(firsts, r)
			continue
		}
		if n > 1 && r.E2EUs.OK && !dep.Engine.SpeculativeDecoding &&
			(r.E2EUs.V-r.TTFTUs.V)/float64(n-1) < leastUs {
			shortITL++
			itls = append(itls, r)
		}
	}
	// Where most are impossible, and so is the time of the whole answer, the unit is wrong, or run.yaml is of another
	// server: checkTimeUnit reports it. With a plausible E2E the first chunks may all be empty:
	// OpenAI's stream begins with a delta that has only the role.
	if 2*(shortTTFT+shortITL) > answers && 2*shortE2E > answers {
		return
	}
	for _, r := range firsts {
		DropFirstToken(r)
	}
	for _, r := range itls {
		DropFirstToken(r)
	}
	if shortTTFT+shortITL > 0 {
		c.addFinding(source.CodeFirstToken, "%d of %d answers have a TTFT, and %d an ITL, below %.3g ms, which is half of reading the weights once: a first chunk "+
			"without a token, or tokens that came together; their TTFT and ITL are not used", shortTTFT, answers, shortITL, leastUs/1e3)
	}
}
