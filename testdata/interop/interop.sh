#!/usr/bin/env bash
# DuckDB and pandas read the tables folder as one dataset and return the counts
# of extract.json and the same sums, the snippets of docs/tables.md run, and so does the
# notebook of docs/examples. Needs a Python package index once; without one it says so and
# succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v python3 >/dev/null || { echo "interop: skipped, no python3"; exit 0; }
venv=${BLIS_TRAIN_VENV:-$work/venv}
if ! "$venv/bin/python" -c 'import duckdb, pandas, polars, pyarrow' 2>/dev/null; then
  python3 -m venv "$venv" 2>/dev/null || { echo "interop: skipped, python3 has no venv"; exit 0; }
  if ! "$venv/bin/pip" install --quiet --disable-pip-version-check duckdb pandas polars pyarrow 2>"$work/pip.log"; then
    echo "interop: skipped, no package index reachable ($(tail -n 1 "$work/pip.log"))"
    exit 0
  fi
fi
${GO:-go} build -o "$work/blis-train" ./cmd/blis-train
for parent in testdata/traces "${BLIS_TRAIN_DATA:-../shared/data/real_vllm_cpu}"; do
  [ -d "$parent" ] || { echo "interop: no $parent, skipped"; continue; }
  "$work/blis-train" extract "$parent" -o "$work/out" --quiet --force
  "$venv/bin/python" testdata/interop/interop.py "$work/out"
done
mkdir "$work/page"
"$work/blis-train" extract testdata/traces/demo -o "$work/page/out" --quiet
sed -n '/^```python$/,/^```$/{/^```/d;p}' docs/tables.md > "$work/page/snippets.py"
(cd "$work/page" && "$venv/bin/python" snippets.py >/dev/null) && echo "interop: docs/tables.md runs"
if "$venv/bin/pip" install --quiet --disable-pip-version-check nbconvert ipykernel matplotlib ./python 2>"$work/pip.log"; then
  cp -r docs/examples "$work/examples"
  (cd "$work/examples" && "$venv/bin/python" -m nbconvert --to notebook --execute --stdout step_time.ipynb >/dev/null 2>"$work/nb.log") ||
    { cat "$work/nb.log"; exit 1; }
  echo "interop: docs/examples/step_time.ipynb runs"
else
  echo "interop: notebook skipped, no jupyter ($(tail -n 1 "$work/pip.log"))"
fi
