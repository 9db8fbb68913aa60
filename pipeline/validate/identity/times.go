package identity

// This file compares durations: those of one run on two clocks, those of steps with the shortest that the
// hardware allows (the floor) and with what the kernel library predicts (the prior). A reading
// (identity.go) has what was compared, how much of it contradicts, and a sentence.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Tolerances of times.
const (
	clockTolerance = 0.05 // between the lengths of one run on two clocks
	leastSpanS     = 5    // of a run whose clocks are compared
	floorShare     = 0.8  // of the physical floor, which datasheets round
	mostBelowFloor = 0.05 // share of steps that may be shorter
	priorNamed     = 1.5  // ratio of measured and predicted times, or its inverse, that is named
	priorUnusable  = 5.0  // ratio, or its inverse, at which the data are not usable as described
	leastOfBusy    = 0.5  // of the busy time that the elapsed times of passes take
	leastOfUnit    = 0.1  // of the busy time: with less the elapsed times have another unit
	fewestPriced   = 20   // steps of a regime, or requests, that a median is taken of
)

// isGPU reports whether the named device is one whose engine sizes its cache from memory.
func (f *facts) isGPU() bool {
	_, known := deploy.Datasheet(f.dep.Hardware.Name)
	return known
}

// clockRates compares the length of the run on the monotonic and on the wall clock. largest is the ratio of the two.
func clockRates(f *facts) reading {
	monoNs, wallNs := noExtent, noExtent
	n := 0 // pairs of stamps
	add := func(mono, wall int64) {
		if wall > 0 {
			n++
			monoNs.include(mono)
			wallNs.include(wall)
		}
	}
	if f.run.Aggregate == nil {
		for i := range f.run.Steps {
			add(f.run.Steps[i].TsEndNs, f.run.Steps[i].WallNs)
		}
	}
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if q.Source != trace.SourceStock && q.ArrivedNs.OK && q.StartWallNs.OK && len(f.run.Steps) == 0 {
			add(q.ArrivedNs.V, q.StartWallNs.V)
		}
	}
	if n < 2 {
		return notChecked("no stream has stamps of both clocks")
	}
	mono := float64(monoNs.last - monoNs.first)
	wall := float64(wallNs.last - wallNs.first)
	if wall < leastSpanS*1e9 && mono < leastSpanS*1e9 {
		return notChecked("the run is shorter than %d s", leastSpanS)
	}
	ratio := mono / math.Max(wall, 1)
	r := reading{checked: n, largest: ratio}
	if math.Abs(ratio-1) > clockTolerance {
		r.violated = 1
		r.broken = true
	}
	r.sentence = fmt.Sprintf("the run takes %.3g s by its monotonic stamps and %.3g s by the wall clock (%.3g times): one of the two has another unit",
		mono/1e9, wall/1e9, ratio)
	return r
}

// extent is the time from the first to the last of some stamps.
type extent struct{ first, last int64 }

// noExtent is the extent of no stamps.
var noExtent = extent{first: math.MaxInt64, last: math.MinInt64}

// include extends e by a stamp.
func (e *extent) include(ns int64) {
	e.first = min(e.first, ns)
	e.last = max(e.last, ns)
}

// clocksApartS is by how many seconds the wall clocks of two streams may differ.
const clocksApartS = 60

// wallClocks compares the time between wall clock and monotonic clock in API spans with that in step summaries. largest
// is the difference in s.
func wallClocks(f *facts) reading {
	steps := make([]float64, 0, len(f.run.Steps))
	requests := make([]float64, 0, len(f.run.Requests))
	for i := range f.run.Steps {
		if s := &f.run.Steps[i]; f.run.Aggregate == nil && s.WallNs > 0 {
			steps = append(steps, float64(s.WallNs-s.TsEndNs)/1e9)
		}
	}
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if q.Source != trace.SourceStock && q.ArrivedNs.OK && q.StartWallNs.OK {
			requests = append(requests, float64(q.StartWallNs.V-q.ArrivedNs.V)/1e9)
		}
	}
	if len(steps) == 0 || len(requests) == 0 {
		return notChecked("not both streams have stamps of both clocks")
	}
	r := reading{checked: len(steps) + len(requests), largest: math.Abs(stat.MedianInPlace(requests) - stat.MedianInPlace(steps))}
	if r.largest > clocksApartS {
		r.violated = len(requests)
		r.broken = true
	}
	r.sentence = fmt.Sprintf("the wall clock of API spans is %.4g s from that of the steps: one of the two is of another time zone or another run", r.largest)
	return r
}

