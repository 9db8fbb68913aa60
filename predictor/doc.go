// Package predictor trains latency predictors and writes what llm-d's latency predictor and XGBoost load:
// forests as XGBoost model documents, and training rows as batches of its bulk endpoint. Start at
// [MakeRows], which makes a [Row] of every request, then [Fit], which grows the forests, and
// [ExportXGBoost] and [ExportBulk], which write them.
//
// # The decision time
//
// The decision time t of a request is its api.ARRIVED (the start of a stock span, the send time in a
// client's file). The state of the engine is that at t minus a staleness, 0 by default. An event counts
// when its stamp is not later, the arrival of another request only when it is earlier than t. The
// request's own prompt and priority are known at t although they are recorded later. Nothing else after
// t can change a feature.
//
// # The state of the engine
//
// lives.go reads the stamps of all requests, events.go puts them in order, queue.go applies one event
// after the other: that is the state "journey", exact when every journey is recorded. recorded.go looks
// up the last step summary: the state "step". Both are computed where both can be, and compared. KV usage
// is that of the last step where steps are recorded, else it follows from resident tokens. Unlike package
// reconstruct, which finds whole batches by step, this state uses nothing recorded after t;
// facts of vLLM's scheduler are shared with it.
//
// # Rows and drops
//
// Every request of the run becomes a row or a drop with one reason. A feature that is needed and unknown
// is a drop, never 0.
//
// # How trees are grown
//
// The input is a matrix of binned columns, a target and weights. The steps for every tree:
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
// The result is a forest.Forest, whose thresholds and leaves are float32.
// Columns are rounded to float32 before they are binned, so that a row falls on
// the same side of a threshold here, in forest and in XGBoost.
//
// Source: Chen and Guestrin, XGBoost (arXiv 1603.02754), sections 2 and 3; Ke et
// al., LightGBM (NeurIPS 2017), histogram subtraction; Friedman, Greedy function
// approximation (Annals of Statistics 29, 2001), leaves of a quantile loss.
package predictor
