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

// This file compares the hits that were found with the server's own counts: the counters of /metrics
// and the hit rates in its log (spec#counted-hits).

// Check compares the hits of requests with the server's counters, and returns findings. The
// counters in two answers of /metrics that were read while no prompt was half computed enclose a
// group of requests, whose hits must add up to the difference. If they do not, the cached tokens of
// the group become unknown again. The findings name the groups that differ, and the answers that
// were read within a prompt.
func (g *Pairing) Check(answers []enginelog.Counters) []trace.Finding {
	g.deltas = map[string]int64{}
	stat.SortStable(answers, func(a, b enginelog.Counters) int {
		return cmp.Or(cmp.Compare(a.Queries, b.Queries), cmp.Compare(a.Hits, b.Hits))
	})
	var findings []trace.Finding
	order := g.inOrder()
	places := g.placesOf(answers, order)
	last := -1 // the last answer that was taken between two requests
	for k := range answers {
		if places[k] < 0 {
			continue
		}
		if last >= 0 && places[k] > places[last] {
			group := order[places[last]:places[k]]
			if problem := g.compareGroup(&answers[last], &answers[k], group); problem != "" {
				findings = append(findings, trace.Findingf(clients.CodeClientFile, "%s", problem))
			}
		}
		last = k
	}
	misfits := 0
	firstMisfit := ""
	for k, place := range places {
		if place < 0 {
			if misfits == 0 {
				firstMisfit = answers[k].Name
			}
			misfits++
		}
	}
	if misfits > 0 {
		findings = append(findings, trace.Findingf(clients.CodeClientFile,
			"%d of %d answers of /metrics count prompts that no number of requests in order makes up: another "+
				"client, or requests were running; the first is %s", misfits, len(places), firstMisfit))
	}
	return findings
}

// inOrder returns the indices of requests with chunks, in the order of their first known chunk.
func (g *Pairing) inOrder() []int {
	var out []int
	for i := range g.rows {
		if r := &g.rows[i]; (r.FirstChunkNs.OK || r.LastChunkNs.OK) && r.PromptTokens.OK {
			out = append(out, i)
		}
	}
	firstNs := func(i int) int64 { return g.rows[i].FirstChunkNs.Or(g.rows[i].LastChunkNs.V) }
	stat.SortStable(out, func(a, b int) int { return cmp.Compare(firstNs(a), firstNs(b)) })
	return out
}

// mostShifts limits the search of placesOf for the number of requests before the first answer: each of
// them is compared with every answer.
const mostShifts = 100_000

// placesOf returns for each answer how many of the requests, in order, it has counted: those whose
// prompt tokens add up to its counter of queries; -1 if no number of requests does. The server may
// have counted other prompts before the first request; that number is the one on which most answers
// agree.
func (g *Pairing) placesOf(answers []enginelog.Counters, order []int) []int {
	best := make([]int, len(answers)) // 0: before all requests, if no assumption fits any answer
	if len(answers) == 0 {
		return best
	}
	sum := int64(0)
	sums := []int64{0}             // prompt tokens of the first 0, 1, 2, ... requests
	counted := map[int64]int{0: 0} // number of requests by that sum
	for i, row := range order {
		sum += g.rows[row].PromptTokens.V
		sums = append(sums, sum)
		counted[sum] = i + 1
	}
	most := 0
	// Assume that the first answer was read after the first 0, 1, 2, ... requests; the assumption with
	// which most answers agree is used.
	for _, before := range sums[:min(len(sums), mostShifts)] {
		shift := answers[0].Queries - before // prompt tokens of others that the server had counted
		places := make([]int, len(answers))
		fitting := 0
		for k, answer := range answers {
			place, ok := counted[answer.Queries-shift]
			if !ok {
				places[k] = -1
				continue
			}
			places[k] = place
			fitting++
		}
		if fitting > most {
			most = fitting
			best = places
		}
		if fitting == len(answers) {
			break
		}
	}
	return best
}

// compareGroup compares the hits of rows, the requests (by index) between the answers a and b of /metrics,
// with the difference of the counters. If they agree, the requests with unknown hits share what the server
// counted beyond the known ones, and it returns "". If not, it returns a description of the
// difference and makes the cached tokens of rows unknown, except those that the server returned
// with its answers.
func (g *Pairing) compareGroup(a, b *enginelog.Counters, rows []int) string {
	want := b.Hits - a.Hits
	phase := g.rows[rows[0]].Phase.V
	if n := g.countPhase(rows, phase); n == len(rows) && n == g.countPhase(g.inOrder(), phase) {
		g.deltas[phase] = want // the answers enclose the whole phase and nothing else
	}
	found, most, ok := g.shareCounted(rows, want)
	if ok {
		return ""
	}
	dropped := 0
	for _, i := range rows {
		r := &g.rows[i]
		if r.CachedSource.V != trace.CachedUsage {
			r.CachedTokens = trace.Opt[int64]{}
			r.CachedSource = trace.Opt[string]{}
			r.CachedMin = trace.Opt[int64]{}
			r.CachedMax = trace.Opt[int64]{}
			dropped++
		}
	}
	return fmt.Sprintf("from %s to %s the server counted %d cached tokens, the passes give %d to %d, so the "+
		"cached tokens of these %d requests are unknown", a.Name, b.Name, want, found, found+most, dropped)
}

