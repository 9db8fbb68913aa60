package main

// This file is the command simulate, which runs a workload through the simulator.

import (
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
)

// simulateCommand returns the command simulate.
func simulateCommand() *cli.Command {
	o := cluster.Options{Options: simulate.DefaultOptions()}
	groups := []group{{name: "simulate", options: o.Flags()}}
	return newCommand(&cli.Command{
		Name:  "simulate",
		Usage: "run a workload through the embedded simulator",
		Description: `Simulates a vLLM engine, or several behind a gateway: the deployment of run.yaml, step times from coefficients,
requests from an extracted or recorded run, a Mooncake, Weka, Azure, TraceV2 or workload-spec file, or a generator in YAML:

   requests: 1000
   arrivals: {kind: poisson, rate_rps: 5}
   prompt: {kind: lognormal, mean: 300, sigma: 0.8}
   output: {kind: uniform, min: 10, max: 200}

Writes OUT/simulation.json and OUT/requests.parquet. With --cluster FILE (docs/clusters.md) or --num-instances N
several engines are simulated behind one gateway, and OUT/decisions.parquet has the gateway's decision on each request.

Example:
   blis-train simulate --deployment run.yaml --workload load.yaml -o sim`,
		Flags: slices.Concat(
			flagsOf(groups, "coefficients", "library", "deployment", "workload", "set", "latency-model", "alpha-coeffs",
				"beta-coeffs", "seed", "replications", "workers", "emit-otlp", "force", "input-len", "output-len",
				"num-prompts",
				"request-rate", "cluster", "num-instances"),
			[]cli.Flag{outFolderFlag(&o.Out), configFlag()}),
	}, groups, func(c *cli.Context, con *console) error { return runSimulate(c, con, &o) })
}

// runSimulate simulates one engine, or a cluster if one is asked for, and prints the result.
func runSimulate(c *cli.Context, con *console, o *cluster.Options) error {
	// pipeline.yaml of the working folder is not read, because inputs of simulate are often there.
	if file := c.String("config"); file != "" {
		if err := con.configure(c, file, nil); err != nil {
			return err
		}
	}
	o.Special = con.special
	o.Progress = con.progress()
	o.Say = func(sentence string) { con.infof("%s", sentence) }
	par.TaskHeap() // the records of all waiting requests are in memory
	if !o.Asked() {
		doc, err := pipeline.Simulate(c.Context, o.Options)
		if err != nil {
			return err
		}
		return showSimulation(con, doc, nil, doc)
	}
	doc, err := cluster.Simulate(c.Context, *o)
	if err != nil {
		return err
	}
	return showSimulation(con, &doc.Document, doc.Cluster, doc)
}

