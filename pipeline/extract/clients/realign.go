package clients

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// This file reads rows of GuideLLM's CSV that have other columns than the header. The CSV has a metric
// as a block of four columns (mean, median, standard deviation, percentiles) for each outcome of
// requests, successful first, and omits an outcome whose values add up to 0. Before v0.7.0 the header
// was that of the first benchmark, so later rows may have other columns. The order of the metrics is
// known, the number of blocks of each is not. These identities over successful requests find it:
//
//	requests/s       = successful requests / duration
//	input + output   = total tokens
//	concurrency      ~ requests/s x latency
//	ITL x (output-1) = latency - TTFT
//	TPOT x output    = latency, or latency - TTFT in older versions
//
// The latencies of an outcome exist together, so an arrangement in which TTFT, TPOT and ITL have
// equally many blocks is preferred to one in which they do not.
//
// Source: vllm-project/guidellm src/guidellm/benchmark/outputs/csv.py@b537f5d9~1.

// metricBlock is the figures of one metric for one outcome of requests.
type metricBlock struct{ mean, median, sd float64 }

// Tolerances of the identities, relative.
const (
	rateTol        = 5e-3
	tokenSumTol    = 1e-9 // an exact one: the means have all digits
	concurrencyTol = 0.1  // of means over time, in which requests at the borders of the run count otherwise
	decodeTol      = 0.02 // the mean of a product is not the product of the means
)

// Columns before the first metric, which are always in place.
const (
	columnStrategy   = "Benchmark | Strategy"
	columnDuration   = "Timings | Duration | Sec"
	columnSuccessful = "Request Counts | Successful"
	columnIncomplete = "Request Counts | Incomplete"
	columnErrored    = "Request Counts | Errored"
	columnLast       = "Request Counts | Total"
)

// realign adds the level of a row whose columns are not those of the header, or drops it where
// no arrangement of its columns obeys the identities.
func (f *LevelFile) realign(header, row []string, name, where string) {
	value := map[string]string{}
	for k := 0; k < len(header) && k < len(row); k++ {
		value[header[k]] = row[k]
	}
	last := -1 // index of the last column that is in place; behind it are the blocks
	for k, column := range header {
		if column == columnLast && k < len(row) {
			last = k
		}
	}
	if last < 0 {
		f.dropLevel("%s: got %d columns, want the header's %d", where, len(row), len(header))
		return
	}
	number := func(column string) float64 {
		v, err := strconv.ParseFloat(value[column], 64)
		if err != nil {
			return math.NaN()
		}
		return v
	}
	outcomes := 1 // that a metric may have a block of
	for _, column := range []string{columnIncomplete, columnErrored} {
		if number(column) > 0 {
			outcomes++
		}
	}
	l, ok := arrangeBlocks(metricBlocks(row[last+1:]), number(columnSuccessful), number(columnDuration), outcomes)
	if !ok {
		f.dropLevel("%s: got %d columns under a header of %d, and no arrangement in which requests/s, tokens and "+
			"latencies agree",
			where, len(row), len(header))
		return
	}
	l.Sweep = name
	l.Strategy = value[columnStrategy]
	l.Requests = int(number(columnSuccessful))
	l.Realigned = true
	finding := trace.Findingf(CodeClientFile, "%s: rows have more columns than the header (GuideLLM before v0.7.0); "+
		"corrected by requests/s, token sums and latencies", name)
	if !slices.Contains(f.Findings, finding) {
		f.Findings = append(f.Findings, finding)
	}
	f.addLevel(l, where)
}

// metricBlocks returns the blocks of three numbers and a list at the start of a row, up to anything
// else.
func metricBlocks(row []string) []metricBlock {
	var out []metricBlock
	for k := 0; k+3 < len(row) && strings.HasPrefix(row[k+3], "["); k += 4 {
		var b metricBlock
		for i, to := range []*float64{&b.mean, &b.median, &b.sd} {
			v, err := strconv.ParseFloat(row[k+i], 64)
			if err != nil {
				return out
			}
			*to = v
		}
		out = append(out, b)
	}
	return out
}

// isNear reports whether two numbers differ by at most tol of the larger.
func isNear(a, b, tol float64) bool {
	return math.Abs(a-b) <= tol*math.Max(math.Abs(a), math.Abs(b))
}

