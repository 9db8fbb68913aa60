//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
)

// TestEvalBLISSpeed runs 100,000 requests through `simulate` and through a `blis`
// binary on PATH with its fastest flags, in turns, whole processes with prefix
// caching on. Both read the requests from a CSV and write what became of each: we
// always do (requests.parquet), BLIS with --results-path, which is 4 % of its time.
// It prints the ratios of CPU time and of wall time and the peak memory.
func TestEvalBLISSpeed(t *testing.T) {
	repo.NeedEval(t)
	blis := repo.BLIS(t)
	ours := built(t)
	for _, c := range []struct {
		name           string
		perSecond      float64
		prompt, output float64 // medians, log-normal
		group          int64   // tokens of a shared prefix
		share          float64 // of requests with one
		want           float64
	}{
		{"nothing shared", 20, 300, 120, 0, 0, 15},
		{"half share 512 tokens", 20, 300, 120, 512, .5, 15},
		{"four fifths share 2048 tokens", 10, 300, 120, 2048, .8, 15},
		{"ten tokens out", 200, 100, 10, 64, .5, 10}, // files are most of it
	} {
		t.Run(c.name, func(t *testing.T) {
			reqs := sharedLoad(100_000, c.perSecond, c.prompt, c.output, c.group, c.share)
			s := newSpeed(t, blis, ours, reqs)
			cpu, wall := s.ratios(t, 3)
			if cpu < c.want {
				t.Errorf("CPU time: %.1f times BLIS, want >= %g", cpu, c.want)
			}
			t.Logf("%s: BLIS / ours: CPU %.1f, wall %.1f", c.name, cpu, wall)
		})
	}
}

// built is this program as an executable of its own.
func built(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "blis-train")
	if text, err := exec.Command("go", "build", "-trimpath", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return path
}

// TestEvalOverloadMemory has 100,000 requests come three times as fast as one engine serves
// them, so that three quarters wait at once: the process stays below 200 MB.
func TestEvalOverloadMemory(t *testing.T) {
	checkPeakMemory(t, 200, `requests: 100000
arrivals: {kind: poisson, rate_rps: 200}
prompt: {kind: lognormal, mean: 500, sigma: 0.8, min: 4, max: 4096}
output: {kind: uniform, min: 10, max: 400}
`)
}

// TestEvalMillionMemory simulates a million requests, on an engine that serves them as they come: the process stays below
// 400 MB. A generator's requests are drawn as they arrive, and what is kept of each is numbers.
func TestEvalMillionMemory(t *testing.T) {
	checkPeakMemory(t, 400, `requests: 1000000
arrivals: {kind: poisson, rate_rps: 40}
prompt: {kind: lognormal, mean: 400, sigma: 0.9}
output: {kind: uniform, min: 10, max: 250}
`)
}

// checkPeakMemory simulates a workload with the program and fails unless its peak memory is below a limit.
func checkPeakMemory(t *testing.T, limitMB float64, workload string) {
	t.Helper()
	repo.NeedEval(t)
	load := filepath.Join(t.TempDir(), "load.yaml")
	repo.Write(t, workload, load)
	c := measure(t, []string{built(t), "simulate", "--deployment", "../../testdata/traces/demo/b200-llama-3.1-8b-tp1/run.yaml",
		"--workload", load, "-o", filepath.Join(t.TempDir(), "out"), "--quiet"})
	if t.Log(c); c.peakMB == 0 || c.peakMB >= limitMB {
		t.Errorf("peak memory: got %.0f MB, want < %.0f", c.peakMB, limitMB)
	}
}

