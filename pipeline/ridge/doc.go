// Package ridge turns rows of features and targets into weights of a linear
// model with a quadratic penalty and sign constraints, and says how far those
// weights can be trusted. It has never heard of what the rows mean.
//
// What comes in is a Data: rows x, a target y, the number of steps a row
// covers, a factor, and labels (configuration, regime, run, time) that say
// which rows belong together. The steps from there:
//
//  1. Weights make the loss relative and balance the cells (configuration x
//     regime): w = c*factor/max(y, eps*steps)^2.
//  2. Cut turns the rows of every run, in time order, into Gram matrices of
//     its fold segments. A Gram holds all a quadratic loss knows of its rows,
//     so every later question (any penalty, any fold, any configuration left
//     out, any re-balancing) costs microseconds and needs no row.
//  3. Select scores the penalty grid on forward folds and on configurations
//     left out, and chooses.
//  4. Solve minimises  sum w(y - x.beta)^2/(W ybar^2) + lambda sum d_j(gamma_j -
//     gamma0_j)^2  with gamma_j >= 0 on signed terms, where beta_j =
//     gamma_j*ybar/s_j, and returns a certificate: the gradient at the answer.
//  5. Reweight pulls the fit from squared toward absolute relative error.
//  6. Diagnose, WithinVariation and Confidence say
//     what the answer is worth.
//
// Sums run in one fixed tree (tiles of 256 rows, chunks of 65,536 rows in time
// order, blocks in order, runs in sorted order), so that the same rows give the
// same bits for any number of workers. Unknown numbers are NaN; the caller
// writes them as null.
package ridge
