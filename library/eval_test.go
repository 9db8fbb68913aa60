package library

import (
	"context"
	"flag"
	"fmt"
	"github.com/blis-train/blis-train/pipeline/extract"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

var updateAccuracy = flag.Bool("update-accuracy", false, "rewrite docs/accuracy.md")

// realData is a builder with everything that real servers said.
func realData(t *testing.T) (*builder, *measured, []point) {
	t.Helper()
	repo.NeedEval(t)
	src := Sources{Kernels: repo.Shared(t, "data", "kernels"), Points: []string{repo.Shared(t, "data", "silicon", "points.csv")},
		Runs: []string{repo.Shared(t, "data", "real_step_summaries"), repo.Shared(t, "data", "real_stock_otlp")}}
	b, err := newBuilder(context.Background(), src.Kernels, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.read(context.Background(), src)
	if err != nil {
		t.Fatal(err)
	}
	points, _, err := readPoints(src.Points[0])
	if err != nil {
		t.Fatal(err)
	}
	return b, m, points
}

// page is the table under construction.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) errors(set, method string, js []judged) {
	e := errorsOf(js, nil)
	worst, at := 0.0, int64(0)
	for _, tp := range []int64{1, 2, 4, 8} {
		if x := errorsOf(js, func(j *judged) bool { return j.TP == tp }); x.N > 0 && x.TPOTMape > worst {
			worst, at = x.TPOTMape, tp
		}
	}
	p.line("| %s | %s | %d | %.1f / %+.1f | %.1f / %.1f / %+.1f | %.1f / %.1f / %+.1f | %.1f (tp %d) |", set, method, e.N, 100*e.TPOTMape,
		100*e.TPOTBias, 100*e.TTFTMape, 100*e.TTFTMedian, 100*e.TTFTBias, 100*e.E2EMape, 100*e.E2EMedian, 100*e.E2EBias, 100*worst, at)
}

func inGroup(js []judged, group string) []judged {
	return slices.DeleteFunc(slices.Clone(js), func(j judged) bool { return j.Group != group })
}

// TestEvalReal prints what docs/accuracy.md shows: the library on every public real
// set, whole groups left out of its correction, beside what else there is.
func TestEvalReal(t *testing.T) {
	b, m, points := realData(t)
	ctx := context.Background()
	must := func(js []judged, err error) []judged {
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	all := slices.Concat(m.points, m.served)
	c, err := b.learn(ctx, all, m.cycles)
	if err != nil {
		t.Fatal(err)
	}
	prior := newCorrection(c.GPUs, b.Rules)
	zero, in := must(b.judge(ctx, prior, all)), must(b.judge(ctx, c, all))
	left := must(b.leaveGroupsOut(ctx, m.points, m.served, m.cycles))
	noServed, err := b.learn(ctx, m.points, m.cycles)
	if err != nil {
		t.Fatal(err)
	}
	leftServed := must(b.judge(ctx, noServed, m.served))
	noCycles, err := b.learn(ctx, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	var p page
	p.line("| measured | prediction | n | TPOT MAPE / bias, %% | TTFT MAPE / median / bias, %% | E2E MAPE / median / bias, %% | " +
		"worst TPOT MAPE, %% |\n|---|---|---|---|---|---|---|")
	for _, g := range groupsOf(m.points) {
		p.errors(g, "kernels alone, host times assumed", inGroup(zero, g))
		p.errors("", "**library, group left out**", inGroup(left, g))
		p.errors("", "library, all measurements in", inGroup(in, g))
		p.errors("", "AIConfigurator 0.12.0", inGroup(others(t, points), g))
		p.errors("", "roofline", inGroup(must(rooflines(m.points)), g))
	}
	for i, l := range m.served {
		p.errors(l.name+" (stock spans)", "kernels alone, host times assumed", inGroup(zero, l.name))
		p.errors("", "**library, all three runs left out**", leftServed[i:i+1])
		p.errors("", "library, all measurements in", inGroup(in, l.name))
	}
	p.line("\n| step cycles | rows | kernels alone | library, both runs left out | all in | fit of the other run, library as its prior | " +
		"own fit | noise floor |\n|---|---|---|---|---|---|---|---|")
	for _, y := range m.cycles {
		own := b.ownFit(t, y)
		p.line("| %s | %d | %s | %s | %s | %.1f | %.1f | %.1f |", y.name, len(y.Y), b.cycleErrors(t, prior, y), b.cycleErrors(t, noCycles, y),
			b.cycleErrors(t, c, y), 100*b.fromOther(t, noCycles, m.cycles, y), 100*own, 100*cycleFloor(y))
	}
	p.requests(t, b, c)
	p.harnesses(t, b, c, points)
	p.coverage(left)
	p.parameters(c)
	fmt.Print(p.String())
	writeAccuracy(t, b, p.String())
	checkReal(t, zero, left, in)
}

// checkReal are the figures that must not be lost: each a little above today's.
func checkReal(t *testing.T, zero, left, in []judged) {
	for _, g := range []struct {
		name            string
		zero, left, in  float64 // TPOT MAPE
		leftTTFT, atTP8 float64 // TTFT median, TPOT MAPE at tp 8
	}{
		{"qwen3-32b bfloat16, H100-SXM-80GB", 0.077, 0.055, 0.03, 0.19, 0.057},
		{"llama-3.1-70b fp8, H100-SXM-80GB", 0.024, 0.037, 0.034, 0.19, 0.044},
		{"llama-3.1-70b fp8, B200-SXM-180GB", 0.08, 0.061, 0.06, 0.24, 0.077},
	} {
		z, l, i := errorsOf(inGroup(zero, g.name), nil), errorsOf(inGroup(left, g.name), nil), errorsOf(inGroup(in, g.name), nil)
		tp8 := errorsOf(inGroup(left, g.name), func(j *judged) bool { return j.TP == 8 })
		if z.TPOTMape > g.zero || l.TPOTMape > g.left || i.TPOTMape > g.in || l.TTFTMedian > g.leftTTFT || tp8.TPOTMape > g.atTP8 {
			t.Errorf("%s: got TPOT %.3f, %.3f, %.3f, TTFT %.3f, tp 8 %.3f, want at most %v", g.name, z.TPOTMape, l.TPOTMape, i.TPOTMape,
				l.TTFTMedian, tp8.TPOTMape, g)
		}
	}
}

// others are AIConfigurator's predictions where it gives one.
func others(t *testing.T, points []point) []judged {
	t.Helper()
	var out []judged
	for i := range points {
		p := &points[i]
		if !math.IsNaN(p.OtherTPOTMs) && !math.IsNaN(p.OtherTTFTMs) {
			l, err := p.load(p.Harness(), 1)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, l.judged(p.OtherTTFTMs, p.OtherTPOTMs))
		}
	}
	return out
}

// rooflines are the predictions of perfect efficiency.
func rooflines(ls []*load) ([]judged, error) {
	var out []judged
	for _, l := range ls {
		step, err := sim.NewRoofline(l.dep)
		if err != nil {
			return nil, err
		}
		o, err := sim.MeansOf(sim.DefaultConfig(l.dep, step), l.reqs)
		if err != nil {
			return nil, err
		}
		out = append(out, l.judged(o.TTFTMs, o.TPOTMs))
	}
	return out, nil
}

func (b *builder) cycleErrors(t *testing.T, c *correction, y *cycles) string {
	f, err := b.familyOf(y.dep)
	if err != nil {
		t.Fatal(err)
	}
	beta := c.coefficients(f, y.dep)[:betaSlots]
	mape, bias := 0.0, 0.0
	for i, us := range y.Y {
		e := ridge.Dot(y.Row(i), beta)/us - 1
		mape, bias = mape+math.Abs(e)/float64(len(y.Y)), bias+e/float64(len(y.Y))
	}
	return fmt.Sprintf("%.1f / %+.1f", 100*mape, 100*bias)
}

// ownFit is the error of a fit to the first 80 % on the rest.
func (b *builder) ownFit(t *testing.T, y *cycles) float64 {
	t.Helper()
	cut := len(y.Y) * 4 / 5
	var train []int32
	for i := range cut {
		train = append(train, int32(i))
	}
	d := y.Data
	d.Config = make([]int32, len(y.Y))
	o := termOptions(betaSlots)
	fit, err := ridge.FitRows(&d, ridge.Weights(&d, o), train, 1e-4, o)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i := cut; i < len(y.Y); i++ {
		sum += math.Abs(ridge.Dot(y.Row(i), fit.Beta)/y.Y[i] - 1)
	}
	return sum / float64(len(y.Y)-cut)
}

// cycleFloor is the error of the median of the ten rows with the nearest features.
func cycleFloor(y *cycles) float64 {
	scaled := make([]float64, 0, len(y.X))
	scale := make([]float64, y.P)
	level := make([]float64, len(y.Y))
	for i := range y.Y {
		level[i] = y.Y[i] / y.Steps[i]
		for j, x := range y.Row(i) {
			scale[j] += square(x/y.Steps[i]) / float64(len(y.Y))
		}
	}
	for i := range y.Y {
		for j, x := range y.Row(i) {
			v := 0.0
			if scale[j] > 0 {
				v = x / y.Steps[i] / math.Sqrt(scale[j])
			}
			scaled = append(scaled, v)
		}
	}
	tree := stat.NewNeighbours(scaled, y.P, level)
	sum := 0.0
	for i := range level {
		sum += math.Abs(tree.Median(i)/level[i]-1) / float64(len(level))
	}
	return sum
}

// harnesses is the part of TTFT's error that the unstated benchmark decides.
func (p *page) harnesses(t *testing.T, b *builder, c *correction, points []point) {
	p.line("\nTTFT by what the benchmark is taken to have done (all measurements in, TTFT median error / bias, %%):\n")
	p.line("| measured | lengths 80-100 %%, together | constant prompts, together | 80-100 %%, staggered over 2 s |\n|---|---|---|---|")
	staggered := learn.SpreadHarness
	staggered.RampS = 2
	cells := map[string][]string{}
	for _, h := range []learn.Harness{learn.SpreadHarness, learn.ConstantHarness, staggered} {
		ls, err := loads(points, func(*point) learn.Harness { return h })
		if err != nil {
			t.Fatal(err)
		}
		js, err := b.judge(context.Background(), c, ls)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groupsOf(ls) {
			e := errorsOf(inGroup(js, g), nil)
			cells[g] = append(cells[g], fmt.Sprintf("%.0f / %+.0f", 100*e.TTFTMedian, 100*e.TTFTBias))
		}
	}
	for _, g := range []string{"llama-3.1-70b fp8, B200-SXM-180GB", "llama-3.1-70b fp8, H100-SXM-80GB", "qwen3-32b bfloat16, H100-SXM-80GB"} {
		p.line("| %s | %s |", g, strings.Join(cells[g], " | "))
	}
}

// coverage is how many of the points left out lie inside the library's own 90 % interval.
func (p *page) coverage(left []judged) {
	inside := 0
	var widths []float64
	for i := range left {
		j := &left[i]
		sd := math.Sqrt(square(j.TPOTSD) + square(tpotSD))
		widths = append(widths, 1.645*sd)
		if math.Abs(math.Log1p(j.TPOTErr)) <= 1.645*sd {
			inside++
		}
	}
	p.line("\nOf the %d points left out %.1f %% lie inside the library's own 90 %% interval of TPOT (median half width %.1f %%).", len(left),
		100*float64(inside)/float64(len(left)), 100*stat.Median(widths))
}

// parameters is the correction itself.
func (p *page) parameters(c *correction) {
	p.line("\n| correction | value | standard error | before any measurement |\n|---|---|---|---|")
	for k := range c.Theta {
		v, q := c.pair(k), c.prior(k)
		p.line("| %s | %.4g | %.2g | %.4g +- %.2g |", q.name, v[0], v[1], q.mean, q.sd)
	}
}

const accuracyFile = "../docs/accuracy.md"

func writeAccuracy(t *testing.T, b *builder, table string) {
	t.Helper()
	if !*updateAccuracy {
		return
	}
	text := "# How far the library can be trusted\n\nGenerated by `make eval-real` for library " + b.Date +
		". Public real data only: measured points and\n" +
		"kernel tables of AIConfigurator (ai-dynamo/aiconfigurator), step cycles and stock spans of inference-sim. Points state " +
		"neither length\n" +
		"spread nor engine flags: 8192 batched tokens, 1024 sequences, ten requests per client are taken, a bf16 KV cache, and on B200 " +
		"the fused\n" +
		"all-reduce of that benchmark's public recipe.\n\n" + table + "\n" + b.representation()
	repo.Write(t, text, accuracyFile)
}

// representation is how well the terms hold the tables at all.
func (b *builder) representation() string {
	var p page
	p.line("## How well the terms hold the tables\n\nDesign points of every family against the sum of its kernels: median relative " +
		"error, bias, and the mean of the worst deployment.\n")
	p.line("| family | regime | median, %% | bias, %% | worst deployment |\n|---|---|---|---|---|")
	for _, f := range b.families {
		name := strings.TrimSuffix(f.fileName(), ".yaml")
		for r := range learn.NumRegimes {
			q := &f.regimes[r]
			p.line("| %s | %s | %.1f | %+.1f | %.1f %%, %s |", name, regimeNames[r], 100*q.MedianAPE, 100*q.Bias, 100*q.Worst, q.WorstDeployment)
			name = ""
		}
	}
	return p.String()
}

// extracted reads all runs of a data set.
func extracted(t testing.TB, name string) (*result.Extract, []*trace.Run) {
	t.Helper()
	out, doc := extractedSet(t, name)
	var runs []*trace.Run
	for _, r := range doc.Runs {
		run, err := table.Read(table.RunDir(out, r.ID))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	return doc, runs
}

// kernelRow is one recorded cadence beside the kernels of its true batch.
type kernelRow struct{ measuredMs, kernelsMs, seqs float64 }

// kernelRows are the clean one-step rows of a run.
func kernelRows(t testing.TB, run *trace.Run, d *deploy.Deployment, s *Stepper) []kernelRow {
	t.Helper()
	steps, err := rows.Rebuild(run, d, features.V11)
	if err != nil {
		t.Fatal(err)
	}
	sp, err := features.New(features.V11, d)
	if err != nil {
		t.Fatal(err)
	}
	vec := rows.Vectorizer{P: 2, WantMembers: true, Step: func(in *features.StepInput, members []trace.Member, x []float64) (features.Hits,
		error) {
		p := s.StepMs(batchOf(in, members))
		x[0], x[1] = p.TotalMs(), in.NumSampledSeqs
		return 0, nil
	}}
	tab, err := steps.BetaBasis(sp, vec, rows.Options{Lag: rows.AssumedLag(d)})
	if err != nil {
		t.Fatal(err)
	}
	rows.Clean([]*rows.Table{tab}, rows.Relative)
	var out []kernelRow
	for i := range tab.Kept {
		if tab.Steps[i] == 1 && (tab.Tag[i] != rows.TagSummary || tab.Regime[i] == rows.Decode) {
			out = append(out, kernelRow{tab.Y[i] / 1e3, tab.Row(i)[0], tab.Row(i)[1]})
		}
	}
	return out
}

// batchOf is the batch, or where only its totals are known that many decodes at
// their mean context.
func batchOf(in *features.StepInput, members []trace.Member) []trace.Chunk {
	var batch []trace.Chunk
	for _, m := range members {
		batch = append(batch, m.Chunk)
	}
	if members == nil && in.NumDecodeReqs > 0 {
		batch = decodes(int64(in.NumDecodeReqs), int64(in.DecodeContextTokens/in.NumDecodeReqs)-1)
	}
	return batch
}

// The composed data set's own words: kernels x lognormal(1, cv 0.02) + host
// lognormal(1 ms, cv 0.2). Its synchronous runs wait for the scheduler as well,
// which the words do not say: 0.32 ms and 10 us a sequence, within 10 % the same
// in all seven of them on three GPUs.
func hostMs(d *deploy.Deployment, seqs float64) float64 {
	if d.Engine.IsAsync() {
		return 1
	}
	return 1.32 + 0.010*seqs
}

// noiseFloor is the error of the true mean under that noise, seeded.
func noiseFloor(rs []kernelRow, d *deploy.Deployment) float64 {
	rng := rand.New(rand.NewPCG(1, 1))
	lognormal := func(cv float64) float64 {
		s := math.Sqrt(math.Log(1 + cv*cv))
		return math.Exp(s*rng.NormFloat64() - s*s/2)
	}
	sum := 0.0
	for _, r := range rs {
		host := hostMs(d, r.seqs)
		sum += math.Abs((r.kernelsMs+host)/(r.kernelsMs*lognormal(0.02)+(host-1)+lognormal(0.2)) - 1)
	}
	return sum / float64(len(rs))
}

// TestEvalComposed compares the kernels of every composed run's true batches
// with the recorded cadence, under that set's own rules, and the engine's beside.
func TestEvalComposed(t *testing.T) {
	repo.NeedEval(t)
	dir := repo.Shared(t, "data", "kernels")
	doc, runs := extracted(t, "composed")
	tables := map[string]*Tables{}
	engine := map[int64][]float64{}
	fmt.Println("(kernels + host) against the recorded cadence, composed rules; engine rules: their kernels over the composed ones")
	for i, run := range runs {
		d := doc.Runs[i].Deployment
		if tables[d.Hardware.Name] == nil {
			var err error
			if tables[d.Hardware.Name], err = Load(dir, d.Hardware.Name); err != nil {
				t.Fatal(err)
			}
		}
		var stepper [2]*Stepper
		for k, rules := range allRules() {
			var err error
			if stepper[k], err = tables[d.Hardware.Name].For(d, rules); err != nil {
				t.Fatal(err)
			}
		}
		rs, other := kernelRows(t, run, d, stepper[1]), kernelRows(t, run, d, stepper[0])
		var ratios, plain, engineRatios []float64
		mape := 0.0
		for j, r := range rs {
			predicted := r.kernelsMs + hostMs(d, r.seqs)
			ratios, plain = append(ratios, r.measuredMs/predicted), append(plain, r.measuredMs/(r.kernelsMs+1))
			mape += math.Abs(predicted/r.measuredMs-1) / float64(len(rs))
			engineRatios = append(engineRatios, other[j].kernelsMs/r.kernelsMs)
		}
		ratio, floor := stat.Median(ratios), noiseFloor(rs, d)
		engine[d.TP] = append(engine[d.TP], stat.Median(engineRatios))
		fmt.Printf("  %-24s rows %4d ratio %.3f (host 1 ms alone %.3f) MAPE %.2f %% floor %.2f %% engine %+.1f %%\n",
			run.ID, len(rs), ratio, stat.Median(plain), 100*mape, 100*floor, 100*(stat.Median(engineRatios)-1))
		if ratio < 0.98 || ratio > 1.02 {
			t.Errorf("%s: median ratio %.3f, want 0.98 to 1.02", run.ID, ratio)
		}
		if mape > floor+0.01 {
			t.Errorf("%s: MAPE %.2f %%, want at most the noise floor %.2f %% plus 1 point", run.ID, 100*mape, 100*floor)
		}
	}
	for _, tp := range []int64{1, 2, 4} {
		fmt.Printf("  engine over composed rules, tp %d: median %+.1f %% over %d runs\n", tp, 100*(stat.Median(engine[tp])-1), len(engine[tp]))
	}
}

// extractedSet are all runs of a data set beside the repository, and the folder of their tables.
func extractedSet(t testing.TB, set string) (out string, doc *result.Extract) {
	t.Helper()
	found, err := extract.Discover([]string{repo.Shared(t, "data", set)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	if doc, err = extract.Run(context.Background(), found, o); err != nil {
		t.Fatal(err)
	}
	return o.Out, doc
}
