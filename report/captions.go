package report

// This file has the texts of the figures.

import "slices"

// Titles, notes and legends of the figures. A note explains what to look for and what would be bad.
var (
	targetAuditCaption = Figure{
		ID:    "target-audit",
		Title: "What the candidate targets measure",
		Note: "The cadence (time between the starts of two steps) is the step time. Look for the " +
			"duration far left of it: step.duration_us is scheduler CPU time and no target. Bad: " +
			"a target left of the tick, which is the time the hardware needs just to read the " +
			"weights.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "cadence, median"},
			{P: Prefill, Area: true, Text: "step.duration_us, median"},
			{P: ink, Area: true, Text: "physical floor (tick)"},
		},
	}
	pickupAuditCaption = Figure{
		ID:    "pickup-audit",
		Title: "Arrived, picked up, scheduled",
		Note: "QUEUED is stamped when the engine loop picks a request up between two steps. Look " +
			"for ARRIVED to QUEUED near one step time and QUEUED to SCHEDULED near zero: then the " +
			"queueing delay behind the running step is in what looks like API overhead, and a " +
			"replay must start from ARRIVED.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "ARRIVED to QUEUED, median"},
			{P: Mixed, Area: true, Text: "ARRIVED to QUEUED, P90"},
			{P: Prefill, Area: true, Text: "QUEUED to SCHEDULED, median"},
			{P: Other, Area: true, Text: "QUEUED to SCHEDULED, P90"},
		},
	}
	lagAuditCaption = Figure{
		ID:    "lag-audit",
		Title: "Which step an interval times: error by lag",
		Note: "Error on held-out intervals that contain prefill, per candidate lag; the ring is the " +
			"lag used (none: the run was left out of the fit). Good: the ringed dot clearly left " +
			"of the others. Bad: three dots together (the data do not determine the lag, it was " +
			"assumed) or a ring that is not leftmost.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "lag 0"},
			{P: Prefill, Area: true, Text: "lag 1"},
			{P: Mixed, Area: true, Text: "lag 2"},
		},
	}
	utilisationCaption = Figure{
		ID:    "utilisation",
		Title: "Implied utilisation of the hardware",
		Note: "A time-like coefficient of 1,000 ms/s is exactly the roofline. Look for dots between " +
			"0.1 and 1. Bad: right of 1 (faster than the data sheet allows: a wrong peak, a wrong " +
			"model, or a term that includes another's cost) or far left (a term that absorbs " +
			"overhead).",
		Legend: []Key{
			{P: Decode, Area: true, Text: "identified within configurations"},
			{P: Other, Area: true, Text: "only between configurations, or by the prior"},
		},
	}
	cvSurfaceCaption = Figure{
		ID:    "cv-surface",
		Title: "For experts: cross-validation surface of the step-time model",
		Note: "Held-out weighted squared relative error (1e-4 is an error of 1 %) per penalty λ " +
			"(columns) and memory γ of the preemption average (rows); the orange frame is the " +
			"choice. Good: a frame among the lowest values, on a flat plain. Bad: a frame on the " +
			"edge of the grid, or a surface so flat that the penalty decides nothing.",
		Closed: true,
	}
	coverageCaption = Figure{
		ID:    "coverage",
		Title: "What the recordings cover",
		Note: "Share of a run's steps in each bin; stronger colour is more. Look for gaps: loads " +
			"there were never recorded. Bad: prefill steps in the first bin only, so that the " +
			"cost of prefill cannot be fitted.",
	}
	loadCaption = Figure{
		ID:    "load",
		Title: "Load over time",
		Note: "Mean requests running and waiting. Good: waiting stays near zero or comes back to " +
			"it. Bad: waiting that climbs to the end of the run; such a run is saturated, and its " +
			"latencies grow with the length of the recording.",
		Legend: []Key{
			{P: Decode, Text: "running"},
			{P: Prefill, Dash: Dashed, Text: "waiting"},
		},
	}
	predVsMeasuredCaption = Figure{
		ID:    "pred-vs-measured",
		Title: "Predicted against measured step time",
		Note: "Look for dots along the solid line; the dashed lines are 20 % off. Bad: a regime " +
			"that leaves the band as a whole, or a slope that differs from the line, which means " +
			"a missing or mis-scaled term. Larger dots are more steps.",
	}
	residualsCaption = Figure{
		ID:    "residuals",
		Title: "Relative error against batch, context and time",
		Note: "Lines are medians of prediction/measured − 1, bands the middle 80 %. Good: flat " +
			"around zero. Bad: a trend with batch or context (a missing or mis-scaled term) or " +
			"with time (the machine or the model drifted).",
	}
	contributionsCaption = Figure{
		ID:    "contributions",
		Title: "What a mean step is made of",
		Note: "Each bar starts where the one above ends; the last is the mean prediction. Look for " +
			"the term that dominates a regime: an error in it moves every prediction there. Bad: " +
			"a bias or fixed overhead larger than the physics, or a prefill step without prefill " +
			"compute.",
	}
	errorCellsCaption = Figure{
		ID:    "error-cells",
		Title: "Step-time error by run and regime (MAPE, held-out steps)",
		Note: "Stronger colour is worse. Look along a column: one strong regime in every run is a " +
			"term the model gets wrong. Look along a row: one strong run is a machine or a " +
			"deployment that differs from the rest.",
	}
	locoCaption = Figure{
		ID:    "loco",
		Title: "Step-time error on configurations the fit never saw",
		Note: "Each row was predicted by a fit without it. Look for dots left of the dashed 25 % " +
			"gate and left of the constant; a dot right of the constant means the physics did not " +
			"carry over to that configuration.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "this fit"},
			{P: AxisLine, Area: true, Text: "best constant"},
			{P: Other, Area: true, Text: "frozen recipe, spec 1.0"},
		},
	}
	biasBlocksCaption = Figure{
		ID:    "bias-blocks",
		Title: "Signed step-time error by time block",
		Note: "One line per run, sum of predictions against sum of measurements in each block of " +
			"its held-out steps. Good: lines around zero. Bad: a line that moves away: the " +
			"machine changed speed; the farthest runs are named.",
		Legend: []Key{
			{P: Decode, Text: "run within ±10 %"},
			{P: bad, Dash: Dashed, Text: "run that leaves ±10 %"},
			{P: AxisLine, Dash: Dashed, Text: "±10 %"},
		},
	}
	driftCaption = Figure{
		ID:    "drift",
		Title: "Did the machine change speed?",
		Note: "Measured over predicted step time, medians over blocks of 5 to 20 s; the band is 0.9 " +
			"to 1.1. Good: a flat line inside the band. Bad: a line that leaves it: the machine " +
			"drifted, and plain replay errors of that run are the machine's as much as the " +
			"model's. A flat line off 1 is the model's.",
		Legend: []Key{
			{P: Decode, Text: "inside 0.9–1.1"},
			{P: bad, Text: "leaves 0.9–1.1"},
			{P: gridLine, Area: true, Text: "0.9–1.1"},
		},
	}
	ecdfCaption = Figure{
		ID:    "ecdf",
		Title: "TTFT, ITL and E2E, real and simulated",
		Note: "Share of requests faster than a time. The red bar is the largest vertical gap " +
			"between real and plain simulation: KS D. Good: lines on top of each other. Bad: a " +
			"shift (a wrong overhead or step time), a simulation that is too steep (missing " +
			"noise), or lines that separate only in the tail (queueing).",
	}
	levelMeansCaption = Figure{
		ID:    "level-means",
		Title: "TTFT and TPOT of load levels, real and simulated",
		Note: "One dot per level, predicted by coefficients that never saw it. Good: dots on the " +
			"diagonal. Bad: all of TTFT on one side (a wrong overhead or prompt work), or TPOT " +
			"that leaves it as the load grows (max_num_seqs, KV cache).",
	}
	ecdfMoreCaption = Figure{
		ID:    "ecdf-more",
		Title: "TTFT, ITL and E2E of the other replays, real and simulated",
		Note: "Look for lines on top of each other, as in the picture under the verdict; lines that " +
			"separate are bad.",
		Closed: true,
	}
	qqCaption = Figure{
		ID:    "qq",
		Title: "Quantiles, simulated against real (QQ)",
		Note: "Each point is the same quantile of both sides. Good: on the line. Bad: a constant " +
			"offset (overhead), a slope other than one (step time), or an end that bends away " +
			"(queueing or stalls that the model does not have).",
		Closed: true,
	}
)

// blank returns a figure with this caption and without panels.
func (f Figure) blank() *Figure {
	f.Legend = slices.Clone(f.Legend)
	return &f
}
