package clients

// This file makes load levels of consecutive answers of a server's /metrics: counters and sums of
// histograms give the means of the requests in between.

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
)

// leastBetween is the least number of requests between two answers of /metrics that make a load
// level: the means of fewer say little.
const leastBetween = 10

// The ratios of rate x E2E to the requests in flight, by Little's law 1, between which the times of two files may be
// those of the answers in them (spec#level-checks has the same).
const (
	leastOfFlight = 0.6
	mostOfFlight  = 1.6
)

// LevelsBetween returns a load level for every two consecutive answers of /metrics, for each
// engine and model. Rates and means are exact; the median of TTFT is known up to its histogram bucket. It
// drops pairs with too few requests between them, pairs between which the server restarted, and pairs whose only
// times are those of their files, unless rate x E2E is what the server said it had in flight.
func LevelsBetween(snapshots []*enginelog.Snapshot) *LevelFile {
	f := newLevelFile()
	list := slices.Clone(snapshots)
	stat.SortStable(list, func(a, b *enginelog.Snapshot) int { return cmp.Compare(a.AtNs, b.AtNs) })
	f.addAnswers(list)
	return f
}

// LevelsOfScrapes returns the load levels between two answers of /metrics each: the first and the last of a
// phase in AIPerf's export of server metrics.
func LevelsOfScrapes(pairs [][2]*enginelog.Snapshot) *LevelFile {
	f := newLevelFile()
	for _, pair := range pairs {
		f.addAnswers(pair[:])
	}
	return f
}

// addAnswers adds the levels between consecutive answers, of each engine and model in the second of them.
func (f *LevelFile) addAnswers(list []*enginelog.Snapshot) {
	models := map[string]bool{}
	for _, s := range list {
		for series := range s.Engines {
			models[series.Model] = true
		}
	}
	for i := 1; i < len(list); i++ {
		var all []enginelog.Series
		for series := range list[i].Engines {
			all = append(all, series)
		}
		stat.SortStable(all, func(a, b enginelog.Series) int {
			return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Model, b.Model))
		})
		for _, series := range all {
			name := "engine " + series.Engine
			if len(models) > 1 {
				name += ", model " + series.Model
			}
			f.addBetween(list[i-1], list[i], series, name)
		}
	}
}

// addBetween adds the load level of one series (engine and model) between the answers a and b, or drops it.
// name is the series in words.
func (f *LevelFile) addBetween(a, b *enginelog.Snapshot, series enginelog.Series, name string) {
	where := a.Name + " to " + b.Name + ", " + name
	type difference struct{ sum, count float64 } // of a histogram's sum and count; times are in seconds
	since := map[enginelog.Measure]difference{}
	for _, m := range []enginelog.Measure{enginelog.MeasureTTFT, enginelog.MeasureITL, enginelog.MeasureE2E,
		enginelog.MeasurePrompt, enginelog.MeasureOutput} {
		now := b.Histogram(series, m)
		before := a.Histogram(series, m)
		if now.Count < before.Count || now.Sum < before.Sum {
			f.dropLevel("%s: %s counts %g requests after %g: the server started again", where, m, now.Count,
				before.Count)
			return
		}
		since[m] = difference{sum: now.Sum - before.Sum, count: now.Count - before.Count}
	}
	seconds := float64(b.AtNs-a.AtNs) / 1e9
	requests := since[enginelog.MeasureE2E].count
	if requests < leastBetween || !(seconds > 0) {
		f.dropLevel("%s: got %g requests in %g s, want at least %d in more than 0 s", where, requests, seconds,
			leastBetween)
		return
	}
	inFlight := since[enginelog.MeasureE2E].sum / seconds // by Little's law
	if !(a.IsStamped && b.IsStamped) {                    // the times are those of the files, which copying changes
		stated := (a.InFlight[series] + b.InFlight[series]) / 2
		if !(inFlight >= leastOfFlight*stated && inFlight <= mostOfFlight*stated) {
			f.dropLevel("%s: their files are %.3g s apart, which makes %.3g requests in flight of rate x E2E, and the server had %.3g when it "+
				"answered: these are times of copies, and the answers state none (curl -si writes the date with them)", where, seconds,
				inFlight, stated)
			return
		}
	}
	mean := func(m enginelog.Measure) float64 { return since[m].sum / since[m].count }
	ttft := b.Histogram(series, enginelog.MeasureTTFT)
	f.addLevel(Level{
		Sweep:        "metrics, " + name,
		Strategy:     "metrics@" + strconv.FormatFloat(requests/seconds, 'g', 4, 64),
		Requests:     int(requests),
		RateRPS:      requests / seconds,
		Concurrency:  inFlight,
		PromptTokens: mean(enginelog.MeasurePrompt),
		OutputTokens: mean(enginelog.MeasureOutput),
		TTFTMeanMs:   1e3 * mean(enginelog.MeasureTTFT),
		TTFTMedianMs: 1e3 * ttft.MedianSince(a.Histogram(series, enginelog.MeasureTTFT)),
		ITLMs:        1e3 * mean(enginelog.MeasureITL),
	}, where)
}
