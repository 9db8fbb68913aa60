package library

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/trace"
)

// Options say how a library is built.
type Options struct {
	Rules   Rules
	Without *deploy.Model // leave this architecture out of the design; nil: none
	Batches int           // design points per deployment
	Seed    uint64
	Workers int
	Date    string // of the library: the day its recipe or its sources changed last
}

// DefaultOptions are those of the embedded library.
func DefaultOptions() Options {
	return Options{Rules: Engine, Batches: 900, Seed: 1, Date: "2026-11-22"}
}

// builder holds what a library is made from.
type builder struct {
	Options
	tables   []*Tables
	families []*fitted
}

// newBuilder loads the tables of every GPU in the folder and fits its families.
func newBuilder(ctx context.Context, dir string, o Options) (*builder, error) {
	gpus, err := gpUs(dir)
	if err != nil {
		return nil, err
	}
	b := &builder{Options: o, tables: make([]*Tables, len(gpus))}
	if err := par.Try(ctx, o.Workers, len(gpus), func(i int) (err error) {
		b.tables[i], err = Load(dir, gpus[i])
		return err
	}, nil); err != nil {
		return nil, err
	}
	var all []*fitted
	for i := range b.tables {
		for _, weights := range []string{libraryBf16, libraryFp8} {
			for _, moe := range []bool{false, true} {
				all = append(all, &fitted{tables: b.tables[i], design: &design{family: family{gpus[i], weights, moe}}})
			}
		}
	}
	if err := par.Try(ctx, o.Workers, len(all), func(i int) (err error) { return all[i].fit(&b.Options) }, nil); err != nil {
		return nil, err
	}
	for _, f := range all {
		if len(f.Y) > 0 {
			b.families = append(b.families, f)
		}
	}
	if err := poolTerms(b.families); err != nil {
		return nil, err
	}
	return b, par.Try(ctx, o.Workers, len(b.families), func(i int) error {
		b.families[i].assess()
		return b.families[i].betweenModels()
	}, nil)
}

// familyOf is the family a deployment belongs to.
func (b *builder) familyOf(d *deploy.Deployment) (*fitted, error) {
	for _, f := range b.families {
		if f.tables.Hardware.Name == d.Hardware.Name && f.family.Weights == weightsOf(&d.Model) && f.family.MoE == d.Model.IsMoE() {
			return f, nil
		}
	}
	return nil, trace.Errorf(noTables, "library: got no coefficients for %s", d.Label())
}

// weightsOf is the kind of a model's weights.
func weightsOf(m *deploy.Model) string {
	if m.BytesPerWeight == 1 && m.LinearCompute == libraryFp8 {
		return libraryFp8
	}
	return libraryBf16
}

// Sources are what a library is made from.
type Sources struct {
	Kernels string   // folder of kernel tables
	Points  []string // files of measured points
	Runs    []string // folders of real runs: step cycles or stock spans
}

// File is one coefficient file of a library.
type File struct {
	Name string
	Set  *coeff.Set
}

// BuildFiles makes the library. The same sources and options give the same files.
func BuildFiles(ctx context.Context, src Sources, o Options) ([]File, error) {
	b, err := newBuilder(ctx, src.Kernels, o)
	if err != nil {
		return nil, err
	}
	e, err := b.read(ctx, src)
	if err != nil {
		return nil, err
	}
	c, err := b.learn(ctx, slices.Concat(e.points, e.served), e.cycles)
	if err != nil {
		return nil, err
	}
	judged, err := b.leaveGroupsOut(ctx, e.points, e.served, e.cycles)
	if err != nil {
		return nil, err
	}
	var out []File
	for _, f := range b.families {
		inputs := slices.Concat(f.tables.Sources, e.inputs) // its GPU's tables and all measurements
		out = append(out, File{f.fileName(), b.artifact(f, c, expectedOn(f.tables.Hardware.Name, judged), inputs)})
	}
	slices.SortStableFunc(out, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// measured is all that real servers said.
type measured struct {
	points, served []*load
	cycles         []*cycles
	inputs         []coeff.Input
}

// read reads points and runs.
func (b *builder) read(ctx context.Context, src Sources) (*measured, error) {
	m := &measured{}
	for _, path := range src.Points {
		points, in, err := readPoints(path)
		if err != nil {
			return nil, err
		}
		ls, err := loads(points, func(p *point) learn.Harness { return p.Harness() })
		if err != nil {
			return nil, err
		}
		m.points, m.inputs = append(m.points, ls...), append(m.inputs, in)
	}
	var err error
	var ins []coeff.Input
	m.cycles, m.served, ins, err = readRuns(ctx, src.Runs)
	m.inputs = append(m.inputs, ins...)
	return m, err
}

// expectedOn is the error of groups on the GPU, left out of the correction; on a
// GPU without any that of the group predicted worst.
func expectedOn(gpu string, judged []judged) coeff.ExpectedError {
	of := func(keep func(group string) bool) coeff.ExpectedError {
		var tpot, ttft []float64
		for i := range judged {
			if j := &judged[i]; keep(j.Group) {
				tpot, ttft = append(tpot, math.Abs(j.TPOTErr)), append(ttft, math.Abs(j.TTFTErr))
			}
		}
		return coeff.ExpectedError{OnGPU: len(tpot) > 0, TPOTMape: stat.Mean(tpot), TTFTMedian: stat.Median(ttft), Points: len(tpot)}
	}
	x := of(func(group string) bool { return strings.HasSuffix(group, ", "+gpu) })
	if !x.OnGPU {
		x = coeff.ExpectedError{}
		for _, j := range judged {
			g := of(func(group string) bool { return group == j.Group })
			x.TPOTMape, x.TTFTMedian, x.Points = max(x.TPOTMape, g.TPOTMape), max(x.TTFTMedian, g.TTFTMedian), len(judged)
		}
	}
	x.TPOTMape, x.TTFTMedian = stat.Round(x.TPOTMape, 2), stat.Round(x.TTFTMedian, 2)
	return x
}
