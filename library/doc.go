// Package library has measured times of GPU kernels and adds them up to the time of a step. It assumes
// that every operator of the step takes as long as it was measured to take inside vLLM on that GPU.
//
// A [GPU] has the [Table]s of one GPU: every row of every published table, its time as log2 in
// 1/64 octaves (off by at most 0.55 %), delta-coded along the size and compressed. Nine GPUs are
// embedded; package library/build makes their files, also from a user's own Parquet files in the
// layout of AIConfigurator's systems folder. A table is unpacked when it is first used.
//
// [Bound] makes the plan of a deployment's [Step]: one [Operator] for each kernel shape, with how
// often it runs in a step and which rows its time is from ([Reached]). [Step.Us] returns the time of a
// [Batch] operator by operator; a [Pricer] computes the times of many batches fast. What no kernel
// table has, such as the host's work, is covered by [Corrections], in which a step's time is linear.
// They were fitted to measured servers ([Learned]), and have an error for each family of deployments
// that was compared with them ([Judged]).
//
// Times are in us, sizes in tokens, requests or bytes.
package library
