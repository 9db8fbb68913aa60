package library

// This file has the intervals that are stated beside a prediction. Measured kernels are off by a few
// per cent; the host's work, launches and kernels without a table are off by much more. So the width
// of an interval is proportional to the share of the time that rests on no measurement, and the
// factor is learned from families of servers other than the one that is predicted.

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
)

// The error of a time that rests on measured kernels alone, as the share of unmeasured time that
// would be as far off. The constants were chosen with the errors of the measured servers in view
// (docs/accuracy.md).
const (
	decodeFloor = 0.07
	promptFloor = 0.05
	// spreadExpertsShare is added where the experts are spread over ranks: which of them a prompt's tokens
	// choose, and what the ranks wait for each other, is in no table.
	spreadExpertsShare = 0.12
)

// The load that stands for what is not known of the load that is asked about.
const (
	typicalClients = 16
	typicalTokens  = 1024
)

// UnmeasuredShares returns the shares of a decode's time, and of a prompt's, that rest on no
// measured kernel, for a load: those of the host, of launches and of kernels without a table, and
// for a prompt those of the front end (overheadUs) and of collectives, whose ranks wait for each
// other. It takes two steps of the load: one decode of every client, half way through its answer, and
// the same with the first chunk of one prompt more (spec#library-step).
func (s *Step) UnmeasuredShares(theta *[NumStep]float64, overheadUs float64, a *Asked) (decode, prompt float64) {
	if len(s.Operators) == 0 {
		return 1, 1
	}
	clients := float64(max(1, cmp.Or(a.Clients, typicalClients)/max(1, a.DP)))
	input := float64(cmp.Or(a.InputTokens, typicalTokens))
	context := clients * (input + float64(cmp.Or(a.OutputTokens, typicalTokens))/2)
	cached := math.Floor(a.CachedShare * input)
	chunk := max(1, input-cached)
	if a.BatchedTokens > 0 {
		chunk = max(1, min(chunk, float64(a.BatchedTokens)))
	}
	decodes := Batch{Tokens: clients, Sequences: clients, Decodes: clients, DecodeContext: context}
	prompts := decodes
	prompts.Tokens += chunk
	prompts.Sequences++
	prompts.Prefills = 1
	prompts.PrefillTokens = chunk
	prompts.PrefillPairs = chunk*cached + chunk*(chunk+1)/2

	price := s.NewPricer()
	// shareOf returns the unmeasured share of a step and of the time before it.
	shareOf := func(b *Batch, beforeUs float64, unmeasured ...TimePart) float64 {
		parts := price.TimeParts(b, theta)
		totalUs, unmeasuredUs := beforeUs, beforeUs
		for _, us := range parts {
			totalUs += us
		}
		for _, k := range unmeasured {
			unmeasuredUs += parts[k]
		}
		return unmeasuredUs / totalUs
	}
	decode = decodeFloor + shareOf(&decodes, 0, HostTime, LaunchTime, SmallTime)
	prompt = promptFloor + shareOf(&prompts, overheadUs, HostTime, LaunchTime, SmallTime, CollectiveTime)
	if s.spreadExperts {
		prompt += spreadExpertsShare
	}
	return decode, prompt
}

// ofShares returns the intervals of a step with the given unmeasured shares, where i are the intervals for each
// share. TTFT is mostly the time of a prompt, the others of decodes.
func (i *Intervals) ofShares(decode, prompt float64) Intervals {
	return Intervals{
		TTFT:       i.TTFT * prompt,
		ITL:        i.ITL * decode,
		E2E:        i.E2E * decode,
		Throughput: i.Throughput * decode,
	}
}

// widest returns the wider interval of each figure.
func (i *Intervals) widest(o *Intervals) Intervals {
	return Intervals{
		TTFT:       math.Max(i.TTFT, o.TTFT),
		ITL:        math.Max(i.ITL, o.ITL),
		E2E:        math.Max(i.E2E, o.E2E),
		Throughput: math.Max(i.Throughput, o.Throughput),
	}
}

// IntervalsOf returns the intervals that are stated for a step in a load, and the axes on which it
// lies outside of what its family was measured with. Their factors are learned without the step's
// own family, so that families that were measured and others of the same GPUs have intervals of one
// rule. Outside of the measured axes, on a GPU without a measured family, and with kernels that no
// server ran, the intervals are at least the widest of all families. Measured axes are those of the
// family, or of all families where it was not measured (outside is then nil). All intervals grow by the
// step's Doubt.
func (c *Corrections) IntervalsOf(s *Step, a *Asked) (out Intervals, outside []string) {
	gpu := ""
	if s.GPU != nil {
		gpu = s.GPU.Hardware
	}
	factors := &c.PerShare
	judged, _ := c.JudgedAs(s)
	if judged != nil {
		outside = judged.Measured.Outside(a)
		factors = &judged.PerShare
	}
	theta := c.On(gpu)
	out = factors.ofShares(s.UnmeasuredShares(&theta, c.OverheadUs(), a))
	// A family whose flags are not known is in no factor: its own errors count where they are larger.
	for i := range c.Judged {
		if j := &c.Judged[i]; j.Family == s.Family && j.Unknown {
			out = out.widest(&j.Intervals)
		}
	}
	// Whether any family was measured on the GPU, with which the name of a family ends.
	isTested := slices.ContainsFunc(c.Judged, func(j Judged) bool { return strings.HasSuffix(j.Family, ", "+gpu) })
	isOutside := len(outside) > 0
	if judged == nil && len(c.Judged) > 0 {
		all := c.measuredOfAll()
		isOutside = len(all.Outside(a)) > 0
	}
	if !isTested || isOutside || len(s.Unjudged) > 0 {
		out = out.widest(&c.Unseen)
	}
	for _, v := range []*float64{&out.TTFT, &out.ITL, &out.E2E, &out.Throughput} {
		*v = stat.Round(*v+s.Doubt, 3)
	}
	return out, outside
}
