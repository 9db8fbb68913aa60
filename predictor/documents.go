package predictor

// This file has the documents predictor_rows.json, predictor.json and their parts.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// rowsDigest returns the SHA-256 of the ids, decision times and targets of all rows. Exports
// compare it with the one in predictor.json, so that they never write rows other than those the
// forests were trained on.
func rowsDigest(list []*runRows) string {
	h := sha256.New()
	for _, r := range list {
		for i := range r.Rows {
			x := &r.Rows[i]
			fmt.Fprintf(h, "%s/%s %d %g %g\n", r.ID, x.RequestID, x.DecisionNs, x.TTFTMs, x.TPOTMs.V)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// RowsDocument is predictor_rows.json: how rows were made, and what was dropped.
type RowsDocument struct {
	result.Header
	Options  Options         `json:"options"`
	Runs     []runAccount    `json:"runs"`
	Warnings []trace.Finding `json:"warnings"`
}

// runAccount has the number of requests of one run, of its rows and of the drops by reason:
// requests = rows + the sum of dropped.
type runAccount struct {
	ID        string         `json:"id"`
	Config    string         `json:"config"`
	Requests  int            `json:"requests"`
	Rows      int            `json:"rows"`
	Dropped   map[string]int `json:"dropped"`
	Agreement stateAgreement `json:"agreement"`
	// PrefixGap is the mean of |score of the index - score measured afterwards|
	// over rows that know both; null without any.
	PrefixGap *float64        `json:"prefix_gap"`
	Warnings  []trace.Finding `json:"warnings"`
}

// stateAgreement compares the two sources of state on the rows where both are
// known: waiting and running are the same, or the decision fell between a pick-up
// or a finish and the next schedule(), inside schedule(), or elsewhere.
type stateAgreement struct {
	Rows    int `json:"rows"`
	Equal   int `json:"equal"`
	Between int `json:"between_steps"`
	Inside  int `json:"inside_schedule"`
	Other   int `json:"other"`
}

// Scores is predictor_scores.json: the errors of the models on rows they were not trained on.
type Scores struct {
	result.Header
	Options  options          `json:"options"`
	Runs     []runAccount     `json:"runs"`
	HoldOut  []HoldOut        `json:"hold_out"`
	Models   []modelScore     `json:"models"`
	Verdict  *coeff.Judgement `json:"verdict,omitempty"` // of the trees on all of these rows
	Warnings []trace.Finding  `json:"warnings"`
}

// options are the options that change the numbers of a training or an evaluation.
type options struct {
	Rows       Options `json:"rows"`
	Weights    string  `json:"weights"` // natural | flat | sqrt
	Seed       uint64  `json:"seed"`
	Physics    string  `json:"physics"`     // where step times come from; empty: no physics
	IsRefit    bool    `json:"is_refit"`    // coefficients were refitted without the rows held out
	BucketRows string  `json:"bucket_rows"` // most rows of a bucket: a number, none, or auto
	Evaluate   bool    `json:"evaluate"`    // a finished predictor was judged, nothing was trained
}

// HoldOut are the rows of a target that the models are judged on.
type HoldOut struct {
	Scope    string   `json:"scope"` // all, or a configuration
	Target   string   `json:"target"`
	Reason   string   `json:"reason"` // why there is none, empty when there is
	Train    int      `json:"train"`
	Grown    int      `json:"grown"`       // of those, rows that the forests are grown on
	Bucket   int      `json:"bucket_rows"` // most of one bucket among them; 0: no limit
	Test     int      `json:"test"`
	Dropped  int      `json:"dropped"`   // of the training rows, alive when the test began
	AboveMax *float64 `json:"above_max"` // share of test rows above the largest training target
}

// modelScore has the errors of a model on the rows held out for a target. Relative errors are
// shares.
type modelScore struct {
	Scope  string `json:"scope"`
	Target string `json:"target"` // ttft_ms | tpot_ms | e2e_ms
	Model  string `json:"model"`
	Reason string `json:"reason"` // why there is no figure; empty when there is

	Rows         int         `json:"rows"`
	MAPE         *float64    `json:"mape"`
	MAPEBand     *[2]float64 `json:"mape_ci95"`
	MAPEConst    *float64    `json:"mape_const"` // of the median of the run's training rows
	MAPEFloor    *float64    `json:"mape_floor"` // least of the ten nearest test rows and of the models
	WAPE         *float64    `json:"wape"`
	MedianAPE    *float64    `json:"median_ape"`
	P95APE       *float64    `json:"p95_ape"`
	Bias         *float64    `json:"bias"`
	AboveMaxRows int         `json:"above_max_rows"`
	AboveMaxMAPE *float64    `json:"above_max_mape"`
	Coverage     *float64    `json:"p90_coverage"` // of the calibrated P90
	CoverageBand *[2]float64 `json:"p90_coverage_ci95"`
}

// Document is predictor.json: everything forest.Load needs, and where it comes from.
type Document struct {
	result.Header
	Options options      `json:"options"`
	Runs    []runAccount `json:"runs"`
	// Trained names the rows on which the forests were grown and those that set the conformal
	// factors.
	Trained string           `json:"trained"`
	Bins    int              `json:"bins"`
	Targets []forest.Target  `json:"targets"`
	HoldOut []HoldOut        `json:"hold_out"`
	Scores  []modelScore     `json:"scores"` // of all rows held out
	Digest  string           `json:"data_digest"`
	Verdict *coeff.Judgement `json:"verdict,omitempty"` // of the forests that exports write, on the rows held out
}

// Check returns an error if no request of any run became a row, with the reason why most were
// dropped and what to do about it.
func (d *RowsDocument) Check() error {
	rows := 0
	requests := 0
	drops := map[string]int{}
	for i := range d.Runs {
		r := &d.Runs[i]
		rows += r.Rows
		requests += r.Requests
		for why, n := range r.Dropped {
			drops[why] += n
		}
	}
	if rows > 0 {
		return nil
	}
	most := ""
	for _, why := range slices.Sorted(maps.Keys(drops)) {
		if drops[why] > drops[most] {
			most = why
		}
	}
	if most == "" {
		return trace.Errorf(fit.CodeNoRows, "rows: got no request in %d runs, want at least one", len(d.Runs))
	}
	return trace.Errorf(fit.CodeNoRows,
		"rows: got none of %d requests, want at least one; %d dropped as %s, the most of %d reasons",
		requests, drops[most], most, len(drops)).WithHint(report.Explanations[most].Do)
}
