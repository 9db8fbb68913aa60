// Package fit turns recorded runs into result.Fit: it rebuilds rows per run,
// measures the lag, pools the rows of all runs, lets ridge choose and solve,
// and says in words what the answer is worth. It knows both what a row means
// (from rows) and how a fit is made (from ridge); neither of those knows the
// other.
//
// The storeys below it:
//
//	options     what a fit is asked for
//	estimate    tables of all runs -> one gram.Data, solved and judged
//	prepare     one run: batches, lag evidence, tables, audit
//	describe    coefficients with intervals, findings and null directions as sentences
//	factors     what runs, deployments and devices take on top of common coefficients
//
// and in this package:
//
//	beta.go     the step-time model
//	alpha.go    admission, egress, queue, and what all targets share
//	overhead.go overhead (interval-censored), with values per deployment
//	models.go   other parameterisations on the same rows
//	loco.go     leave one configuration out
//
// Above it, grams saves sums that travel in place of rows and fits them, and
// identify says what the data can tell apart.
//
// The hold-out (the last share of each phase) never enters selection,
// leave-one-out or the published coefficients unless RefitAll is set.
package fit
