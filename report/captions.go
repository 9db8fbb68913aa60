package report

// This file has the texts of the figures.

import "slices"

// Titles, notes and legends of the figures. A note explains what to look for and what would be bad.
var (
	targetAuditCaption = Figure{
		ID:    "target-audit",
		Title: "What the candidate targets measure",
		Note: "The cadence, the time between the starts of two steps, is the step time that is " +
			"fitted. step.duration_us must be far to the left: it is the CPU time of the scheduler. " +
			"Bad: a cadence left of the tick, which is the time that the hardware needs only to " +
			"read the weights.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "cadence, median"},
			{P: Prefill, Area: true, Text: "step.duration_us, median"},
			{P: ink, Area: true, Text: "physical floor (tick)"},
		},
	}
	pickupAuditCaption = Figure{
		ID:    "pickup-audit",
		Title: "Arrived, picked up, scheduled",
		Note: "The engine stamps QUEUED when it picks a request up, between two steps, so a request " +
			"waits for the running step before QUEUED. Good: ARRIVED to QUEUED is about one step " +
			"time; QUEUED to SCHEDULED is near zero. Bad: QUEUED to SCHEDULED of seconds, which is " +
			"a queue. Replays start from ARRIVED.",
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
		Note: "Error on held-out intervals that contain prefill, for each candidate lag; the ring is " +
			"the lag used (no ring: the run is not in the fit). Good: the ringed dot is clearly " +
			"left of the others. Bad: three dots close together (the data do not determine the lag, " +
			"so it was assumed), or a ring that is not leftmost.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "lag 0"},
			{P: Prefill, Area: true, Text: "lag 1"},
			{P: Mixed, Area: true, Text: "lag 2"},
		},
	}
	utilisationCaption = Figure{
		ID:    "utilisation",
		Title: "Implied utilisation of the hardware",
		Note: "At 1 a term takes exactly the time that the datasheet implies (its coefficient is " +
			"1,000 ms/s). Good: between 0.1 and 1. Bad: right of 1, faster than the datasheet " +
			"allows (a wrong peak, a wrong model, or a term that includes the cost of another); or " +
			"far left (a term that absorbs overhead).",
		Legend: []Key{
			{P: Decode, Area: true, Text: "identified within configurations"},
			{P: Other, Area: true, Text: "only between configurations, or by the prior"},
		},
	}
	cvSurfaceCaption = Figure{
		ID:    "cv-surface",
		Title: "For experts: cross-validation surface of the step-time model",
		Note: "Held-out weighted squared relative error (1e-4 is an error of 1 %) for each penalty λ " +
			"(columns) and memory γ of the preemption average (rows); the orange frame is the " +
			"choice. Good: a frame among the lowest values, with similar values around it. Bad: a " +
			"frame at the edge of the grid.",
		Closed: true,
	}
	coverageCaption = Figure{
		ID:    "coverage",
		Title: "What the recordings cover",
		Note: "Share of the steps of a run in each bin; a stronger colour is more. Loads without colour were " +
			"never recorded. Bad: prefill steps in the first bin only, so that the cost of prefill " +
			"cannot be fitted.",
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
		Note: "Good: dots along the solid line; the dashed lines are 20 % off. Bad: all dots of one " +
			"kind of step outside the dashed lines, or another slope, which means a missing or " +
			"mis-scaled term. Larger dots are more steps.",
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
		Note: "Each bar starts where the one above ends; the last is the mean prediction. An error in " +
			"the longest bar moves every prediction. Bad: a bias or fixed overhead longer than all " +
			"other terms, or a prefill step without prefill compute.",
	}
	errorCellsCaption = Figure{
		ID:    "error-cells",
		Title: "Step-time error by run and regime (MAPE, held-out steps)",
		Note: "A stronger colour is worse. Good: one shade everywhere. Bad: a strong column (the model is wrong " +
			"for that kind of step) or a strong row (the machine or the deployment of that run " +
			"differs from the others).",
	}
	locoCaption = Figure{
		ID:    "loco",
		Title: "Step-time error on configurations the fit never saw",
		Note: "Each row was predicted by a fit to the other configurations. Good: a dot left of the " +
			"dashed gate at 25 % and left of the constant. Bad: a dot right of the constant, since " +
			"the coefficients did not carry over to that configuration.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "this fit"},
			{P: AxisLine, Area: true, Text: "best constant"},
			{P: Other, Area: true, Text: "frozen recipe, spec 1.0"},
		},
	}
	biasBlocksCaption = Figure{
		ID:    "bias-blocks",
		Title: "Signed step-time error by time block",
		Note: "One line per run: sum of predictions against sum of measurements, in each block of its " +
			"held-out steps. Good: lines around zero. Bad: a line that moves away, because the " +
			"machine changed its speed. The runs farthest from zero are named.",
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
			"to 1.1. Good: a flat line inside the band. Bad: a line that leaves the band (the " +
			"machine changed its speed, which is part of the replay error), or a flat line outside " +
			"(the model is wrong).",
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
		Note: "Good: lines on top of each other, as in the figure under the verdict. Bad: lines that " +
			"separate.",
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