// stepFloor compares the time of a step with the time of its bytes and operations at the datasheet's peak. largest is
// the median ratio of the two.
func stepFloor(f *facts) reading {
	if len(f.batches) == 0 {
		return notChecked("no step with a known batch and a recorded successor")
	}
	if f.run.Aggregate != nil && clientTokens(f).broken {
		return notChecked("the contexts of the passes are those of clients, whose tokens contradict the log")
	}
	var r reading
	var ratios []float64
	hasFloor := false
	prompts, shortPrompts := 0, 0 // few steps have prompts: they are counted apart too
	for i := range f.batches {
		b := &f.batches[i]
		if !(b.floorUs > 0) {
			continue
		}
		hasFloor = true
		ratio := f.groupUs(b) / b.floorUs
		if math.IsInf(ratio, 1) {
			continue
		}
		r.checked++
		ratios = append(ratios, ratio)
		if b.prefill {
			prompts++
		}
		if ratio < floorShare {
			r.violated++
			if b.prefill {
				shortPrompts++
			}
		}
	}
	if !hasFloor {
		return notChecked("the datasheet has no bandwidth or arithmetic")
	}
	if r.checked == 0 {
		return notChecked("no step of the asynchronous engine with its two successors")
	}
	r.largest = stat.Median(ratios)
	r.broken = float64(r.violated) > math.Max(1, mostBelowFloor*float64(r.checked))
	r.sentence = fmt.Sprintf("%d of %d steps are shorter than reading their weights and cache, or their arithmetic, takes at the peak of %s with "+
		"tp %d (median %.3g times that): hardware, tensor_parallel_size, model or dtype in run.yaml is wrong, or the stamps have another unit",
		r.violated, r.checked, f.dep.Hardware.Name, f.dep.TP, r.largest)
	isPart := float64(shortPrompts) > math.Max(fewestApart, mostBelowFloor*float64(prompts))
	// Other contradictions make single steps too short as well. They are not among the causes in the table, because those
	// hide an identity altogether, and most steps below the floor are stated beside any of these.
	hasOtherCause := func() bool {
		return stepOrder(f).broken || clockRates(f).broken || stepTokens(f).broken || passOrder(f).broken || stepWork(f).broken
	}
	if !r.broken && isPart && !hasOtherCause() {
		r.broken = true
		r.checked = prompts
		r.violated = shortPrompts
		r.sentence = fmt.Sprintf("%d of %d steps with prompts are shorter than their arithmetic takes at the peak of %s with tp %d, and the others are not: times are "+
			"means over several steps or of other steps, or prompts are not counted in tokens", shortPrompts, prompts, f.dep.Hardware.Name, f.dep.TP)
	}
	return r
}

// Tolerances of the work of steps.
const (
	fewestWorked  = 200  // steps
	leastWorked   = 2    // times the least work that the most takes, without the outer twentieths
	leastWorkRank = 0.15 // rank correlation of time and floor
)

// stepWork compares the times of steps with their floors by rank. An asynchronous engine starts a step one or two
// before the device ends it, so that the nearest steps are compared too. largest is 1 less the best rank correlation.
func stepWork(f *facts) reading {
	best := -1.0 // the largest rank correlation
	n := 0       // of steps, at any lag
	lagged := 0  // lags other than 0 at which enough steps could be compared
	for lag := -2; lag <= 2; lag++ {
		var floors, times []float64
		for i := range f.batches {
			k := i + lag
			if k >= 0 && k < len(f.batches) && f.batches[k].at-f.batches[i].at == lag && f.batches[i].floorUs > 0 {
				floors = append(floors, f.batches[i].floorUs)
				times = append(times, f.batches[k].us)
			}
		}
		if len(floors) < fewestWorked {
			continue // neighbours were not sampled
		}
		n = max(n, len(floors))
		if lag != 0 {
			lagged++
		}
		sorted := stat.Sorted(floors)
		if stat.Quantile(sorted, 0.95) < leastWorked*stat.Quantile(sorted, 0.05) {
			return notChecked("all steps have about the same work")
		}
		best = math.Max(best, correlation(ranks(times), ranks(floors)))
	}
	if n == 0 || f.async && lagged == 0 {
		return notChecked("fewer than %d steps with a known batch, and with their neighbours", fewestWorked)
	}
	r := reading{checked: n, largest: 1 - best}
	if best < leastWorkRank {
		r.broken = true
		r.violated = n
	}
	r.sentence = fmt.Sprintf("the times of %d steps do not go with their work (rank correlation %.2f with the time that it takes at the peak of %s): times and "+
		"batches are of different steps", n, best, f.dep.Hardware.Name)
	return r
}

