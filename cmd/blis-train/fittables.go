package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/pipeline/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// number, share and micros print unknown as a dash.
func number(v *float64) string { return optional(v, 1, "%.3g") }
func share(v *float64) string  { return optional(v, 100, "%.1f %%") }
func micros(v *float64) string { return optional(v, 1, "%.0f") }

func optional(v *float64, factor float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v*factor)
}

func auditRows(doc *result.Fit) []cells {
	evidence := map[string][]string{}
	n := map[string]int{}
	for _, e := range doc.Beta.LagEvidence {
		evidence[e.Run] = append(evidence[e.Run], optional(e.HoldoutMAPEPrefill, 1, "%.2f"))
		n[e.Run] = e.N
	}
	quality := map[string]result.StepQuality{}
	for _, r := range doc.Runs {
		quality[r.ID] = r.Steps
	}
	var out []cells
	for _, a := range doc.Beta.TargetAudit {
		lag, how := "-", "left out"
		if l, ok := doc.Beta.PipelineLag[a.Run]; ok {
			lag, how = fmt.Sprint(l.Lag), "not_measurable"
			if l.Measured {
				how = "measured"
			}
		}
		proof := "-"
		if len(evidence[a.Run]) > 0 {
			proof = fmt.Sprintf("%s n=%d", strings.Join(evidence[a.Run], "/"), n[a.Run])
		}
		out = append(out, cells{a.Run, micros(a.DurationUsP50), micros(a.CadenceUsP50), micros(a.PhysicalFloorUs),
			pair(a.QueuedToScheduledUs), pair(a.ArrivedToQueuedUs),
			lag + " " + how, proof, share(quality[a.Run].KnownShare)})
	}
	return out
}

func rowRows(doc *result.Fit) []cells {
	var out []cells
	for _, r := range doc.Beta.Rows.ByRun {
		out = append(out, cells{r.Run, r.Read, r.Kept, reasons(r.Dropped)})
	}
	for _, r := range doc.Runs {
		if !r.Used {
			out = append(out, cells{r.ID, "-", "-", r.Reason})
		}
	}
	return out
}

// reasons prints drop counts, largest first.
func reasons(dropped map[string]int) string {
	names := make([]string, 0, len(dropped))
	for name := range dropped {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		if dropped[names[i]] != dropped[names[j]] {
			return dropped[names[i]] > dropped[names[j]]
		}
		return names[i] < names[j]
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, dropped[name])
	}
	return strings.Join(names, ", ")
}

// coefficientRows prints the estimate without penalty, its interval and the published
// value; with a prior there is no such estimate and the interval is the value's.
func coefficientRows(m result.Model) []cells {
	var out []cells
	for _, c := range m.Coefficients {
		estimate, ci := "-", "-"
		if c.Estimate != nil {
			e, _ := report.Milli(*c.Estimate, c.Unit)
			estimate = report.FourDigits(e)
		}
		if of := c.Interval(); of != nil {
			lo, _ := report.Milli(of[0], c.Unit)
			hi, _ := report.Milli(of[1], c.Unit)
			ci = report.Range(lo, hi)
		}
		v, unit := report.Milli(c.Value, c.Unit)
		out = append(out, cells{c.Name, estimate, ci, report.FourDigits(v), unit, c.Identified, share(c.Share),
			number(c.ImpliedUtilisation)})
	}
	return out
}

func cellRows(doc *result.Fit) []cells {
	var out []cells
	for _, c := range doc.Beta.Cells {
		if c.Bucket == "" {
			out = append(out, errorRow(c.Run, c.Regime, &c.Errors))
		}
	}
	if h := doc.Beta.Holdout; h != nil {
		out = append(out, errorRow("all", "all", h))
	}
	return out
}

func errorRow(run, regime string, e *result.Errors) cells {
	return cells{run, regime, e.Rows, share(e.MAPE), share(e.MAPEConst), share(e.MAPEFloor), number(e.Skill), share(e.Bias)}
}

func locoRows(m result.Model) []cells {
	var out []cells
	for _, l := range m.Loco {
		out = append(out, cells{l.Label, l.Rows, share(l.MAPE), share(l.MAPEConst), share(l.MAPEFrozen10), share(l.Bias)})
	}
	if len(m.Loco) > 0 {
		out = append(out, cells{"median / worst", "", share(m.LocoMedian) + " / " + share(m.LocoWorst), "", "", ""})
	}
	return out
}

func alphaRows(doc *result.Fit) []cells {
	var out []cells
	for _, m := range doc.Alpha {
		switch {
		case m.Interval != nil:
			i := m.Interval
			out = append(out, cells{m.Target, i.Rows, share(i.InsideShare), i.InformativeRows, "-", "-", share(i.ExactWAPE), "-", "-",
				m.Replay})
		case m.TargetErrors != nil:
			e := m.TargetErrors
			out = append(out, cells{m.Target, e.Rows, "-", "-", share(e.MAPE), share(e.MAPEConst), share(e.WAPE),
				share(e.MAPEWindow10s), share(e.ConstWindow), m.Replay})
		}
	}
	return out
}

func modelRows(doc *result.Fit) []cells {
	var out []cells
	for _, m := range doc.Models {
		var mape, bias *float64
		if m.Holdout != nil {
			mape, bias = m.Holdout.MAPE, m.Holdout.Bias
		}
		out = append(out, cells{m.Name, share(mape), share(bias), share(m.LocoMedian), share(m.LocoWorst)})
	}
	return out
}

func amendmentRows(doc *result.Fit) []cells {
	var out []cells
	for _, a := range doc.Amendments {
		out = append(out, cells{a.Name, a.Model, a.Trigger, number(a.Value), a.Threshold, share(a.Without), share(a.With),
			share(a.WithoutLeftOut), share(a.WithLeftOut), a.Verdict()})
	}
	return out
}

// warnAll prints the warnings of every model once, and those of the runs.
func (con *console) warnAll(doc *result.Fit) {
	seen := map[trace.Finding]bool{}
	print := func(list []trace.Finding) {
		for _, w := range list {
			if !seen[w] {
				seen[w] = true
				con.hold([]trace.Finding{w})
			}
		}
	}
	for _, r := range doc.Runs {
		print(r.Findings)
	}
	print(doc.Warnings)
	print(doc.Beta.Warnings)
	for _, m := range doc.Alpha {
		print(m.Warnings)
	}
}
