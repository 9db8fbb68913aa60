package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/sizing"
)

// TestEvalSizedRows: of the rows that size answers for 20 requests per second, simulate with so many instances and
// other requests has nine of ten percentiles within the interval of sampling, which is at most 5 % of a median and
// 15 % of another percentile. The tables of kernels time the steps of both.
func TestEvalSizedRows(t *testing.T) {
	repo.NeedEval(t)
	dir := t.TempDir()
	var out bytes.Buffer
	code := run([]string{"blis-train", "size", "--model", "Qwen/Qwen3-32B", "--hardware", "H100,B200", "--rate", "20", "--input-len", "2000",
		"--output-len", "300", "--slo", "ttft.p95=1s,tpot.mean=40ms", "--json"}, strings.NewReader(""), &out, io.Discard)
	if code != exitOK {
		t.Fatalf("size: exit status %d", code)
	}
	var answer sizing.Answer
	must(t, json.Unmarshal(out.Bytes(), &answer))
	repo.Write(t, "requests: 6000\narrivals: {kind: poisson, rate_rps: 20}\nprompt: {kind: uniform, min: 1960, max: 2040}\n"+
		"output: {kind: uniform, min: 294, max: 306}\n", dir, "load.yaml")
	checked := 0
	for i := range answer.Rows {
		row := &answer.Rows[i]
		for j := range row.Figures {
			f := &row.Figures[j]
			widest := map[string]float64{"p50": 0.05, "p90": 0.15, "p95": 0.15}[f.Statistic]
			if width := (f.Ms.High - f.Ms.Low) / f.Ms.Value; widest > 0 && width > 1.05*widest {
				t.Errorf("%d x %s tp %d: %s %s %.4g ms within %.1f %%, want %g", row.Replicas, row.Hardware, row.TP, f.Metric, f.Statistic,
					f.Ms.Value, 100*width, 100*widest)
			}
		}
		if row.Refused != "" || row.Headroom < 0.05 || checked == 3 {
			continue
		}
		checked++
		file := filepath.Join(dir, fmt.Sprintf("run-%d.yaml", i))
		to := filepath.Join(dir, fmt.Sprintf("out-%d", i))
		command(t, exitOK, "init", "--from-cmdline", row.Serve, "--hardware", row.Hardware, "--vllm-version", answer.Version, "-o", file)
		command(t, exitOK, "simulate", "--deployment", file, "--workload", filepath.Join(dir, "load.yaml"), "--num-instances",
			fmt.Sprint(row.Replicas), "--replications", "8", "--seed", "100", "-o", to, "--quiet")
		var doc struct {
			Intervals []struct {
				Key  string
				Mean float64
			}
		}
		must(t, json.Unmarshal(repo.Read(t, to, "simulation.json"), &doc))
		simulated := map[string]float64{}
		for _, k := range doc.Intervals {
			simulated[k.Key] = k.Mean
		}
		within, all := 0, 0
		for _, f := range row.Figures {
			metric := strings.ReplaceAll(f.Metric, "tpot", "request_itl")
			ms, isKnown := simulated[metric+"_"+f.Statistic+"_ms"]
			if !isKnown || f.Statistic == "mean" {
				continue
			}
			all++
			if ms >= f.Ms.Low && ms <= f.Ms.High {
				within++
			}
		}
		t.Logf("%d x %s tp %d: %d of %d percentiles within", row.Replicas, row.Hardware, row.TP, within, all)
		if all < 10 || 10*within < 9*all {
			t.Errorf("%d x %s tp %d: %d of %d percentiles within the interval, want nine in ten", row.Replicas, row.Hardware, row.TP, within, all)
		}
	}
	if checked < 3 {
		t.Errorf("%d rows checked, want 3", checked)
	}
}
