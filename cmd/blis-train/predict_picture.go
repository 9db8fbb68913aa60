package main

import (
	"fmt"

	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/report"
)

// predictPicture draws latency against throughput, one line for each server and request
// length, as SVG.
func predictPicture(points []*predict.Prediction) []byte {
	var x, y report.Span
	lines := map[string][][2]float64{}
	var names []string // in the order of the points
	for _, p := range points {
		if p.Refused != "" || p.ITL.Mean == nil {
			continue
		}
		name := fmt.Sprintf("%s, %d x %s, %d + %d tokens", p.Model, p.GPUs, p.Hardware, p.InputTokens, p.OutputTokens)
		if lines[name] == nil {
			names = append(names, name)
		}
		lines[name] = append(lines[name], [2]float64{p.TokensPerS, *p.ITL.Mean})
		x.TakePositive(p.TokensPerS)
		y.TakePositive(*p.ITL.Mean)
	}
	fig := &report.Figure{ID: "predict", Title: "Latency against throughput"}
	f := report.NewFrame(720, 420, "", report.Logarithmic("output tokens per second and GPU", x.Lo, x.Hi),
		report.Logarithmic("mean ITL, ms", y.Lo, y.Hi))
	paints := []report.Paint{report.Decode, report.Prefill, report.Mixed, report.Other}
	for i, name := range names {
		paint := paints[i%len(paints)]
		dash := i / len(paints) % 3
		fig.Legend = append(fig.Legend, report.Key{P: paint, Dash: dash, Text: name})
		f.Curve(lines[name], paint, 2, dash)
		for _, v := range lines[name] {
			f.Dot(f.At(v[0], v[1]), 3, paint, 1, fmt.Sprintf("%.0f tokens/s, %.3g ms", v[0], v[1]))
		}
	}
	fig.Panels = []report.Panel{{D: &f.Drawing, Desc: fig.Title}}
	return fig.SVG()
}
