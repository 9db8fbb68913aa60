package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	prettytable "github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export/compare"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/latency"
	"github.com/blis-train/blis-train/sim/summary"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

func simulateCommand() *cli.Command {
	return &cli.Command{
		Name:  "simulate",
		Usage: "run a workload through the embedded simulator",
		Description: "Simulates one vLLM engine: the deployment of run.yaml, step times from coefficients, requests from an\n" +
			"extracted or recorded run, a Mooncake, Azure or TraceV2 file, or a generator in YAML:\n\n" +
			"   requests: 1000\n   arrivals: {kind: poisson, rate_rps: 5}\n   prompt: {kind: lognormal, mean: 300, sigma: 0.8}\n   output: {kind: uniform, min: 10, max: 200}\n\n" +
			"Writes OUT/simulation.json and OUT/requests.parquet.\n\n" +
			"Example:\n   blis-train simulate --deployment run.yaml --workload load.yaml -o sim",
		Flags:  flags(simulateFlags(), talkFlags()),
		Action: runSimulate,
	}
}

func simulateFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "coefficients", Usage: "coefficient `FILE|library` (latency model physics); default the library's for the deployment"},
		&cli.StringFlag{Name: "deployment", Usage: "run.yaml `FILE` or run folder: what runs"},
		&cli.StringFlag{Name: "workload", Usage: "`FILE|RUNDIR`: what arrives; or --input-len and --output-len"},
		outFlag("output `FOLDER`"),
		&cli.StringSliceFlag{Name: "set", Usage: "supply or override a field of run.yaml, `KEY.PATH=VALUE` (repeatable)"},
		&cli.StringFlag{Name: "latency-model", Value: "physics", Usage: "step time `MODEL`: physics, roofline, blackbox, trained-physics or linear3"},
		&cli.StringFlag{Name: "alpha-coeffs", Usage: "comma-separated `A0,A1,A2` of blackbox and trained-physics, us"},
		&cli.StringFlag{Name: "beta-coeffs", Usage: "comma-separated `BETAS` of blackbox (3), trained-physics (7 to 11) and linear3 (us, us per token computed, us per KV token read)"},
		&cli.Float64Flag{Name: "overhead-us", Value: -1, Usage: "constant overhead in `US` in place of the overhead coefficients; -1: those"},
		&cli.Float64Flag{Name: "egress-us", Value: -1, Usage: "constant egress in `US`; -1: the egress coefficients"},
		&cli.StringFlag{Name: "noise", Value: "none", Usage: "`KIND`: residual multiplies step times by ratios of the artifact's residuals; or none"},
		&cli.StringFlag{Name: "async", Value: "auto", Usage: "asynchronous scheduling, `MODE`: auto (by deployment), on or off"},
		&cli.Int64Flag{Name: "kv-blocks", Usage: "`N` GPU KV blocks; 0: the deployment's, or derived from memory"},
		&cli.Int64Flag{Name: "seed", Value: 1, Usage: "`SEED` of generator, noise and draws"},
		&cli.IntFlag{Name: "replications", Value: 1, Usage: "run `N` times with seeds SEED, SEED+1, ...; intervals are printed"},
		&cli.BoolFlag{Name: "sample-coefficients", Usage: "draw each replication's coefficients from the stored covariance"},
		&cli.IntFlag{Name: "workers", Usage: "`N` replications at a time; 0 uses every core"},
		&cli.StringFlag{Name: "emit-otlp", Usage: "write the run as a trace dump to `FILE` (JSON lines)"},
		&cli.StringFlag{Name: "emit-kv-events", Usage: "write KV events to `FILE` (prefix caching only)"},
		&cli.StringFlag{Name: "event-log", Usage: "write every event and step as text to `FILE`"},
		&cli.BoolFlag{Name: "force", Usage: "accept an output folder that holds foreign files"},
	}, loadFlags()...)
}

// simulation is one call of simulate, resolved.
type simulation struct {
	c      *cli.Context
	con    *console
	dep    *deploy.Deployment
	set    *coeff.Set // nil without coefficients
	load   load
	alpha  []float64
	beta   []float64
	inputs []result.Input
	notes  []trace.Finding
}

