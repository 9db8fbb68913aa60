// Package race scores latency predictors on identical rows: six models, six ways
// to part rows into training and test, two targets, with paired intervals, a
// constant and a noise floor beside every figure.
//
// # Splits
//
//	time       first 80 % of each run -> last 20 %; requests alive at the border are dropped
//	load-up    the lower two thirds of the load stages -> the upper third
//	load-down  the upper two thirds -> the lower third
//	load-gap   the outer thirds -> the middle
//	run        every configuration from all others
//	random     10 % of the rows by hash: a leak, shown to say how large it is
//
// Load stages are those of one run, or the runs of one configuration at several
// rates. A split that the rows cannot form is there with its reason.
//
// # Physics
//
// What predicts from coefficients is given coefficients that were fitted without
// the rows a split tests, where the caller can refit; the document says so.
package race
