package pairing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/trace"
)

// Drafts says, after Check, of an engine that drafts tokens what its passes and clients make of them: drafted
// tokens are the generation tokens beyond the requests of each pass, and a stream has one
// chunk a pass.
func (g *Pairing) Drafts(answers []enginelog.Counters) string {
	passes, tokens := 0.0, 0.0
	for i := range g.rows {
		if r := &g.rows[i]; r.Chunks.V > 1 && r.OutputTokens.V > 1 {
			passes = passes + float64(r.Chunks.V-1)
			tokens = tokens + float64(r.OutputTokens.V-1)
		}
	}
	counted := ""
	if n := len(answers); n > 0 {
		counted = fmt.Sprintf("; the server counted %d", answers[n-1].Drafted)
	}
	return fmt.Sprintf("speculative decoding: %d tokens were drafted in %d decodes of requests%s; a pass yields %.2f tokens a request",
		g.passes.tokens-g.passes.reqs, g.passes.reqs, counted, tokens/max(1, passes))
}

// Check compares what was found with the counters: answers of /metrics taken where no prompt
// was half counted cut the requests into stretches, and the hits of each must be the
// counters'. Requests of a stretch where one token differs lose what was found. The findings
// say what differs, and which answers fit no place.
func (g *Pairing) Check(answers []enginelog.Counters) (findings []trace.Finding) {
	g.deltas = map[string]int64{}
	slices.SortStableFunc(answers, func(a, b enginelog.Counters) int {
		return cmp.Or(cmp.Compare(a.Queries, b.Queries), cmp.Compare(a.Hits, b.Hits))
	})
	order := g.inOrder()
	at, lastK := g.places(answers, order), -1
	for k := range answers {
		if at[k] < 0 {
			continue
		}
		if lastK >= 0 && at[k] > at[lastK] {
			if f := g.compare(&answers[lastK], &answers[k], order[at[lastK]:at[k]]); f != "" {
				findings = append(findings, trace.Findingf(clients.CodeClientFile, "%s", f))
			}
		}
		lastK = k
	}
	if n := stat.Count(at, func(i int) bool { return i < 0 }); n > 0 {
		findings = append(findings, trace.Findingf(clients.CodeClientFile, "%d of %d answers of /metrics count prompts that no number of requests "+
			"in order makes up: another client, or requests were running; the first is %s", n, len(at), answers[slices.IndexFunc(at,
			func(i int) bool { return i < 0 })].Name))
	}
	return findings
}

// inOrder are the rows with chunks, in order of the first that is known.
func (g *Pairing) inOrder() []int {
	var out []int
	for i := range g.rows {
		if r := &g.rows[i]; (r.FirstChunkNs.OK || r.LastChunkNs.OK) && r.PromptTokens.OK {
			out = append(out, i)
		}
	}
	at := func(i int) int64 { return g.rows[i].FirstChunkNs.Or(g.rows[i].LastChunkNs.V) }
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(at(a), at(b)) })
	return out
}

// places finds how many requests, in order, each answer has counted, -1 where no number fits:
// by the shift that most answers agree on.
func (g *Pairing) places(answers []enginelog.Counters, order []int) []int {
	sum := int64(0)
	sums := map[int64]int{0: 0}
	starts := []int64{0}
	for i, row := range order {
		sum += g.rows[row].PromptTokens.V
		sums[sum] = i + 1
		starts = append(starts, sum)
	}
	out, most := make([]int, len(answers)), 0
	if len(answers) == 0 {
		return out
	}
	const mostShifts = 100_000
	for _, s := range starts[:min(len(starts), mostShifts)] {
		shift := answers[0].Queries - s
		n := stat.Count(answers, func(a enginelog.Counters) bool { _, ok := sums[a.Queries-shift]; return ok })
		if n > most {
			most = n
			for k, a := range answers {
				if i, ok := sums[a.Queries-shift]; ok {
					out[k] = i
				} else {
					out[k] = -1
				}
			}
		}
		if n == len(answers) {
			break
		}
	}
	return out
}

