package identity

// This file compares the tokens that the server's log counts every ten seconds with those of the recorded requests in the same
// time (result.ServerCount). A reading (identity.go) has what was compared, how much of it contradicts, and a sentence.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/result"
)

// Tolerances of the server's counts.
const (
	countTolerance = 0.05 // share of the tokens, beyond what the ends of the compared time allow
	mostOneSided   = 0.15 // share of prompts or outputs that may lack where the others are complete: lost requests lack of both
	fewestCounted  = 1000 // tokens
)

// countShares are the tokens of requests over those that the server counted.
type countShares struct {
	*result.ServerCount
	mostPrompts, mostOutputs   float64
	leastPrompts, leastOutputs float64 // prompts without what the cache may have had
}

// counts returns what can be compared of the server's counts.
func (f *facts) counts() (out []countShares) {
	for i := range f.Counted {
		c := &f.Counted[i]
		if c.Prompts.Server < fewestCounted || c.Outputs.Server < fewestCounted {
			continue
		}
		out = append(out, countShares{
			ServerCount:  c,
			mostPrompts:  c.Prompts.Most / c.Prompts.Server,
			mostOutputs:  c.Outputs.Most / c.Outputs.Server,
			leastPrompts: c.Prompts.Least * (1 - c.HitFrac) / c.Prompts.Server,
			leastOutputs: c.Outputs.Least / c.Outputs.Server,
		})
	}
	return out
}

// noCounts is why the server's counts are not compared.
const noCounts = "the log has no lines of statistics that go with requests of known wall-clock times, or too few"

// serverTokens compares the lengths of requests with the server's counts: requests cannot have more tokens, and where
// some are missing, they lack of prompts and outputs. Lines of the log are counted, and largest is a ratio (foldChange)
// of tokens.
func serverTokens(f *facts) reading {
	r := reading{why: noCounts}
	for _, c := range f.counts() {
		r.why = ""
		r.checked += c.Lines
		note := func(kind string, requests, server float64) {
			off := requests / server
			if foldChange(off) <= r.largest {
				return
			}
			r.largest = foldChange(off)
			r.broken = true
			r.effect = ""
			r.sentence = fmt.Sprintf("the %s have %.0f %s tokens in %d lines of the log in which the server counted %.0f, which is %.3g times as many: their lengths were "+
				"changed or are not in tokens", c.Of, requests, kind, c.Lines, server, off)
		}
		if c.leastPrompts > 1+countTolerance {
			note("prompt", c.Prompts.Least, c.Prompts.Server)
		}
		if c.leastOutputs > 1+countTolerance {
			note("output", c.Outputs.Least, c.Outputs.Server)
		}
		if c.mostOutputs < 1-mostOneSided && c.mostPrompts > 1-countTolerance {
			note("output", c.Outputs.Most, c.Outputs.Server)
		}
		if c.mostPrompts < 1-mostOneSided && c.mostOutputs > 1-countTolerance {
			note("prompt", c.Prompts.Most, c.Prompts.Server)
			if c.Of == result.CountClients && r.largest == foldChange(c.mostPrompts) {
				r.effect = result.IdentityNamed // clients count without the template
			}
		}
	}
	if r.broken {
		r.violated = r.checked
	}
	return r
}

// serverRequests estimates by the server's counts how many tokens are of requests that were not recorded. Lines of the
// log are counted, and largest is the share of the tokens.
func serverRequests(f *facts) reading {
	r := reading{why: noCounts}
	for _, c := range f.counts() {
		r.why = ""
		r.checked += c.Lines
		lost := 1 - math.Min(c.mostPrompts, c.mostOutputs)
		if lost <= countTolerance || lost <= r.largest || lost > mostOneSided && math.Max(c.mostPrompts, c.mostOutputs) > 1-countTolerance {
			continue
		}
		r.largest = lost
		r.broken = true
		r.sentence = fmt.Sprintf("the server counted %.0f prompt and %.0f output tokens in %d lines of the log, and the %s have %.0f and %.0f in the same time: about "+
			"%.3g %% of the load was not recorded", c.Prompts.Server, c.Outputs.Server, c.Lines, c.Of, c.Prompts.Most, c.Outputs.Most, 100*lost)
	}
	if r.broken {
		r.violated = int(math.Round(r.largest * float64(r.checked)))
	}
	return r
}
