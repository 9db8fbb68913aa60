package simulate

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// WarningsOf says where step times and delays left what their data covered.
func WarningsOf(cfg *sim.Config) []trace.Finding {
	var out []trace.Finding
	for _, p := range []struct {
		prefix string
		part   any
	}{{"", cfg.Latency}, {coeff.Overhead + ": ", cfg.Overhead}, {coeff.Egress + ": ", cfg.Egress}} {
		w, ok := p.part.(interface{ Warnings() []trace.Finding })
		if !ok {
			continue
		}
		for _, f := range w.Warnings() {
			out = append(out, trace.Finding{Code: f.Code, Message: p.prefix + f.Message})
		}
	}
	return out
}
