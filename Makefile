# make check   what CI runs, plus race, staticcheck (when installed) and tidiness
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
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "not gofmt-clean"; exit 1; }
	$(GO) vet ./...
	@if command -v staticcheck >/dev/null; then staticcheck ./...; else echo "staticcheck not installed, skipped"; fi
	$(GO) test -race ./...
	$(GO) generate ./...
	$(GO) mod tidy -diff
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
