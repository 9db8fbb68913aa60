package fit

import (
	"fmt"

	"github.com/blis-train/blis-train/pipeline/rows"
)

// kinds counts the steps a simulator will meet.
type kinds struct {
	heavy, decodeSmall, decodeLarge, longContext, fullCache int
	batch, context                                          int // largest seen: lower end of the last bin with steps
}

// enough is how many steps of a kind make it present.
const enough = 20

// Where small ends and large begins.
const (
	largeBatch  = 32
	longContext = 4096
	fullUsage   = 0.9
)

func kindsOf(c rows.Coverage) kinds {
	k := kinds{heavy: c.Heavy}
	for _, b := range c.DecodeBatch.Bins {
		if b.N > 0 {
			k.batch = int(b.Lo)
		}
		if b.Lo >= largeBatch {
			k.decodeLarge += b.N
		} else if b.Hi <= 4 {
			k.decodeSmall += b.N
		}
	}
	for _, b := range c.Context.Bins {
		if b.N > 0 {
			k.context = int(b.Lo)
		}
		if b.Lo >= longContext {
			k.longContext += b.N
		}
	}
	for _, b := range c.KVUsage.Bins {
		if b.Lo >= fullUsage {
			k.fullCache += b.N
		}
	}
	return k
}

// missing names the kinds that no run holds enough of.
func missing(all []kinds) []string {
	var sum kinds
	for _, k := range all {
		sum.heavy += k.heavy
		sum.decodeSmall += k.decodeSmall
		sum.decodeLarge += k.decodeLarge
		sum.longContext += k.longContext
		sum.fullCache += k.fullCache
		sum.batch, sum.context = max(sum.batch, k.batch), max(sum.context, k.context)
	}
	out := []string{}
	for _, r := range []struct {
		n    int
		what string
	}{
		{sum.heavy, "steps with more than 64 prefill tokens: the prefill cost is not identifiable"},
		{sum.decodeSmall, "decode batches below 4 requests"},
		{sum.decodeLarge, fmt.Sprintf("decode batches of %d requests and more (largest seen: about %d)", largeBatch, sum.batch)},
		{sum.longContext, fmt.Sprintf("contexts of %d tokens and more (longest seen: about %d)", longContext, sum.context)},
		{sum.fullCache, fmt.Sprintf("KV usage above %g", fullUsage)},
	} {
		if r.n < enough {
			out = append(out, fmt.Sprintf("%d %s", r.n, r.what))
		}
	}
	return out
}
