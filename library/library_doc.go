// Package library makes the coefficient files that ship with the tool: one per
// GPU and kind of weights, for any model, before anybody has traced a step.
//
// Design points, not a workload: models from 1 to 480 billion parameters, tp 1 to
// 8, batches drawn evenly on log scales over decodes, contexts and prompt tokens.
// Each becomes a row, features of version 1.2 against what published kernel times
// add up to (package kernels), and each family of GPU, weights and dense models or
// mixtures of experts is fitted to its rows with the terms of the other families
// as a prior. A correction of few numbers, learned from real servers by simulating
// them, adds what no table holds: host time and a factor per GPU. It is judged by
// leaving out whole groups of measurements.
package library