// replication is the outcome of one seed.
type replication struct {
	summary  *summary.Run
	findings []trace.Finding
}

func runSimulate(c *cli.Context) error {
	con, err := newConsole(c)
	if err != nil {
		return err
	}
	if err := checkSimulateFlags(c); err != nil {
		return err
	}
	s, err := newSimulation(c, con)
	if err != nil {
		return err
	}
	if err := con.claim(c.String("out"), c.Bool("force")); err != nil {
		return err
	}
	runs, err := s.replicate(c.Context, con.progress())
	if err != nil {
		return err
	}
	doc := s.document(runs)
	if err := writeDoc(filepath.Join(c.String("out"), pipeline.SimulationFile), doc); err != nil {
		return err
	}
	con.warn(doc.Warnings)
	showSimulation(con, doc)
	return con.document(doc)
}

func checkSimulateFlags(c *cli.Context) error {
	switch {
	case c.NArg() > 0:
		return usagef("simulate: got argument %q, want flags only", c.Args().First())
	case c.String("deployment") == "":
		return usagef("simulate: missing --deployment run.yaml")
	}
	if err := checkLoadFlags(c); err != nil {
		return err
	}
	switch {
	case c.String("out") == "":
		return usagef("missing -o OUT")
	case c.Int("replications") < 1 || c.Int("replications") > 100_000:
		return usagef("--replications: got %d, want 1 to 100000", c.Int("replications"))
	case c.String("noise") != "none" && c.String("noise") != "residual":
		return usagef("--noise: got %q, want residual or none", c.String("noise"))
	case c.String("async") != "auto" && c.String("async") != "on" && c.String("async") != "off":
		return usagef("--async: got %q, want auto, on or off", c.String("async"))
	}
	physics := c.String("latency-model") == "physics"
	switch c.String("latency-model") {
	case "physics", "roofline", "blackbox", "trained-physics", "linear3":
	default:
		return usagef("--latency-model: got %q, want physics, roofline, blackbox, trained-physics or linear3", c.String("latency-model"))
	}
	if !physics && (c.Bool("sample-coefficients") || c.String("noise") == "residual") && c.String("coefficients") == "" {
		return usagef("simulate: --sample-coefficients and --noise residual need --coefficients")
	}
	return nil
}

func newSimulation(c *cli.Context, con *console) (*simulation, error) {
	s := &simulation{c: c, con: con}
	if err := s.loadDeployment(c.String("deployment"), c.StringSlice("set")); err != nil {
		return nil, err
	}
	s.notes = append(s.notes, s.assumed()...)
	if path := c.String("coefficients"); path != "" || c.String("latency-model") == "physics" {
		set, in, err := s.con.loadSetFor(path, s.dep)
		if err != nil {
			return nil, err
		}
		s.set, s.inputs = set, append(s.inputs, in)
	}
	var err error
	if s.alpha, err = numbers("--alpha-coeffs", c.String("alpha-coeffs")); err != nil {
		return nil, err
	}
	if s.beta, err = numbers("--beta-coeffs", c.String("beta-coeffs")); err != nil {
		return nil, err
	}
	return s, s.loadWorkload()
}

func (s *simulation) loadDeployment(path string, set []string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		path = filepath.Join(path, "run.yaml")
	}
	_, in, err := s.con.readInput(path)
	if err != nil {
		return err
	}
	s.inputs = append(s.inputs, in)
	s.dep, err = deploy.LoadRunFile(path, set...)
	return err
}

// assumed is what the simulation takes for granted of the deployment and no
// flag states.
func (s *simulation) assumed() []trace.Finding {
	d := *s.dep
	if mode := s.c.String("async"); mode != "auto" {
		d.Engine.AsyncScheduling = trace.Some(mode == "on")
	}
	if n := s.c.Int64("kv-blocks"); n > 0 {
		d.Engine.KVBlocksGPU = trace.Some(n)
	}
	return d.AssumedInSimulation()
}

