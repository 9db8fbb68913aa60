package library

// This file looks up the times of routed experts, and finds a substitute where no row has their shape:
// another sharding, similar experts, bfloat16, or another GPU.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/vllm"
)

// expertShape is the shape of one layer's routed experts on a deployment.
type expertShape struct {
	dtypes                       []string // of the tables, that can serve the checkpoint, the likeliest first
	hidden, inter, topK, experts int64    // whole: inter is the width of an expert before it is divided
	tp                           int64    // GPUs among which each expert is divided
	ep                           int64    // GPUs among which whole experts are divided
	projections                  int64    // matrices of an expert: 3 gated (gate, up, down), 2 plain (up, down)
	capability                   int64    // compute capability of the GPU, times 10
	load                         string   // how tokens spread over experts, a distribution of the tables
	backend                      string   // that the engine is set to use; "": the one measured
	raw                          bool     // keep times as measured, also where more tokens took less
}

// expertSize is what identifies a model's experts in the rows of a table.
type expertSize struct{ hidden, width, experts int64 }

// plainExperts are the experts of the tables that have two matrices in place of three: those of Nemotron-3, whose
// activation is relu2. The tables do not state it; their times are two thirds of those of gated experts of the same
// size.
var plainExperts = []expertSize{
	{hidden: 2688, width: 1856, experts: 128}, // Nano
	{hidden: 1024, width: 2688, experts: 512}, // Super
	{hidden: 2048, width: 5120, experts: 512}, // Ultra
}

// matricesOf returns the number of matrices of each expert in rows of a size.
func matricesOf(hidden, width, experts int64) int64 {
	if slices.Contains(plainExperts, expertSize{hidden, width, experts}) {
		return 2
	}
	return 3
}

// leastRead is the share of the weights that tokens read at least, of what uniform routing reads: rows of large experts,
// which no cache holds, show 0.73 and more. Small ones of few experts on a GPU are found in its cache by repeats of a
// measurement (L40S: 0.27), in a step of many layers they are not.
const leastRead = 0.7

// expertsReadUs returns the least time in us in which the weights of the tokens' experts are read from memory.
func (g *GPU) expertsReadUs(s *expertShape, tokens float64) float64 {
	readUs, _ := g.expertsRoofline(s, s.dtypes[0], tokens)
	return leastRead * readUs
}

