package kernels

import (
	"embed"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

//go:embed tables/*.kernels
var embedded embed.FS

// GPUs are the embedded tables, by folder name. They are parsed once.
var GPUs = sync.OnceValue(func() []*GPU {
	entries, err := embedded.ReadDir("tables")
	if err != nil {
		panic("kernels: embedded tables: " + err.Error())
	}
	var out []*GPU
	for _, e := range entries {
		data, err := embedded.ReadFile("tables/" + e.Name())
		if err == nil {
			var g *GPU
			if g, err = Read(data, "tables/"+e.Name()); err == nil {
				out = append(out, g)
			}
		}
		if err != nil {
			panic("kernels: embedded tables: " + err.Error())
		}
	}
	return out
})

// For are the embedded tables of a deployment's GPU. Code: no_kernel_tables.
func For(h *deploy.Hardware) (*GPU, error) {
	var have []string
	for _, g := range GPUs() {
		if g.Hardware == h.Name {
			return g, nil
		}
		have = append(have, g.Hardware)
	}
	return nil, trace.Errorf(NoTables, "hardware %s: got no kernel tables of it, want one of %s", h.Name, strings.Join(have, ", ")).
		WithHint("simulate with --latency-model roofline, or predict with --library FILE")
}