// compare holds the hits of rows, which two answers enclose, against their difference. What
// the server counted beyond those that are told belongs to the others.
func (g *Pairing) compare(a, b *enginelog.Counters, rows []int) string {
	want := b.Hits - a.Hits
	phase := g.rows[rows[0]].Phase.V
	of := func(i int) bool { return g.rows[i].Phase.V == phase }
	if n := stat.Count(rows, of); n == len(rows) && n == stat.Count(g.inOrder(), of) {
		g.deltas[phase] = want
	}
	found, most, ok := g.counted(rows, want)
	if ok {
		return ""
	}
	dropped := 0
	for _, i := range rows {
		r := &g.rows[i]
		if r.CachedSource.V != trace.CachedUsage {
			var none trace.Opt[int64]
			r.CachedTokens = none
			r.CachedSource = trace.Opt[string]{}
			r.CachedMin = none
			r.CachedMax = none
			dropped++
		}
	}
	return fmt.Sprintf("from %s to %s the server counted %d cached tokens, the passes make %d to %d: nothing that they say of these %d "+
		"requests is used", a.Name, b.Name, want, found, found+most, dropped)
}

// counted shares what rows had in the cache, want tokens, among those that nothing else tells.
// found tokens are told, most is what the others may have; false where want is not between.
func (g *Pairing) counted(rows []int, want int64) (found, most int64, ok bool) {
	var open []*guess
	for _, i := range rows {
		r := &g.rows[i]
		found += r.CachedTokens.V
		if !r.CachedTokens.OK {
			hi := g.rules.maxCached(r.PromptTokens.V)
			most += hi
			open = append(open, &guess{row: r, source: trace.CachedCounter, tokens: 0})
			r.CachedMin, r.CachedMax = trace.Some(int64(0)), trace.Some(hi)
		}
	}
	if want < found || want > found+most || (want-found)%max(1, g.rules.Block) != 0 {
		return found, most, false
	}
	for _, o := range open { // in proportion to their prompts, then by whole blocks
		o.tokens = int64(float64(want-found)*float64(o.row.CachedMax.V)/float64(max(1, most))) / g.rules.Block * g.rules.Block
	}
	share(open, want-found)
	for _, o := range open {
		o.row.CachedTokens, o.row.CachedSource = trace.Some(o.tokens), trace.Some(o.source)
		if want == found {
			o.row.CachedMax = o.row.CachedMin
		}
	}
	return found, most, true
}

// rateRequests is how many requests a logged hit rate is of.
const rateRequests = 1000

// Rate shares by the hit rates of the log where nothing else tells of any prompt: none had
// anything where all rates are 0, else the last of one engine tells of up to 1000 requests.
func (g *Pairing) Rate(rates []enginelog.HitRate) []trace.Finding {
	order := g.inOrder()
	told := stat.Count(g.rows, func(r trace.ObservedRequest) bool { return r.CachedTokens.OK })
	if len(rates) == 0 || len(order) == 0 || g.Paired+told > 0 {
		return nil
	}
	last := rates[len(rates)-1]
	sum := stat.Sum(order, func(i int) int64 { return g.rows[i].PromptTokens.V })
	others := stat.Count(rates, func(r enginelog.HitRate) bool { return r.Engine != last.Engine })
	hits := last.Frac * float64(sum) / float64(max(1, g.rules.Block))
	said := "are taken for all of these prompts"
	if someHit := slices.ContainsFunc(rates, func(r enginelog.HitRate) bool { return r.Frac > 0 }); someHit && len(order)+1000*others > rateRequests {
		said = "are each of the last 1000 requests of one engine, and not used"
	} else if _, _, ok := g.counted(order, int64(math.Round(hits))*max(1, g.rules.Block)); !ok {
		said = "are more than these prompts can have found, and not used"
	}
	return []trace.Finding{trace.Findingf(clients.CodeClientFile, "%d hit rates of the prefix cache in the log, the last %.1f %%, %s: %d prompts",
		len(rates), 100*last.Frac, said, len(order))}
}

// Preempted names preemptions by the tokens that passes computed once more, as vLLM's older model
// runner counts them, and by the last of the server's answers: counting prompts does not cover them.
func (g *Pairing) Preempted(answers []enginelog.Counters) []trace.Finding {
	var said []string
	if again := g.passes.tokens - g.passes.reqs; again > 0 && !g.rules.Speculative {
		said = append(said, fmt.Sprintf("passes computed %d tokens once more", again))
	}
	if n := len(answers); n > 0 && answers[n-1].Preempted > 0 {
		said = append(said, fmt.Sprintf("%s counts %d", answers[n-1].Name, answers[n-1].Preempted))
	}
	if len(said) == 0 {
		return nil
	}
	return []trace.Finding{trace.Findingf(clients.CodeClientFile, "preemption: %s; prompts are not found by counting in such passes, which teach no "+
		"step times", strings.Join(said, ", "))}
}
