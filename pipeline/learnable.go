package pipeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Tiers of what was recorded of a server (spec#request-tiers), best first.
const (
	tierSteps    = "steps"
	tierChunks   = "chunks"
	tierSpans    = "spans"
	tierRequests = "requests"
	tierPoints   = "points"
)

// tierOf says what a run's recording sees; "" for nothing.
func tierOf(run *trace.Run) string {
	switch {
	case len(run.Iterations) > 0 && run.Iterations[0].Form == trace.IterationChunks:
		return tierChunks
	case len(run.Steps) > 0 || len(run.Iterations) > 0:
		return tierSteps
	case len(run.Requests) > 0:
		return tierSpans
	case len(run.Observed) > 0:
		return tierRequests
	case len(run.Points) > 0:
		return tierPoints
	}
	return ""
}

// What a direction needs to be shown (spec#request-tiers).
const (
	quietRunning  = 4.0 // requests decoding beside each other, at most: a quiet engine
	showRequests  = 20  // that show it
	quietArrivals = 164 // into a quiet engine tell a delay from the rest of a step
	variesBy      = 3.0 // 5 % to 95 %
	promptsVaryBy = 4.0
	longPrompt    = 4096 // tokens: attention bends TTFT
	busyShare     = 0.7  // of the seats or the KV cache
)

// occupied is what one request met: the mean number decoding while it did, itself
// included, how many decoded when it was sent, and its mean context.
type occupied struct {
	running, atSend, context, prompt float64
	decodes                          bool
}

// learnable says what requests or load levels of a run teach before any fit: each
// direction, what shows it, and what would add it.
func learnable(run *trace.Run, dep *deploy.Deployment) []result.LearnableDirection {
	met := pointsMet(run.Points)
	least, arrivals := 1, 1 // levels
	if tier := tierOf(run); tier == tierSpans || tier == tierRequests {
		loads, _ := clientLoads(run, dep, true, 0)
		met = nil
		least = showRequests
		arrivals = quietArrivals
		for _, l := range loads {
			met = append(met, occupancy(l)...)
		}
	}
	var running, contexts, prompts []float64
	quiet := 0
	quietSends := 0
	long := 0
	for _, m := range met {
		if m.decodes {
			running = append(running, m.running)
			contexts = append(contexts, m.context)
			if m.running <= quietRunning {
				quiet++
			}
		}
		if m.atSend <= quietRunning {
			quietSends++
			prompts = append(prompts, m.prompt)
			if m.prompt >= longPrompt {
				long++
			}
		}
	}
	busy := peakShare(running, contexts, dep)
	out := []result.LearnableDirection{
		shownBy("per-step constant (weights, layers, step)", "spans at 1 to 4 running", quiet >= least, fmt.Sprintf("%d of them", quiet),
			fmt.Sprintf("a quiet stretch: %d requests with 1 to 4 running", least)),
		varies("cost per decoding request", "spans over the number running", running, variesBy, "loads whose number running differs three times"),
		varies("KV read", "spans at one load, over the context", contexts, variesBy, "prompts and outputs whose sum differs three times"),
		varies("prefill per token", "TTFT over the prompt on a quiet engine", prompts, promptsVaryBy,
			"prompts that differ four times, sent to a quiet engine; until then it is merged with the overhead"),
		shownBy("prefill attention", "the bend of TTFT", long >= least, fmt.Sprintf("%d prompts of %d tokens or more", long, longPrompt),
			fmt.Sprintf("%d prompts above %d tokens", least, longPrompt)),
		shownBy("overhead, apart from the rest of the running step", "arrivals into a quiet engine", quietSends >= arrivals &&
			tierOf(run) != tierPoints,
			fmt.Sprintf("%d of them", quietSends), fmt.Sprintf("%d arrivals while at most four run, each recorded", quietArrivals)),
		shownBy("delay of a token, apart from the per-step constant", "queueing", busy >= busyShare,
			fmt.Sprintf("%.0f %% of seats or KV cache", 100*busy),
			"a load above 70 % of capacity"),
		shownBy("weights, layers, step and collectives apart; compute, KV writes and all-reduce of prompts apart; experts",
			"nothing in one configuration",
			false, "", "another depth, precision or tensor-parallel degree"),
		shownBy("pipeline lag, order of the scheduler, graph buckets, blocks", "nothing outside the engine", false, "", "step traces"),
	}
	return out
}

func shownBy(name, by string, shown bool, got, adds string) result.LearnableDirection {
	d := result.LearnableDirection{Direction: name, ShownBy: by, Shown: shown, Got: got}
	if !shown {
		d.Adds = adds
	}
	return d
}

// varies is a direction that a spread of values shows.
func varies(name, by string, values []float64, factor float64, adds string) result.LearnableDirection {
	if len(values) == 0 {
		return shownBy(name, by, false, "none", adds)
	}
	v := stat.Sorted(values)
	lo := stat.Quantile(v, 0.05)
	hi := stat.Quantile(v, 0.95)
	return shownBy(name, by, hi >= factor*math.Max(lo, 1), fmt.Sprintf("%.3g to %.3g", lo, hi), adds)
}

// peakShare is the share of seats or of the KV cache that the load took, at its 95 %.
func peakShare(running, contexts []float64, dep *deploy.Deployment) float64 {
	if len(running) == 0 {
		return 0
	}
	n := stat.Quantile(stat.Sorted(running), 0.95)
	share := n / float64(dep.Engine.MaxNumSeqs)
	if blocks, _, err := dep.KVBlocks(); err == nil && blocks > 0 {
		share = math.Max(share, n*stat.Mean(contexts)/float64(blocks*dep.Engine.BlockSize))
	}
	return share
}

// pointsMet are load levels as what one request of each met.
func pointsMet(points []trace.LoadPoint) []occupied {
	var out []occupied
	for i := range points {
		p := &points[i]
		n := float64(p.Clients.V)
		if !p.Clients.OK {
			n = p.RateRPS.Or(p.OfferedRPS.V) * p.E2EMs.Or(p.TTFTMs.V+p.TPOTMs*p.OutputTokens) / 1e3
		}
		out = append(out, occupied{running: math.Max(1, n), atSend: n - 1, context: p.PromptTokens + p.OutputTokens/2,
			prompt: p.PromptTokens, decodes: true})
	}
	return out
}

// occupancy is what each measured request of a load met, by the clients' stamps.
func occupancy(l *requestfit.Load) []occupied {
	type edge struct {
		us   float64
		step int
	}
	var edges []edge
	at := make([][2]float64, len(l.Requests))
	for i := range l.Requests {
		m := l.Stamps[i]
		first := float64(l.SentUs[i]) + m.TTFTUs
		at[i] = [2]float64{first, first + m.SpanUs}
		if m.SpanUs > 0 && m.TTFTUs > 0 {
			edges = append(edges, edge{first, 1}, edge{first + m.SpanUs, -1})
		}
	}
	stat.SortStable(edges, func(a, b edge) int { return cmp.Compare(a.us, b.us) })
	// area[k] is the integral of the number running up to edge k.
	area := make([]float64, len(edges))
	level := make([]int, len(edges)+1)
	for k, e := range edges {
		if k > 0 {
			area[k] = area[k-1] + float64(level[k])*(e.us-edges[k-1].us)
		}
		level[k+1] = level[k] + e.step
	}
	until := func(us float64) (sum float64, running int) {
		k, _ := slices.BinarySearchFunc(edges, us, func(e edge, us float64) int { return cmp.Compare(e.us, us) })
		if k == 0 {
			return 0, 0
		}
		return area[k-1] + float64(level[k])*(us-edges[k-1].us), level[k]
	}
	var out []occupied
	for i := range l.Requests {
		r := &l.Requests[i]
		if s := &l.Seen[i]; !(s.TTFTUs > 0 || s.SpanUs > 0 || s.E2EUs > 0) {
			continue
		}
		_, now := until(float64(l.SentUs[i]))
		o := occupied{atSend: float64(now), prompt: float64(r.PromptTokens),
			context: float64(r.PromptTokens) + float64(r.OutputTokens)/2}
		if a, b := at[i][0], at[i][1]; b > a {
			from, _ := until(a)
			to, _ := until(b)
			o.running = math.Max(1, (to-from)/(b-a))
			o.decodes = true
		}
		out = append(out, o)
	}
	return out
}

// noiseFloor is by how much TTFT and span of a request differ between replays whose
// sends differ by a millisecond: no fit can beat it. The library times the steps; ok is
// false where it does not know the device.
func noiseFloor(run *trace.Run, dep *deploy.Deployment, seed int64) (ttft, span float64, ok bool) {
	set, err := fit.LibraryFor(dep)
	if err != nil {
		return 0, 0, false
	}
	loads, _ := clientLoads(run, dep, true, 0)
	var offTTFT, offSpan []float64
	for _, l := range loads {
		var first []sim.Measured
		o := requestfit.DefaultOptions()
		for _, reqs := range sim.Twins(l.Requests, 2, o.JitterUs, seed) {
			twin := *l
			twin.Requests = reqs
			got, err := twin.Predict(set)
			if err != nil {
				return 0, 0, false
			}
			if first == nil {
				first = got
				continue
			}
			for i := range got {
				offTTFT = append(offTTFT, math.Abs(math.Log(got[i].TTFTUs/first[i].TTFTUs)))
				offSpan = append(offSpan, math.Abs(math.Log(got[i].SpanUs/first[i].SpanUs)))
			}
		}
	}
	isUnknown := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	offTTFT = slices.DeleteFunc(offTTFT, isUnknown)
	offSpan = slices.DeleteFunc(offSpan, isUnknown)
	if len(offTTFT) == 0 || len(offSpan) == 0 {
		return 0, 0, false
	}
	return stat.Median(offTTFT), stat.Median(offSpan), true
}

// requestTier fills in what inspect says of a run whose steps nobody traced.
func requestTier(out *result.InspectRun, run *trace.Run, dep *deploy.Deployment) {
	switch out.Tier = tierOf(run); out.Tier {
	case "", tierSteps, tierChunks:
		return
	case tierSpans, tierRequests:
		if validate.SourceOf(run) == result.SourceJourneys {
			return
		}
	}
	out.Points = len(run.Points)
	if out.Tier == tierRequests {
		if v := validate.OfClients(run, dep).Run; v.Saturated {
			out.Saturated, out.Saturation = true, v.Checks
			out.Findings = append(out.Findings, trace.Findingf(rows.Saturated, "run %s: %s; its queue teaches little but itself", run.ID,
				rows.HitText(v.Checks)))
		} else {
			out.Saturation = v.Checks
		}
	}
	out.Learnable = learnable(run, dep)
	if ttft, span, ok := noiseFloor(run, dep, 1); ok && out.Tier != tierPoints {
		out.NoiseFloor = &result.RequestNoise{TTFTFrac: ttft, SpanFrac: span}
	}
}
