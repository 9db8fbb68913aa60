package clients

import (
	"math"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// GuideLLM's CSV writes a metric as four columns (mean, median, standard
// deviation, percentiles) for each way requests ended, successful first, and
// leaves out a way whose values add up to 0. Before v0.7.0 the header was that of
// the first benchmark. The order of the metrics is known, the number of blocks of
// each is not; these identities over successful requests tell:
//
//	requests/s       = successful requests / duration
//	input + output   = total tokens
//	concurrency      ~ requests/s x latency
//	ITL x (output-1) = latency - TTFT
//	TPOT x output    = latency, or latency - TTFT in older versions
//
// Latencies of one way of ending exist together, so an arrangement in which TTFT,
// TPOT and ITL have the same number of blocks goes before one in which they do not.
//
// Source: vllm-project/guidellm src/guidellm/benchmark/outputs/csv.py@b537f5d9~1.

// block is one metric of one way of ending.
type block struct{ mean, median, sd float64 }

// Tolerances of the identities, relative.
const (
	rateTol        = 5e-3
	sumTol         = 1e-9
	concurrencyTol = 0.1
	decodeTol      = 0.02
)

// lead names the columns before the first metric; they are always in place.
var lead = map[string]string{
	"strategy": "Benchmark | Strategy", "duration": "Timings | Duration | Sec", "successful": "Request Counts | Successful",
	"incomplete": "Request Counts | Incomplete", "errored": "Request Counts | Errored", "last": "Request Counts | Total",
}

// crooked puts a row right whose columns are not those of the header, or drops it.
func (f *LevelFile) crooked(header, row []string, name, at string) {
	value := map[string]string{}
	start := -1
	for key, column := range lead {
		for k, h := range header {
			if h == column && k < len(row) {
				value[key] = row[k]
				if key == "last" {
					start = k + 1
				}
			}
		}
	}
	if start < 0 {
		f.dropLevel("%s: got %d columns, want the header's %d", at, len(row), len(header))
		return
	}
	number := func(key string) float64 {
		v, err := strconv.ParseFloat(value[key], 64)
		if err != nil {
			return math.NaN()
		}
		return v
	}
	ways := 1
	for _, key := range []string{"incomplete", "errored"} {
		if number(key) > 0 {
			ways++
		}
	}
	p, ok := arrange(blocksOf(row[start:]), number("successful"), number("duration"), ways)
	if !ok {
		f.dropLevel("%s: got %d columns under a header of %d, and no arrangement in which requests/s, tokens and latencies agree", at,
			len(row), len(header))
		return
	}
	p.Sweep, p.Strategy, p.Requests, p.Realigned = name, value["strategy"], int(number("successful")), true
	f.Findings = stat.AppendNew(f.Findings, trace.Findingf(CodeClientFile,
		"%s: rows have more columns than the header (GuideLLM before v0.7.0); put right by requests/s, token sums and latencies", name))
	f.addLevel(p, at)
}

// blocksOf reads blocks of three numbers and a list until something else comes.
func blocksOf(row []string) []block {
	var out []block
	for k := 0; k+3 < len(row) && strings.HasPrefix(row[k+3], "["); k += 4 {
		var b block
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

func near(a, b, tol float64) bool {
	return math.Abs(float64(a)-float64(b)) <= tol*math.Max(math.Abs(a), math.Abs(b))
}

// arrange finds the metrics among the blocks; ways is the most blocks a metric may have.
func arrange(b []block, successful, duration float64, ways int) (Level, bool) {
	best, found := math.Inf(1), Level{}
	for rps := range b {
		if math.Abs(b[rps].mean*duration-successful) > 1+rateTol*successful { // the rate counts the gaps
			continue
		}
		for conc := rps + 1; conc <= rps+ways && conc < len(b); conc++ {
			if !near(b[conc].mean, b[rps].mean*b[0].mean, concurrencyTol) {
				continue
			}
			in, out, ok := tokens(b, conc, ways)
			if !ok {
				continue
			}
			ttft, itl, miss, ok := latencies(b[:rps], b[out].mean, ways)
			if ok && miss < best {
				best = miss
				found = Level{
					RateRPS: b[rps].mean, Concurrency: b[conc].mean, PromptTokens: b[in].mean, PromptSD: b[in].sd, OutputTokens: b[out].mean,
					OutputSD:   b[out].sd,
					TTFTMeanMs: b[ttft].mean, TTFTMedianMs: b[ttft].median, ITLMs: b[itl].mean,
				}
			}
		}
	}
	return found, !math.IsInf(best, 1)
}

// tokens finds input, output and total tokens behind the concurrency: the first
// three whose means add up.
func tokens(b []block, conc, ways int) (in, out int, ok bool) {
	for in = conc + 1; in <= conc+ways; in++ {
		for out = in + 1; out <= in+ways; out++ {
			for total := out + 1; total <= out+ways && total < len(b); total++ {
				if near(b[in].mean+b[out].mean, b[total].mean, sumTol) {
					return in, out, true
				}
			}
		}
	}
	return 0, 0, false
}

// latencies finds TTFT and ITL among the blocks before requests/s: latency (s),
// streaming iterations, TTFT, TPOT, ITL (ms), each successful first. miss is 0 for
// identities that hold exactly.
func latencies(b []block, output float64, ways int) (ttft, itl int, miss float64, ok bool) {
	miss = math.Inf(1)
	latency := b[0].mean * 1000
	for t := 2; t <= 2*ways && t < len(b); t++ { // behind latency and streaming iterations
		for p := t + 1; p <= t+ways; p++ {
			for i := p + 1; i <= p+ways && i < len(b); i++ {
				if len(b)-i > ways {
					continue
				}
				decode := latency - b[t].mean
				itlMiss := math.Abs(b[i].mean*(output-1)/decode - 1)
				tpotMiss := math.Min(math.Abs(b[p].mean*output/decode-1), math.Abs(b[p].mean*output/latency-1))
				if itlMiss > decodeTol || tpotMiss > decodeTol {
					continue
				}
				m := itlMiss + tpotMiss
				if p-t != i-p || i-p != len(b)-i {
					m += 2 * decodeTol
				}
				if m < miss {
					ttft = t
					itl = i
					miss = m
					ok = true
				}
			}
		}
	}
	return ttft, itl, miss, ok
}
