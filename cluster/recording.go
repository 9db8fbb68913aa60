package cluster

// This file turns recorded requests into a load: a Mooncake trace (scaled down) or the requests of
// a file (unchanged), played at any rate from a start that a seed draws.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// mooncakePreset is the name of the preset and workload of a recorded Mooncake trace.
const mooncakePreset = "mooncake"

// shrink divides the lengths and hash spans of the recorded trace, whose longest prompt has 126,195
// tokens, because the engines allow 8,192. Requests that share a prefix still do.
const shrink = 16

// filePreset is the name of the preset and workload of a file whose requests are used unchanged.
const filePreset = "workload"

// recording is recorded requests (about an hour of them in the Mooncake trace) that can be played again:
// lengths, content hashes and arrivals. Times count from the first request.
type recording struct {
	reqs      []sim.Request
	fromUs    []float64 // start of the interval in which each request arrives
	widthUs   []float64 // length of that interval
	lengthUs  float64
	asTheyAre bool // the requests have classes; otherwise classes are drawn
}

// fileRecording returns a recording whose requests are played unchanged. A class without any target gets
// the published targets. Requests that arrive only after another one, and targets that differ
// within a class, are errors.
func fileRecording(reqs []sim.Request) (*recording, error) {
	h := &recording{
		reqs:      slices.Clone(reqs),
		fromUs:    make([]float64, len(reqs)),
		widthUs:   make([]float64, len(reqs)),
		asTheyAre: true,
	}
	promised := promisedTargets(reqs)
	for i := range h.reqs {
		q := &h.reqs[i]
		if q.After > 0 || q.Loop > 0 || q.With > 0 {
			return nil, trace.Errorf(codeBadSpec,
				"preset %s: request %d: got one that waits for another, want arrivals that all policies share",
				filePreset, i).
				WithHint("give a workload of open arrivals: clients with a rate, not a concurrency")
		}
		if promised[q.SLOClass] == (target{}) { // no request of the class has one
			q.SLOTTFTUs = int64(publishedTargets[q.SLOClass].TTFTUs)
		} else if promisedTargets(h.reqs[i : i+1])[q.SLOClass] != promised[q.SLOClass] {
			return nil, trace.Errorf(codeBadSpec,
				"preset %s: request %d: got other targets than others of class %q, want one of each class",
				filePreset, i, q.SLOClass)
		}
	}
	stat.SortStable(h.reqs, func(a, b sim.Request) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
	for i := range h.reqs {
		h.fromUs[i] = float64(h.reqs[i].ArrivalUs - h.reqs[0].ArrivalUs)
	}
	if n := len(reqs); n > 1 {
		last := h.fromUs[n-1]
		h.lengthUs = last + last/float64(n-1) // a mean gap separates the last request from the next pass
	}
	return h, nil
}

// perSecond returns the mean rate of the recorded arrivals, requests per second.
func (h *recording) perSecond() float64 { return float64(len(h.reqs)) / h.lengthUs * 1e6 }

// mooncakeRecording returns a Mooncake trace as a recording, with lengths divided by shrink. Its timestamps
// are batches of requests at the same time, so each request gets an equal part of the interval up
// to the next batch, in which its arrival is drawn.
func mooncakeRecording(reqs []sim.Request) (*recording, error) {
	if len(reqs) == 0 {
		return nil, trace.Errorf(codeBadSpec, "preset %s: got no requests, want a Mooncake trace", mooncakePreset)
	}
	h := &recording{
		reqs:    slices.Clone(reqs),
		fromUs:  make([]float64, len(reqs)),
		widthUs: make([]float64, len(reqs)),
	}
	stat.SortStable(h.reqs, func(a, b sim.Request) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
	last := h.reqs[len(reqs)-1].ArrivalUs
	// Time from a batch to the next one. The last batch has the gap of the one before it, and a single batch
	// the mean gap.
	gapUs := float64(last) / float64(len(reqs))
	for from := 0; from < len(reqs); {
		to := from + 1
		for to < len(reqs) && h.reqs[to].ArrivalUs == h.reqs[from].ArrivalUs {
			to++
		}
		if to < len(reqs) {
			gapUs = float64(h.reqs[to].ArrivalUs - h.reqs[from].ArrivalUs)
		}
		for i := from; i < to; i++ {
			h.widthUs[i] = gapUs / float64(to-from)
			h.fromUs[i] = float64(h.reqs[i].ArrivalUs) + float64(i-from)*h.widthUs[i]
		}
		from = to
	}
	for i := range h.reqs {
		q := &h.reqs[i]
		if len(q.Hashes) == 0 || q.HashTokens%shrink != 0 {
			return nil, trace.Errorf(codeBadSpec,
				"preset %s: request %d: got no hash_ids of spans of whole %d tokens, want a Mooncake trace",
				mooncakePreset, i, shrink)
		}
		q.PromptTokens = max(1, q.PromptTokens/shrink)
		q.OutputTokens = max(1, q.OutputTokens/shrink)
		q.HashTokens = q.HashTokens / shrink
	}
	h.lengthUs = float64(last) + gapUs
	return h, nil
}

// words describes the recording in a sentence for the report.
func (h *recording) words() string {
	if h.asTheyAre {
		return fmt.Sprintf("%d requests of a file, %.3g s at %.3g/s, played from a start drawn by seed",
			len(h.reqs), h.lengthUs/1e6,
			h.perSecond())
	}
	return fmt.Sprintf("a recorded trace of %d requests, lengths divided by %d, played faster from a start drawn "+
		"by seed, 33/34/33 %% critical, standard, sheddable", len(h.reqs), shrink)
}

// draw returns the requests of a run: the recording played at a rate, in requests per second, for
// some seconds, from a start that depends on the seed. Arrivals are stretched or compressed to the
// rate. After its last request the recording begins again with other content hashes, so that a
// second pass finds nothing cached.
func (h *recording) draw(s *stream, seed int64, rate, seconds float64) []sim.Request {
	count := len(h.reqs)
	first := s.randFor(seed, streamGroup, 0).IntN(count)
	speed := rate * h.lengthUs / 1e6 / float64(count) // recorded time / played time
	var out []sim.Request
	startUs := 0.0
	for i := 0; ; i++ {
		index, pass := (first+i)%count, (first+i)/count
		atUs := float64(pass)*h.lengthUs + h.fromUs[index] + h.widthUs[index]*s.randFor(seed, streamArrival, i).Float64()
		if i == 0 {
			startUs = atUs
		}
		if atUs = (atUs - startUs) / speed; atUs >= seconds*1e6 {
			return out
		}
		request := s.arrival(seed, i, atUs)
		from := &h.reqs[index]
		if h.asTheyAre { // with the recorded class and targets in place of those that arrival drew
			drawn := request
			request = *from
			request.ID = drawn.ID
			request.ArrivalUs = drawn.ArrivalUs
		}
		request.PromptTokens = from.PromptTokens
		request.OutputTokens = from.OutputTokens
		request.Hashes = from.Hashes
		request.HashTokens = from.HashTokens
		if pass > 0 { // content of its own, which no earlier pass has left in a cache
			request.Hashes = slices.Clone(request.Hashes)
			for k := range request.Hashes {
				request.Hashes[k] += uint64(pass) << 40
			}
		}
		out = append(out, request)
	}
}