func sharedLoad(n int, perSecond, prompt, output float64, group int64, share float64) []sim.Request {
	rng := rand.New(rand.NewPCG(7, 8))
	lognormal := func(median, sigma, lo, hi float64) int64 {
		return int64(min(hi, max(lo, median*math.Exp(sigma*rng.NormFloat64()))))
	}
	reqs, at := make([]sim.Request, n), 0.0
	for i := range reqs {
		at += rng.ExpFloat64() / perSecond * 1e6
		reqs[i] = sim.Request{ID: strconv.Itoa(i), ArrivalUs: int64(at), PromptTokens: lognormal(prompt, 1, 4, 4000),
			OutputTokens: lognormal(output, .8, 2, 1000)}
		if rng.Float64() < share {
			reqs[i].Group = 1 + uint64(rng.IntN(64))
			reqs[i].GroupTokens = group
			reqs[i].PromptTokens += group
		}
	}
	return reqs
}

// speed is one workload for both programs.
type speed struct{ blis, ours []string }

func newSpeed(t *testing.T, blis, ours string, reqs []sim.Request) *speed {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		repo.Write(t, text, path)
		return path
	}
	file("config.json", loopConfig)
	run := strings.Replace(fmt.Sprintf(loopRun, false), "enable_prefix_caching: false", "enable_prefix_caching: true", 1)
	deployment := file("run.yaml", strings.Replace(run, "max_num_seqs: 64", "max_num_seqs: 128", 1))
	d, err := deploy.LoadRunFile(deployment)
	must(t, err)
	load := file("load.csv", traceV2(reqs))
	alpha := []float64{1500, 700, 40}
	beta := []float64{0.15, 0, 1.36, 0.75, 32, 4.4, 126, 0, 0, 1.947}
	theirs := append(blisArgs(t, dir, d, reqs, alpha, beta), "--horizon", "1000000000000", "--cache-signal-delay", "0",
		"--snapshot-refresh-interval", "0", "--results-path", filepath.Join(dir, "results.json"))
	return &speed{blis: append([]string{blis}, theirs...), ours: []string{ours, "simulate", "--latency-model", "trained-physics",
		"--alpha-coeffs", commas(alpha), "--beta-coeffs", commas(beta), "--deployment", deployment, "--workload", load,
		"-o", filepath.Join(dir, "out"), "--quiet"}}
}

// ratios are the medians over n turns.
func (s *speed) ratios(t *testing.T, n int) (cpu, wall float64) {
	var cpus, walls []float64
	for range n {
		theirs := measure(t, s.blis)
		ours := measure(t, s.ours)
		if ours.peakMB >= 150 {
			t.Errorf("peak memory: got %.0f MB, want < 150", ours.peakMB)
		}
		t.Logf("BLIS %s; ours %s", theirs, ours)
		cpus = append(cpus, theirs.cpu/ours.cpu)
		walls = append(walls, theirs.wall/ours.wall)
	}
	slices.Sort(cpus)
	slices.Sort(walls)
	return stat.Quantile(cpus, .5), stat.Quantile(walls, .5)
}

// cost is what a process took: seconds and MB.
type cost struct{ cpu, wall, peakMB float64 }

func (c cost) String() string {
	return fmt.Sprintf("%.2f s CPU, %.2f s, %.0f MB", c.cpu, c.wall, c.peakMB)
}

func measure(t *testing.T, args []string) cost {
	cmd := exec.Command(args[0], args[1:]...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	start := time.Now()
	must(t, cmd.Start())
	peak := make(chan float64)
	done := make(chan struct{})
	go func() { peak <- watchPeak(cmd.Process.Pid, done) }()
	err := cmd.Wait()
	wall := time.Since(start)
	close(done)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, text.String())
	}
	p := cmd.ProcessState
	return cost{cpu: (p.UserTime() + p.SystemTime()).Seconds(), wall: wall.Seconds(), peakMB: <-peak}
}

// watchPeak is the largest resident size of a process in MB, asked of the kernel
// every few milliseconds: the figure that wait reports begins at that of the parent.
func watchPeak(pid int, done chan struct{}) (peakMB float64) {
	for {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, after, ok := strings.Cut(string(text), "VmHWM:"); ok {
			if kB, err := strconv.ParseFloat(strings.Fields(after)[0], 64); err == nil {
				peakMB = kB * 1024 / 1e6
			}
		}
		select {
		case <-done:
			return peakMB
		case <-time.After(5 * time.Millisecond):
		}
	}
}
