// Package decision turns a recorded run into rows for latency predictors: one
// row per request, holding what was observable at the moment somebody had to
// decide where to send it, and what then happened to it.
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
package predictor
