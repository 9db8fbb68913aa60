# make check   what CI runs (.ci/run), with the race detector, and generated files
# make demo    the README's first command
# make eval    slow evaluations that print accuracy figures
# make eval-real judges the embedded library on every public real set and rewrites docs/accuracy.md
# make bench   every speed claim, next to its named alternative
# make library rebuilds the embedded coefficients from SHARED, byte for byte
# make scale-equal compares many processes with one, byte for byte, and prints what both cost
# make scale-faults kills, repeats, damages and fills: the same bytes or one error
# make interop DuckDB and pandas read the tables

GO ?= go
COUNT ?= 1
SHARED ?= ../shared/data

.PHONY: check test demo eval eval-real eval-tracev2 bench interop generate library scale-equal scale-faults

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

generate:
	$(GO) generate ./...

demo:
	$(GO) run ./cmd/blis-train run testdata/traces/demo -o out

eval:
	BLIS_TRAIN_EVAL=1 $(GO) test ./... -run 'TestEval' -v -timeout 120m

eval-real:
	BLIS_TRAIN_EVAL=1 $(GO) test ./pipeline/library -run TestEvalReal -v -update-accuracy -timeout 60m

# BLIS_TRAIN_TRACEV2=DIR: runs of TraceV2 with a run.yaml beside each.
eval-tracev2:
	$(GO) test ./pipeline -run TestEvalTraceV2 -v -timeout 60m

bench:
	$(GO) test ./... -run '^$$' -bench . -benchmem -count $(COUNT) -timeout 120m

# The files embedded now play no part in making the next ones.
library:
	$(GO) run ./cmd/blis-train library build --kernels $(SHARED)/kernels --points $(SHARED)/silicon/points.csv \
		--runs $(SHARED)/real_step_summaries --runs $(SHARED)/real_stock_otlp -o coeff/library

scale-equal scale-faults:
	BLIS_TRAIN_EVAL=1 $(GO) test ./cmd/blis-train -run 'TestEvalScale$(if $(filter %equal,$@),Equal,Faults)' -v -timeout 120m

interop:
	bash eval/interop.sh
