package pairing

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// This file finds the server's own lengths of prompts where the client counted other ones (spec#server-prompts):
// without the chat template or the token that begins a text, or of another tokeniser. The passes of the log have
// the server's tokens, so where the prompts as the client counted them do not pair, those that are a constant
// longer may; else the prompts are paired by their number alone, and the tokens of a pass are divided among its
// prompts in proportion.

// Limits of the search for other lengths.
const (
	mostLonger    = 8192 // tokens by which a prompt may be longer than the client counted
	mostShorter   = 512
	candidates    = 4    // constants that are tried
	recountShare  = 0.8  // of the prompts that must pair with the server's lengths
	mostPairs     = 4e6  // of a prompt and a pass that are compared
	mostInflation = 1.25 // spread of the server's tokens over the client's, as a factor, between chains
	skipDeviation = 3.0  // of a prompt or pass that is skipped, in units of a chain's log ratio
)

// Recount finds the server's lengths of the prompts of rows, which replace those of the client. It returns nil if
// the client's lengths pair (pairedNow requests do), or no other lengths do; finding describes what was found. It is
// done for one engine only, because with several any lengths would soon fit some passes.
func Recount(rows []trace.ObservedRequest, rules Rules, engines int, pairedNow int,
	read func(add func(engine int, it *trace.Iteration)) error) (lengths []int64, finding string, err error) {
	countable := 0 // requests that should pair
	hasNoStamps := isTimeless(rows)
	for i := range rows {
		r := &rows[i]
		hasRun := r.FirstChunkNs.OK || r.LastChunkNs.OK || hasNoStamps
		if r.Success.Or(true) && r.PromptTokens.V > 0 && hasRun && r.CachedSource.V != trace.CachedUsage {
			countable++
		}
	}
	if engines != 1 || countable == 0 || float64(pairedNow) >= recountShare*float64(countable) {
		return nil, "", nil
	}
	var logs []*passLog // read in both ways, as in Pair
	for _, isAsync := range []bool{false, true} {
		log := newPassLog(rules, engines, isAsync)
		if err := read(log.addPass); err != nil {
			return nil, "", err
		}
		logs = append(logs, log)
	}
	// First: are all prompts longer or shorter by one constant?
	best := 0
	for _, longer := range logs[0].constants(rows) {
		trial := slices.Clone(rows)
		for i := range trial {
			if trial[i].PromptTokens.OK {
				trial[i].PromptTokens.V += longer
			}
		}
		for _, log := range logs {
			g := pairRows(trial, log)
			if g.Paired <= best || g.Paired <= pairedNow || float64(g.Paired) < recountShare*float64(countable) {
				continue
			}
			best = g.Paired
			lengths = nil
			for i := range trial {
				lengths = append(lengths, trial[i].PromptTokens.V)
			}
			finding = fmt.Sprintf("%d of %d prompts of the log are %d tokens %s than the client says (%s): the server's count is used",
				g.Paired, countable, max(longer, -longer), longerOrShorter(longer), causeOf(longer))
		}
	}
	if lengths != nil {
		return lengths, finding, nil
	}
	// Otherwise divide the tokens of each pass among its prompts.
	for _, log := range logs {
		trial, computed, counted := log.proportional(rows)
		if trial == nil {
			continue
		}
		g := pairRows(trial, log)
		if g.Paired <= best || g.Paired <= pairedNow || float64(g.Paired) < recountShare*float64(countable) {
			continue
		}
		best = g.Paired
		lengths = nil
		for i := range trial {
			lengths = append(lengths, trial[i].PromptTokens.V)
		}
		finding = fmt.Sprintf("the log computed %d tokens of %d prompts for which the client counted %d, %.3g times as many and by another factor "+
			"in each (another tokeniser): the server's count is used, divided in proportion among prompts of one pass", computed, g.Paired, counted,
			float64(computed)/float64(max(1, counted)))
	}
	return lengths, finding, nil
}

// longerOrShorter returns the word for a prompt that has so many more tokens (fewer if negative).
func longerOrShorter(difference int64) string {
	if difference < 0 {
		return "shorter"
	}
	return "longer"
}

// causeOf names what usually makes so large a difference.
func causeOf(difference int64) string {
	switch {
	case difference < 0:
		return "the client counts special tokens that the server does not add"
	case difference <= 2:
		return "the token that begins a text"
	}
	return "a chat template"
}

// constants returns the commonest differences, in tokens, between passes that ran one whole prompt
// and the prompts that the client states, the most frequent first. Every such pass is compared with every
// prompt; if all prompts are longer by one constant, that difference occurs most often.
func (p *passLog) constants(rows []trace.ObservedRequest) []int64 {
	var passes, prompts []int64
	for i := range p.promptPasses {
		promptPass := &p.promptPasses[i]
		if promptPass.contextReqs == 1 && !promptPass.isFull && (i == 0 || !p.promptPasses[i-1].isFull) {
			passes = append(passes, promptPass.contextTokens)
		}
	}
	for i := range rows {
		if rows[i].PromptTokens.V > 0 {
			prompts = append(prompts, rows[i].PromptTokens.V)
		}
	}
	every := max(1, int(math.Ceil(float64(len(passes))*float64(len(prompts))/mostPairs))) // one pass of so many is compared
	votes := map[int64]int{}                                                              // by difference
	for i := 0; i < len(passes); i += every {
		for _, prompt := range prompts {
			if difference := passes[i] - prompt; difference != 0 && difference <= mostLonger && difference >= -mostShorter {
				votes[difference]++
			}
		}
	}
	var all []int64
	for difference := range votes {
		all = append(all, difference)
	}
	stat.SortStable(all, func(a, b int64) int {
		return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(max(a, -a), max(b, -b)), cmp.Compare(b, a))
	})
	return all[:min(len(all), candidates)]
}

