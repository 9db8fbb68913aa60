package main

import (
	"slices"

	"github.com/urfave/cli/v2"
)

// longHelp is how many flags a help may have in one list.
const longHelp = 14

// Groups of a long help. The library sorts them by title; these sort as the work goes.
const (
	groupArrivals = "Arrivals"
	groupCluster  = "Cluster simulated"
	groupConsumer = "Consumers"
	groupData     = "Data read"
	groupEngine   = "Engine simulated"
	groupFit      = "Fit"
	groupJudging  = "Judging"
	groupOutput   = "Output and messages"
	groupMore     = "The rest"
)

// helpGroups are the flags of each group. A name means the same in every command, but
// for those of groupExceptions.
var helpGroups = map[string][]string{
	groupArrivals: {"workload", "phase", "rate-scale", "max-requests", "concurrency", "think-time-ms", "ramp-s", "max-concurrency",
		"input-len", "output-len", "random-range-ratio", "num-prompts", "request-rate", "requests", "load", "prompt-tokens",
		"output-tokens"},
	groupCluster: {"cluster", "num-instances", "routing-policy", "routing-scorers", "admission-policy", "snapshot-refresh-interval",
		"scheduler", "slo-ttft", "preset", "seeds", "controller", "plant", "alone", "policy", "method", "start", "calls", "train-seeds",
		"test-seeds"},
	groupConsumer: {"option"},
	groupData: {"config", "set", "only", "exclude", "without", "keep-saturated", "max-bad-frac", "max-line", "max-expansion",
		"split-engines", "allow-special", "dry-run", "from-gram", "fit", "coefficients", "validation", "deployment", "data",
		"max-num-seqs", "max-num-batched-tokens",
		"accelerator", "acc-count", "loads", "window", "hop", "min-requests", "semantics", "server", "state", "staleness-us"},
	groupEngine: {"latency-model", "alpha-coeffs", "beta-coeffs", "async", "kv-blocks", "replications", "sample-coefficients"},
	groupFit: {"from", "form", "budget", "holdout", "search", "spec", "recipe", "beta-target", "alpha-target", "objective",
		"split", "max-rows", "lag", "prior", "bootstraps", "seed", "refit-all", "model", "models", "weights", "recency", "emulate",
		"features", "prefix-score", "flavour", "queue-ratio", "hold-out", "ttft", "identify", "points"},
	groupJudging: {"steps-only", "simulate", "noise", "overhead-us", "egress-us", "idle-delays", "shared-prefix-tokens", "latency", "gate",
		"for", "gates", "baseline", "require-all-gates", "ignore-verdict", "level", "tolerance", "fail-on-change"},
	groupOutput: {"verbose", "summary", "junit", "ledger", "figures", "dump-rows", "save-gram", "try-amendments",
		"why-rejected", "workers", "force", "json",
		"quiet", "log-format", "emit-otlp", "emit-kv-events", "event-log", "all", "tasks-dir"},
}

// groupExceptions are flags that mean something else in one command.
var groupExceptions = map[string]map[string]string{
	"simulate": {"seed": groupEngine, "noise": groupEngine, "overhead-us": groupEngine, "egress-us": groupEngine, "deployment": groupEngine,
		"coefficients": groupEngine},
	"diff": {"seed": groupArrivals},
}

// helpFirst are what every long help begins with.
var helpFirst = []string{"out", "format", "help", "version"}

// groupHelp sorts the flags of commands with many into groups, and so those of their
// subcommands.
func groupHelp(commands []*cli.Command) {
	titles := map[string]string{}
	for title, names := range helpGroups {
		for _, n := range names {
			titles[n] = title
		}
	}
	for _, c := range commands {
		groupHelp(c.Subcommands)
		if len(c.Flags) <= longHelp {
			continue
		}
		for _, f := range c.Flags {
			name, group, _ := settable(f)
			title := titles[name]
			if title == "" && !slices.Contains(helpFirst, name) {
				title = groupMore
			}
			if t := groupExceptions[c.Name][name]; t != "" {
				title = t
			}
			*group = title
		}
	}
}

// settable are a flag's name, which the library finds by regular expressions, and the
// fields that are set after it is made: its group in help, and the variables that set it.
func settable(f cli.Flag) (name string, group *string, env *[]string) {
	switch f := f.(type) {
	case *cli.BoolFlag:
		return f.Name, &f.Category, &f.EnvVars
	case *cli.StringFlag:
		return f.Name, &f.Category, &f.EnvVars
	case *cli.StringSliceFlag:
		return f.Name, &f.Category, &f.EnvVars
	case *cli.Float64Flag:
		return f.Name, &f.Category, &f.EnvVars
	case *cli.IntFlag:
		return f.Name, &f.Category, &f.EnvVars
	case *cli.Int64Flag:
		return f.Name, &f.Category, &f.EnvVars
	case *cli.Uint64Flag:
		return f.Name, &f.Category, &f.EnvVars
	case *cli.Float64SliceFlag:
		return f.Name, &f.Category, &f.EnvVars
	case *cli.DurationFlag:
		return f.Name, &f.Category, &f.EnvVars
	}
	panic("flag --" + f.Names()[0] + ": a kind that settable does not know")
}