// arrangeBlocks returns the level in the blocks of a row, after it has found the metrics among
// them: first requests/s and concurrency, then the tokens behind and the latencies before these. A
// metric has 1 to outcomes blocks. Of several arrangements that fit, the one whose latencies fit best is
// used. It returns false if none fits.
func arrangeBlocks(blocks []metricBlock, successful, durationS float64, outcomes int) (Level, bool) {
	best := math.Inf(1)
	var found Level
	// rate is a block that could be requests/s. Block 0 is always the latency.
	for rate := range blocks {
		// GuideLLM takes the rate from the gaps between requests, of which there is one less.
		if math.Abs(blocks[rate].mean*durationS-successful) > 1+rateTol*successful {
			continue
		}
		for concurrency := rate + 1; concurrency <= rate+outcomes && concurrency < len(blocks); concurrency++ {
			if !isNear(blocks[concurrency].mean, blocks[rate].mean*blocks[0].mean, concurrencyTol) {
				continue
			}
			input, output, ok := findTokens(blocks, concurrency, outcomes)
			if !ok {
				continue
			}
			ttft, itl, miss, ok := findLatencies(blocks[:rate], blocks[output].mean, outcomes)
			if !ok || miss >= best {
				continue
			}
			best = miss
			found = Level{
				RateRPS:      blocks[rate].mean,
				Concurrency:  blocks[concurrency].mean,
				PromptTokens: blocks[input].mean,
				PromptSD:     blocks[input].sd,
				OutputTokens: blocks[output].mean,
				OutputSD:     blocks[output].sd,
				TTFTMeanMs:   blocks[ttft].mean,
				TTFTMedianMs: blocks[ttft].median,
				ITLMs:        blocks[itl].mean,
			}
		}
	}
	return found, !math.IsInf(best, 1)
}

// findTokens returns the places of input and output tokens behind the block at concurrency. The next
// metrics are input, output and total tokens: they are the first three blocks, each within outcomes of the
// one before, whose means add up.
func findTokens(blocks []metricBlock, concurrency, outcomes int) (in, out int, ok bool) {
	for in = concurrency + 1; in <= concurrency+outcomes; in++ {
		for out = in + 1; out <= in+outcomes; out++ {
			for total := out + 1; total <= out+outcomes && total < len(blocks); total++ {
				if isNear(blocks[in].mean+blocks[out].mean, blocks[total].mean, tokenSumTol) {
					return in, out, true
				}
			}
		}
	}
	return 0, 0, false
}

// findLatencies returns the places of TTFT and ITL among the blocks before requests/s: latency (s),
// streaming iterations, TTFT, TPOT, ITL (ms), each successful first. miss is how far the identities
// are from being exact.
func findLatencies(blocks []metricBlock, output float64, outcomes int) (ttft, itl int, miss float64, ok bool) {
	// Try all places. In the right one the mean ITL times the gaps of an answer, and the mean TPOT times its
	// tokens (by the time from the first token or, in other versions, from the start), give the latency.
	miss = math.Inf(1)
	latencyMs := blocks[0].mean * 1000
	for ttftAt := 2; ttftAt <= 2*outcomes && ttftAt < len(blocks); ttftAt++ { // behind latency and streaming iterations
		for tpotAt := ttftAt + 1; tpotAt <= ttftAt+outcomes; tpotAt++ {
			for itlAt := tpotAt + 1; itlAt <= tpotAt+outcomes && itlAt < len(blocks); itlAt++ {
				if len(blocks)-itlAt > outcomes { // ITL is the last of them
					continue
				}
				decodeMs := latencyMs - blocks[ttftAt].mean
				itlMiss := math.Abs(blocks[itlAt].mean*(output-1)/decodeMs - 1)
				tpotMiss := math.Min(math.Abs(blocks[tpotAt].mean*output/decodeMs-1), math.Abs(blocks[tpotAt].mean*output/latencyMs-1))
				if itlMiss > decodeTol || tpotMiss > decodeTol {
					continue
				}
				total := itlMiss + tpotMiss
				// Unequal numbers of blocks for TTFT, TPOT and ITL count as a miss of the identities.
				if tpotAt-ttftAt != itlAt-tpotAt || itlAt-tpotAt != len(blocks)-itlAt {
					total += 2 * decodeTol
				}
				if total < miss {
					ttft = ttftAt
					itl = itlAt
					miss = total
					ok = true
				}
			}
		}
	}
	return ttft, itl, miss, ok
}
