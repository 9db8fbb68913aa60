package validate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/sim"
)

// Table is the options of a validation as flags and as recorded.
func (o *Options) Table() option.Table {
	return option.Table{
		option.Switch("steps-only", &o.StepsOnly, "no replay: teacher-forced errors only").Recorded(),
		o.noiseOption().Recorded(),
		option.Maybe("overhead-us", &o.OverheadUs,
			"constant overhead in `US` in place of the overhead coefficients; -1: those").Recorded(),
		option.Maybe("egress-us", &o.EgressUs, "constant egress in `US`; -1: the egress coefficients").Recorded(),
		option.Switch("idle-delays", &o.IdleDelays, "take overhead and egress from requests that met an idle server").Recorded(),
		option.Whole("shared-prefix-tokens", &o.SharedPrefix,
			"first `N` prompt tokens that requests share where the recording does not say").Recorded().Unless("0"),
		o.latencyOption().Recorded().Unless("physics"),
		o.gateOption().Recorded(),
		o.forOption().Recorded(),
		option.Real("split", &o.Split, "training `SHARE` of each phase, at least the fit's (its default)").Recorded(),
		option.Whole("max-rows", &o.MaxRows, "judge `N` rows of steps at most, evenly chosen; 0: all; -1: as many as the fit").Recorded().
			Unless(strconv.Itoa(fitsRows)),
		option.Whole("seed", &o.Seed, "`SEED` of the noise").Recorded(),
		option.Whole("workers", &o.Workers, "`N` workers; 0 uses every core"),
	}
}

func (o *Options) noiseOption() option.Option {
	return option.Option{
		Name: "noise", Usage: "noisy replays beside the plain one, `KIND`: residual or none", Default: "residual",
		Set: func(v any) error {
			if o.Noise = v == "residual"; !o.Noise && v != "none" {
				return option.Misusef("--noise: got %q, want residual or none", v)
			}
			return nil
		},
		Values: func() []string {
			if o.Noise {
				return nil
			}
			return []string{"none"}
		},
	}
}

func (o *Options) forOption() option.Option {
	return option.Option{
		Name:    "for",
		Usage:   "the `PURPOSE` that decides: steps, replay, waits, transfer or all (default: replay; steps where nothing is replayed)",
		Default: "",
		Set: func(v any) error {
			o.For = v.(string)
			if o.For != "" && !CheckPurpose(o.For) {
				return option.Misusef("--for: got %q, want %s or %s", o.For, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
			}
			return nil
		},
		Values: func() []string {
			if o.For == "" {
				return nil
			}
			return []string{o.For}
		},
	}
}

func (o *Options) latencyOption() option.Option {
	return option.Option{
		Name: "latency", Usage: "step time `MODEL` of the replay: physics or roofline", Default: "physics",
		Set: func(v any) error { return o.UseLatency(v.(string)) },
		Values: func() []string {
			if o.LatencyName == "" {
				return nil
			}
			return []string{o.LatencyName}
		},
	}
}

// UseLatency sets the step time of the replays: physics (the coefficients) or
// roofline.
func (o *Options) UseLatency(name string) error {
	switch name {
	case "", "physics":
		o.LatencyName, o.Latency = "physics", nil
	case "roofline":
		o.LatencyName = name
		o.Latency = func(d *deploy.Deployment) (sim.Model, error) { return sim.NewRoofline(d) }
	default:
		return option.Misusef("--latency: got %q, want physics or roofline", name)
	}
	return nil
}

// gateOption adds thresholds to those that are there.
func (o *Options) gateOption() option.Option {
	return option.Option{
		Name:  "gate",
		Usage: "threshold of a gate, `NAME=VALUE` (repeatable); list prints every gate with threshold and source", Default: []string(nil),
		Set: func(v any) error {
			for _, g := range v.([]string) {
				name, text, ok := strings.Cut(g, "=")
				limit, err := strconv.ParseFloat(text, 64)
				if !ok || err != nil {
					return option.Misusef("--gate: got %q, want NAME=VALUE", g)
				}
				o.SetThreshold(name, limit, "--gate")
			}
			return nil
		},
		Values: func() []string {
			var said []string
			for _, name := range slices.Sorted(maps.Keys(o.Thresholds)) {
				said = append(said, fmt.Sprintf("%s=%g", name, o.Thresholds[name]))
			}
			return said
		},
	}
}

// SetThreshold sets the threshold of a gate and who did so.
func (o *Options) SetThreshold(gate string, limit float64, from string) {
	if o.Thresholds == nil {
		o.Thresholds, o.ThresholdsFrom = map[string]float64{}, map[string]string{}
	}
	o.Thresholds[gate], o.ThresholdsFrom[gate] = limit, from
}

// Command is the `command` of validation.json: the stage and every option that
// can change its numbers (spec#documents).
func (o Options) Command() string {
	if r, err := o.resolve(); err == nil {
		o = r
	}
	return o.Table().Command("validate")
}
