package main

import (
	"io"
	"strings"
	"testing"
)

// TestPrintedWordsAreExplained: each word of what run and predict print, of the report and of coefficients.yaml is
// explained itself, not by codes that contain it.
func TestPrintedWordsAreExplained(t *testing.T) {
	for _, w := range strings.Fields(`TTFT TPOT ITL E2E P50 P95 P99 throughput goodput KV-cache limited-by step prefill decode accuracy lambda gamma
		gamma_identified alpha beta estimate estimate_ci95 ci95 ci95_given fold_spread identified evidence prior covariance range certificate digest
		origin recipe cadence duration overhead egress admission queue pipeline_lag deployment_factors prompt_factors residual_quantiles n_samples
		hold_out_rmse spec_version feature_set verdict purpose gate threshold scope KS MAPE WAPE bias replay steps waits transfer configuration saturation
		max_num_seqs block_size tp NIS rho prefill_linear_compute paired_err_ttft ks_itl median_rel_err_itl machine_drift
		spare met used usable reached replica deployment regime floor skill bound drafts pools up-to expected-error targets highest-load stated-error`) {
		var out strings.Builder
		code := run([]string{"blis-train", "explain", w}, strings.NewReader(""), &out, io.Discard)
		want := strings.ToLower(strings.ReplaceAll(w, "-", "_")) + " ("
		if code != exitOK || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: exit %d: %.100q", w, code, out.String())
		}
	}
}
