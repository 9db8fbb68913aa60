package clients

// This file finds files that repeat the requests of another: a copy, or the same results in another form.

import (
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// requestFile is the range of Reader.Requests that a file gave.
type requestFile struct {
	name     string
	from, to int
}

// leastRepeated is the number of requests from which equal times cannot be by chance.
const leastRepeated = 3

// isRepeated reports whether two records are of one request: all that was measured is equal. Records of
// successes without a TTFT have too little to compare.
func isRepeated(a, b trace.ObservedRequest) bool {
	return a.Source == b.Source && a.SendNs == b.SendNs && a.TTFTUs == b.TTFTUs && a.E2EUs == b.E2EUs &&
		a.PromptTokens == b.PromptTokens && a.OutputTokens == b.OutputTokens && (a.TTFTUs.OK || !a.Success.Or(true))
}

// dropRepeatedFiles drops the requests of a file that repeats those of an earlier one, in the same order.
func (c *Reader) dropRepeatedFiles() {
	isDropped := make([]bool, len(c.Requests))
	for k, f := range c.requestFiles {
		rows := c.Requests[f.from:f.to]
		if len(rows) < leastRepeated {
			continue
		}
		for _, earlier := range c.requestFiles[:k] {
			others := c.Requests[earlier.from:earlier.to]
			if !slices.EqualFunc(rows, others, isRepeated) {
				continue
			}
			for i := f.from; i < f.to; i++ {
				isDropped[i] = true
			}
			c.dropLoads(f.name)
			c.Acc.Keep(-int64(len(rows)))
			c.Acc.Drop(source.CodeDuplicate, int64(len(rows)), source.Place{File: f.name}, "the same requests as in %s", earlier.name)
			break
		}
	}
	c.removeRequests(isDropped)
}

// dropLoads removes the loads of a file.
func (c *Reader) dropLoads(file string) {
	c.Loads = slices.DeleteFunc(c.Loads, func(l Load) bool { return l.file == file })
}

// removeRequests removes the requests for which isRemoved is true, by index, and moves the ranges of
// requests that files have.
func (c *Reader) removeRequests(isRemoved []bool) {
	if !slices.Contains(isRemoved, true) {
		return
	}
	at := make([]int, len(c.Requests)+1) // where each request is afterwards
	kept := c.Requests[:0]               // in place: near the limit of memory there is no room for a copy
	for i, r := range c.Requests {
		at[i] = len(kept)
		if !isRemoved[i] {
			kept = append(kept, r)
		}
	}
	at[len(c.Requests)] = len(kept)
	c.Requests = kept
	for i := range c.traceFiles {
		f := &c.traceFiles[i]
		f.from = at[f.from]
		f.to = at[f.to]
	}
	for i := range c.requestFiles {
		f := &c.requestFiles[i]
		f.from = at[f.from]
		f.to = at[f.to]
	}
	for i := range c.drawn {
		d := &c.drawn[i]
		d.from = at[d.from]
		d.to = at[d.to]
	}
}
