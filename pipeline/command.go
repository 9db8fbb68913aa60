package pipeline

import (
	"fmt"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/sim/latency"
)

// FitCommand is the `command` of fit.json: the stage and every option that can
// change its numbers, sorted (design 06). The same line repeats the fit.
func FitCommand(o fit.Options) (string, error) {
	o, err := o.Resolve()
	if err != nil {
		return "", err
	}
	flags := []string{
		"--spec " + string(o.Spec), "--recipe " + o.Recipe, "--beta-target " + o.BetaTarget, "--prior " + o.Prior,
		fmt.Sprintf("--split %g", o.Split), fmt.Sprintf("--seed %d", o.Seed), fmt.Sprintf("--bootstraps %d", o.Bootstraps),
	}
	for _, t := range o.AlphaTargets {
		flags = append(flags, "--alpha-target "+t)
	}
	for _, m := range o.Models {
		flags = append(flags, "--model "+m)
	}
	for _, r := range o.Without {
		flags = append(flags, "--without "+r)
	}
	if o.Objective != "" {
		flags = append(flags, "--objective "+o.Objective)
	}
	if o.Lag != nil {
		flags = append(flags, fmt.Sprintf("--lag %d", *o.Lag))
	}
	for name, on := range map[string]bool{"--refit-all": o.RefitAll, "--keep-saturated": o.KeepSaturated} {
		if on {
			flags = append(flags, name)
		}
	}
	sort.Strings(flags)
	return "fit " + strings.Join(flags, " "), nil
}

// ValidateCommand is the same for validation.json.
func ValidateCommand(o validate.Options) string {
	flags := []string{fmt.Sprintf("--split %g", o.Split), fmt.Sprintf("--seed %d", o.Seed)}
	if o.OverheadUs != nil {
		flags = append(flags, fmt.Sprintf("--overhead-us %g", *o.OverheadUs))
	}
	if o.EgressUs != nil {
		flags = append(flags, fmt.Sprintf("--egress-us %g", *o.EgressUs))
	}
	if o.SharedPrefix > 0 {
		flags = append(flags, fmt.Sprintf("--shared-prefix-tokens %d", o.SharedPrefix))
	}
	if o.LatencyName != "" && o.LatencyName != "physics" {
		flags = append(flags, "--latency "+o.LatencyName)
	}
	for name, on := range map[string]bool{"--steps-only": o.StepsOnly, "--idle-delays": o.IdleDelays, "--noise none": !o.Noise} {
		if on {
			flags = append(flags, name)
		}
	}
	for name, v := range o.Thresholds {
		flags = append(flags, fmt.Sprintf("--gate %s=%g", name, v))
	}
	sort.Strings(flags)
	return "validate " + strings.Join(flags, " ")
}

// UseLatency sets the step time of the replays: physics (the coefficients) or
// roofline.
func UseLatency(o *validate.Options, name string) error {
	switch name {
	case "", "physics":
		o.LatencyName, o.Latency = "physics", nil
	case "roofline":
		o.LatencyName = name
		o.Latency = func(d *deploy.Deployment) (latency.Model, error) { return latency.NewRoofline(d) }
	default:
		return fmt.Errorf("--latency: got %q, want physics or roofline", name)
	}
	return nil
}