// groupUs returns the longest of the time from the beginning of a batch's step to that of the next one and of the two
// after it, because an asynchronous engine is one or two steps ahead of the device. Of such an engine it is unknown,
// infinite, where one of those steps was not recorded.
func (f *facts) groupUs(b *batchTime) float64 {
	steps := f.run.Steps[b.at:]
	longest := 0.0
	for k := range stepsAhead + 1 {
		if k+1 >= len(steps) || steps[k+1].ID != steps[k].ID+1 {
			if f.async {
				return math.Inf(1)
			}
			break
		}
		longest = math.Max(longest, float64(steps[k+1].TsStartNs-steps[k].TsStartNs)/1e3)
	}
	return longest
}

// stepsAhead is by how many steps an engine that schedules asynchronously is ahead of the device at most.
const stepsAhead = 2

// priorRatios returns measured over predicted step times, at the nearer end of the prediction, by
// regime: pure decodes among similar ones, and stretches of steps whose predicted time is mostly
// that of prompts. Where a sample of the steps was recorded, most of them decodes, the neighbours of
// a decode that are not recorded are taken for decodes too.
func (f *facts) priorRatios() (decode, prompt []float64) {
	const (
		stretch       = 6   // steps
		mostlyPrompts = 0.6 // share of the predicted time of a stretch that its steps with prompts take, from which it counts
		mostlyDecodes = 0.8 // share of the steps, from which a neighbour that is not recorded counts as a decode
		fewestLone    = 100 // decodes with such neighbours
	)
	batches := f.batches
	var lone []float64 // ratios of decodes of which a neighbour is not recorded
	decodes := 0
	for i := range batches {
		if !(batches[i].prior.leastUs > 0) {
			continue
		}
		// A decode step between decode steps: an asynchronous engine starts a step one or two before the
		// device ends it, so the intervals of neighbours belong together.
		if batches[i].prefill {
			continue
		}
		decodes++
		besidePrompts, missing := false, false // of the neighbours
		for k := i - 2; k <= i+1; k++ {
			isRecorded := k >= 0 && k < len(batches) && batches[k].at-batches[i].at == k-i
			besidePrompts = besidePrompts || isRecorded && batches[k].prefill
			missing = missing || !isRecorded
		}
		switch ratio := batches[i].prior.ratio(batches[i].us); {
		case besidePrompts:
		case missing:
			lone = append(lone, ratio)
		default:
			decode = append(decode, ratio)
		}
	}
	if len(decode) < fewestPriced && len(lone) >= fewestLone && float64(decodes) >= mostlyDecodes*float64(len(batches)) {
		decode = append(decode, lone...)
	}
	// Steps with prompts differ from each other; over a stretch of them the same shift cancels.
	for i := 0; i+stretch <= len(batches); i += stretch {
		if batches[i+stretch-1].at-batches[i].at != stretch-1 {
			continue
		}
		var predicted priorTime
		var measured, ofPrompts float64
		for k := i; k < i+stretch; k++ {
			measured += batches[k].us
			predicted = predicted.plus(batches[k].prior)
			if batches[k].prefill {
				ofPrompts += batches[k].prior.mostUs
			}
		}
		if ofPrompts > mostlyPrompts*predicted.mostUs {
			prompt = append(prompt, predicted.ratio(measured))
		}
	}
	return decode, prompt
}

// priorOfSteps compares measured step times with the library's for the same batches. largest is the median ratio that
// is farthest from 1, of the regimes.
func priorOfSteps(f *facts) reading {
	r := priceSteps(f)
	f.weighPrior(&r, priceSteps, priorBesides)
	return r
}

// priceSteps is priorOfSteps for the stated description alone.
func priceSteps(f *facts) reading {
	if len(f.batches) == 0 {
		return notChecked("no step with a known batch and a recorded successor")
	}
	if f.run.Aggregate != nil && clientTokens(f).broken {
		return notChecked("the contexts of the passes are those of clients, whose tokens contradict the log")
	}
	if f.price == nil {
		if like := f.nameLikeDevice(); like != nil {
			return *like
		}
		return notChecked("the library has no kernel tables of %s for this model", f.dep.Hardware.Name)
	}
	decode, prompt := f.priorRatios()
	return f.priorReading("step", fewestPriced, []regimeRatios{
		{name: "decode steps", ratios: decode},
		{name: "steps with prompts", ratios: prompt},
	})
}

