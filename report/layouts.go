package report

// This file has the columns, captions and notes of the tables of the page. A layout is a table
// without rows, from which a table is made by blank.

import (
	"fmt"
	"slices"
)

// Columns that several tables share.
var (
	errorColumns = []Column{
		{Head: "Rows", Num: true},
		{Head: "MAPE", Num: true},
		{Head: "Constant", Num: true, Help: "MAPE of the best constant"},
		{Head: "Floor", Num: true, Help: "MAPE of the nearest neighbours: the noise of the measurement"},
		{Head: "Skill", Num: true, Help: "1 at the floor, 0 at the constant"},
		{Head: "Bias", Num: true, Help: "sum(prediction)/sum(measured) − 1"},
		{Head: "Median error", Num: true},
		{Head: "P95 error", Num: true},
		{Head: "Largest", Unit: "× median step", Num: true},
	}
	// Errors of the steps of one run, regime (decode, prefill or mixed) and size of batch.
	cellColumns = slices.Concat([]Column{
		{Head: "Run"},
		{Head: "Regime"},
		{Head: "Batch"},
		{Head: "Set"},
	}, errorColumns)
	gateColumns = []Column{
		{Head: "Result"},
		{Head: "Gate"},
		{Head: "Value", Num: true},
		{Head: "Must be"},
		{Head: "Against threshold", Help: "the tick is the threshold; the bar ends at twice the threshold"},
		{Head: "Scope"},
	}
	delayColumns = []Column{
		{Head: "Target"},
		{Head: "Rows", Num: true},
		{Head: "Inside interval", Num: true},
		{Head: "Informative", Num: true},
		{Head: "Median width", Unit: "ms", Num: true},
		{Head: "Median prediction", Unit: "ms", Num: true},
		{Head: "MAPE", Num: true},
		{Head: "Median error", Num: true, Help: "the relative error that half of the requests do not exceed"},
		{Head: "Constant", Num: true, Help: "MAPE of the best constant"},
		{Head: "Floor", Num: true, Help: "MAPE of the median of the ten requests most like each: no model of the recorded state does better"},
		{Head: "WAPE", Num: true},
		{Head: "MAPE of 10 s means", Num: true},
		{Head: "Constant", Num: true, Help: "MAPE of the best constant of 10-second means"},
	}
	metricColumns = []Column{
		{Head: "Run"},
		{Head: "Compared"},
		{Head: "Metric"},
		{Head: "Requests", Num: true},
		{Head: "KS D", Num: true},
		{Head: "D with noise", Num: true},
		{Head: "D drift-corrected", Num: true},
		{Head: "D real vs real", Num: true},
		{Head: "D beyond 5 %", Num: true, Help: "what gates: times may be off by 5 %, the server's noise in the replay"},
		{Head: "by chance", Num: true, Help: "the largest D beyond 5 % of 99 replays with noise"},
		{Head: "D at quantile", Num: true},
		{Head: "p", Num: true, Help: "asymptotic p-value of the plain replay"},
		{Head: "Median error", Num: true},
		{Head: "with noise", Num: true},
		{Head: "drift-corrected", Num: true},
		{Head: "paired", Num: true, Help: "median over requests of |simulated − real| / real"},
		{Head: "signed", Num: true, Help: "what gates: trimmed mean over requests of log(simulated/real)"},
		{Head: "Wasserstein", Unit: "ms", Num: true},
	}
)