func numbers(flag, text string) ([]float64, error) {
	if text == "" {
		return nil, nil
	}
	var out []float64
	for _, part := range strings.Split(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil {
			return nil, usagef("%s: got %q, want comma-separated numbers", flag, text)
		}
		out = append(out, v)
	}
	return out, nil
}

// config is the engine of one seed; models are not shared between replications.
func (s *simulation) config(seed int64) (sim.Config, error) {
	set := s.set
	if s.c.Bool("sample-coefficients") && set != nil {
		set, _ = latency.DrawBeta(set, rand.New(rand.NewPCG(uint64(seed), 0xd4a)))
	}
	cfg, err := s.model(set)
	if err != nil {
		return cfg, err
	}
	cfg.Seed, cfg.TokenGaps, cfg.KVBlocks, cfg.Done = seed, true, s.c.Int64("kv-blocks"), s.c.Context.Done()
	if v := s.c.Float64("overhead-us"); v >= 0 {
		cfg.Overhead = latency.Const(v)
	}
	if v := s.c.Float64("egress-us"); v >= 0 {
		cfg.Egress = latency.Const(v)
	}
	if mode := s.c.String("async"); mode != "auto" {
		cfg.Async = mode == "on"
	}
	if s.c.String("noise") == "residual" {
		if cfg.Noise = sim.SetNoise(set); cfg.Noise == nil {
			return cfg, &trace.Error{Code: sim.CodeBadConfig, Msg: "noise: the coefficient file holds no residual quantiles", Hint: "fit with a hold-out, or use --noise none"}
		}
	}
	return cfg, nil
}

func (s *simulation) model(set *coeff.Set) (sim.Config, error) {
	switch s.c.String("latency-model") {
	case "roofline":
		m, err := latency.NewRoofline(s.dep)
		return sim.DefaultConfig(s.dep, m), err
	case "linear3":
		m, err := latency.NewLinear3(s.beta)
		return sim.DefaultConfig(s.dep, m), err
	case "trained-physics":
		cfg := sim.DefaultConfig(s.dep, nil)
		m, err := latency.NewTrainedPhysics(s.alpha, s.beta, s.dep)
		if err == nil {
			cfg.Apply(m.Parts())
		}
		return cfg, err
	case "blackbox":
		cfg := sim.DefaultConfig(s.dep, nil)
		m, err := latency.NewBlackbox(s.alpha, s.beta)
		if err == nil {
			cfg.Apply(m.Parts())
		}
		return cfg, err
	}
	return simConfig(s.dep, set)
}

// replicate runs every seed, several at a time, and keeps them in seed order.
func (s *simulation) replicate(ctx context.Context, progress trace.Progress) ([]*replication, error) {
	n := s.c.Int("replications")
	out := make([]*replication, n)
	err := par.Try(ctx, s.c.Int("workers"), n, func(i int) (err error) {
		out[i], err = s.one(s.c.Int64("seed")+int64(i), i == 0)
		return err
	}, func(done int) { progress.Report("replications", int64(done), int64(n), "runs") })
	return out, err
}

func (s *simulation) one(seed int64, first bool) (*replication, error) {
	reqs, err := s.requests(seed)
	if err != nil {
		return nil, err
	}
	cfg, err := s.config(seed)
	if err != nil {
		return nil, err
	}
	sum := summary.New()
	var res *sim.Result
	if first {
		res, err = s.recorded(cfg, reqs, sum)
	} else {
		res, err = stream(cfg, reqs, nil, func(r *sim.RequestResult) error { sum.Add(r); return nil })
	}
	if err != nil {
		return nil, err
	}
	findings := append(append([]trace.Finding(nil), res.Findings...), warningsOf(&cfg)...)
	if s.lacksOverhead() {
		findings = append(findings, trace.Findingf(compare.NotReplayable,
			"the coefficient file has no overhead that a simulation may add: requests reach the engine at once; --overhead-us gives them one"))
	}
	return &replication{summary: sum.Close(res), findings: findings}, nil
}

