// Package validate judges a coefficient set against recordings of a real
// engine. In come a run, its deployment, a coefficient set and, where there is
// one, the fit's own report; out come errors, distribution tests, gates and a
// verdict, as the structs of package result.
//
// Three questions are asked, in this order:
//
//  1. Are the data fit to judge anything? Inspect counts losses, compares the
//     clocks and runs the five saturation checks. A saturated run is named and
//     left out of the gates, never silently.
//  2. Does a step take as long as the coefficients say? The recorded batches are
//     given (teacher-forced), so that no queue can hide or amplify an error.
//     The block medians of measured/predicted are the drift curve: they tell a
//     machine that changed its speed from a model that is wrong.
//  3. Do requests experience the same TTFT, ITL and E2E when the coefficients
//     drive the engine's clock? The recorded arrivals are replayed through
//     package sim and the distributions compared: Kolmogorov-Smirnov distance,
//     Wasserstein distance, medians. Three replays are made: plain (the only one
//     that gates), with residual noise, and with noise and the drift curve.
//
// Arrivals are API ARRIVED plus the overhead alpha, never QUEUED: QUEUED is the
// engine loop's pick-up stamp and already holds the wait for the running step.
// Requests that failed or were aborted load the simulator until their recorded
// end and are left out of the comparison on both sides. Only open phases gate: a
// closed loop reacts to the server, so its recorded arrivals are not independent
// of the speed that is being judged.
//
// Gates have names, thresholds and sources (see Defaults). A gate that cannot be
// decided is null with a note; a required null makes the verdict "insufficient",
// which is not a pass.
package validate
