package main

// This file has the words of reports and files that explain knows besides codes.

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/trace"
)

// wordEntries are the words, and the features of every version, as explain prints them.
func wordEntries() []explained {
	var all []explained
	for _, w := range report.Terms {
		meaning := w.Meaning
		if w.Unit != "" {
			meaning += " Unit: " + w.Unit + "."
		}
		all = append(all, explained{Code: trace.Code(w.Name), Package: "printed by " + w.Where, Kind: "word", Meaning: meaning})
	}
	for _, v := range features.Versions() {
		beta, alpha := features.Of(v)
		for _, f := range slices.Concat(beta, alpha) {
			isKnown := slices.ContainsFunc(all, func(e explained) bool { return string(e.Code) == f.Name })
			if isKnown {
				continue
			}
			all = append(all, explained{
				Code:    trace.Code(f.Name),
				Package: "pipeline/features",
				Kind:    "feature",
				Meaning: fmt.Sprintf("%s, from version %s on: %s. Unit of its coefficient: %s.", f.Name, v, f.Doc, f.Unit()),
				Action:  fmt.Sprintf("Formula: %s. Printed in coefficients.yaml, fit.json and the report.", f.Formula),
			})
		}
	}
	return all
}
