# make test    every test, once
# make check   what CI runs (.ci/run), with the race detector, and generated files
# make generate writes the files that are made from others: pages of docs and man pages
# make suite-cost prints the CPU seconds of each package's tests and of the ten dearest tests
# make mutate  puts N faults into the packages that changed since SINCE and prints those that no test notices, for at most MINUTES
# make demo    the README's first command
# make eval    slow evaluations that print accuracy figures
# make eval-real judges kernels and corrections on every public real set and rewrites docs/accuracy.md
# make models-table predicts for every built-in model and rewrites docs/predictions.md
# make eval-tracev2 prints how requests of the runs in BLIS_TRAIN_TRACEV2, a folder of TraceV2 runs, are predicted
# make bench   every speed claim, next to its named alternative
# make library rebuilds the embedded kernel tables and corrections from SHARED, byte for byte
# make scale-equal compares many processes with one, byte for byte, and prints what both cost
# make scale-faults kills, repeats, damages and fills: the same bytes or one error
# make beam    builds blis-train-beam, a module of its own, and runs its tests; needs the Beam SDK from the module proxy
# make interop DuckDB, pandas and polars read the tables, the notebook runs; 10,000 schedules of each vLLM are the simulator's; Prism as a separate server does the tasks of a plan
# make walk    does README and tutorial command by command in a fresh clone and an empty HOME, and prints every exit status
# make release tries the release: archives, bills of materials, checksums and an image in dist; needs the module proxy
# make image   the image alone, dist/blis-train_image.tar, without a daemon and without pushing; BASE=REGISTRY/IMAGE is another base
# make advisories checks the dependencies against Go's database of vulnerabilities, or says that it is not reachable
# make scale-cost prints what 100 TB cost at rates measured here

GO ?= go
COUNT ?= 1
SHARED ?= ../shared/data

.PHONY: check test suite-cost mutate demo eval eval-real models-table eval-tracev2 bench interop generate library scale-equal scale-faults scale-cost beam release image walk advisories

test:
	$(GO) test ./...

check:
	$(GO) test -race ./...
	GOOS=linux $(GO) vet ./...
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) generate ./...
	@git diff --exit-code --stat || { echo "generated files are stale: commit them"; exit 1; }

suite-cost:
	.ci/suite-cost

mutate:
	.ci/mutate

generate:
	$(GO) generate ./...

demo:
	$(GO) run ./cmd/blis-train run testdata/traces/demo -o out

eval:
	BLIS_TRAIN_EVAL=1 $(GO) test ./... -run 'TestEval' -v -timeout 120m

models-table:
	BLIS_TRAIN_EVAL=1 $(GO) test ./library/predict -run TestEvalModels -count=1 -update-models

eval-real:
	BLIS_TRAIN_EVAL=1 $(GO) test ./library/build -run 'TestEvalRe(al|presentation)$$' -v -update-accuracy -timeout 60m

# BLIS_TRAIN_TRACEV2=DIR: runs of TraceV2 with a run.yaml beside each.
eval-tracev2:
	$(GO) test ./pipeline -run TestEvalTraceV2 -v -timeout 60m

bench:
	$(GO) test ./... -run '^$$' -bench . -benchmem -count $(COUNT) -timeout 120m

# Two steps: the tables, then the corrections that servers teach with them.
library:
	$(GO) run ./cmd/blis-train library build --kernels $(SHARED)/kernels --kernels $(SHARED)/kernels_more -o library/tables
	$(GO) run ./cmd/blis-train library build --points $(SHARED)/silicon/points.csv --points $(SHARED)/silicon/points_today.csv \
		--flags $(SHARED)/silicon/flags.csv --models $(SHARED)/models_hf --runs $(SHARED)/real_step_summaries --runs $(SHARED)/real_stock_otlp \
		--runs $(SHARED)/real_requests_llmservingsim/RTXPRO6000-Llama-3.1-8B-tp1 -o library

# With blis-train-beam beside it (make beam), Prism is compared too.
scale-equal scale-faults:
	BLIS_TRAIN_BEAM=$(wildcard $(CURDIR)/blis-train-beam) BLIS_TRAIN_EVAL=1 $(GO) test ./cmd/blis-train -run 'TestEvalScale$(if $(filter %equal,$@),Equal,Faults)' -v -timeout 120m

interop:
	bash testdata/interop/interop.sh
	bash testdata/interop/interop-oracle.sh
	$(WITH_BEAM) bash testdata/interop/interop-beam.sh

walk:
	bash testdata/interop/walk.sh

scale-cost:
	BLIS_TRAIN_EVAL=1 $(GO) test ./cmd/blis-train -run TestEvalScaleCost -v -timeout 60m

# The workspace that joins both modules is written for the call and never committed.
WITH_BEAM = work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && \
	printf 'go 1.26.0\nuse (\n\t%s\n\t%s/beam\n)\nreplace github.com/blis-train/blis-train v0.1.0 => %s\n' "$(CURDIR)" "$(CURDIR)" "$(CURDIR)" \
	> "$$work/go.work" && export GOWORK="$$work/go.work" &&

beam:
	$(WITH_BEAM) cd beam && $(GO) vet ./... && $(GO) test ./... && $(GO) build -trimpath -o ../blis-train-beam .

# Never in go.mod. GoReleaser's own image needs a registry or a daemon; `image` needs neither.
GORELEASER = github.com/goreleaser/goreleaser/v2@v2.12.0
CYCLONEDX = github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0
KO = github.com/google/ko@v0.18.0
BASE ?= cgr.dev/chainguard/static

release:
	@$(GO) list -m $(GORELEASER) >/dev/null 2>&1 || { echo "skipped: no module proxy has $(GORELEASER)"; exit 0; }; \
	skip=ko; $(GO) run $(CYCLONEDX) version >/dev/null 2>&1 || { skip=ko,sbom; echo "no bill of materials: no module proxy has $(CYCLONEDX)"; }; \
	$(GO) run $(GORELEASER) release --snapshot --clean --skip=$$skip && $(MAKE) --no-print-directory image
image:
	@mkdir -p dist; rm -f dist/blis-train_image.tar; \
	if out=$$(KO_DOCKER_REPO=ghcr.io/blis-train/blis-train KO_DEFAULTBASEIMAGE=$(BASE) CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false -ldflags=-s" \
	  $(GO) run $(KO) build --push=false --tarball=dist/blis-train_image.tar --bare --sbom=none --image-user=65532 --platform=linux/amd64 ./cmd/blis-train 2>&1); \
	then echo "$$out" | tail -1; else rm -f dist/blis-train_image.tar; echo "no image: $${out##*Error: }"; fi

# An unreachable database is said and is no failure, so that the target can run anywhere.
advisories:
	@if curl -fsS --max-time 20 -o /dev/null https://vuln.go.dev/index/db.json; then \
		$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...; \
	else \
		echo "advisories: https://vuln.go.dev is not reachable from here: nothing was checked"; \
	fi
	@.ci/behind