// Layouts of the tables.
var (
	gatesLayout = Table{
		ID:      "gates",
		Caption: "Gates",
		Cols:    gateColumns,
		Note: "A failed gate makes the command exit with 3. The reason is under each threshold; a " +
			"gate's name leads to its clause in the specification, and `blis-train validate " +
			"--gate list` prints them all.",
	}
	gatesOpenLayout = Table{
		ID:      "gates-open",
		Caption: "Gates without enough data",
		Cols:    gateColumns,
		Note:    "A gate without enough data does not count as passed.",
	}
	gatesRestLayout = Table{
		ID:      "gates-rest",
		Caption: "Gates that are not required here",
		Cols:    gateColumns,
		Closed:  true,
	}
	gatesOthersLayout = Table{
		ID:      "gates-others",
		Caption: "Gates that failed for other purposes",
		Cols:    gateColumns,
		Closed:  true,
	}
	gatesPassedLayout = Table{
		ID:      "gates-passed",
		Caption: "Gates that passed",
		Cols:    gateColumns,
		Closed:  true,
	}
	loadsLayout = Table{
		ID:      "loads",
		Caption: "What was fitted",
		Cols: []Column{
			{Head: "Load"},
			{Head: "Recorded"},
			{Head: "Requests", Num: true},
		},
	}
	directionsLayout = Table{
		ID:      "directions",
		Caption: "What the data decide",
		Cols: []Column{
			{Head: "Terms that move together", Help: "largest first"},
			{Head: "Decided", Num: true, Help: "1 − remaining variance over the prior's"},
			{Head: "Decided by"},
			{Head: "What to measure"},
		},
		Note: "A direction is an independent combination of terms. The data decide it when they " +
			"remove nine tenths of the prior's variance; the others keep the prior's value and " +
			"interval.",
	}
	levelsLayout = Table{
		ID:      "levels",
		Caption: "Load levels, each predicted by coefficients that never saw it",
		Cols: []Column{
			{Head: "Level"},
			{Head: "TTFT", Unit: "ms", Num: true},
			{Head: "Predicted", Unit: "ms", Num: true},
			{Head: "Off", Num: true},
			{Head: "TPOT", Unit: "ms", Num: true},
			{Head: "Predicted", Unit: "ms", Num: true},
			{Head: "Off", Num: true},
		},
	}
	changesLayout = Table{
		ID:      "changes-table",
		Caption: "Before and after",
		Cols: []Column{
			{Head: "What"},
			{Head: "Scope"},
			{Head: "Before", Num: true},
			{Head: "Now", Num: true},
			{Head: "Change", Num: true},
		},
		Note: "Verdicts that changed come first, then gates, then coefficients. A gate counts when " +
			"it moved by more than 1 %, a coefficient when its stored intervals separate the two " +
			"(Holm, 5 %).",
	}
	runsLayout = Table{
		ID:      "runs",
		Caption: "Runs",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Verdict"},
			{Head: "Model, hardware, TP"},
			{Head: "Span", Unit: "s", Num: true},
			{Head: "Requests", Num: true},
			{Head: "Failed", Num: true},
			{Head: "Aborted", Num: true},
			{Head: "Preempted", Num: true},
			{Head: "Steps recorded", Num: true, Help: "share of the step ids between the first and the last that were recorded"},
			{Head: "Steps known", Num: true, Help: "share of recorded steps whose batch is known from snapshots or could be rebuilt"},
		},
	}
	violatedLayout = Table{
		ID:      "violated",
		Caption: "Streams that contradict each other",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Identity"},
			{Head: "Harms"},
			{Head: "Effect", Help: "fails: the purposes fail; insufficient: they do not pass; named: a warning"},
			{Head: "Violated", Num: true},
			{Head: "Checked", Num: true},
			{Head: "Contradiction"},
		},
	}
	identitiesLayout = Table{
		ID:      IdentitiesTable,
		Caption: "What must hold between the streams",
		Cols: []Column{
			{Head: "Identity"},
			{Head: "Statement"},
			{Head: "Tolerance"},
			{Head: "Holds in", Unit: "runs", Num: true},
			{Head: "Violated in", Unit: "runs", Num: true},
			{Head: "Not checked in", Unit: "runs", Num: true, Help: "the recording has not what the comparison takes"},
			{Head: "Comparisons", Num: true},
		},
	}
	lossesLayout = Table{
		ID:      "losses",
		Caption: "Losses",
		Cols: []Column{
			{Head: "Run"},
			{Head: "No API span", Num: true, Help: "core spans without an API span"},
			{Head: "No core span", Num: true, Help: "API spans without a core span"},
			{Head: "Contradictions", Num: true, Help: "rebuilt batches that disagree with the step's own summary"},
			{Head: "Span events lost", Num: true},
			{Head: "Records dropped", Num: true},
		},
	}
	clocksLayout = Table{
		ID:      "clocks",
		Caption: "Clocks and engines",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Engines", Num: true},
			{Head: "Wall − monotonic", Unit: "s", Num: true},
			{Head: "Spread", Unit: "ms", Num: true, Help: "P95 − P5 of the offset"},
			{Head: "Negative intervals", Num: true},
			{Head: "Steps missing", Num: true},
			{Head: "Adjacent", Num: true, Help: "recorded steps whose successor is recorded too"},
			{Head: "Orphan snapshots", Num: true},
		},
		Closed: true,
	}
	saturationLayout = Table{
		ID:      "saturation",
		Caption: "Saturation checks",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Saturated"},
		},
		Note: "A value over its threshold is marked. Two or more marks: the run is saturated and " +
			"not used in the fit.",
	}
	fitRunsLayout = Table{
		ID:      "fit-runs",
		Caption: "What the fit used",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Used"},
			{Head: "Rows read", Num: true},
			{Head: "Kept", Num: true},
			{Head: "Dropped, by reason"},
			{Head: "Configuration"},
			{Head: "Steps recorded", Num: true},
			{Head: "Known", Num: true},
			{Head: "From snapshots", Num: true},
			{Head: "Rebuilt", Num: true},
			{Head: "Contradictions", Num: true},
		},
	}
	rowsLayout = Table{
		ID:      "rows",
		Caption: "Rows: read = kept + dropped",
		Cols: []Column{
			{Head: "Model"},
			{Head: "Read", Num: true},
			{Head: "Kept", Num: true},
			{Head: "of these held out", Num: true},
			{Head: "Dropped, by reason"},
		},
	}
	recordsLayout = Table{
		ID:      "records",
		Caption: "Records: read = kept + dropped",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Files", Num: true},
			{Head: "Bytes", Num: true},
			{Head: "Read", Num: true},
			{Head: "Kept", Num: true},
			{Head: "Dropped, by reason"},
			{Head: "Bad", Num: true, Help: "unreadable bytes or records dropped by an error, whichever share is larger"},
			{Head: "Steps", Num: true},
			{Head: "Missing", Num: true},
			{Head: "Engine requests", Num: true, Help: "core and stock spans; clients' requests and load levels are among the records kept"},
			{Head: "Linked to API", Num: true},
			{Head: "Span events lost", Num: true},
			{Head: "Truncated", Num: true},
			{Head: "Duplicate spans", Num: true},
		},
	}
	dropsLayout = Table{
		ID:      "drops",
		Caption: "Dropped records, first of each reason",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Reason"},
			{Head: "Where"},
			{Head: "What"},
		},
		Closed: true,
	}
	auditLayout = Table{
		ID:      "audit-table",
		Caption: "Medians of what the stamps measure",
		Cols: []Column{
			{Head: "Run"},
			{Head: "step.duration", Unit: "ms", Num: true},
			{Head: "Cadence", Unit: "ms", Num: true},
			{Head: "Floor", Unit: "ms", Num: true, Help: "weight bytes over memory bandwidth"},
			{Head: "ARRIVED to QUEUED", Unit: "ms, P50", Num: true},
			{Head: "same", Unit: "ms, P90", Num: true},
			{Head: "QUEUED to SCHEDULED", Unit: "ms, P50", Num: true},
			{Head: "same", Unit: "ms, P90", Num: true},
			{Head: "Verdict"},
		},
	}
	lagLayout = Table{
		ID:      "lag-table",
		Caption: "Lag evidence",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Lag", Num: true},
			{Head: "MAPE on intervals with prefill", Num: true},
			{Head: "Intervals", Num: true},
			{Head: "Verdict"},
			{Head: "Used"},
		},
		Closed: true,
	}
	coefLayout = Table{
		ID:      "coef",
		Caption: "Coefficients of %s",
		Cols: []Column{
			{Head: "#", Num: true},
			{Head: "Term"},
			{Head: "Estimate", Num: true, Help: "least squares without penalty; none with a prior, where the interval is the published value's"},
			{Head: "95 % interval", Help: "for the true coefficient, around the estimate; with a prior around the published value, and right only where the prior is"},
			{Head: "Over the folds", Help: "smallest and largest value over the folds of the training rows"},
			{Head: "Published", Num: true},
			{Head: "Unit"},
			{Head: "Spread", Help: "from 0 to twice the published value; the tick is the value, the bar the 95 % interval"},
			{Head: "Share", Num: true, Help: "mean share of the prediction on training rows"},
			{Head: "Utilisation", Num: true, Help: "implied utilisation: 1e6 over a time-like coefficient; 1 is the roofline"},
			{Head: "Identified"},
		},
	}
	expertLayout = Table{
		ID:      "expert",
		Caption: "How well the terms of %s are known",
		Cols: []Column{
			{Head: "Term"},
			{Head: "Prior share", Num: true, Help: "how much of the value is the penalty's"},
			{Head: "df", Num: true, Help: "effective degrees of freedom"},
			{Head: "VIF", Num: true, Help: "variance inflation: how much its neighbours blur it"},
			{Head: "Training range", Help: "smallest and largest value of the feature in training"},
		},
	}
	boundsLayout = Table{
		ID:      "bounds",
		Caption: "Features at their bound, %s",
		Cols: []Column{
			{Head: "Feature"},
			{Head: "Rows", Num: true},
			{Head: "Share", Num: true},
		},
		Closed: true,
	}
	modelsLayout = Table{
		ID:      "models",
		Caption: "Other step-time models on the same held-out steps",
		Cols: []Column{
			{Head: "Model"},
			{Head: "Terms", Num: true},
			{Head: "MAPE", Num: true},
			{Head: "WAPE", Num: true},
			{Head: "Bias", Num: true},
			{Head: "P95 error", Num: true},
			{Head: "Unseen configuration, median", Num: true},
			{Head: "worst", Num: true},
		},
		Note: "blackbox and trained-physics are fitted to the training steps; roofline has nothing " +
			"to fit.",
	}
	experimentsLayout = Table{
		ID:      "experiments",
		Caption: "What to measure next",
		Cols: []Column{
			{Head: "Experiment"},
			{Head: "Term it determines"},
			{Head: "Half-width now", Num: true},
			{Head: "after", Num: true},
			{Head: "Information gained", Unit: "log det", Num: true},
		},
		Note: "Half-widths are those of the 95 % interval relative to the value.",
	}
	cellsLayout = Table{
		ID:      "cells",
		Caption: "Error by run, regime and batch, held-out steps",
		Cols:    cellColumns,
		Closed:  true,
	}
	stressLayout = Table{
		ID:      "stress",
		Caption: "Stress sets, held-out steps",
		Cols:    cellColumns,
		Closed:  true,
	}
	testCellsLayout = Table{
		ID:      "test-cells",
		Caption: "Validation: error by run, regime and stress set",
		Cols:    cellColumns,
		Closed:  true,
	}
	summaryLayout = Table{
		ID:      "summary",
		Caption: "Step time, all steps together",
		Cols: slices.Concat([]Column{
			{Head: "Steps"},
		}, errorColumns),
	}
	locoLayout = Table{
		ID:      "loco-table",
		Caption: "Leave one configuration out",
		Cols: []Column{
			{Head: "Configuration"},
			{Head: "Rows", Num: true},
			{Head: "MAPE", Num: true},
			{Head: "Constant", Num: true},
			{Head: "Frozen 1.0", Num: true},
			{Head: "Bias", Num: true},
		},
		Closed: true,
	}
	alphaErrorsLayout = Table{
		ID:      "alpha-errors",
		Caption: "Delays outside the steps, held-out requests",
		Cols:    delayColumns,
		Note: "overhead is known only to be in an interval, so it has the share of intervals that " +
			"contain the prediction. An admission that is served at once contains the rest of the running step, " +
			"uniform in length: a mean loses to the best constant by construction, and no model meets it " +
			"per request. A queue delay that is served at once is at its noise. Use the median and the " +
			"distribution of these, and 10-second means.",
	}
	alphaRunsLayout = Table{
		ID:      "alpha-runs",
		Caption: "Delays outside the steps by run, held-out requests",
		Cols: slices.Concat([]Column{
			{Head: "Run"},
		}, delayColumns),
		Closed: true,
	}
	testStepsLayout = Table{
		ID:      "test-steps",
		Caption: "Validation: step time of each run, predicted from its recorded batches",
		Cols: slices.Concat([]Column{
			{Head: "Run"},
			{Head: "Compared"},
		}, errorColumns),
	}
	comparedLayout = Table{
		ID:      "compared",
		Caption: "Requests, real against simulated",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Compared"},
			{Head: "Requests", Num: true},
			{Head: "TTFT", Unit: "KS D", Num: true},
			{Head: "error", Num: true},
			{Head: "ITL", Unit: "KS D", Num: true},
			{Head: "error", Num: true},
			{Head: "E2E", Unit: "KS D", Num: true},
			{Head: "error", Num: true},
		},
		Note: "KS D is the largest gap between the distributions of the recorded and the simulated " +
			"requests, 0 to 1; the error next to it is the median over requests of |simulated − " +
			"real| / real. Grey rows are not gated: closed loops, saturated runs, too few " +
			"requests.",
	}
	metricsLayout = Table{
		ID:      "metrics",
		Caption: "Distributions, real against simulated",
		Cols:    metricColumns,
		Note: "KS D is the largest gap between the two distributions; real vs real is D between the " +
			"two halves of the real run, which no model can beat by much. D beyond 5 % is that gap where " +
			"every time may be off by 5 %; by chance is the gap between two recordings of a server that is exactly as modelled.",
	}
	metricsRestLayout = Table{
		ID:      "metrics-rest",
		Caption: "Comparisons that decide nothing: in-sample, saturated runs",
		Cols:    metricColumns,
	}
	quantilesLayout = Table{
		ID:      "quantiles",
		Caption: "Times, real and simulated (plain), ms",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Metric"},
			{Head: "P50 real", Num: true},
			{Head: "simulated", Num: true},
			{Head: "P90 real", Num: true},
			{Head: "simulated", Num: true},
			{Head: "P99 real", Num: true},
			{Head: "simulated", Num: true},
			{Head: "mean real", Num: true},
			{Head: "simulated", Num: true},
		},
		Closed: true,
	}
	replaysLayout = Table{
		ID:      "replays",
		Caption: "How each replay was run",
		Cols: []Column{
			{Head: "Run"},
			{Head: "Compared"},
			{Head: "Load"},
			{Head: "Saturated"},
			{Head: "Decides"},
			{Head: "Replayed", Num: true},
			{Head: "Compared", Num: true},
			{Head: "Left out, by reason"},
			{Head: "Batches known", Num: true, Help: "recorded steps whose batch is known"},
			{Head: "Batches identical", Num: true, Help: "simulated batches that also occur in the recording"},
			{Head: "Steps", Num: true},
			{Head: "Clipped", Num: true},
			{Head: "Notes"},
		},
	}
	documentsLayout = Table{
		ID:      "documents",
		Caption: "Documents",
		Cols: []Column{
			{Head: "File"},
			{Head: "Made by"},
			{Head: "Schema"},
			{Head: "Inputs", Num: true},
			{Head: "Command"},
		},
	}
	inputsLayout = Table{
		ID:      "inputs",
		Caption: "Inputs",
		Cols: []Column{
			{Head: "Name"},
			{Head: "Bytes", Num: true},
			{Head: "SHA-256"},
			{Head: "Read for"},
		},
		Closed: true,
	}
	wordsLayout = Table{
		ID:      "words",
		Caption: "Words",
		Cols: []Column{
			{Head: "Word"},
			{Head: "Meaning"},
		},
	}
)

// blank returns a table of this layout without rows.
func (t Table) blank() *Table {
	t.Cols = slices.Clone(t.Cols)
	return &t
}

// blankFor returns a table of this layout for one of several things, whose name completes the
// caption and the id.
func (t Table) blankFor(name string) *Table {
	t.ID += "-" + slug(name)
	t.Caption = fmt.Sprintf(t.Caption, name)
	return t.blank()
}
