// Package library puts published kernel times together into step times, and makes of them
// the coefficient files that ship with the tool: one per
// GPU and kind of weights, for any model, before anybody has traced a step.
//
// Design points, not a workload: models from 1 to 480 billion parameters, tp 1 to
// 8, batches drawn evenly on log scales over decodes, contexts and prompt tokens.
// Each becomes a row, features of version 1.2 against what published kernel times
// add up to ([Stepper]), and each family of GPU, weights and dense models or
// mixtures of experts is fitted to its rows with the terms of the other families
// as a prior. A correction of few numbers, learned from real servers by simulating
// them, adds what no table holds: host time and a factor per GPU. It is judged by
// leaving out whole groups of measurements.
//
// # Kernel tables
//
// Kernel tables turn published kernel times into step times: what one step
// of a deployment costs when every kernel in it takes as long as it was
// measured to take inside vLLM on that GPU.
//
// [Load] reads the tables of one GPU in the layout of AIConfigurator's
// published systems folder (also that of the installed aiconfigurator-core
// package):
//
//	<dir>/<gpu>.yaml                                         datasheet
//	<dir>/data/<gpu>/gemm/vllm/<version>/gemm_perf.parquet   linear layers
//	.../attention/vllm/<version>/{context,generation}_attention_perf.parquet
//	.../comm/vllm/<version>/custom_allreduce_perf.parquet    vLLM's all-reduce
//	.../comm/nccl/<version>/nccl_perf.parquet                NCCL collectives
//	.../moe/vllm/<version>/moe_perf.parquet                  fused experts
//
// [Tables.For] binds them to a deployment: every shape is looked up once, a
// missing dtype, head size, shape or number of GPUs is an error that names the
// table and its nearest row. What is left of a table then is one curve per
// kernel, so that [Stepper.StepMs] is a handful of binary searches, allocates
// nothing and depends on nothing but the batch.
//
// A step is
//
//	L x [norm + qkv + rope + kv_write + prefill attention of each chunk + decode
//	attention of the batch + o_proj + all-reduce + norm + gate_up + activation +
//	down (or router + experts + shared expert) + all-reduce]
//	+ embedding + final norm + lm_head + logits gather + sampling
//
// Norms, rotary embedding, activations, KV writes, the embedding row and
// sampling are in no table: they are charged their bytes at 80 % of the memory
// bandwidth plus 2 us a kernel, the one analytic part. The host's own work is
// not here: no kernel table can know it.
package library
