// Package kernels turns published kernel times into step times: what one step
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
