package logged

// This file finds the contexts of decodes, which the log does not contain.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Sources of the contexts of decodes, best first (spec#iteration-fill).
const (
	contextsTrace  = "trace"            // sums of the forward-pass trace: exact
	contextsClient = "client"           // lengths and times of the clients' requests
	contextsUsage  = "kv_usage"         // blocks in use
	contextsMean   = trace.ContextsMean // one mean for the whole run: merged with the decodes
)

// Limits of the rules by which contexts are filled in.
const (
	countTolerance = 0.2 // relative difference of the clients' running requests and a pass's decodes
	countShare     = 0.8 // of the passes must be within it
	usageSteps     = 20  // units of the usage's last digit that the mean usage must be at least
)

// fillContexts fills in the contexts of decodes from the best source that the run has. The estimate of
// balanceContexts comes first: the sources below replace it as far as they know better.
func (f *filler) fillContexts() {
	f.balanceContexts()
	switch {
	case f.passes[0].it.DecodeKVTokens.OK:
		f.out.Contexts = contextsTrace
		f.contextsFromTrace()
		if f.isFromChunks {
			f.fillPrompts()
			return
		}
	case len(f.requests) > 0 && f.contextsFromClients():
		f.out.Contexts = contextsClient
	case f.contextsFromUsage():
		f.out.Contexts = contextsUsage
	default:
		f.out.Contexts = contextsMean
		f.contextsFromMean()
		f.addFinding(ContextsMerged, "the contexts of the decodes are not recorded: one mean of %.0f tokens is "+
			"taken for all, and the terms that read them are merged with the per-decode term", f.out.MeanContext)
		return
	}
	source := ""
	switch f.out.Contexts {
	case contextsTrace:
		source = "the trace's own sums"
	case contextsClient:
		source = "the clients' requests"
	case contextsUsage:
		source = "the KV usage of the lines"
		if f.dep.Engine.PrefixCaching {
			source += "; blocks that requests share count once, so contexts behind shared prefixes are too short: " +
				"keep the clients' results"
		}
	}
	f.addFinding(codeFilledIn, "contexts of the decodes come from %s", source)
}

// measureOtherClients computes the share of the decodes, while the clients ran, that belonged to
// requests not in the clients' results.
func (f *filler) measureOtherClients() {
	own := int64(0)              // decodes of the clients' requests
	ran := int64(0)              // decodes that the log has while the clients ran
	from := int64(math.MaxInt64) // ns, when the clients ran
	to := int64(0)
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if !o.OutputTokens.OK && o.Success.Or(true) {
			return // the clients did not count tokens
		}
		own += max(0, o.OutputTokens.Or(o.Chunks.V)-max(1, o.N.Or(1)))
		from = min(from, o.SendNs.Or(from))
		to = max(to, o.LastChunkNs.V)
	}
	for i := range f.passes {
		if p := &f.passes[i]; !f.out.OffsetNs.OK || !p.hasEnd || p.endNs >= from && p.endNs <= to {
			ran += p.decodes
		}
	}
	if own > 0 {
		f.out.Others = 1 - float64(own)/math.Max(1, float64(ran))
	}
}

// checkClientCounts returns an error if the run has only one mean context although many of its
// requests are missing in the clients' results, or are there without their tokens.
func (f *filler) checkClientCounts() *trace.Error {
	all := len(f.run.Observed)
	uncounted := 0
	hasStart := false
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if o.Uncounted() || !o.FirstChunkNs.OK {
			uncounted++
		}
		hasStart = hasStart || o.SentNs() != 0
	}
	// Results without the times of their requests are as good as none: the mean context is all there is.
	if f.out.Contexts != contextsMean || all == 0 || !hasStart {
		return nil
	}
	if math.Max(float64(uncounted)/float64(all), f.out.Others) <= trace.MostGuessed {
		return nil
	}
	return trace.Errorf(codeNoStepTimes,
		"run %s: contexts of the decodes are not known: %d of %d requests of clients have several "+
			"answers, failed, were left early or not streamed, and no result shows %.0f %% of the decodes",
		f.run.ID, uncounted, all, 100*max(0, f.out.Others)).
		WithHint("start vLLM 0.26 or newer, whose lines have the KV usage, or keep the results of every client, streamed")
}

// balanceContexts makes a first estimate of the contexts from the counts alone. Prompts run whole,
// or in the chunks into which a full budget cuts them. The tokens in the KV cache grow by every
// prompt and decode, and shrink by the mean context of the requests that finish.
func (f *filler) balanceContexts() {
	carried := 0.0 // tokens in KV of the prompt that a full budget cut
	total := 0.0   // tokens in KV of the requests that decode
	running := 0.0 // requests that should decode in the next pass if none finishes
	for i := range f.passes {
		p := &f.passes[i]
		if !p.follows { // the engine was idle, or nothing is known of what came before
			carried = 0
			total = 0
			running = 0
		}
		decodes := float64(p.decodes)
		if decodes < running && running > 0 { // requests finished
			total *= decodes / running
		}
		p.decodeContext = total + decodes // a decode attends to its own token too
		tokens := float64(p.prefillTokens)
		prompts := float64(p.prefills)
		p.causalWork = features.CausalFromTotals(tokens, prompts, p.promptVariation())
		if p.prefills > 0 && carried > 0 {
			p.prefillContext = carried
			p.causalWork += carried * tokens / prompts // the tokens of one prompt attend to what was computed before
		}
		ended := prompts - float64(p.cutPrompts)
		switch {
		case p.cutPrompts == 0: // all prompts decode from here on
			total += tokens + carried
			carried = 0
		case prompts <= 1: // a chunk in the middle of one long prompt
			carried += tokens
		default: // the cut prompt has the same share of the tokens as each of the others
			total += tokens*ended/prompts + carried
			carried = tokens / prompts
		}
		total += decodes
		running = decodes + ended
	}
}