// recorded is the run whose requests and events go to files as they happen.
func (s *simulation) recorded(cfg sim.Config, reqs []sim.Request, sum *summary.Collector) (*sim.Result, error) {
	obs, done, err := s.observers(reqs)
	if err != nil {
		return nil, err
	}
	rows, err := table.Create[requestRow](s.c.String("out"), "requests", table.Parquet)
	if err != nil {
		return nil, err
	}
	res, err := stream(cfg, reqs, obs, func(r *sim.RequestResult) error {
		sum.Add(r)
		return rows.Append(requestRowOf(r))
	})
	if err != nil {
		rows.Abort()
		return nil, err
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	return res, done(res)
}

// stream runs the requests and hands on what each experienced, in workload order.
func stream(cfg sim.Config, reqs []sim.Request, obs sim.Observer, each func(*sim.RequestResult) error) (*sim.Result, error) {
	var failed error
	res, err := sim.Stream(cfg, reqs, obs, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		failed = each(r)
		return failed == nil
	}))
	return res, errors.Join(err, failed)
}

// lacksOverhead reports whether nothing says how long a request takes to reach the engine.
func (s *simulation) lacksOverhead() bool {
	return s.c.String("latency-model") == "physics" && s.set != nil && s.set.AlphaModel(coeff.Overhead) == nil && s.c.Float64("overhead-us") < 0
}

func (s *simulation) command() string {
	parts := []string{"simulate"}
	for _, f := range simulateFlags() {
		name := f.Names()[0]
		switch name {
		case "out", "workers", "force", "emit-otlp", "emit-kv-events", "event-log":
			continue
		}
		if !s.c.IsSet(name) {
			continue
		}
		v := fmt.Sprint(s.c.Value(name))
		switch name {
		case "coefficients", "deployment", "workload":
			v = filepath.Base(v)
		case "set":
			v = strings.Join(s.c.StringSlice(name), ",")
		}
		parts = append(parts, "--"+name+" "+v)
	}
	sort.Strings(parts[1:])
	return strings.Join(parts, " ")
}

func showSimulation(con *console, d *simulationDoc) {
	row := func(name string, m metricMs) prettytable.Row {
		return prettytable.Row{name, ms(m.Mean), ms(m.P50), ms(m.P90), ms(m.P95), ms(m.P99)}
	}
	con.table("latency, ms", prettytable.Row{"metric", "mean", "p50", "p90", "p95", "p99"}, []prettytable.Row{
		row("TTFT", d.ttft), row("ITL", d.itl), row("E2E", d.e2e), row("queue wait", d.wait),
	})
	con.table("throughput", prettytable.Row{"completed", "rejected", "aborted", "timed out", "requests/s", "output tokens/s", "preemptions", "cache hits", "saturated"}, []prettytable.Row{{
		d.CompletedRequests, d.RejectedRequests, d.AbortedRequests, d.TimedOutRequests, fmt.Sprintf("%.3f", d.ResponsesPerSec), fmt.Sprintf("%.1f", d.TokensPerSec), d.PreemptionCount, shareText(d.CacheHitRate), d.Saturation.Saturated,
	}})
	var classes []prettytable.Row
	for _, c := range d.Classes {
		classes = append(classes, prettytable.Row{c.Name, c.Requests, c.Completed, shareText(c.Attainment), ms(c.GoodputRPS)})
	}
	con.table("service classes", prettytable.Row{"class", "requests", "completed", "SLO attainment", "goodput/s"}, classes)
	var bands []prettytable.Row
	for _, b := range d.Intervals {
		bands = append(bands, prettytable.Row{b.Key, ms(&b.Mean), ms(&b.Lo), ms(&b.Hi)})
	}
	con.table(fmt.Sprintf("over %d replications, 95 percent", d.Replications), prettytable.Row{"key", "mean", "lo", "hi"}, bands)
	con.sayf("simulated %d requests, %d steps, %.1f s", d.InjectedRequests, d.Steps, d.DurationS)
}

func ms(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *v)
}

func shareText(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}
