// Package trees grows boosted regression trees (gradient boosting on
// histograms, depth by depth). It has never heard of what its columns mean.
//
// What comes in is a [Matrix] of binned columns, a target and weights. The
// steps from there, for every tree:
//
//  1. Gradients of the loss at the sum of the trees so far: squared error
//     (trees for a mean) or pinball (trees for a quantile).
//  2. A draw of rows and of columns from counter-based streams: the draw of
//     row i in tree t depends on the seed, t and i alone.
//  3. Growth: histograms of gradients per column and bin; the smaller child's is
//     summed from its rows, the larger child's is parent minus smaller. The split
//     that lowers the loss most wins; ties go to the lower column, then bin.
//  4. Leaves: -G/(H+lambda) with an absolute penalty alpha, or the quantile of the
//     leaf's residuals, times the rate, kept inside what monotone constraints allow.
//
// What goes out is a forest.Forest, whose thresholds and leaves are float32.
// Columns are rounded to float32 before they are binned, so that a row falls on
// the same side of a threshold here, in forest and in XGBoost.
//
// Sums run in row order, one column at a time, so that the same rows give the
// same bytes for any number of workers.
//
// Source: Chen and Guestrin, XGBoost (arXiv 1603.02754), sections 2 and 3; Ke et
// al., LightGBM (NeurIPS 2017), histogram subtraction; Friedman, Greedy function
// approximation (Annals of Statistics 29, 2001), leaves of a quantile loss.
package predictor
