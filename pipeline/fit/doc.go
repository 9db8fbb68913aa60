// Package fit turns recorded runs into result.Fit: it rebuilds rows per run,
// measures the lag, pools the rows of all runs, lets ridge choose and solve,
// and says in words what the answer is worth. It knows both what a row means
// (from rows) and how a fit is made (from ridge); neither of those knows the
// other.
//
// The steps, each in a file of its own:
//
//	prepare.go  one run: batches, lag evidence, tables per EMA gamma, audit
//	lag.go      schedule-to-execution lag by held-out error on prefill intervals
//	pool.go     tables of all runs -> one ridge.Data for training, one for the hold-out
//	beta.go     the step-time model
//	alpha.go    admission, egress, queue, and what all targets share
//	overhead.go overhead (interval-censored), with values per deployment
//	models.go   other parameterisations on the same rows
//	judge.go    errors per cell, baselines, noise floor, drift, stress sets
//	words.go    findings and null directions as sentences
//	figures.go  aggregates for the report
//	runfactor.go what each run takes relative to the common coefficients
//	deployfactor.go those pooled by configuration and deployment
//	hardware.go factors per device, for deployments without one of their own
//	loco.go     leave one configuration out
//	gram.go     sums that travel in place of rows; fromgram.go fits them
//	identify.go what the data can tell apart, and which experiment would help
//
// The hold-out (the last share of each phase) never enters selection,
// leave-one-out or the published coefficients unless RefitAll is set.
package fit