// countPhase returns how many of rows belong to a phase.
func (g *Pairing) countPhase(rows []int, phase string) int {
	n := 0
	for _, i := range rows {
		if g.rows[i].Phase.V == phase {
			n++
		}
	}
	return n
}

// shareCounted divides want tokens, the hits of all rows together, among the rows whose hits are
// not known: as the client's file states what their prompts share, if that makes up the sum, else in
// proportion to the prompts. found is the sum of the known hits, and most the largest sum that the
// others can have. ok is false if want less found is negative, above most, or not whole blocks.
func (g *Pairing) shareCounted(rows []int, want int64) (found, most int64, ok bool) {
	block := max(1, g.rules.Block)
	var guesses []*guess
	var unknown []int
	for _, i := range rows {
		r := &g.rows[i]
		if r.CachedTokens.OK {
			found += r.CachedTokens.V
			continue
		}
		hi := g.rules.maxCached(r.PromptTokens.V)
		most += hi
		guesses = append(guesses, &guess{row: r, source: trace.CachedCounter})
		unknown = append(unknown, i)
		r.CachedMin = trace.Some(int64(0))
		r.CachedMax = trace.Some(hi)
	}
	rest := want - found
	if rest < 0 || rest > most || rest%block != 0 {
		return found, most, false
	}
	stated := g.statedHits(unknown, rest)
	for k, guess := range guesses {
		if stated != nil {
			guess.tokens = stated[k]
			guess.source = trace.CachedGroup
			continue
		}
		share := float64(guess.row.CachedMax.V) / float64(max(1, most))
		guess.tokens = g.rules.wholeBlocks(int64(float64(rest) * share))
	}
	adjustGuesses(guesses, rest) // rounding to blocks has left some of the sum
	for _, guess := range guesses {
		guess.row.CachedTokens = trace.Some(guess.tokens)
		guess.row.CachedSource = trace.Some(guess.source)
		if rest == 0 {
			guess.row.CachedMax = guess.row.CachedMin // both 0: nothing was cached
		}
	}
	return found, most, true
}

// statedHits returns the cached tokens of each of rows (requests by index, in the order of the server), if
// each is the prefix that the client's file states and the first prompt of a prefix finds none. It returns
// nil if the file does not state it of all of them, or if the sum is not the counted one to within
// [trace.MostGuessed] of the prompts.
func (g *Pairing) statedHits(rows []int, counted int64) []int64 {
	var hits []int64
	seen := map[string]bool{} // groups with a prompt before this one
	for i := range g.rows {
		if r := &g.rows[i]; r.PrefixGroup.OK && r.CachedTokens.OK {
			seen[r.PrefixGroup.V] = true
		}
	}
	sum := int64(0)
	prompts := int64(0) // tokens
	for _, i := range rows {
		r := &g.rows[i]
		prompts += r.PromptTokens.V
		switch {
		case r.SharesNothing():
			hits = append(hits, 0)
			continue
		case !r.PrefixGroup.OK || !r.PrefixTokens.OK:
			return nil
		case !seen[r.PrefixGroup.V]:
			seen[r.PrefixGroup.V] = true
			hits = append(hits, 0)
			continue
		}
		n := g.rules.wholeBlocks(min(r.PromptTokens.V-1, r.PrefixTokens.V))
		hits = append(hits, n)
		sum += n
	}
	if math.Abs(float64(sum-counted)) > trace.MostGuessed*float64(prompts) {
		return nil
	}
	return hits
}

// rateRequests is the number of requests over which vLLM averages the hit rate that it logs.
const rateRequests = 1000

// Lines in which requests may have waited for blocks of the KV cache.
const (
	leastShort  = 0.5   // share of the cache in use, from which the longest prompts may find too few blocks
	nearlyFull  = 0.8   // from which one may have waited, or was preempted, between two lines
	fewestClean = 3     // lines with prompts before, from which their rate is that of all
	leastRise   = 0.002 // of a rate with three digits, which is a hit
)

// isShort reports whether requests waited while the cache was filled.
func isShort(l *enginelog.Statistics) bool { return l.Waiting > 0 && l.KVUsage > leastShort }

