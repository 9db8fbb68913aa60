package identity

// This file counts once what several identities read: the journeys (the recorded life of a request in
// the engine) in each step, the measured and the predicted time of batches. The prior is the time that
// the kernel library predicts without any measurement of this server.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// facts are what several identities read, counted once.
type facts struct {
	Evidence
	run   *trace.Run         // of Evidence
	dep   *deploy.Deployment // of Evidence
	async bool               // run.yaml states asynchronous scheduling

	lives []reconstruct.Life // from first to last step, of the journeys that show them

	// Numbers of journeys by index in run.Steps; empty without journeys and step summaries.
	running []int32 // that run in the step
	ending  []int32 // that ended in the step before, which an asynchronous engine may still count
	maybe   []int32 // whose events do not give their steps: preempted or damaged
	waiting []int32 // that are queued and not scheduled

	snapshot snapshotCounts
	batches  []batchTime                    // in the order of steps
	price    func(*library.Batch) priorTime // of a batch by the library; nil: it has no tables
	loads    []clientRequest                // as clients or stock spans have them
}

// batchTime is a step with a known batch and the time until the next one began.
type batchTime struct {
	at      int                 // index in run.Steps
	us      float64             // from its start to that of the next step
	in      *features.StepInput // the batch
	prior   priorTime           // by the library; 0: unknown
	floorUs float64             // weights and KV cache read once, or the arithmetic, whichever is longer
	prefill bool                // it computes tokens of prompts
}

// newFacts returns the counts that the identities compare.
func newFacts(e Evidence) (*facts, error) {
	f := &facts{Evidence: e, run: e.Run, dep: e.Deployment, async: e.Deployment.Engine.IsAsync()}
	if n := len(f.run.Steps); n > 0 && f.run.Aggregate == nil {
		f.lives = reconstruct.Lives(f.run.Requests, &f.dep.Engine, f.run.Steps[n-1].ID)
		f.countJourneys()
	}
	if err := f.countSnapshots(); err != nil {
		return nil, err
	}
	f.price = f.pricer()
	f.timeBatches()
	f.listRequests()
	return f, nil
}

// countJourneys counts the journeys that run and wait in each step, from their steps alone.
func (f *facts) countJourneys() {
	steps := f.run.Steps
	n := len(steps)
	index := func(id int64) int { // of the first step with this id or a later one
		k, _ := slices.BinarySearchFunc(steps, id, func(s trace.Step, id int64) int {
			switch {
			case s.ID < id:
				return -1
			case s.ID > id:
				return 1
			}
			return 0
		})
		return k
	}
	// Each list first has the changes from one step to the next; sum turns them into counts.
	running := make([]int32, n+1)
	ending := make([]int32, n+1)
	maybe := make([]int32, n+1)
	waiting := make([]int32, n+1)
	span := func(counts []int32, from, to int64) { // steps from..to
		if to < from {
			return
		}
		counts[index(from)]++
		counts[index(to+1)]--
	}
	last := steps[n-1].ID
	for i := range f.run.Requests {
		request := &f.run.Requests[i]
		if !request.CoreID.OK || !request.QueuedStep.OK {
			continue
		}
		end := request.FinishedStep.Or(last)
		uncertain := request.Preemptions.Or(0) > 0 || request.DroppedEvents > 0 || !request.ScheduledStep.OK || !request.FinishedStep.OK ||
			request.FinishStatus.Or("") == trace.FinishAborted
		if uncertain {
			span(maybe, request.QueuedStep.V, end+2) // with asynchronous scheduling an end is noticed up to two steps late
			continue
		}
		span(waiting, request.QueuedStep.V+1, request.ScheduledStep.V-1)
	}
	for i := range f.lives {
		life := &f.lives[i]
		span(running, life.FirstStep(), life.LastStep())
		if f.async {
			span(ending, life.LastStep()+1, life.LastStep()+1)
		}
	}
	sum := func(counts []int32) []int32 {
		for i := 1; i < n; i++ {
			counts[i] += counts[i-1]
		}
		return counts[:n]
	}
	f.running = sum(running)
	f.ending = sum(ending)
	f.maybe = sum(maybe)
	f.waiting = sum(waiting)
}

// mostPriced bounds the batches whose time the library computes.
const mostPriced = 20_000