// experts returns the time of one layer's fused experts over tokens: from rows of the exact shape,
// where moe_tp_size may be scaled from the nearest; else from similar experts, else from bfloat16
// ones. Rows of the exact shape are of the kernel that the engine chooses by itself: where it is set to
// use another one (s.backend), similar experts with that kernel come first, of this GPU or an older one.
//
// Where the tokens choose as many experts as there are (tokens x top-k = experts), the published routing rounds the load
// of half of the experts to none: its rows take 0.5 times those of balanced routing, between neighbours of 0.7, on every
// GPU and shape. Tokens that choose freely reach 0.63 (1 - 1/e) of the experts. So that size takes what its neighbours
// give (raisedAt).
func (g *GPU) experts(s expertShape) (curve, found, error) {
	t, err := g.needTable("moe")
	if err != nil {
		return curve{}, found{}, err
	}
	// conditions are those of rows of the exact shape.
	conditions := func(dtype string, more ...where) []where {
		return append([]where{hasWord("moe_dtype", dtype), equals("hidden_size", s.hidden), equals("inter_size", s.inter), equals("topk", s.topK),
			equals("num_experts", s.experts), equals("moe_ep_size", s.ep), hasWord("distribution", s.load)}, more...)
	}
	pick := func(dtype string, more ...where) []*Series {
		return t.dropTorn(t.pickSeries(conditions(dtype, more...)...))
	}
	source := found{Table: t.Name, Version: t.Version}
	like, from, ok := t.likeExperts(s)
	if s.backend != "" && !ok {
		like, from, ok = g.expertsOfOther(s)
	}
	if ok && s.backend != "" {
		return like, from, nil
	}
	// Rows of the exact shape, in the likeliest dtype that has any.
	for _, dtype := range s.dtypes {
		series := pick(dtype)
		if len(series) == 0 {
			continue
		}
		tps := t.values(series, "moe_tp_size")
		away := func(tp int64) int64 { return max(tp-s.tp, s.tp-tp) }
		tp := slices.MinFunc(tps, func(a, b int64) int { return cmp.Compare(away(a), away(b)) })
		times, kernel := t.curveOf(pick(dtype, equals("moe_tp_size", tp)))
		source.Kernel = kernel
		if !s.raw {
			times = times.raisedAt(float64(s.experts) / float64(s.topK))
		}
		if tp != s.tp {
			source.Reached = Substituted
			source.Note = fmt.Sprintf("moe_tp_size %d, scaled from %d", s.tp, tp)
		}
		if !s.raw {
			times = times.envelope()
		}
		times = times.scaled(float64(tp) / float64(s.tp))
		if n := matricesOf(s.hidden, s.inter, s.experts); n != s.projections {
			times = times.scaled(float64(s.projections) / float64(n))
			source = source.substituted("experts of %d matrices, from %d", s.projections, n)
		}
		if by, instead, from, ok := g.contradicted(s, dtype, times); ok {
			from.Contradicted = by
			from = from.substituted("measured rows are %.1f times those of bfloat16: from bfloat16 by the bytes of its weights", by)
			return instead, from, nil
		}
		return times, source, nil
	}
	if ok { // similar experts
		if by, instead, base, wrong := g.contradicted(s, s.dtypes[0], like); wrong {
			base.Contradicted = by
			base = base.substituted("the rows nearest in size take %.1f times those of bfloat16: from bfloat16 by the bytes of its weights", by)
			return instead, base, nil
		}
		return like, from, nil
	}
	// Nothing similar either: from bfloat16, of which less has to be read.
	if s.dtypes[0] == bf16 {
		return curve{}, source, g.missingRows(t, conditions(bf16, equals("moe_tp_size", s.tp))...)
	}
	times, source, err := g.lighterExperts(s, s.dtypes[0])
	source.rank = byBytes
	return times, source.substituted("%s, from bfloat16 by the bytes of its weights", s.dtypes[0]), err
}

// lighterExperts returns the time of experts of a dtype from the rows of bfloat16, of whose bytes it reads a share.
func (g *GPU) lighterExperts(s expertShape, dtype string) (curve, found, error) {
	s.dtypes = []string{bf16}
	s.backend = ""
	c, f, err := g.experts(s)
	return c.lighter(bytesOf(dtype)/2, s.touched), f, err
}

// touched returns the expected number of experts that tokens read, if each chooses topK of them at random, relative to
// the topK that one token reads.
func (s *expertShape) touched(tokens float64) float64 {
	chosen := float64(s.topK) / float64(s.experts) // probability that a token goes to an expert
	return (1 - math.Pow(1-chosen, tokens)) / chosen
}

// expertsRoofline returns the least times in us on one GPU: of reading the weights that the tokens
// touch, and of multiplying them at the peak rate of the dtype.
func (g *GPU) expertsRoofline(s *expertShape, dtype string, tokens float64) (readUs, computeUs float64) {
	weights := float64(s.projections*s.hidden*s.inter*s.topK) / float64(s.tp*s.ep) // of a token's experts, on this GPU
	readUs = 1e6 * weights * s.touched(tokens) * bytesOf(dtype) / g.Bandwidth
	computeUs = 1e6 * 2 * weights * tokens / g.peakOf(dtype)
	return readUs, computeUs
}

// peakOf returns the FLOP/s at which weights of a dtype are multiplied, as multiples of bfloat16's by the
// datasheets: twice with 8 bits, where the GPU's tensor cores have fp8 (compute capability 8.9) or the weights are
// int8; four times in nvfp4 (from 10.0); once where the kernel unpacks the weights to bfloat16 first.
func (g *GPU) peakOf(dtype string) float64 {
	weightOnly := strings.HasSuffix(dtype, "_wo") || strings.HasPrefix(dtype, "w4a16")
	switch {
	case dtype == bf16 || weightOnly:
		return g.FLOPS
	case dtype == nvfp4 && g.SM >= 100:
		return 4 * g.FLOPS
	case dtype == "int8" || dtype != nvfp4 && g.SM >= 89:
		return 2 * g.FLOPS
	}
	return g.FLOPS
}