// contextsFromTrace sets the contexts from the sums of a forward-pass trace. A decode attends to
// its context and its own token.
func (f *filler) contextsFromTrace() {
	for i := range f.passes {
		p := &f.passes[i]
		kv := float64(p.it.ContextKVTokens.Or(0))         // of what the trace labels context
		moved := float64(p.decodes - p.it.GenerationReqs) // first decodes among them (relabelFirstDecodes)
		mean := 0.0                                       // kv of one request; it is not known which are first decodes
		if p.it.ContextReqs > 0 {
			mean = kv / float64(p.it.ContextReqs)
		}
		p.decodeContext = float64(p.it.DecodeKVTokens.V) + moved*mean + float64(p.decodes)
		p.prefillContext = 0
		p.causalWork = features.CausalFromTotals(float64(p.prefillTokens), float64(p.prefills), p.promptVariation())
		if p.prefills > 0 {
			p.prefillContext = kv - moved*mean
			p.causalWork += p.prefillContext * float64(p.prefillTokens) / float64(p.prefills)
		}
	}
}

// contextsFromUsage takes the contexts from the KV blocks that are in use after the pass before. On
// average half a block of each sequence is empty. It returns false if the usage is unknown or too
// coarse.
func (f *filler) contextsFromUsage() bool {
	blocks, estimated, err := f.dep.KVBlocks()
	if err != nil || estimated {
		return false
	}
	size := float64(f.dep.Engine.BlockSize) // tokens
	var (
		decoding int     // passes with decodes
		known    int     // of these, passes with a known usage
		usage    float64 // sum over known, each 0..1
	)
	contexts := make([]float64, len(f.passes)) // by pass; 0 where unknown
	for i := 1; i < len(f.passes); i++ {
		before := f.passes[i-1].it.KVUsage
		p := &f.passes[i]
		if !p.follows || !before.OK || p.decodes == 0 {
			continue
		}
		decodes := float64(p.decodes)
		room := before.V * float64(blocks) * size // tokens of the blocks in use
		empty := decodes * (size - 1) / 2
		contexts[i] = math.Max(decodes, room-empty-p.prefillContext+decodes)
		known++
		usage += before.V
	}
	for i := range f.passes {
		if f.passes[i].decodes > 0 {
			decoding++
		}
	}
	const digit = 0.001 // vLLM logs the usage as a percentage with one decimal
	isCoarse := usage/float64(max(1, known)) < usageSteps*digit/2
	if known*2 < decoding || isCoarse {
		return false
	}
	for i, context := range contexts {
		if context > 0 {
			f.passes[i].decodeContext = context
		}
	}
	return true
}

// contextsFromMean gives every decode the mean context of the balance.
func (f *filler) contextsFromMean() {
	context := 0.0 // tokens, sum over all decodes
	decodes := 0.0
	for i := range f.passes {
		p := &f.passes[i]
		context += p.decodeContext
		decodes += float64(p.decodes)
	}
	f.out.MeanContext = context / math.Max(1, decodes)
	for i := range f.passes {
		f.passes[i].decodeContext = f.out.MeanContext * float64(f.passes[i].decodes)
	}
}

// contextsFromClients sets the contexts from the clients' requests. A request decodes in the passes
// whose middle lies between its first and its last chunk, or, if the pass of its prompt is known, in as many
// passes behind that as its output has tokens. It returns false if the number of requests that decode so
// differs from the decodes of too many passes.
func (f *filler) contextsFromClients() bool {
	var active []*clientRequest // that decode in the pass
	next := 0                   // the first request that has not begun to decode
	agree := 0                  // passes whose decodes are about as many
	n := 0                      // passes with decodes
	contexts := make([]float64, len(f.passes))
	for i := range f.passes {
		p := &f.passes[i]
		if !p.hasEnd {
			continue
		}
		middle := p.middle()
		for next < len(f.requests) && f.requests[next].decodesIn(p, middle) {
			active = append(active, &f.requests[next])
			next++
		}
		kept := active[:0]
		sum := 0.0
		for _, o := range active {
			isDecoding := o.lastNs > middle
			if o.ended.OK {
				isDecoding = p.it.Index-o.ended.V < o.output
			}
			if !isDecoding {
				continue
			}
			if o.ended.OK {
				o.passes = p.it.Index - o.ended.V
			} else {
				o.passes = min(o.passes+1, max(1, o.output-1))
			}
			sum += float64(o.prompt) + float64(o.passes)*o.each // its context in this pass
			kept = append(kept, o)
		}
		active = kept
		if p.decodes == 0 {
			continue
		}
		n++
		off := math.Abs(float64(len(active)) - float64(p.decodes))
		if off/float64(p.decodes) <= countTolerance || off <= 1 && len(active) > 0 {
			agree++
			contexts[i] = sum * float64(p.decodes) / float64(len(active)) // of as many requests as the log has
		}
	}
	f.out.ClientShare = trace.Some(float64(agree) / float64(max(1, n)))
	if float64(agree) < countShare*float64(n) {
		f.out.Apart = fmt.Sprintf("the requests of clients explain the decodes of %.0f %% of the passes, want %.0f %%",
			100*f.out.ClientShare.V, 100*countShare)
		f.addFinding(codeFilledIn, "%s", f.out.Apart)
		return false
	}
	f.setContexts(contexts)
	f.fillPrompts()
	return true
}

