package simulate

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// EngineOf is the simulator driven by a set: its step time, and its overhead
// and egress where it has them.
func EngineOf(d *deploy.Deployment, set *coeff.Set) (sim.Config, error) {
	latency, err := sim.NewPhysics(set, d)
	if err != nil {
		return sim.Config{}, err
	}
	cfg := sim.DefaultConfig(d, latency)
	cfg.GammaEMA = set.Gamma
	if cfg.Overhead, err = delayOf(set, coeff.Overhead, d); err != nil {
		return cfg, err
	}
	cfg.Egress, err = delayOf(set, coeff.Egress, d)
	return cfg, err
}

// delayOf is no delay where the set has no such target.
func delayOf(set *coeff.Set, target string, d *deploy.Deployment) (sim.Delay, error) {
	if set.AlphaModel(target) == nil {
		return sim.Const(0), nil
	}
	return sim.NewAlphaDelay(set, target, d)
}

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