// mostSlower is the ratio to the rows of bfloat16 beyond which rows of narrower weights are wrong
// where reading the weights decides: the kernel reads fewer bytes. Where multiplying counts too,
// weight-only formats, which are unpacked first, may rightly take more.
const mostSlower = 2

// mostlyReading is the ratio of reading the weights to multiplying them, by the datasheet, from which
// reading decides. Kernels that unpack weights reach a fraction of the peak rate.
const mostlyReading = 8

// contradicted compares rows of narrow weights with those of bfloat16 at the sizes at which reading the
// weights takes mostlyReading times as long as multiplying them or more, by the datasheet. by is the
// largest ratio there. Where it is more than mostSlower, the rows are wrong (ok) and instead replaces
// them. All sizes are replaced, because replacing some would make a cliff, unless a row is faster than
// its replacement. That is bfloat16's time, of which reading takes its share of the bytes and multiplying
// as long as before: at least the roofline of the dtype, at most bfloat16's time.
func (g *GPU) contradicted(s expertShape, dtype string, rows curve) (by float64, instead curve, source found, ok bool) {
	if dtype == bf16 {
		return 0, rows, source, false
	}
	wide := s
	wide.dtypes = []string{bf16}
	wide.backend = ""
	// How much longer do the rows take than bfloat16's, where reading decides?
	plain, source, err := g.experts(wide)
	if err != nil {
		return 0, rows, source, false
	}
	for i, x := range rows.x {
		if readUs, computeUs := g.expertsRoofline(&s, dtype, x); readUs >= mostlyReading*computeUs {
			by = math.Max(by, rows.y[i]/plain.usAt(x, 1))
		}
	}
	if by <= mostSlower {
		return by, rows, source, false
	}
	// The replacement: bfloat16's time, scaled by what its roofline becomes with the bytes of the narrower weights. The
	// launch is not scaled.
	instead = curve{x: rows.x, y: slices.Clone(rows.y)}
	for i, x := range rows.x {
		plainUs := plain.usAt(x, 1)
		readUs, computeUs := g.expertsRoofline(&s, dtype, x)
		wideReadUs, wideComputeUs := g.expertsRoofline(&s, bf16, x)
		share := max(readUs, wideComputeUs) / max(wideReadUs, wideComputeUs)
		us := share*plainUs + (1-share)*launchUs
		instead.y[i] = min(rows.y[i], plainUs, max(us, readUs, computeUs))
	}
	if !s.raw {
		instead = instead.envelope()
	}
	return by, instead, source, true
}

// expertsOfOther returns the curve of a backend's kernel that was measured on another GPU only: the first of a list,
// newest first, that has it. Its times are scaled by the root of the ratio of bandwidths, because a kernel that was not
// tuned for the newer GPU uses a part of its bandwidth. Experts that are whole on a GPU take the rows of divided ones
// if there are no others: a GPU reads as many bytes.
func (g *GPU) expertsOfOther(s expertShape) (likeTimes curve, source found, ok bool) {
	for _, name := range []string{"H200-SXM-141GB", "H100-SXM-80GB", "L40S-48GB"} {
		at := slices.IndexFunc(GPUs(), func(other *GPU) bool { return other.Hardware == name })
		if at < 0 || name == g.Hardware {
			continue
		}
		t, err := GPUs()[at].Table("moe")
		if t == nil || err != nil {
			continue
		}
		divided := s
		divided.tp = s.tp * s.ep
		divided.ep = 1
		for _, like := range []expertShape{s, divided} {
			if likeTimes, source, ok = t.likeExperts(like); ok {
				// Between two bounds: the other GPU's times, and those at this GPU's bandwidth.
				likeTimes = likeTimes.scaled(math.Sqrt(GPUs()[at].Bandwidth / g.Bandwidth))
				source = source.substituted("%s is in no table of this GPU, from %s, by the root of the bandwidths", s.backend, name)
				source.unlike = false // servers were compared with such rows
				return likeTimes, source, true
			}
		}
	}
	return likeTimes, source, false
}

