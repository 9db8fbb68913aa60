package clients

// This file makes load levels of consecutive answers of a server's /metrics: counters and sums of
// histograms give the means of the requests in between.

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
)

// leastBetween is the least number of requests between two answers of /metrics that make a load
// level.
const leastBetween = 10

// LevelsBetween returns a load level for every two consecutive answers of /metrics, for each
// engine. Rates and means are exact; the median of TTFT is known up to its histogram bucket. It
// drops pairs with too few requests between them, and pairs between which the server restarted.
func LevelsBetween(snapshots []*enginelog.Snapshot) *LevelFile {
	f := newLevelFile()
	list := slices.Clone(snapshots)
	stat.SortStable(list, func(a, b *enginelog.Snapshot) int { return cmp.Compare(a.AtNs, b.AtNs) })
	for i := 1; i < len(list); i++ {
		for _, engine := range slices.Sorted(maps.Keys(list[i].Engines)) {
			f.addBetween(list[i-1], list[i], engine)
		}
	}
	return f
}

// addBetween adds the load level between the answers a and b.
func (f *LevelFile) addBetween(a, b *enginelog.Snapshot, engine string) {
	where := a.Name + " to " + b.Name + ", engine " + engine
	type difference struct{ sum, count float64 }
	since := map[enginelog.Measure]difference{}
	for _, m := range []enginelog.Measure{enginelog.MeasureTTFT, enginelog.MeasureITL, enginelog.MeasureE2E,
		enginelog.MeasurePrompt, enginelog.MeasureOutput} {
		now := b.Histogram(engine, m)
		before := a.Histogram(engine, m)
		if now.Count < before.Count || now.Sum < before.Sum {
			f.dropLevel("%s: %s counts %g requests after %g: the server started again", where, m, now.Count,
				before.Count)
			return
		}
		since[m] = difference{now.Sum - before.Sum, now.Count - before.Count}
	}
	seconds := float64(b.AtNs-a.AtNs) / 1e9
	requests := since[enginelog.MeasureE2E].count
	if requests < leastBetween || !(seconds > 0) {
		f.dropLevel("%s: got %g requests in %g s, want at least %d in more than 0 s", where, requests, seconds,
			leastBetween)
		return
	}
	mean := func(m enginelog.Measure) float64 { return since[m].sum / since[m].count }
	ttft := b.Histogram(engine, enginelog.MeasureTTFT)
	f.addLevel(Level{
		Sweep:        "metrics, engine " + engine,
		Strategy:     "metrics@" + strconv.FormatFloat(requests/seconds, 'g', 4, 64),
		Requests:     int(requests),
		RateRPS:      requests / seconds,
		Concurrency:  since[enginelog.MeasureE2E].sum / seconds,
		PromptTokens: mean(enginelog.MeasurePrompt),
		OutputTokens: mean(enginelog.MeasureOutput),
		TTFTMeanMs:   1e3 * mean(enginelog.MeasureTTFT),
		TTFTMedianMs: 1e3 * ttft.MedianSince(a.Histogram(engine, enginelog.MeasureTTFT)),
		ITLMs:        1e3 * mean(enginelog.MeasureITL),
	}, where)
}