// showSimulation prints the figures of a simulation, and whole as the JSON document. gateway is nil
// for one engine. It returns an error if no request completed.
func showSimulation(con *console, d *simulate.Document, gateway *cluster.Part, whole any) error {
	con.warn(d.Warnings)
	row := func(name string, figures ...*float64) cells {
		r := cells{name}
		for _, f := range figures {
			r = append(r, decimals(f))
		}
		return r
	}
	con.table("latency, ms", cells{"metric", "mean", "p50", "p90", "p95", "p99"}, []cells{
		row("TTFT", d.TTFTMeanMs, d.TTFTP50Ms, d.TTFTP90Ms, d.TTFTP95Ms, d.TTFTP99Ms),
		row("ITL", d.ITLMeanMs, d.ITLP50Ms, d.ITLP90Ms, d.ITLP95Ms, d.ITLP99Ms),
		row("E2E", d.E2EMeanMs, d.E2EP50Ms, d.E2EP90Ms, d.E2EP95Ms, d.E2EP99Ms),
		row("queueing delay", d.QueueWaitMeanMs, d.QueueWaitP50Ms, d.QueueWaitP90Ms, d.QueueWaitP95Ms, d.QueueWaitP99Ms),
	})
	con.table("throughput", cells{"completed", "rejected", "aborted", "timed out", "requests/s", "output tokens/s",
		"preemptions",
		"cache hits", "saturated"}, []cells{{
		d.CompletedRequests, d.RejectedRequests, d.AbortedRequests, d.TimedOutRequests, fmt.Sprintf("%.3f",
			d.ResponsesPerSec),
		fmt.Sprintf("%.1f", d.TokensPerSec), d.PreemptionCount, percent(d.PromptCacheHitRate), d.Overload.Saturated,
	}})
	var ranks []cells
	addRanks := func(parts []simulate.EnginePart, name func(rank int) any) {
		for i, r := range parts {
			ranks = append(ranks,
				cells{name(i), r.Requests, r.Steps, r.DummySteps, fmt.Sprintf("%.1f", float64(r.BusyUs)/1e6),
					fmt.Sprintf("%.1f", float64(r.WaitedUs)/1e6), r.Preemptions, r.PeakRunning, r.PeakWaiting})
		}
	}
	addRanks(d.Ranks, func(rank int) any { return rank })
	if gateway != nil {
		for i, e := range gateway.ByInstance {
			addRanks(e.Ranks, func(rank int) any { return fmt.Sprintf("%s %d.%d", e.Role, i, rank) })
		}
	}
	con.table("data-parallel ranks", cells{"rank", "requests", "steps", "dummy steps", "busy s", "of it waiting s",
		"preemptions",
		"most running", "most waiting"}, ranks)
	var classes []cells
	for _, c := range d.Classes {
		classes = append(classes, cells{c.Name, c.Requests, c.Completed, percent(c.Attainment), decimals(c.GoodputRPS)})
	}
	con.table("service classes", cells{"class", "requests", "completed", "met targets", "goodput/s"}, classes)
	showCluster(con, gateway)
	var bands []cells
	for _, b := range d.Intervals {
		bands = append(bands, cells{b.Key, decimals(&b.Mean), decimals(&b.Lo), decimals(&b.Hi)})
	}
	con.table(fmt.Sprintf("over %d replications, 95 percent", d.Replications), cells{"key", "mean", "lo", "hi"}, bands)
	summary := fmt.Sprintf("simulated %d requests, %d steps, %.1f s", d.InjectedRequests, d.Steps, d.DurationS)
	for _, reason := range slices.Sorted(maps.Keys(d.Rejections)) {
		summary += fmt.Sprintf("; %d rejected: %s", d.Rejections[reason], reason)
	}
	if err := con.document(whole); err != nil {
		return err
	}
	if d.CompletedRequests == 0 {
		return trace.Hinted(fmt.Errorf("%s: no request completed", summary),
			"send shorter requests, or raise the limit that the reason names")
	}
	con.infof("%s", summary)
	return nil
}

// showCluster prints the figures of the gateway; c is nil if there is none.
func showCluster(con *console, c *cluster.Part) {
	if c == nil {
		return
	}
	con.table(fmt.Sprintf("gateway of %d %s: admission %s, routing %s %s", c.Instances,
		plural(c.Instances, "instance", "instances"),
		c.Admission, c.Routing, c.Scorers),
		cells{"arrived", "admitted", "goodput", "TTFT P99 ms: critical", "admitted", "all, rejects for ever",
			"cached tokens",
			"potential", "phantom hits", "output tokens/s"},
		[]cells{{c.Arrived, c.Admitted, percent(c.Goodput), decimals(c.P99Critical), decimals(c.P99Admitted),
			decimals(c.P99Everybody), percent(c.CachedShare), percent(c.Potential), percent(c.PhantomShare),
			decimals(c.OutputPerS)}})
	if t := c.Transfers; t != nil && t.Count > 0 {
		con.table("KV transfers", cells{"transfers", "GB each", "ms each", "after the lease"},
			[]cells{{t.Count, fmt.Sprintf("%.3f", t.Bytes/float64(t.Count)/1e9),
				fmt.Sprintf("%.2f", float64(t.Us)/float64(t.Count)/1e3),
				t.Expired}})
	}
	var classes []cells
	for _, k := range c.Classes {
		classes = append(classes,
			cells{k.Name, k.Arrived, k.Admitted, k.Good, percent(k.Goodput), percent(k.Miss), percent(k.RuleMiss)})
	}
	con.table("at the gateway", cells{"class", "arrived", "admitted", "good", "goodput", "TTFT missed of admitted",
		"floor apart"}, classes)
	var audits []cells
	addAudit := func(of string, a *cluster.AuditPart) {
		if a != nil {
			audits = append(audits, cells{of, a.Requests, percent(a.MedianAPE), percent(a.Bias), percent(a.Coverage90),
				percent(a.FalseShare)})
		}
	}
	addAudit("admitted", c.Prediction)
	addAudit("rejected, shadow", c.Shadow)
	con.table("predicted TTFT", cells{"of", "requests", "median APE", "bias", "P90 coverage", "would have met"}, audits)
}
