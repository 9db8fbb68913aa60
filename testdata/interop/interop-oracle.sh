#!/usr/bin/env bash
# Fresh random schedules of vLLM's own scheduler, each version, against the simulator: step by step the same.
# Needs Python, the oracle's folder (BLIS_TRAIN_ORACLE_TOOLS) and, for each version once, a package index.
# COUNT scenarios a version from SEED on; BLIS_TRAIN_WHEELS keeps what was fetched.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=${BLIS_TRAIN_ORACLE_TOOLS:-../shared/tools/vllm_oracle}
[ -d "$tools" ] || { echo "interop: schedules skipped, no $tools"; exit 0; }
command -v python3 >/dev/null || { echo "interop: schedules skipped, no python3"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheels=${BLIS_TRAIN_WHEELS:-$work}
seed=${SEED:-$((RANDOM + 1000))} count=${COUNT:-10000}
${GO:-go} test -c -o "$work/sim.test" ./sim
for version in ${VERSIONS:-0.15.1 0.19.1 0.23.0 0.24.0 0.26.0 0.28.0 0.31.0 0.33.0}; do
  dir=$wheels/vllm-$version
  [ -d "$dir" ] || bash "$tools/fetch.sh" "$version" "$dir" >/dev/null 2>&1 || { echo "interop: vLLM $version skipped, no wheel"; continue; }
  for ((from = 0; from < count; from += 500)); do # bounded memory
    part=$work/part
    rm -rf "$part" && mkdir "$part"
    python3 "$tools/random_scenarios.py" --seed "$((seed + from))" --count "$((count - from < 500 ? count - from : 500))" > "$part/s.jsonl"
    python3 "$tools/oracle.py" --vllm "$dir" --batch "$part/s.jsonl" > "$part/t.jsonl"
    (cd sim && BLIS_TRAIN_ORACLE=$part "$work/sim.test" -test.run 'TestOracle$' >"$work/log") || { cat "$work/log"; exit 1; }
  done
  echo "interop: vLLM $version: $count schedules from seed $seed, 0 differ"
done
