package clients

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file drops load levels that no server can have measured: whose figures contradict each other
// or are in another unit, that stand twice in a file, or whose TTFT falls as the load grows
// (spec#level-checks). Such files come from scripts that copy columns of other tools.

// Tolerances of the checks. Honest benchmarks differ by warm-up, failed requests and the tail in
// which fewer requests run; a doubled figure is beyond them.
const (
	leastLittle      = 0.6    // requests/s x latency / requests in flight, 1 by Little's law
	mostLittle       = 1.6    // of the same
	mostLittleClosed = 1.25   // of the same: a closed loop never has more requests in flight than clients
	fewRequests      = 30     // requests below which a level's means say little
	tailRequests     = 5      // requests a client from which the tail of a closed loop is short
	leastE2E         = 0.1    // E2E / (TTFT + (output - 1) x ITL)
	mostE2E          = 10.0   // of the same; seconds in place of ms, or the reverse, are a factor of 1,000
	leastITLMs       = 0.01   // no server makes a token in so short a time
	mostITLMs        = 5000.0 // nor takes so long

	fewLevels   = 5    // levels of one shape from which their order is checked
	higherLoad  = 1.3  // times the load from which two levels are compared
	lowerTTFT   = 1.5  // times the TTFT of the higher load, from which TTFT counts as falling
	mostFalling = 0.15 // share of the pairs of levels in which TTFT may fall by chance
)

// dropImpossible drops the levels of a file that the checks of this file find impossible.
func (f *LevelFile) dropImpossible() {
	kept := f.Levels[:0]
	var seen []Level // without their lines
	for _, l := range f.Levels {
		withoutLine := l
		withoutLine.Line = 0
		code := source.CodeBadRecord
		why := l.contradiction()
		if why == "" && slices.Contains(seen, withoutLine) {
			code = source.CodeDuplicate
			why = "the same figures stand in the file before"
		}
		seen = append(seen, withoutLine)
		if why != "" {
			f.dropKept(&l, code, why)
			continue
		}
		kept = append(kept, l)
	}
	f.Levels = kept
	f.dropFalling()
}

// dropKept counts a level that was kept as dropped.
func (f *LevelFile) dropKept(l *Level, code trace.Code, why string) {
	f.Dropped[code]++
	f.Findings = append(f.Findings, trace.Findingf(code, "%s: %s", source.Place{File: l.Sweep, Line: l.Line}, why))
}

// contradiction returns how the figures of a level contradict each other; "" if they do not.
func (l *Level) contradiction() string {
	if l.ITLMs < leastITLMs || l.ITLMs > mostITLMs {
		return fmt.Sprintf("ITL: got %g ms, want %g to %g; is it in another unit?", l.ITLMs, leastITLMs, mostITLMs)
	}
	streamMs := cmp.Or(l.TTFTMeanMs, l.TTFTMedianMs) + max(0, l.OutputTokens-1)*l.ITLMs // E2E that follows from TTFT and ITL
	if r := l.E2EMs / streamMs; l.E2EMs > 0 && (r < leastE2E || r > mostE2E) {
		return fmt.Sprintf("E2E: got %.4g ms, want about TTFT + (output - 1) x ITL = %.4g ms; is one in another unit?", l.E2EMs, streamMs)
	}
	// In a short run the beginning and the tail, with few requests in flight, have much of the time.
	isShort := l.Requests > 0 && l.Requests < max(fewRequests, tailRequests*l.Clients)
	inFlight := l.RateRPS * cmp.Or(l.E2EMs, streamMs) / 1e3
	switch {
	case l.RateRPS <= 0: // not given
	case l.Clients > 0:
		if r := inFlight / float64(l.Clients); r > mostLittleClosed || r < leastLittle && !isShort {
			return fmt.Sprintf("clients: got %d, want about requests/s x latency = %.4g (Little's law)", l.Clients, inFlight)
		}
	case l.Concurrency > 0:
		if r := inFlight / l.Concurrency; !isShort && (r < leastLittle || r > mostLittle) {
			return fmt.Sprintf("requests in flight: got %.4g, want about requests/s x latency = %.4g (Little's law)", l.Concurrency, inFlight)
		}
	}
	return ""
}

// load returns a number by which levels of one shape are ordered: the number of concurrent clients,
// or else the request rate.
func (l *Level) load() float64 {
	if l.Clients > 0 {
		return float64(l.Clients)
	}
	return firstAbove0(l.OfferedRPS, l.RateRPS)
}

// dropFalling drops the levels of a shape whose TTFT falls as the load grows, in more pairs than
// noise explains. The level with the lowest load is not compared, because it may have been measured on
// a cold server.
func (f *LevelFile) dropFalling() {
	shapes := map[string][]int{} // by lengths and parallel sizes, within about 10 %
	for i := range f.Levels {
		l := &f.Levels[i]
		shape := fmt.Sprint(math.Round(10*math.Log(l.PromptTokens)), math.Round(10*math.Log(l.OutputTokens)), l.TP, l.EP, l.DP, l.Clients > 0)
		shapes[shape] = append(shapes[shape], i)
	}
	isDropped := map[int]bool{} // by index in f.Levels
	for _, list := range shapes {
		stat.SortStable(list, func(a, b int) int { return cmp.Compare(f.Levels[a].load(), f.Levels[b].load()) })
		if len(list) < fewLevels {
			continue
		}
		pairs := 0
		falling := 0
		ttft := func(l *Level) float64 { return cmp.Or(l.TTFTMeanMs, l.TTFTMedianMs) }
		compared := list[1:] // without the lowest load
		for i := range compared {
			low := &f.Levels[compared[i]]
			for _, k := range compared[i+1:] {
				high := &f.Levels[k]
				if high.load() < higherLoad*low.load() {
					continue
				}
				pairs++
				if ttft(low) > lowerTTFT*ttft(high) {
					falling++
				}
			}
		}
		if falling < 2 || float64(falling) <= mostFalling*float64(pairs) {
			continue
		}
		for _, i := range list {
			isDropped[i] = true
			f.dropKept(&f.Levels[i], source.CodeBadRecord,
				fmt.Sprintf("TTFT falls by a third or more while the load grows in %d of %d pairs of levels; is a column in another order?", falling, pairs))
		}
	}
	kept := f.Levels[:0]
	for i, l := range f.Levels {
		if !isDropped[i] {
			kept = append(kept, l)
		}
	}
	f.Levels = kept
}