// decodesIn reports whether the prompt ended before pass p: by its known iteration, or else because
// the first chunk came before the middle of the pass.
func (o *clientRequest) decodesIn(p *pass, middle int64) bool {
	if o.ended.OK {
		return o.ended.V < p.it.Index
	}
	return o.firstNs < middle
}

// setContexts stores the contexts found from the clients' requests. A pass without any gets the
// mean context of the pass before.
func (f *filler) setContexts(contexts []float64) {
	each := 0.0
	for i := range f.passes {
		p := &f.passes[i]
		switch {
		case contexts[i] > 0:
			each = contexts[i] / float64(p.decodes)
			p.decodeContext = contexts[i]
		case each > 0:
			p.decodeContext = each * float64(p.decodes)
		}
	}
}

// fillPrompts finds the prompts that each pass ran: those whose first chunk came at its end, and
// the next one if the token budget may have cut it.
func (f *filler) fillPrompts() {
	next := 0 // the first request whose prompt has not ended
	delays := f.findDelayLag()
	var ended []*clientRequest // in the pass
	for i := range f.passes {
		p := &f.passes[i]
		if !p.hasEnd {
			continue
		}
		until := int64(math.MaxInt64) // a first chunk before it belongs to this pass
		if i+1 < len(f.passes) && f.passes[i+1].hasEnd {
			until = f.passes[i+1].middle()
		}
		for ended = ended[:0]; next < len(f.requests) && f.requests[next].endsIn(p, until); next++ {
			ended = append(ended, &f.requests[next])
		}
		if n := int64(len(ended)); p.cutPrompts > 0 && n > 0 && n == p.prefills && ended[0].ended.OK {
			p.cutPrompts = 0 // the last prompt ended exactly at the budget
		}
		f.fillChunks(p, ended, next)
		if int64(len(ended)) == p.prefills {
			delays.addRequests(f.passes, i, ended)
		}
	}
	f.out.DelaysUs = delays.delaysUs()
}

// endsIn reports whether the prompt ended in pass p or before: by its known iteration, or else
// because the first chunk came before the time until.
func (o *clientRequest) endsIn(p *pass, until int64) bool {
	if o.ended.OK {
		return o.ended.V <= p.it.Index
	}
	return o.firstNs < until
}

// fillChunks sets the attention work of the prompts of one pass: of the requests whose prompts ended in it,
// and, if the pass has one prompt more, of a chunk of the next request's. Prompt tokens that the pass did
// not compute count as prefix hits, spread over the prompts in proportion. If the requests do not explain
// the counts of the pass, it leaves the estimate of balanceContexts.
func (f *filler) fillChunks(p *pass, ended []*clientRequest, next int) {
	hasCut := int64(len(ended))+1 == p.prefills // the last prompt of the pass continues in the next one
	if p.prefills == 0 || int64(len(ended)) != p.prefills && !hasCut {
		return
	}
	left := int64(0) // tokens of the ended prompts that were not computed before this pass
	for _, o := range ended {
		left += o.prompt - o.done
	}
	if hasCut && (next >= len(f.requests) || p.prefillTokens <= left) || !hasCut && p.prefillTokens > left {
		return // more or fewer tokens than these prompts can have
	}
	var in features.StepInput
	hits := left - p.prefillTokens // tokens of prefix hits, when nothing was cut
	for _, o := range ended {
		n := o.prompt - o.done
		if !hasCut && left > 0 {
			n -= hits * n / left
		}
		in.Add(features.V11, trace.Chunk{Computed: o.prompt - n, Prompt: o.prompt, New: n})
	}
	if hasCut {
		o := &f.requests[next]
		n := p.prefillTokens - left
		if n >= o.prompt-o.done { // it would have ended
			return
		}
		in.Add(features.V11, trace.Chunk{Computed: o.done, Prompt: o.prompt, New: n})
		o.done += n
	}
	p.causalWork = in.PrefillCausalWork
	p.prefillContext = in.KVReadTokens - in.PrefillTokens
}