// timeBatches pairs the batches with the time to the next step.
func (f *facts) timeBatches() {
	if f.Steps == nil {
		return
	}
	space, err := features.New(features.DefaultVersion(f.dep), f.dep)
	if err != nil {
		return
	}
	// Of long runs only every stride-th stretch of 64 steps is timed: stretches, because neighbours
	// are compared.
	stride := 1 + len(f.run.Steps)/mostPriced
	for k := 0; k+1 < len(f.run.Steps); k++ {
		if k/64%stride != 0 {
			continue
		}
		step := &f.run.Steps[k]
		next := &f.run.Steps[k+1]
		rebuilt := f.Steps.At(step.ID)
		isUnknown := rebuilt == nil || !rebuilt.Known() || next.ID != step.ID+1
		if isUnknown || rebuilt.In.ScheduledTokens == 0 || next.ScheduledTokens == 0 {
			continue
		}
		if next.RunningDepth == 0 || step.RunningDepth == 0 { // the engine was idle in between
			continue
		}
		timed := batchTime{at: k, us: float64(next.TsStartNs-step.TsStartNs) / 1e3, in: &rebuilt.In, prefill: rebuilt.In.PrefillTokens > 0}
		if a := f.run.Aggregate; a != nil && rebuilt.NoStart {
			continue
		}
		roof := space.Roofline(&rebuilt.In)
		timed.floorUs = 1e6 * math.Max(roof.LinearS, roof.WeightS+roof.KVS)
		if f.price != nil {
			batch := batchOf(&rebuilt.In)
			timed.prior = f.price(&batch)
		}
		f.batches = append(f.batches, timed)
	}
}

// priorTime is the library's time of a batch: from kernels alone to kernels and the host's launches, which
// the step waits for outside CUDA graphs. Hosts differ in how fast they launch by more than the tolerance of
// an identity, so that any time between the two is as predicted.
type priorTime struct{ leastUs, mostUs float64 }

// ratio returns a measured time over the nearer end of the prediction; 1 between the ends.
func (p priorTime) ratio(us float64) float64 { return p.ratioOf(us, us) }

// ratioOf returns the ratio of a measured time that is known to lie between two values.
func (p priorTime) ratioOf(leastUs, mostUs float64) float64 {
	switch {
	case mostUs < p.leastUs:
		return mostUs / p.leastUs
	case leastUs > p.mostUs:
		return leastUs / p.mostUs
	}
	return 1
}

// plus returns the sum of the times of two batches.
func (p priorTime) plus(other priorTime) priorTime {
	return priorTime{leastUs: p.leastUs + other.leastUs, mostUs: p.mostUs + other.mostUs}
}

// pricer returns the library's time of a batch; nil for a device or model without tables.
func (f *facts) pricer() func(*library.Batch) priorTime {
	step, err := library.Bound(f.dep, library.Options{})
	if err != nil {
		return nil
	}
	price := step.NewPricer()
	theta := library.Learned().On(f.dep.Hardware.Name)
	sum := func(columns *[library.NumStep]float64) (us float64) {
		for k := range columns {
			us += theta[k] * columns[k]
		}
		return us
	}
	return func(b *library.Batch) priorTime {
		var columns [library.NumStep]float64
		price.Columns(b, &columns)
		slower := columns
		library.Slower(&theta, &slower)
		// The least time is without the host's launches outside CUDA graphs.
		columns[library.EagerLayer] = 0
		columns[library.EagerExperts] = 0
		columns[library.EagerLatent] = 0
		columns[library.EagerWhole] = 0
		columns[library.EagerFP8] = 0
		return priorTime{leastUs: sum(&columns), mostUs: sum(&slower)}
	}
}

// batchOf returns the sums of a step as the library has them.
func batchOf(in *features.StepInput) library.Batch {
	return library.Batch{
		Tokens:        in.ScheduledTokens,
		Sequences:     in.NumSampledSeqs,
		Decodes:       in.NumDecodeReqs,
		DecodeContext: math.Max(0, in.DecodeContextTokens-in.NumDecodeReqs),
		Prefills:      in.NumPrefillReqs,
		PrefillTokens: in.PrefillTokens,
		PrefillPairs:  in.PrefillCausalWork,
	}
}
