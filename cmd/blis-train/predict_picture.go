package main

// This file draws the servers of a sweep of predict.

import (
	"fmt"

	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/report"
)

// operatingPoint is a server under a load, as plots show it.
type operatingPoint struct {
	server     string
	load       string  // clients, or requests per second with /s
	tokensPerS float64 // of a GPU
	tpotMs     float64 // mean
	isBound    bool    // from the datasheet's rates: an upper bound, which no server reaches
}

// predictedPoints returns the points of a sweep that have an answer.
func predictedPoints(points []*predict.Prediction) []operatingPoint {
	var out []operatingPoint
	for _, p := range points {
		if p.Refused != "" || p.TPOT.Mean == nil || *p.TPOT.Mean <= 0 {
			continue
		}
		load := fmt.Sprint(p.Concurrency)
		if p.RateRPS > 0 {
			load = fmt.Sprintf("%g/s", p.RateRPS)
		}
		out = append(out, operatingPoint{
			server:     fmt.Sprintf("%s, %d x %s, %d + %d tokens", p.Model, p.GPUs, p.Hardware, p.InputTokens, p.OutputTokens),
			load:       load,
			tokensPerS: p.TokensPerS,
			tpotMs:     *p.TPOT.Mean,
			isBound:    p.Bound,
		})
	}
	return out
}

const (
	pictureWidth  = 720
	pictureMargin = 1.05 // between the points and the frame, as a ratio
)

// loadPicture returns an SVG picture of latency against throughput: one line for each server and
// request length, its points labelled with their load, and the limit of a target on TPOT or ITL.
// Upper bounds are dotted.
func loadPicture(points []operatingPoint, targets *predict.Targets) []byte {
	var x, y report.Span // the ranges of throughput and latency
	// By the name of the server: its points (throughput, latency), the load at each, and whether they are bounds.
	lines := map[string][][2]float64{}
	loads := map[string][]string{}
	isBound := map[string]bool{}
	var names []string // in the order of the points
	for _, p := range points {
		name := p.server
		if p.isBound {
			name += " (upper bound)"
			isBound[name] = true
		}
		if lines[name] == nil {
			names = append(names, name)
		}
		lines[name] = append(lines[name], [2]float64{p.tokensPerS, p.tpotMs})
		loads[name] = append(loads[name], p.load)
		x.TakePositive(p.tokensPerS)
		y.TakePositive(p.tpotMs)
	}
	limits := map[string]float64{} // ms, of targets on the latency that is drawn
	for _, t := range targets.Limits {
		if t.Metric == predict.TPOT || t.Metric == predict.ITL {
			limits[t.String()] = t.LimitMs
			y.TakePositive(t.LimitMs)
		}
	}
	fig := &report.Figure{ID: "predict", Title: "Latency against throughput",
		Note: "Numbers at the points are the load: clients, or requests per second."}
	x.TakePositive(x.Lo / pictureMargin)
	x.TakePositive(x.Hi * pictureMargin)
	y.TakePositive(y.Lo / pictureMargin)
	y.TakePositive(y.Hi * pictureMargin)
	f := report.NewFrame(pictureWidth, 420, "", report.Logarithmic("output tokens per second and GPU", x.Lo, x.Hi),
		report.Logarithmic("mean TPOT, ms", y.Lo, y.Hi))
	paints := []report.Paint{report.Decode, report.Prefill, report.Mixed, report.Other}
	for i, name := range names {
		// Four colours, then again dashed and dotted.
		paint := paints[i%len(paints)]
		const dotted = 2
		dash := i / len(paints) % 3
		if isBound[name] {
			dash = dotted
		}
		// A line is named in the legend; a single point has its name next to it.
		isLine := len(lines[name]) > 1
		if isLine {
			fig.Legend = append(fig.Legend, report.Key{P: paint, Dash: dash, Text: name})
			f.Curve(lines[name], paint, 2, dash)
		}
		for k, v := range lines[name] {
			at := f.At(v[0], v[1])
			f.Dot(at, 3, paint, 1, fmt.Sprintf("%s: %.0f tokens/s, %.3g ms", loads[name][k], v[0], v[1]))
			label := loads[name][k]
			if !isLine {
				label = name + ", " + label
			}
			const start, end = 0, 2 // anchors of a text: its left end at the point, or its right end
			if at.X < pictureWidth*3/4 {
				f.Label(report.At(at.X+5, at.Y-5), label, 9, report.Mute, start)
			} else {
				f.Label(report.At(at.X-5, at.Y-5), label, 9, report.Mute, end)
			}
		}
	}
	for _, t := range targets.Limits {
		ms, drawn := limits[t.String()]
		if !drawn {
			continue
		}
		fig.Legend = append(fig.Legend, report.Key{P: report.AxisLine, Dash: 1, Text: "target " + t.String()})
		f.Seg(f.At(x.Lo, ms), f.At(x.Hi, ms), report.AxisLine, 1.5, 1)
	}
	fig.Panels = []report.Panel{{D: &f.Drawing, Desc: fig.Title}}
	return fig.SVG()
}
