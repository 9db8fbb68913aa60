package report

import "github.com/blis-train/blis-train/result"

// Input is what the report shows. Any pointer may be nil: its section then says
// what is missing and which command makes it.
type Input struct {
	Extract    *result.Extract
	Fit        *result.Fit
	Validation *result.Validation
	Inspect    *result.Inspect
	Changes    *result.Changes // since an older validation; nil: there is nothing to compare with
}