// regimeRatios are ratios of measured and predicted times.
type regimeRatios struct {
	name   string
	ratios []float64
}

// priorReading returns the comparison of the medians of ratios by regime. The largest departure
// decides. A regime with fewer times than fewest does not count.
func (f *facts) priorReading(what string, fewest int, regimes []regimeRatios) reading {
	var r reading
	text := ""
	worst := 1.0
	for _, regime := range regimes {
		if len(regime.ratios) < fewest {
			continue
		}
		median := stat.Median(regime.ratios)
		r.kinds++
		r.checked += len(regime.ratios)
		if foldChange(median) > foldChange(worst) {
			worst = median
		}
		if foldChange(median) > priorNamed {
			r.violated += len(regime.ratios)
			if text != "" {
				text += " and "
			}
			text += fmt.Sprintf("%s take %.3g times", regime.name, median)
		}
	}
	if r.checked == 0 {
		return notChecked("fewer than %d comparable times", fewest)
	}
	r.largest = worst
	r.broken = r.violated > 0
	r.effect = result.IdentityNamed
	if foldChange(worst) > priorUnusable {
		r.effect = result.IdentityFails
	}
	r.sentence = fmt.Sprintf("%s what the kernels measured on %s take with tp %d (medians of %d %ss): %s", text, f.dep.Hardware.Name, f.dep.TP,
		r.checked, what, priorDoubts)
	return r
}

// priorDoubts is what may be wrong where times are not those of the library.
const priorDoubts = "hardware, tensor_parallel_size, model or dtype in run.yaml may be wrong, the stamps may have another unit, or the server was not " +
	"alone on its devices"

// foldChange returns max(ratio, 1/ratio): 2 for a ratio of 2 or of 0.5; +Inf for one that is not above 0.
func foldChange(ratio float64) float64 {
	if !(ratio > 0) {
		return math.Inf(1)
	}
	return math.Max(ratio, 1/ratio)
}

// elapsedOverSpan returns a reading whose largest is the sum of the elapsed times of passes, divided
// by the time from the first stamp to the last. It is empty if that time is below leastSpanS.
func (f *facts) elapsedOverSpan() reading {
	var r reading
	var elapsedUs float64
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range f.run.Iterations {
		it := &f.run.Iterations[i]
		if it.Sampled || !it.StampNs.OK || it.ElapsedUs <= 0 {
			continue
		}
		r.checked++
		elapsedUs += it.ElapsedUs
		first = min(first, it.StampNs.V)
		last = max(last, it.StampNs.V)
	}
	if spanUs := float64(last-first) / 1e3; r.checked > 0 && spanUs >= leastSpanS*1e6 {
		r.largest = elapsedUs / spanUs
		return r
	}
	return reading{}
}

// passTimes compares the elapsed times of logged passes with the time between them. largest is the ratio of their sum
// to that time.
func passTimes(f *facts) reading {
	a := f.run.Aggregate
	if a == nil {
		return notChecked("no logged passes")
	}
	var r reading
	if a.Audit.SumOverWall.OK {
		r = reading{checked: len(f.run.Iterations), largest: a.Audit.SumOverWall.V}
	} else {
		r = f.elapsedOverSpan()
	}
	if r.checked == 0 {
		return notChecked("the passes have no elapsed times, no stamps beside them, or span too short a time")
	}
	// Passes take most of the busy time, but of the whole span only an upper limit is known.
	if r.largest > 1+clockTolerance || r.largest < leastOfBusy && a.Audit.SumOverWall.OK {
		r.violated = r.checked
		r.broken = true
	}
	if r.largest < leastOfBusy && r.largest > leastOfUnit { // some passes are missing; their times are in the right unit
		r.effect = result.IdentityNamed
	}
	of := "busy time"
	if !a.Audit.SumOverWall.OK {
		of = "time between the first and the last"
	}
	r.sentence = fmt.Sprintf("the elapsed times of %d passes add up to %.3g times the %s: they have another unit, or passes are logged twice",
		r.checked, r.largest, of)
	return r
}
