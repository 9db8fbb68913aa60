package validate

// This file has the options of a validation as flags of the command line.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
)

// SharedPrefixUsage describes the option that states what prompts share.
const SharedPrefixUsage = "number of `TOKENS` that all prompts have in common at their start, 0 for none; used where neither the " +
	"server nor the client's file states it (default: shared_prefix_tokens of run.yaml, else not known)"

// Flags returns the options of a validation as flags; validation.json records those that can change it.
func (o *Options) Flags() []cli.Flag {
	return []cli.Flag{
		option.Recorded(&cli.BoolFlag{Name: "steps-only", Destination: &o.StepsOnly, Value: o.StepsOnly,
			Usage: "compare step times alone, replay nothing"}),
		option.RecordedUnless("residual", &cli.StringFlag{Name: "noise", Destination: &o.Noise, Value: o.Noise,
			Usage: "`KIND` of the additional noisy replays: residual (step times with the fit's residuals) or none"}),
		option.Recorded(&cli.GenericFlag{Name: "overhead-us", Value: option.Optional(&o.OverheadUs), DefaultText: "the coefficients",
			Usage: "constant overhead of a request in `US` in place of the overhead coefficients"}),
		option.Recorded(&cli.GenericFlag{Name: "egress-us", Value: option.Optional(&o.EgressUs), DefaultText: "the coefficients",
			Usage: "constant egress delay of a request in `US` in place of the egress coefficients"}),
		option.Recorded(&cli.BoolFlag{Name: "idle-delays", Destination: &o.IdleDelays, Value: o.IdleDelays,
			Usage: "replay with the constant overhead and egress of requests that found the server idle"}),
		option.Recorded(&cli.GenericFlag{Name: "shared-prefix-tokens", Value: option.Count(&o.SharedPrefix), Usage: SharedPrefixUsage}),
		option.RecordedUnless("physics", &cli.StringFlag{Name: "latency", Destination: &o.Latency, Value: o.Latency,
			Usage: "step-time `MODEL` of the replay: physics (the coefficients) or roofline"}),
		option.RecordedAs(o.gateValues, &cli.GenericFlag{Name: "gate", Value: &gateValue{o},
			Usage: "threshold of a gate, `NAME=VALUE` (repeatable); list prints every gate with threshold and source"}),
		option.Recorded(&cli.StringFlag{Name: "for", Destination: &o.For, Value: o.For,
			Usage: "`PURPOSE` whose gates decide the exit status: steps, replay, waits, transfer or all (default: replay; steps " +
				"where a recording holds nothing to replay)"}),
		option.Recorded(&cli.Float64Flag{Name: "split", Destination: &o.Split, Value: o.Split,
			Usage: "training `SHARE` of each phase, at least the fit's"}),
		option.RecordedUnless(strconv.Itoa(fitsRows), &cli.IntFlag{Name: "max-rows", Destination: &o.MaxRows, Value: o.MaxRows,
			Usage: "compare at most `N` measured steps, evenly chosen; 0: all; -1: as many as the fit"}),
		option.Recorded(&cli.Int64Flag{Name: "seed", Destination: &o.Seed, Value: o.Seed, Usage: "`SEED` of the noise"}),
		&cli.IntFlag{Name: "workers", Destination: &o.Workers, Value: o.Workers, Usage: "`N` workers; 0: every core"},
	}
}

// gateValue is the value of --gate, which may be given several times: each adds a threshold.
type gateValue struct{ o *Options }

// String returns "": the flag has no default.
func (v *gateValue) String() string { return "" }

// Set sets the threshold of one gate (NAME=LIMIT), or asks for the list of gates.
func (v *gateValue) Set(text string) error {
	if text == "list" {
		v.o.ListGates = true
		return nil
	}
	name, number, ok := strings.Cut(text, "=")
	limit, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return errors.New("want NAME=VALUE with a number, as in ks_ttft=0.2; list prints every gate")
	}
	v.o.SetThreshold(name, limit, "--gate")
	return nil
}

// gateValues returns the thresholds as validation.json records the flag: NAME=LIMIT by name.
func (o *Options) gateValues() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(o.Thresholds)) {
		all = append(all, fmt.Sprintf("%s=%g", name, o.Thresholds[name]))
	}
	return all
}