// proportional gives the prompts of rows the tokens of the passes that have as many prompts, in the order of sends.
// It returns nil if the numbers of prompts do not allow it, the passes computed no more than the client counted
// (then tokens may have come from the prefix cache), or the tokens of passes do not follow those of their prompts.
// computed and counted are the tokens of all prompts by the log and by the client.
func (p *passLog) proportional(rows []trace.ObservedRequest) (out []trace.ObservedRequest, computed, counted int64) {
	var prompts []prompt
	for _, q := range periodsOf(rows, &p.rules) {
		if q.isUnusable {
			return nil, 0, 0
		}
		prompts = append(prompts, q.orders[len(q.orders)-1]...)
	}
	for i := range p.promptPasses {
		computed += p.promptPasses[i].contextTokens
	}
	for i := range prompts {
		counted += prompts[i].tokens
	}
	if len(prompts) == 0 || p.rules.Caching && computed <= counted {
		return nil, 0, 0
	}
	ratio := float64(computed) / float64(counted)
	chains := p.alignByNumber(prompts, ratio)
	if chains == nil {
		return nil, 0, 0
	}
	var deviations []float64 // of each chain from the common ratio, as the logarithm of a factor
	var lengths []float64    // mean prompt of each chain, as the client counted it
	out = slices.Clone(rows)
	for _, c := range chains {
		byClient := int64(0) // tokens of the chain's prompts
		byLog := int64(0)
		for _, pass := range c.passes {
			byLog += p.promptPasses[pass].contextTokens
		}
		for _, q := range c.prompts {
			byClient += q.tokens
		}
		deviations = append(deviations, math.Abs(math.Log(float64(byLog)/(ratio*float64(byClient)))))
		lengths = append(lengths, float64(byClient)/float64(len(c.prompts)))
		left := byLog
		for k, q := range c.prompts {
			share := left // the last prompt gets what rounding has left
			if k < len(c.prompts)-1 {
				share = max(1, int64(math.Round(float64(byLog)*float64(q.tokens)/float64(byClient))))
			}
			left -= share
			out[q.row].PromptTokens = trace.Some(max(1, share))
		}
	}
	slices.Sort(deviations)
	slices.Sort(lengths)
	// Prompts of very different lengths whose passes follow them closely are the same prompts. Where all lengths are
	// alike, any order fits: then passes with fewer tokens than the client counted may be of other prompts.
	isFollowed := deviations[len(deviations)*3/4] < math.Log(mostInflation)
	isVaried := lengths[len(lengths)*3/4] > mostInflation*mostInflation*lengths[len(lengths)/4]
	if !isFollowed || !isVaried && ratio < 1 {
		return nil, 0, 0
	}
	return out, computed, counted
}

// alignByNumber divides prompts, in order, among chains of passes with as many prompts, such that the tokens of
// chains lie closest to ratio times those of their prompts. It returns nil where the numbers do not fit.
func (p *passLog) alignByNumber(prompts []prompt, ratio float64) []chain {
	passes := len(p.promptPasses)
	width := len(prompts) + 1
	if (passes+1)*width > mostLooseStates {
		return nil
	}
	// A state is i*width+j: the first i passes and the first j prompts are done.
	cost := make([]float32, (passes+1)*width) // least sum of deviations from the state to the end
	next := make([]int32, (passes+1)*width)   // the state that follows on that way
	sums := make([]int64, width)              // tokens of the first j prompts
	for j := range prompts {
		sums[j+1] = sums[j] + prompts[j].tokens
	}
	for i := passes; i >= 0; i-- {
		for j := len(prompts); j >= 0; j-- {
			at := i*width + j
			cost[at] = math.MaxFloat32
			if i == passes && j == len(prompts) {
				cost[at] = 0
				continue
			}
			if j < len(prompts) && cost[at+1] < math.MaxFloat32 {
				cost[at] = cost[at+1] + skipDeviation
				next[at] = int32(at + 1)
			}
			ends := 0
			computed := int64(0)
			for k := i; k < passes; k++ { // a chain of the passes i to k
				pass := &p.promptPasses[k]
				ends += int(pass.contextReqs)
				if k > i {
					ends-- // one of them continues the prompt that was cut
				}
				computed += pass.contextTokens
				if ends > 0 && j+ends <= len(prompts) {
					to := (k+1)*width + j + ends
					deviation := float32(math.Abs(math.Log(float64(computed) / (ratio * float64(sums[j+ends]-sums[j])))))
					if c := cost[to] + deviation; c < cost[at] {
						cost[at] = c
						next[at] = int32(to)
					}
				}
				if !pass.isFull || ends > len(prompts)-j {
					break
				}
			}
		}
	}
	if cost[0] >= math.MaxFloat32 {
		return nil
	}
	var out []chain
	for at := 0; at != passes*width+len(prompts); at = int(next[at]) {
		i := at / width
		j := at % width
		toPass := int(next[at]) / width
		toPrompt := int(next[at]) % width
		if toPass == i { // the prompt was skipped
			continue
		}
		c := chain{prompts: prompts[j:toPrompt]}
		for k := i; k < toPass; k++ {
			c.passes = append(c.passes, k)
		}
		out = append(out, c)
	}
	return out
}
