#!/usr/bin/env bash
# Prism as a server of its own has the tasks of a plan done by workers that talk to it over
# gRPC (LOOPBACK): the portable path of every runner. The documents are those of one process.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
go=${GO:-go}
$go build -o "$work/blis-train" ./cmd/blis-train
(cd beam && $go build -o "$work/blis-train-beam" . && $go build -o "$work/prism" github.com/apache/beam/sdks/v2/go/cmd/prism)
port=$((20000 + RANDOM % 20000))
"$work/prism" --job_port "$port" --serve_http=false --log_kind text --log_level warn &
server=$!
"$work/blis-train" run testdata/traces/demo -o "$work/one" --quiet --bootstraps 50
"$work/blis-train-beam" run testdata/traces/demo -o "$work/job" --bootstraps 50 --runner universal --endpoint "localhost:$port" \
  --environment_type LOOPBACK
for name in extract.json fit.json coefficients.yaml validation.json; do
  cmp "$work/job/out/$name" "$work/one/$name"
done
echo "interop: Prism as a server, LOOPBACK: the documents are those of one process"
