package simulate

// This file configures the simulated engine: deployment, latency model and seed.

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// streamBeta keeps the draw of coefficients apart from other draws of the same seed.
const streamBeta = 0xd4a

// Engine returns the simulator's configuration for one seed. Every replication gets latency models of
// its own, because these are not safe for concurrent use.
func (s *Simulation) Engine(seed int64) (sim.Config, error) {
	set := s.Set
	if s.o.SampleCoefficients && set != nil {
		set, _ = sim.DrawBeta(set, rand.New(rand.NewPCG(uint64(seed), streamBeta)))
	}
	cfg, err := s.latencyConfig(set)
	if err != nil {
		return cfg, err
	}
	cfg.Latency = sim.WithDrafter(cfg.Latency, s.Deployment)
	if s.LatencyModel != ModelTables { // tables include the exchange between ranks
		cfg.Latency = sim.WithExchange(cfg.Latency, s.Deployment)
	}
	cfg.ExpertImbalance = s.o.ExpertImbalance
	cfg.EPLBPauseUs = sim.ToUs(s.o.EPLBPauseMs * 1e3)
	cfg.Seed = seed
	cfg.TokenGaps = true
	cfg.RequestGaps = true
	cfg.KVBlocks = s.o.KVBlocks
	cfg.Done = s.ctx.Done()
	// Options in place of the model's values.
	if v := s.o.OverheadUs; v != nil {
		cfg.Overhead = sim.Const(*v)
	}
	if v := s.o.EgressUs; v != nil {
		cfg.Egress = sim.Const(*v)
	}
	if mode := s.o.Async; mode != "auto" {
		cfg.Async = mode == "on"
	}
	if s.o.Noise == "residual" {
		if cfg.Noise = sim.NoiseOf(set); cfg.Noise == nil {
			return cfg, &trace.Error{Code: sim.CodeBadConfig, Msg: "noise: the coefficient file holds no residual quantiles",
				Hint: "fit with a hold-out, or use --noise none"}
		}
	}
	return cfg, nil
}

// latencyConfig returns a configuration with only the latency model set: the time of a step, and the
// delays outside the steps that belong to it.
func (s *Simulation) latencyConfig(set *coeff.Set) (cfg sim.Config, err error) {
	cfg = sim.DefaultConfig(s.Deployment, nil)
	var whole interface{ Parts() sim.Parts } // a model of BLIS, which has a delay of requests too
	switch {
	case s.LatencyModel == ModelTables && set == nil: // a group of a cluster may have a set of its own
		learned := library.Learned()
		cfg.Latency = sim.NewTables(s.Step, learned.On(s.Deployment.Hardware.Name))
		cfg.Overhead = sim.Const(learned.OverheadUs())
	case s.LatencyModel == ModelRoofline:
		cfg.Latency, err = sim.NewRoofline(s.Deployment)
	case s.LatencyModel == "linear3":
		cfg.Latency, err = sim.NewLinear3(s.beta)
	case s.LatencyModel == "trained-physics":
		whole, err = sim.NewTrainedPhysics(s.alpha, s.beta, s.Deployment)
	case s.LatencyModel == "blackbox":
		whole, err = sim.NewBlackbox(s.alpha, s.beta)
	default:
		return sim.EngineOf(s.Deployment, set)
	}
	if whole != nil && err == nil {
		cfg.Apply(whole.Parts())
	}
	return cfg, err
}

// parseNumbers returns the comma-separated numbers of a flag.
func parseNumbers(flag, text string) ([]float64, error) {
	if text == "" {
		return nil, nil
	}
	var out []float64
	for _, part := range strings.Split(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil {
			return nil, option.Misusef("%s: got %q, want comma-separated numbers", flag, text)
		}
		out = append(out, v)
	}
	return out, nil
}

// WarningsOf returns the warnings of the latency models: predictions outside what the coefficients were
// trained on.
func WarningsOf(cfg *sim.Config) []trace.Finding {
	var out []trace.Finding
	parts := []struct {
		prefix string
		part   any
	}{
		{"", cfg.Latency},
		{coeff.Overhead + ": ", cfg.Overhead},
		{coeff.Egress + ": ", cfg.Egress},
	}
	for _, p := range parts {
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
