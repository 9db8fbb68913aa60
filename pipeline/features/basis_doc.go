// Package basis holds the bases of other people's step-time models, as pure
// functions of one step: the trained-physics basis of the BLIS simulator (3
// alpha and 11 beta terms) and the three-term blackbox. The fit solves for
// their coefficients, the simulator predicts with them; both call these
// functions, so the two cannot drift apart.
//
// The trained-physics formulas follow sim/latency/trained_physics_model.go of
// github.com/inference-sim/inference-sim at commit
// f90a1e3a6787da17c2cd463dab6fb2660b1b1760 (August 2026), where the number of
// betas selects the formula:
//
//	7, 8    b0*max(prefill compute, prefill kv) + b1*max(decode compute, decode kv) + ...
//	9       prefill split: b0*compute + b8*kv
//	10, 11  decode split too: b1*compute + b9*kv
//
// so a missing coefficient is not the same as 0: below 11 the last one (MoE
// dispatch) takes the value of the all-reduce's. Known differences to the
// causal count are kept on purpose (see TestPrefillAttnGap): the basis charges
// t*(S + t/2) with S the full prompt for every chunk, 1.5 S^2 for one chunk
// where the causal mask leaves S^2/2.
//
// Units: basis values of time-like terms are microseconds at peak rate, their
// coefficients are ratios; count-like terms carry us per count.
package features
