package library

import (
	"slices"
	"strings"
	"testing"
)

// TestNothingMeasured: a domain without releases, graphs or kinds of scheduling rules none of them out.
func TestNothingMeasured(t *testing.T) {
	asked := &Asked{Version: "0.20.0", Graphs: "decodes", Scheduling: "asynchronous"}
	if got := (&Domain{}).Outside(asked); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	m := &Domain{Releases: []string{"0.18", "0.19"}, Graphs: []string{"all", "none"}, Scheduling: []string{"synchronous"}}
	want := []string{"vLLM 0.20, measured 0.18, 0.19", "CUDA graphs of decodes, measured of all and none", "asynchronous scheduling, measured synchronous"}
	if got := m.Outside(asked); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for version, want := range map[string]string{"0.17.9": "vLLM 0.17", "0.18.0": "", "0.19.5": "", "main": ""} {
		if got := strings.Join(m.Outside(&Asked{Version: version}), "; "); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}

// TestBetterDevices: at least as good in bandwidth, link, arithmetic and memory; 141 GB are more than 80.
func TestBetterDevices(t *testing.T) {
	small := &GPU{Hardware: "H100-SXM-80GB", Bandwidth: 3, Link: 4, FLOPS: 5}
	same := func(change func(g *GPU)) *GPU {
		g := &GPU{Hardware: "H200-SXM-141GB", Bandwidth: 3, Link: 4, FLOPS: 5}
		change(g)
		return g
	}
	for name, c := range map[string]struct {
		change func(g *GPU)
		want   bool
	}{
		"the same but for memory": {func(*GPU) {}, true}, "less bandwidth": {func(g *GPU) { g.Bandwidth = 2.9 }, false}, "a slower link": {func(g *GPU) { g.Link = 3.9 }, false},
		"slower arithmetic": {func(g *GPU) { g.FLOPS = 4.9 }, false}, "better in all": {func(g *GPU) { g.Bandwidth, g.Link, g.FLOPS = 4, 5, 6 }, true},
	} {
		g := same(c.change)
		if got := isBetter(g, small, bf16); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	if isBetter(small, same(func(*GPU) {}), bf16) || isBetter(small, small, bf16) {
		t.Error("less memory, or the same device, is better")
	}
}

// TestRowsOfLaunches: small layers that take more than five times as long as bfloat16's are the time of launches; large layers and
// long batches do not count.
func TestRowsOfLaunches(t *testing.T) {
	table := func(us float64) *Table {
		row := func(dtype, n, k, x int64, us float64) Series {
			return Series{Key: []int64{dtype, n, k}, X: []int64{x}, Q: []int16{Quantized(us)}}
		}
		return &Table{Columns: []Column{{Name: "gemm_dtype", Words: []string{bf16, "int8"}}, {Name: "n"}, {Name: "k"}, {Name: "m"}}, Series: []Series{
			row(0, 1024, 4096, 64, 1), row(0, 1024, 4097, 64, 90), row(0, 1025, 4096, 64, 90), row(0, 2048, 4096, 64, 90),
			row(1, 1024, 4096, 64, us), row(1, 1024, 4096, 65, 900), row(1, 1025, 4096, 64, 900), row(1, 1024, 4097, 64, 900),
		}}
	}
	g := &GPU{}
	for us, want := range map[float64]bool{4.9: false, 5.1: true} {
		if got := g.isLaunchBound(table(us), "int8"); got != want {
			t.Errorf("%g times as long: got %t", us, got)
		}
	}
}

// TestSizesOfReductions: vLLM's sizes are powers of two, from 256 KiB to 128 MiB; the custom kernel serves smaller tensors than
// symmetric memory or as large ones, and with more GPUs no larger ones on H100 and B200.
func TestSizesOfReductions(t *testing.T) {
	for capability, byGPUs := range reduceLimits {
		before := float64(1 << 40)
		for _, gpus := range []int64{2, 4, 6, 8} {
			limit, ok := byGPUs[gpus]
			for _, bytes := range []float64{limit.custom, limit.symmetric} {
				if n := int64(bytes); n&(n-1) != 0 || n < 256<<10 || n > 128<<20 {
					t.Errorf("compute capability %d, %d GPUs: got %d bytes", capability, gpus, n)
				}
			}
			if !ok || limit.custom > limit.symmetric || capability != 103 && limit.custom > before {
				t.Errorf("compute capability %d, %d GPUs: got %v", capability, gpus, limit)
			}
			before = limit.custom
		}
	}
	if customMaxBytes != 8<<20 {
		t.Errorf("got %d bytes for the custom kernel, want 8 MiB", customMaxBytes)
	}
}
