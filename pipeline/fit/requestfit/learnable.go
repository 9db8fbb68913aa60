package requestfit

// This file finds, before any fit, what can be learned from a run without step traces: the tier of what
// was recorded, the directions in coefficient space that its requests determine, and the noise floor.
// `blis-train inspect` prints it.

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Tiers of what was recorded of a server (spec#request-tiers), best first.
const (
	TierSteps    = "steps"    // step spans, or the engine's log of passes
	TierChunks   = "chunks"   // steps recovered from the chunks that all clients received
	TierSpans    = "spans"    // of requests
	TierRequests = "requests" // clients' records
	TierPoints   = "points"   // means of load levels
)

// tierOf returns the best tier that a run has; "" for nothing.
func tierOf(run *trace.Run) string {
	switch {
	case len(run.Iterations) > 0 && run.Iterations[0].Form == trace.IterationChunks:
		return TierChunks
	case len(run.Steps) > 0 || len(run.Iterations) > 0:
		return TierSteps
	case len(run.Requests) > 0:
		return TierSpans
	case len(run.Observed) > 0:
		return TierRequests
	case len(run.Points) > 0:
		return TierPoints
	}
	return ""
}

// Inspect sets in out what blis-train inspect reports of a run whose steps were not traced: its
// tier, saturation, which directions its requests determine, and the noise floor.
func Inspect(out *result.InspectRun, run *trace.Run, dep *deploy.Deployment) {
	out.Tier = tierOf(run)
	switch out.Tier {
	case "", TierSteps, TierChunks:
		return
	case TierSpans, TierRequests:
		if validate.SourceOf(run) == result.SourceJourneys { // spans with the events inside the engine
			return
		}
	}
	out.Points = len(run.Points)
	if out.Tier == TierRequests {
		v := validate.OfClients(run, dep).Run
		out.Saturation = v.Checks
		if v.Saturated {
			out.Saturated = true
			out.Findings = append(out.Findings,
				trace.Finding{Code: rows.Saturated, Message: report.QueueOnly(run.ID, rows.HitText(v.Checks))})
		}
	}
	out.Learnable = learnable(run, dep)
	if ttft, span, ok := NoiseFloor(run, dep, 1); ok && out.Tier != TierPoints {
		out.NoiseFloor = &result.RequestNoise{TTFTFrac: ttft, SpanFrac: span}
	}
}

// What measurements must have to determine a direction (spec#request-tiers).
const (
	quietRunning = 4.0 // most requests decoding at once in a quiet engine
	showRequests = 20  // requests that determine a direction
	// quietArrivals are the arrivals into a quiet engine that separate a delay from the rest of a running
	// step, by the distribution of their waits: from 164 values on, a Kolmogorov-Smirnov test tells
	// distributions at a distance of 0.15 apart, 1.3581*sqrt(2/164).
	quietArrivals = 164
	variesBy      = 3.0  // ratio of the 95 % to the 5 % quantile
	promptsVaryBy = 4.0  // that ratio of prompt lengths
	longPrompt    = 4096 // tokens from which attention bends TTFT
	busyShare     = 0.7  // of max_num_seqs or of the KV cache
)

// experience is the load that one request met during its life.
type experience struct {
	running       float64 // mean number decoding while it decoded, itself included
	runningAtSend float64 // number decoding when it was sent
	context       float64 // its mean context, tokens
	prompt        float64 // its prompt, tokens
	decodes       bool
}

// learnable returns the directions in which coefficients can be fitted. Each states whether the
// requests or load levels of the run determine it, and otherwise which measurement would.
func learnable(run *trace.Run, dep *deploy.Deployment) []result.LearnableDirection {
	tier := tierOf(run)
	met := experiencesOfLevels(run.Points)
	least, leastArrivals := 1, 1 // of load levels: each is a mean of many requests
	if tier == TierSpans || tier == TierRequests {
		least = showRequests
		leastArrivals = quietArrivals
		met = nil
		loads, _ := LoadsOf(run, dep, true, nil)
		for _, l := range loads {
			met = append(met, experiencesOf(l)...)
		}
	}
	var running, contexts, prompts []float64
	var quietDecodes, quietSends, longPrompts int
	for _, m := range met {
		if m.decodes {
			running = append(running, m.running)
			contexts = append(contexts, m.context)
			if m.running <= quietRunning {
				quietDecodes++
			}
		}
		if m.runningAtSend <= quietRunning {
			quietSends++
			prompts = append(prompts, m.prompt)
			if m.prompt >= longPrompt {
				longPrompts++
			}
		}
	}
	busy := peakShare(running, contexts, dep)
	return []result.LearnableDirection{
		shownBy("per-step constant (weights, layers, step)", "spans at 1 to 4 running",
			quietDecodes >= least, fmt.Sprintf("%d of them", quietDecodes),
			fmt.Sprintf("a quiet stretch: %d requests with 1 to 4 running", least)),
		shownBySpread("cost per decoding request", "spans over the number running",
			running, variesBy, "loads whose number running differs three times"),
		shownBySpread("KV read", "spans at one load, over the context",
			contexts, variesBy, "prompts and outputs whose sum differs three times"),
		shownBySpread("prefill per token", "TTFT over the prompt on a quiet engine",
			prompts, promptsVaryBy,
			"prompts that differ four times, sent to a quiet engine; until then it is merged with the overhead"),
		shownBy("prefill attention", "the bend of TTFT",
			longPrompts >= least, fmt.Sprintf("%d prompts of %d tokens or more", longPrompts, longPrompt),
			fmt.Sprintf("%d prompts above %d tokens", least, longPrompt)),
		shownBy("overhead, apart from the rest of the running step", "arrivals into a quiet engine",
			quietSends >= leastArrivals && tier != TierPoints, fmt.Sprintf("%d of them", quietSends),
			fmt.Sprintf("%d arrivals while at most four run, each recorded", quietArrivals)),
		shownBy("delay of a token, apart from the per-step constant", "queueing",
			busy >= busyShare, fmt.Sprintf("%.0f %% of max_num_seqs or KV cache", 100*busy),
			"a load above 70 % of capacity"),
		shownBy("weights, layers, step and collectives apart; compute, KV writes and all-reduce of prompts apart; experts",
			"nothing in one configuration",
			false, "", "another depth, precision or tensor-parallel degree"),
		shownBy("pipeline lag, order of the scheduler, graph buckets, blocks", "nothing outside the engine",
			false, "", "step traces"),
	}
}

// shownBy returns a direction. by is the measurement that determines it, got what of that there is,
// needs what is missing if it is not shown.
func shownBy(name, by string, shown bool, got, needs string) result.LearnableDirection {
	d := result.LearnableDirection{Direction: name, ShownBy: by, Shown: shown, Got: got}
	if !shown {
		d.Adds = needs
	}
	return d
}

// shownBySpread returns a direction that is shown if the 95 % quantile of the values is at least factor
// times the 5 % quantile.
func shownBySpread(name, by string, values []float64, factor float64, needs string) result.LearnableDirection {
	if len(values) == 0 {
		return shownBy(name, by, false, "none", needs)
	}
	sorted := stat.Sorted(values)
	lo := stat.Quantile(sorted, 0.05)
	hi := stat.Quantile(sorted, 0.95)
	shown := hi >= factor*math.Max(lo, 1)
	return shownBy(name, by, shown, fmt.Sprintf("%.3g to %.3g", lo, hi), needs)
}

// peakShare returns how full the engine was at the 95 % quantile of running requests: the share of
// max_num_seqs or of the KV cache, whichever is larger.
func peakShare(running, contexts []float64, dep *deploy.Deployment) float64 {
	if len(running) == 0 {
		return 0
	}
	n := stat.Quantile(stat.Sorted(running), 0.95)
	share := n / float64(dep.Engine.MaxNumSeqs)
	blocks, _, err := dep.KVBlocks()
	if err == nil && blocks > 0 {
		cacheTokens := float64(blocks * dep.Engine.BlockSize)
		share = math.Max(share, n*stat.Mean(contexts)/cacheTokens)
	}
	return share
}

// experiencesOfLevels returns the state of the server that one request of each load level met.
func experiencesOfLevels(points []trace.LoadPoint) []experience {
	var out []experience
	for i := range points {
		p := &points[i]
		n := float64(p.Clients.V)
		if !p.Clients.OK { // Little's law
			latencyMs := p.E2EMs.Or(p.TTFTMs.V + p.TPOTMs*p.OutputTokens)
			n = p.RateRPS.Or(p.OfferedRPS.V) * latencyMs / 1e3
		}
		out = append(out, experience{
			running:       math.Max(1, n),
			runningAtSend: n - 1,
			context:       p.PromptTokens + p.OutputTokens/2,
			prompt:        p.PromptTokens,
			decodes:       true,
		})
	}
	return out
}

// experiencesOf returns the state of the server that each measured request of a load met, by the
// clients' stamps.
func experiencesOf(l *Load) []experience {
	decodes := newDecodeCounts(l)
	var out []experience
	for i := range l.Requests {
		seen := &l.Seen[i]
		if !(seen.TTFTUs > 0 || seen.SpanUs > 0 || seen.E2EUs > 0) {
			continue
		}
		_, runningAtSend := decodes.until(float64(l.SentUs[i]))
		prompt := float64(l.Requests[i].PromptTokens)
		e := experience{
			runningAtSend: float64(runningAtSend),
			context:       prompt + float64(l.Requests[i].OutputTokens)/2,
			prompt:        prompt,
		}
		firstUs := float64(l.SentUs[i]) + l.Stamps[i].TTFTUs
		lastUs := firstUs + l.Stamps[i].SpanUs
		if lastUs > firstUs {
			from, _ := decodes.until(firstUs)
			to, _ := decodes.until(lastUs)
			e.running = math.Max(1, (to-from)/(lastUs-firstUs))
			e.decodes = true
		}
		out = append(out, e)
	}
	return out
}

// decodeCounts is the number of requests that decode, over time. Means over an interval are differences
// of area.
type decodeCounts struct {
	edges []decodeEdge // in order of time
	area  []float64    // integral of the number up to each edge, us
	level []int        // number before each edge, and after the last
}

// decodeEdge is a request that begins or ends decoding.
type decodeEdge struct {
	us   float64
	step int // +1 or -1
}

// newDecodeCounts returns the number of decoding requests of a load over time, by the stamps of its
// clients.
func newDecodeCounts(l *Load) *decodeCounts {
	d := &decodeCounts{}
	for i := range l.Requests {
		m := &l.Stamps[i]
		if m.SpanUs > 0 && m.TTFTUs > 0 {
			first := float64(l.SentUs[i]) + m.TTFTUs
			d.edges = append(d.edges, decodeEdge{first, 1}, decodeEdge{first + m.SpanUs, -1})
		}
	}
	stat.SortStable(d.edges, func(a, b decodeEdge) int { return cmp.Compare(a.us, b.us) })
	d.area = make([]float64, len(d.edges))
	d.level = make([]int, len(d.edges)+1)
	for k, e := range d.edges {
		if k > 0 {
			d.area[k] = d.area[k-1] + float64(d.level[k])*(e.us-d.edges[k-1].us)
		}
		d.level[k+1] = d.level[k] + e.step
	}
	return d
}

// until returns the integral of the number up to a time, and the number just before it.
func (d *decodeCounts) until(us float64) (area float64, running int) {
	k, _ := slices.BinarySearchFunc(d.edges, us, func(e decodeEdge, us float64) int { return cmp.Compare(e.us, us) })
	if k == 0 {
		return 0, 0
	}
	return d.area[k-1] + float64(d.level[k])*(us-d.edges[k-1].us), d.level[k]
}

// NoiseFloor returns the error that no fit can get below: the median absolute log ratio of TTFT, and of
// the span from first to last token, between two replays whose requests are sent up to a
// millisecond apart. Step times are those of the library; ok is false for a device that the library
// does not have.
func NoiseFloor(run *trace.Run, dep *deploy.Deployment, seed int64) (ttft, span float64, ok bool) {
	set, err := fit.LibraryFor(dep)
	if err != nil {
		return 0, 0, false
	}
	loads, _ := LoadsOf(run, dep, true, nil)
	var offTTFT, offSpan []float64
	for _, l := range loads {
		var replays [][]sim.Measured
		for _, requests := range sim.Twins(l.Requests, 2, DefaultOptions().JitterUs, seed) {
			twin := *l
			twin.Requests = requests
			got, err := twin.Predict(set)
			if err != nil {
				return 0, 0, false
			}
			replays = append(replays, got)
		}
		for i := range replays[0] {
			a, b := &replays[0][i], &replays[1][i]
			if off := math.Abs(math.Log(b.TTFTUs / a.TTFTUs)); isNumber(off) {
				offTTFT = append(offTTFT, off)
			}
			if off := math.Abs(math.Log(b.SpanUs / a.SpanUs)); isNumber(off) {
				offSpan = append(offSpan, off)
			}
		}
	}
	if len(offTTFT) == 0 || len(offSpan) == 0 {
		return 0, 0, false
	}
	return stat.Median(offTTFT), stat.Median(offSpan), true
}
