#!/usr/bin/env bash
# Does what README and tutorial say, command by command, in a fresh clone and an empty HOME, with nothing but Go, and
# prints every exit status. A status that neither page tells of ends it with 1.
set -uo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GOMODCACHE=${GOMODCACHE:-$(go env GOMODCACHE)} GOCACHE=${GOCACHE:-$(go env GOCACHE)}
git clone --quiet . "$work/clone" && mkdir "$work/home" && cd "$work/clone" || exit 1
export HOME=$work/home PATH=$PWD:$PATH
bad=0
for page in README.md docs/tutorial.md; do
  echo "== $page"
  rm -rf out* unseen judged-library library.yaml sim-out twice run.yaml defaults.yaml va.yaml
  while IFS= read -r file; do # files that stand in the page
    sed -n "/^\`\`\`yaml $file\$/,/^\`\`\`\$/{/^\`\`\`/d;p}" "$page" > "$file"
  done < <(sed -n 's/^```yaml \([a-z.]*\)$/\1/p' "$page")
  while IFS= read -r line; do
    command=${line%% #*}
    case $command in
      '') continue ;;
      *"vllm serve"*"| tee"* | "vllm bench"* | *run1*) echo "skipped, needs a server   $command"; continue ;;
    esac
    bash -c "$command" >"$work/said" 2>&1 </dev/null
    status=$?
    echo "exit $status   $command"
    grep -q "exit $status" <<<"$line" || [ $status = 0 ] || grep -qF "[exit $status]" "$page" || { tail -n 5 "$work/said"; bad=1; }
  done < <(sed -n '/^```sh$/,/^```$/{/^```/d;p}' "$page" | sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}')
done
exit $bad
