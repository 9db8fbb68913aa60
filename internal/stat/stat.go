// Package stat has the statistics that several packages report, each defined once.
//
//	quantile.go     quantiles, medians, mean and standard error, order, thinning
//	sort.go         sorting of long lists of numbers
//	stable.go       stable sorting of any list
//	rowerrors.go    errors of predictions: MAPE, WAPE, bias, RMSE, skill, best constant
//	neighbours.go   the prediction of the nearest rows, for the noise floor
//	bands.go        how values are distributed along another quantity
//	kolmogorov.go   Kolmogorov-Smirnov distance with p-values
//	beyond.go       the same beyond a tolerance
//	blocks.go       intervals of series that are correlated in time
//	wasserstein.go  Wasserstein distance
//	student.go      Student's t, intervals of a mean
//	paired.go       paired differences, with a randomisation test
//	holm.go         p-values adjusted for a family of tests
//	series.go       effective size of a series that is correlated in time
//	saturation.go   the five checks of whether a server was overloaded
//	queue.go        whether its queue grew as long as the load lasted
//	concurrency.go  whether a fixed number of clients sent the calls
//	draw.go         random numbers that depend on their keys alone
//	histogram.go    quantiles of a stream
//	linear.go       Cholesky factor, solution and inverse
//
// Unknown numbers are NaN; the caller writes them as null. Nothing here depends on the
// order of a map, on the clock or on the number of workers, and only gonum is imported.
package stat
