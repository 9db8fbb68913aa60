// Package predictor trains latency predictors and writes what llm-d's latency predictor and XGBoost load: forests as
// XGBoost model documents, and training rows as batches of its bulk endpoint.
//
// # The moment
//
// A request's decision time t is its api.ARRIVED (a stock span's start; the send
// time of a client file). State is taken at t minus a staleness, 0 by default. An
// event counts when its stamp is not later; the arrival of another request only
// when it is earlier than t. The request's own prompt (length, content) and class
// are known at t although they are recorded later. Nothing else after t can
// change a feature.
//
// # Where state comes from
//
// journey: counts rebuilt from the stamps of the other requests, exact when every
// journey is recorded. step: the last recorded step.BATCH_SUMMARY. Both are
// computed where both can be, and compared. KV usage is always the last step's
// where steps are recorded, and rebuilt from resident tokens where there are none.
//
// # Rows and drops
//
// Every request of the run becomes a row or a drop with one reason; a feature that
// is needed and unknown is a drop, never 0.
//
// # How trees are grown
//
// What comes in is a matrix of binned columns, a target and weights. The
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
//     leaf's residuals, times the rate.
//
// What goes out is a forest.Forest, whose thresholds and leaves are float32.
// Columns are rounded to float32 before they are binned, so that a row falls on
// the same side of a threshold here, in forest and in XGBoost.
//
// Source: Chen and Guestrin, XGBoost (arXiv 1603.02754), sections 2 and 3; Ke et
// al., LightGBM (NeurIPS 2017), histogram subtraction; Friedman, Greedy function
// approximation (Annals of Statistics 29, 2001), leaves of a quantile loss.
package predictor
