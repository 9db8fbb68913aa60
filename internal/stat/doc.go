// Package stat holds the statistics that more than one package reports: each has
// one definition here, and its name or doc comment says which. Every package may
// import it; it imports gonum only.
//
//	sample.go      quantile (type 7), median, weighted median, mean, order, evenly thinned rows
//	errors.go      errors of predictions: MAPE, WAPE, median and P95 APE, bias, RMSE, skill
//	ks.go          Kolmogorov-Smirnov distance with p-values, Wasserstein distance
//	series.go      effective size of a series in time order
//	bands.go       quantile bands along a quantity
//	nearest.go     the nearest rows' prediction, for the noise floor
//	saturation.go  the five saturation checks and their limits
//	linear.go      Cholesky factor and solve, Student's t
//	draw.go        uniform draws that depend on their keys alone
//
// Unknown numbers are NaN; the caller writes them as null. Nothing here depends
// on the order of a map, on the clock or on the number of workers.
package stat
