#!/usr/bin/env bash
# Latency predictors against physics with the true coefficients: requests are
# simulated over ten load stages at five rates, recorded, extracted and raced. The
# rates come in no order, so that the last fifth holds no load that was not seen.
#   eval/latency_race.sh [REQUESTS_PER_STAGE] [OUT]      100k rows: 10000
set -euo pipefail
n=${1:-1000}
here=$(cd "$(dirname "$0")/.." && pwd)
out=${2:-$(mktemp -d)}
mkdir -p "$out/run"
cp "$here"/coeff/testdata/example/config.json "$out/run/"
cat > "$out/run/run.yaml" <<YAML
name: stages
provenance: simulated
model: {id: meta-llama/Llama-3.1-8B, config: config.json}
hardware: {name: H100-SXM-80GB}
vllm: {version: "0.15.1", max_num_seqs: 256, max_num_batched_tokens: 2048, enable_chunked_prefill: true,
  enable_prefix_caching: false, block_size: 16, kv_blocks_total_gpu: 27678, async_scheduling: false}
tracing: {journey_tracing_sample_rate: 1.0, step_tracing_sample_rate: 1.0, step_tracing_rich_subsample_rate: 0.0,
  step_tracing_closure_interval: 100, otel_span_event_count_limit: 100000}
workload: {stage_requests: [$n, $n, $n, $n, $n, $n, $n, $n, $n, $n]}
files: {traces: traces.jsonl}
YAML
cat > "$out/load.yaml" <<YAML
arrivals: {kind: poisson}
stages: [{requests: $n, rate_rps: 4}, {requests: $n, rate_rps: 40}, {requests: $n, rate_rps: 20}, {requests: $n, rate_rps: 30}, {requests: $n, rate_rps: 12}, {requests: $n, rate_rps: 4}, {requests: $n, rate_rps: 40}, {requests: $n, rate_rps: 20}, {requests: $n, rate_rps: 12}, {requests: $n, rate_rps: 30}]
prompt: {kind: lognormal, mean: 500, sigma: 1.0, min: 4, max: 4000}
output: {kind: lognormal, mean: 150, sigma: 0.8, min: 1, max: 1000}
YAML
cd "$here"
go build -o "$out/blis-train" ./cmd/blis-train
truth=docs/examples/composed/coefficients.yaml
"$out/blis-train" simulate --coefficients "$truth" --deployment "$out/run" --workload "$out/load.yaml" -o "$out/sim" --emit-otlp "$out/run/traces.jsonl" -q
"$out/blis-train" extract "$out/run" -o "$out/tables" -q
"$out/blis-train" predictor fit "$out/tables" --fit "$truth" -o "$out/race" --emulate llmd-0.9
echo "written to $out"
