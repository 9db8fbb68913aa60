# make check   what CI runs (.ci/run), with the race detector, and generated files
# make demo    the README's first command
# make eval    slow evaluations that print accuracy figures
# make bench   every speed claim, next to its named alternative
# make interop DuckDB and pandas read the tables

GO ?= go
COUNT ?= 1

.PHONY: check test demo eval bench interop generate

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
	$(GO) run ./cmd/blis-train run testdata/traces/real -o out

eval:
	BLIS_TRAIN_EVAL=1 $(GO) test ./... -run 'TestEval' -v -timeout 120m

bench:
	$(GO) test ./... -run '^$$' -bench . -benchmem -count $(COUNT) -timeout 120m

interop:
	bash eval/interop.sh