// untilShortage returns how many rates tell what prompts found in the cache: those before a line in which requests waited for blocks.
// vLLM looks such a request up again in every step, and a preempted one finds its own blocks, which both count, so that rates
// after it are of look-ups and not of prompts. It returns 0 for too few of them, and all where the rate rises later without
// such requests too: then prompts do share tokens.
func untilShortage(rates []enginelog.Statistics) int {
	first := slices.IndexFunc(rates, func(l enginelog.Statistics) bool { return isShort(&l) })
	if first < 0 {
		return len(rates)
	}
	for i := first + 1; i < len(rates); i++ {
		before, l := &rates[i-1], &rates[i]
		mayBeShort := isShort(before) || isShort(l) || max(before.KVUsage, l.KVUsage) > nearlyFull
		if !mayBeShort && l.HitFrac > before.HitFrac+leastRise {
			return len(rates)
		}
	}
	clean := 0 // lines with prompts
	for i := range rates[:first] {
		if rates[i].PromptRate > 0 {
			clean++
		}
	}
	if clean < fewestClean {
		return 0
	}
	return first
}

// Rate sets cached tokens from the hit rates in the log if no other source has any, and returns
// findings. If all rates are 0, no request had a hit. Otherwise the last rate is used if there is
// one engine and all requests are among the 1000 over which the rate is averaged. Only rates before
// requests waited for blocks count (untilShortage).
func (g *Pairing) Rate(rates []enginelog.Statistics) []trace.Finding {
	order := g.inOrder()
	if len(rates) == 0 || len(order) == 0 || g.Paired > 0 {
		return nil
	}
	for i := range g.rows {
		if g.rows[i].CachedTokens.OK {
			return nil
		}
	}
	all := rates
	rates = rates[:untilShortage(rates)]
	later := "" // of the lines that do not count
	if len(rates) < len(all) {
		later = fmt.Sprintf(" (%.1f %% after requests had waited for blocks, whose look-ups count again)", 100*all[len(all)-1].HitFrac)
	}
	if len(rates) == 0 {
		return []trace.Finding{trace.Findingf(clients.CodeClientFile,
			"%d hit rates of the prefix cache in the log%s are not used", len(all), later)}
	}
	last := rates[len(rates)-1]
	isZero := true
	isOneEngine := true
	for _, r := range rates {
		isZero = isZero && !(r.HitFrac > 0)
		isOneEngine = isOneEngine && r.Engine == last.Engine
	}
	prompts := int64(0)
	for _, i := range order {
		prompts += g.rows[i].PromptTokens.V
	}
	block := max(1, g.rules.Block)
	hits := int64(math.Round(last.HitFrac*float64(prompts)/float64(block))) * block
	if stated := g.statedHits(order, hits); stated != nil { // a rate has three digits
		hits = 0
		for _, n := range stated {
			hits += n
		}
	}
	outcome := "are taken for all of these prompts"
	if !isZero && (len(order) > rateRequests || !isOneEngine) {
		outcome = "are each of the last 1000 requests of one engine, and not used"
	} else if _, _, ok := g.shareCounted(order, hits); !ok { // sets the requests' cached tokens if it can
		outcome = "are more than these prompts can have found, and not used"
	}
	return []trace.Finding{trace.Findingf(clients.CodeClientFile,
		"%d hit rates of the prefix cache in the log, the last %.1f %%%s, %s: %d prompts",
		len(rates), 100*last.HitFrac, later, outcome, len(order))}
}

// Drafts returns a description of what passes and clients show of speculative decoding, after
// Check; "" if nothing. In each pass the generation tokens beyond the number of decodes are drafts,
// and a stream has one chunk for each pass.
func (g *Pairing) Drafts(answers []enginelog.Counters) string {
	passes := 0.0 // of the clients' answers, behind the first token
	tokens := 0.0 // that these passes made
	for i := range g.rows {
		if r := &g.rows[i]; r.Chunks.V > 1 && r.OutputTokens.V > 1 {
			passes += float64(r.Chunks.V - 1)
			tokens += float64(r.OutputTokens.V - 1)
		}
	}
	counted := ""
	if n := len(answers); n > 0 {
		counted = fmt.Sprintf("; the server counted %d", answers[n-1].Drafted)
	}
	return fmt.Sprintf("speculative decoding: %d tokens were drafted in %d decodes of requests%s; a pass yields "+
		"%.2f tokens a request",
		g.log.generationTokens-g.log.generationReqs, g.log.generationReqs, counted, tokens/max(1, passes))
}

// Preempted reports preemptions, because counting does not cover passes that compute a prompt
// again. The older model runner of vLLM logs the tokens computed again, and the server counts
// preemptions.
func (g *Pairing) Preempted(answers []enginelog.Counters) []trace.Finding {
	var parts []string
	if again := g.log.generationTokens - g.log.generationReqs; again > 0 && !g.rules.Speculative {
		parts = append(parts, fmt.Sprintf("passes computed %d tokens once more", again))
	}
	if n := len(answers); n > 0 && answers[n-1].Preempted > 0 {
		parts = append(parts, fmt.Sprintf("%s counts %d", answers[n-1].Name, answers[n-1].Preempted))
	}
	if len(parts) == 0 {
		return nil
	}
	return []trace.Finding{trace.Findingf(clients.CodeClientFile,
		"preemption: %s; prompts are not found by counting in such passes, from which no step times are learned",
		strings.Join(parts, ", "))}
}