// likeExperts returns the curve of a kernel that was measured on experts of another shape: the
// nearest in size and number, with weights of the dtype or else of as many bits, and, if s.backend is set,
// of that kernel. Times are taken at equal tokens per expert and scaled in proportion to the weights. ok is
// false if the table has no such rows.
func (t *Table) likeExperts(s expertShape) (likeTimes curve, source found, ok bool) {
	number := func(row *Series, column string) float64 { return float64(row.Key[t.Column(column)]) }
	word := func(row *Series, column string) string {
		i := t.Column(column)
		return t.Columns[i].Words[row.Key[i]]
	}
	// mxfp4 kernels pad the experts: compare with what is computed.
	hidden, width := s.hidden, s.inter
	if strings.Contains(s.dtypes[0], "mxfp4") {
		var ownWidth int64 // of an expert's part on one GPU
		hidden, ownWidth = vllm.PaddedExperts(s.backend, s.capability, s.hidden, max(1, s.inter/s.tp))
		width = ownWidth * s.tp
	}
	weights := float64(s.experts * hidden * width * s.projections)
	matrices := func(row *Series) float64 {
		return float64(matricesOf(row.Key[t.Column("hidden_size")], row.Key[t.Column("inter_size")], row.Key[t.Column("num_experts")]))
	}
	// distanceOf returns how far a row's experts are from those of s: 1 for another dtype, which counts first, then size,
	// number and matrices of the experts on a log scale.
	type distance struct{ dtype, shape float64 }
	distanceOf := func(row *Series) (d distance) {
		if s.backend == "" && !slices.Contains(s.dtypes, word(row, "moe_dtype")) {
			d.dtype = 1
		}
		n := number(row, "num_experts")
		size := n * number(row, "hidden_size") * number(row, "inter_size") * matrices(row)
		d.shape = math.Abs(math.Log(size/weights)) + math.Abs(math.Log(n/float64(s.experts))) + math.Abs(math.Log(matrices(row)/float64(s.projections)))
		return d
	}
	var like []*Series
	for _, row := range t.dropTorn(t.pickSeries(equals("moe_ep_size", s.ep), equals("moe_tp_size", s.tp), hasWord("distribution", s.load))) {
		if strings.Contains(word(row, "kernel_source"), s.backend) && bytesOf(word(row, "moe_dtype")) == bytesOf(s.dtypes[0]) {
			like = append(like, row)
		}
	}
	if len(like) == 0 {
		return likeTimes, source, false
	}
	nearest := slices.MinFunc(like, func(a, b *Series) int {
		distanceA := distanceOf(a)
		distanceB := distanceOf(b)
		return cmp.Or(cmp.Compare(distanceA.dtype, distanceB.dtype), cmp.Compare(distanceA.shape, distanceB.shape))
	})
	best := distanceOf(nearest)
	experts := number(nearest, "num_experts")
	topK := number(nearest, "topk")
	fromHidden := number(nearest, "hidden_size")
	fromWidth := number(nearest, "inter_size")
	// All rows of the nearest shape together are the curve.
	var same []*Series
	for _, row := range like {
		if distanceOf(row) == best && number(row, "num_experts") == experts && number(row, "topk") == topK {
			same = append(same, row)
		}
	}
	source = found{Table: t.Name, Version: t.Version}
	likeTimes, source.Kernel = t.curveOf(same)
	likeTimes = likeTimes.raisedAt(experts / topK)
	// So many tokens of s are as many tokens per expert as one token of the row.
	tokens := topK / experts * float64(s.experts) / float64(s.topK)
	for i := range likeTimes.x {
		likeTimes.x[i] *= tokens
	}
	likeTimes = likeTimes.envelope().scaled(weights / (experts * fromHidden * fromWidth * matrices(nearest)))
	if best != (distance{}) {
		source = source.substituted("scaled from %.0f experts of %.0f x %.0f, %s", experts, fromHidden, fromWidth, word(nearest, "moe_dtype"))
		if hidden != s.hidden || width != s.inter {
			source.Note += fmt.Sprintf("; padded to %d x %d", hidden, width)
		}
		source.unlike = s.backend == "" // with a backend set, servers were compared with such rows
	}
	return likeTimes, source, true
}
