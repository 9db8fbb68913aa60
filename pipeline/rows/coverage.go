package rows

import (
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// Coverage says which kinds of steps a run holds.
type Coverage struct {
	PrefillTokens result.Histogram // tokens per step, steps with prefill
	DecodeBatch   result.Histogram // decodes per step, steps with decodes
	Context       result.Histogram // tokens in KV per decode
	KVUsage       result.Histogram // share of GPU blocks, recorded steps
	// Heavy counts steps with more than 64 prefill tokens: without enough of
	// them the prefill cost is not identifiable.
	Heavy    int
	Findings []trace.Finding
}

// scarce is how many steps of a kind make it present.
const scarce = 20

// powers counts in bins with the edges 0, 1, 2, 4 .. largest.
func powers(name, unit string, largest float64) result.Histogram {
	edges := []float64{0}
	for lo := 1.0; lo < largest; lo *= 2 {
		edges = append(edges, lo)
	}
	return result.Histogram{Name: name, Unit: unit, Edges: edges, Counts: make([]int, len(edges))}
}

func tenths(name string) result.Histogram {
	h := result.Histogram{Name: name, Unit: "1", Counts: make([]int, 10)}
	for i := range 10 {
		h.Edges = append(h.Edges, float64(i)/10)
	}
	return h
}

// countIn adds one value to a histogram.
func countIn(h *result.Histogram, v float64) {
	for i := len(h.Edges) - 1; i >= 0; i-- {
		if v >= h.Edges[i] {
			h.Counts[i]++
			h.Rows++
			return
		}
	}
}

// Coverage counts the run's busy steps and names the regimes it lacks.
func (s *Steps) Coverage() Coverage {
	c := Coverage{
		PrefillTokens: powers("prefill_tokens", "tokens", 32768),
		DecodeBatch:   powers("decode_batch", "requests", 1024),
		Context:       powers("context_tokens", "tokens", 131072),
		KVUsage:       tenths("kv_usage"),
	}
	var decode, mixed, prefill int
	for k := range s.all {
		st := &s.all[k]
		if st.Recorded >= 0 && isBusy(&s.Run.Steps[st.Recorded]) {
			countIn(&c.KVUsage, s.Run.Steps[st.Recorded].KVUsage)
		}
		if !st.Known() || st.In.ScheduledTokens == 0 {
			continue
		}
		hasPrefill, hasDecode := st.In.PrefillTokens > 0, st.In.DecodeTokens > 0
		switch {
		case hasPrefill && hasDecode:
			mixed++
		case hasPrefill:
			prefill++
		default:
			decode++
		}
		if hasPrefill {
			countIn(&c.PrefillTokens, st.In.PrefillTokens)
		}
		if hasDecode {
			countIn(&c.DecodeBatch, st.In.NumDecodeReqs)
			countIn(&c.Context, st.In.DecodeContextTokens/st.In.NumDecodeReqs)
		}
		if st.In.PrefillTokens > evidenceTokens {
			c.Heavy++
		}
	}
	c.absent(s.Run.ID, decode, mixed, prefill)
	return c
}

func (c *Coverage) absent(run string, decode, mixed, prefill int) {
	for _, k := range []struct {
		n    int
		what string
	}{
		{decode, "pure-decode steps"},
		{mixed, "steps that mix prefill and decode"},
		{prefill, "pure-prefill steps"},
		{c.Heavy, "steps with more than 64 prefill tokens (prefill cost is not identifiable)"},
	} {
		if k.n < scarce {
			c.Findings = append(c.Findings, trace.Findingf(codeRegimeAbsent, "%s: %d %s, want at least %d", run, k.n, k.what, scarce))
		}
	}
}

// Ranges are the smallest and largest per-step values of every feature over
// the training rows of the tables (spec#training-range); 0, 0 for a slot without any.
func Ranges(tables []*Table) (lo, hi []float64) {
	if len(tables) == 0 {
		return nil, nil
	}
	p := tables[0].P
	lo, hi = filled(p, math.Inf(1)), filled(p, math.Inf(-1))
	for _, t := range tables {
		for j := range p {
			lo[j], hi[j] = math.Min(lo[j], t.Min[j]), math.Max(hi[j], t.Max[j])
		}
	}
	for j := range p {
		if lo[j] > hi[j] {
			lo[j], hi[j] = 0, 0
		}
	}
	return lo, hi
}

// Sizes of the figures: they bound a report whatever the number of rows.
const (
	binsPerDecade = 12
	maxBands      = 20
	minBandRows   = 5
	figureDigits  = 5
)

// Figures aggregate the judged rows: predicted against measured, residuals against
// batch, context and time, and what each term contributes to a mean step.
func (s *StepErrors) Figures(terms []string) *result.FitFigures {
	f := &result.FitFigures{PredVsMeasured: []result.Bin2D{}, Residuals: []result.ResidualBand{}, Contributions: []result.Contribution{}}
	f.PredVsMeasured = append(f.PredVsMeasured, s.bins()...)
	for _, axis := range []struct {
		name string
		of   func(t *Table, i int32) float64
	}{
		{"batch", func(t *Table, i int32) float64 { return t.Batch[i] }},
		{"context", func(t *Table, i int32) float64 { return t.Context[i] }},
		{"time", func(t *Table, i int32) float64 { return float64(t.TimeNs[i]-t.TimeNs[0]) / 1e9 }},
	} {
		for r := Decode; r <= Mixed; r++ {
			f.Residuals = append(f.Residuals, s.bands(axis.name, r, axis.of)...)
		}
	}
	for r := Decode; r <= Mixed; r++ {
		f.Contributions = append(f.Contributions, s.contributions(r, terms)...)
	}
	return f
}

// of visits the judged rows of one regime.
func (s *StepErrors) of(r Regime, visit func(sample *Sample, k int, row int32)) {
	for k, ref := range s.refs {
		if sample := s.samples[ref.sample]; sample.Table.Regime[ref.row] == r {
			visit(sample, k, ref.row)
		}
	}
}

// bins count rows in log-log cells of measured and predicted time per step, by
// regime, measured, predicted.
func (s *StepErrors) bins() []result.Bin2D {
	var out []result.Bin2D
	bin := func(us float64) int { return int(math.Floor(stat.Log10(us) * binsPerDecade)) }
	centre := func(bin int) float64 { return stat.Pow(10, (float64(bin)+0.5)/binsPerDecade) }
	for r := Decode; r <= Mixed; r++ {
		count := map[[2]int]int{}
		s.of(r, func(sample *Sample, k int, row int32) {
			y, p := s.rows.Y[k]/sample.Table.Steps[row], s.rows.Pred[k]/sample.Table.Steps[row]
			if y > 0 && p > 0 {
				count[[2]int{bin(y), bin(p)}]++
			}
		})
		for _, k := range slices.SortedFunc(maps.Keys(count), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
			out = append(out, result.Bin2D{Regime: r.String(), X: centre(k[0]), Y: centre(k[1]), N: count[k]})
		}
	}
	return out
}

// bands are quantiles of (prediction - y)/y along one quantity.
func (s *StepErrors) bands(against string, r Regime, of func(t *Table, i int32) float64) []result.ResidualBand {
	var x, residual []float64
	s.of(r, func(sample *Sample, k int, row int32) {
		if y := s.rows.Y[k]; y > 0 {
			x, residual = append(x, of(sample.Table, row)), append(residual, (s.rows.Pred[k]-y)/y)
		}
	})
	short := func(v float64) float64 { return stat.Round(v, figureDigits) }
	var out []result.ResidualBand
	for _, b := range stat.Bands(x, residual, maxBands, minBandRows) {
		out = append(out, result.ResidualBand{
			Against: against, Regime: r.String(), X: short(b.X), P10: short(b.P10), P50: short(b.P50), P90: short(b.P90), N: b.N,
		})
	}
	return out
}

// contributions are the mean us per engine step of each term; terms that
// contribute nothing are left out.
func (s *StepErrors) contributions(r Regime, terms []string) []result.Contribution {
	sum := make([]float64, len(terms))
	var steps float64
	s.of(r, func(sample *Sample, _ int, row int32) {
		steps += sample.Table.Steps[row]
		for j, x := range sample.Table.Row(int(row)) {
			sum[j] += float64(x * sample.Beta[j])
		}
	})
	var out []result.Contribution
	for j, v := range sum {
		if v != 0 {
			out = append(out, result.Contribution{Regime: r.String(), Name: terms[j], MeanUs: v / steps})
		}
	}
	return out
}
