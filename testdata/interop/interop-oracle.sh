#!/usr/bin/env bash
# Fresh random schedules of vLLM's own scheduler, each version, against the simulator: step by step the same.
# Needs Python, the oracle's folder (BLIS_TRAIN_ORACLE_TOOLS) and, for each version once, a package index.
# COUNT scenarios a version from SEED on; BLIS_TRAIN_WHEELS keeps what was fetched; BLIS_TRAIN_LMCACHE is LMCache's unpacked wheel.
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
# check PART COMMAND...: compares PART/s.jsonl with the traces that COMMAND prints of it. Where a scenario differs it is run under
# two more PYTHONHASHSEEDs: one that then differs from itself hangs on the order of a Python set, is counted and left out.
check() {
  part=$1
  shift
  PYTHONHASHSEED=0 "$@" > "$part/t.jsonl"
  (cd sim && BLIS_TRAIN_ORACLE=$part "$work/sim.test" -test.run 'TestOracle$' >"$work/log") && return
  for h in 1 2; do PYTHONHASHSEED=$h "$@" > "$work/t$h"; done
  own=$((own + $(python3 - "$part/t.jsonl" "$work/t1" "$work/t2" <<'PY'
import json, sys
def read(path):
    out, name = {}, ""
    for line in open(path):
        if line.startswith('{"scenario"'):
            name = json.loads(line)["scenario"]
        out[name] = out.get(name, "") + line
    return out
first, *others = map(read, sys.argv[1:])
own = [n for n in first if any(o.get(n) != first[n] for o in others)]
with open(sys.argv[1], "w") as f:
    f.writelines(text for n, text in first.items() if n not in own)
print(len(own))
PY
)))
  (cd sim && BLIS_TRAIN_ORACLE=$part "$work/sim.test" -test.run 'TestOracle$' >"$work/log") || { cat "$work/log"; exit 1; }
}
for version in ${VERSIONS:-0.15.1 0.19.1 0.23.0 0.24.0 0.26.0 0.28.0 0.31.0 0.33.0}; do
  dir=$wheels/vllm-$version
  [ -d "$dir" ] || bash "$tools/fetch.sh" "$version" "$dir" >/dev/null 2>&1 || { echo "interop: vLLM $version skipped, no wheel"; continue; }
  own=0
  for ((from = 0; from < count; from += 500)); do # bounded memory
    part=$work/part n=$((count - from < 500 ? count - from : 500))
    rm -rf "$part" && mkdir "$part"
    python3 "$tools/random_scenarios.py" --seed "$((seed + from))" --count "$n" > "$part/s.jsonl"
    check "$part" python3 "$tools/oracle.py" --vllm "$dir" --batch "$part/s.jsonl"
    if [ -d "$dir/vllm/distributed/kv_transfer" ]; then # more of the wheel than fetch.sh keeps: the CPU tier's own decisions
      python3 testdata/interop/offload_oracle.py --tools "$tools" --scenarios --seed "$((seed + from))" --count "$((n / 4))" > "$part/s.jsonl"
      check "$part" python3 testdata/interop/offload_oracle.py --tools "$tools" --vllm "$dir" "$part/s.jsonl"
      if [ -n "${BLIS_TRAIN_LMCACHE:-}" ]; then
        python3 testdata/interop/lmcache_oracle.py --tools "$tools" --scenarios --seed "$((seed + from))" --count "$((n / 4))" > "$part/s.jsonl"
        check "$part" python3 testdata/interop/lmcache_oracle.py --tools "$tools" --vllm "$dir" --lmcache "$BLIS_TRAIN_LMCACHE" "$part/s.jsonl"
      fi
    fi
  done
  echo "interop: vLLM $version: $count schedules from seed $seed, 0 differ; $own differ from themselves under another PYTHONHASHSEED"
done
