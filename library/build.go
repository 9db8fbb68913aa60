package library

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/kernels"
	"github.com/blis-train/blis-train/result"
)

// Sources are what corrections are learned from.
type Sources struct {
	Points []string // files of measured points
	Models string   // folder of the points' config.json
	Runs   []string // folders of real runs: step cycles or stock spans
}

// Measured is all that real servers said.
type Measured struct {
	points, served []*load
	cycles         []*cycles
	Inputs         []result.Input
}

// Read reads points and runs.
func Read(ctx context.Context, src Sources) (*Measured, error) {
	m := &Measured{}
	var err error
	if m.points, m.Inputs, err = loadsOf(src.Points, src.Models); err != nil {
		return nil, err
	}
	ys, served, ins, err := readRuns(ctx, src.Runs)
	m.cycles, m.served, m.Inputs = ys, served, append(m.Inputs, ins...)
	return m, err
}

// se is the standard error of a parameter.
func (c *correction) se(k int) float64 {
	if n := len(c.Theta); c.Covariance != nil {
		return math.Sqrt(c.Covariance[k*n+k])
	}
	return c.prior(k).SD
}

// Learn makes the corrections that ship: learned from everything, each family judged by corrections that have not seen it.
func (m *Measured) Learn(ctx context.Context, version string, workers int) (*kernels.Corrections, error) {
	prior, all := newCorrection(gpusOf(slices.Concat(m.points, m.served), m.cycles)), slices.Concat(m.points, m.served)
	of, err := prior.simulateAll(ctx, all, workers)
	if err != nil {
		return nil, err
	}
	left, err := leaveOut(ctx, prior, m.points, m.served, of, m.cycles, workers)
	if err != nil {
		return nil, err
	}
	return correct(prior, all, of, m.cycles).published(version, left), nil
}

// published are the corrections as they ship.
func (c *correction) published(version string, left []judged) *kernels.Corrections {
	out := &kernels.Corrections{Version: version, GPUs: map[string][2]float64{}, Step: map[string][2]float64{}}
	for k, v := range c.Theta {
		pair := [2]float64{stat.Round(v, 4), stat.Round(c.se(k), 4)}
		if k < numCommon {
			out.Step[c.prior(k).Name] = pair
		} else {
			out.GPUs[c.GPUs[k-numCommon]] = pair
		}
	}
	by := map[string][]judged{}
	var families []string
	for _, j := range left {
		if j.listed() {
			families, by[j.step.Family] = append(families, j.step.Family), append(by[j.step.Family], j)
		}
	}
	for _, f := range distinct(families) {
		q := kernels.Judged{Family: f, Points: len(by[f])}
		var tpot, ttft []float64
		var models []string
		for _, j := range by[f] {
			tpot, ttft = append(tpot, math.Abs(j.tpotErr)), append(ttft, math.Abs(j.ttftErr))
			models, q.TP = append(models, j.point.model), append(q.TP, j.dep.TP)
		}
		q.Model, q.TP = strings.Join(distinct(models), " and "), distinct(q.TP)
		q.TPOTMape, q.TTFTMedian, q.Interval90 = stat.Round(stat.Mean(tpot), 3), stat.Round(stat.Median(ttft), 3),
			stat.Round(interval90(tpot), 3)
		out.Judged = append(out.Judged, q)
	}
	return out
}

// interval90 is what nine in ten errors of further rows are within: the quantile of so many rows' errors (conformal prediction).
func interval90(errors []float64) float64 {
	n := float64(len(errors))
	return stat.Quantile(stat.Sorted(errors), min(1, 0.9*(n+1)/n))
}

// listed reports whether a row teaches and counts in means: gpt-oss at 512 clients answers with the TPOT of 4 clients.
func (l *load) listed() bool {
	return !(strings.Contains(l.group, "gpt-oss") && l.point != nil && l.point.Concurrency >= 512)
}

// Text are the corrections as a file.
func Text(c *kernels.Corrections, inputs []result.Input) ([]byte, error) {
	body, err := c.YAML()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("# Made by `blis-train library build`; nothing is written by hand.\n")
	for _, in := range inputs {
		fmt.Fprintf(&b, "# from %s, sha256 %s\n", in.Name, in.SHA256)
	}
	return append([]byte(b.String()), body...), nil
}
