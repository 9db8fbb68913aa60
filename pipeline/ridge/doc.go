// Package ridge fits linear models with a quadratic penalty and sign
// constraints, and estimates the uncertainty of the coefficients. It does not
// depend on what the columns of a row mean.
//
// The input is Data: rows x, a target y in microseconds, the number of engine
// steps a row covers, a down-weighting factor, and labels (configuration,
// regime, run, time). The steps of a fit:
//
//  1. Weights makes the loss relative and gives every cell (configuration x
//     regime) the same total: w = c*factor/max(y, eps*steps)^2.
//  2. Data.Cut turns the rows of every run, in time order, into Gram matrices
//     of its fold segments (Cells). A Gram matrix has the weighted sums of products
//     of columns, X'WX and X'Wy, which determine a quadratic loss: another penalty,
//     fold, held-out configuration or weight of a cell takes microseconds and reads
//     no row.
//  3. Select scores the grid of penalties on forward folds and on
//     held-out configurations, and chooses one.
//  4. Solve minimises  sum w(y - x.beta)^2/(W ybar^2) + lambda sum d_j(gamma_j -
//     gamma0_j)^2  with gamma_j >= 0 on signed terms, where beta_j =
//     gamma_j*ybar/s_j, and returns a certificate: the gradient at the answer.
//  5. Reweight moves the fit from squared toward absolute relative errors.
//  6. Gram.Diagnose, Data.WithinVariation and Data.Confidence describe what the
//     rows can and cannot determine.
//
// Targets known only as intervals (Bounds) take Data.SelectIntervals and
// Data.FitCensored in place of 3 and 4; a prior with a covariance
// (Options.Precision) takes PosteriorMean and Data.Posterior in place of 5 and 6.
//
// Rows are summed in one fixed tree (tiles of 256 rows, chunks of 65,536 rows
// in time order, runs in sorted order), so that the same rows give the same
// bits for any number of workers. Unknown numbers are NaN; the caller writes
// them as null.
package ridge
