package forms

import (
	"cmp"
	"path"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// points reads the summary of a benchmark: load levels in place of requests, which
// more would save.
func (c *Reader) points(in *source.Input, how source.Options, more string) error {
	src, err := source.Open(in, how.Stdin, how.Limits)
	if src == nil {
		return err
	}
	defer src.Close()
	c.Acc.Lines++
	f, err := Read(&tally{src.R, &c.Acc.Bytes}, src.Name)
	if err != nil {
		return err
	}
	c.Findings = append(c.Findings, f.Findings...)
	c.Acc.Read += int64(f.Read)
	for _, drop := range f.Findings { // each drop has a finding of its own
		if f.Dropped[drop.Code] > 0 {
			c.Acc.Drop(drop.Code, 1, source.Place{File: src.Name}, "%s", drop.Message)
		}
	}
	for i := range f.Points {
		c.Points = append(c.Points, PointOf(&f.Points[i]))
	}
	in.Gave += int64(len(f.Points))
	if len(f.Points) > 0 && more != "" {
		c.finding(CodeClientFile, "%s: means of %d load levels and no single request; %s would save them", src.Name, len(f.Points), more)
	}
	return nil
}

// PointOf is a point of a sweep as a row of the table.
func PointOf(p *Point) trace.LoadPoint {
	known := func(v float64) trace.Opt[float64] { return trace.Opt[float64]{V: v, OK: v != 0} }
	count := func(n int) trace.Opt[int64] { return trace.Opt[int64]{V: int64(n), OK: n != 0} }
	return trace.LoadPoint{Name: source.Place{File: p.Sweep, Line: p.Line}.String(), Strategy: p.Strategy, Requests: count(p.Requests),
		Clients: count(p.Clients), OfferedRPS: known(p.OfferedRPS), RateRPS: known(p.RateRPS), PromptTokens: p.PromptTokens,
		PromptSD: known(p.PromptSD), OutputTokens: p.OutputTokens, OutputSD: known(p.OutputSD), TTFTMs: known(p.TTFTMeanMs),
		TTFTMedianMs: known(p.TTFTMedianMs), TPOTMs: p.ITLMs, E2EMs: known(p.E2EMs),
		TP: count(p.TP), EP: count(p.EP), DP: count(p.DP), File: p.Sweep, Line: p.Line}
}

// dropRepeatedPoints keeps each level once: a tool writes the same figures as JSON and as
// CSV, and the mean over all stages of a run beside each of them.
func (c *Reader) dropRepeatedPoints() {
	slices.SortStableFunc(c.Points, func(a, b trace.LoadPoint) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	staged := func(file string) bool { return matches(path.Base(file), "stage_*_lifecycle_metrics.json*") }
	kept := c.Points[:0]
	for _, p := range c.Points {
		stem, ext := stemOf(p.File)
		_, isTwin := slices.BinarySearchFunc(c.Points, stem+".json",
			func(o trace.LoadPoint, file string) int { return cmp.Compare(o.File, file) })
		isStage := func(o trace.LoadPoint) bool { return path.Dir(o.File) == path.Dir(p.File) && staged(o.File) }
		isMix := matches(path.Base(p.File), "summary_lifecycle_metrics.json*") && slices.ContainsFunc(c.Points, isStage)
		switch {
		case ext == ".csv" && isTwin:
			c.Acc.Drop(source.CodeDuplicate, 1, source.Place{File: p.File, Line: p.Line}, "the same level as in %s.json", stem)
		case isMix:
			c.Acc.Drop(CodeClientFile, 1, source.Place{File: p.File, Line: p.Line}, "the mean over stages that have reports of their own")
		default:
			c.Acc.Keep(1)
			kept = append(kept, p)
		}
	}
	c.Points = kept
}

func matches(name, pattern string) bool {
	ok, _ := path.Match(pattern, name)
	return ok
}
