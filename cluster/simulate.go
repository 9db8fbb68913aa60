package cluster

// This file is the command `simulate` with several engines: it reads the files, simulates each seed
// and writes simulation.json and the tables of requests and decisions.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Options are the options of the simulation of a cluster: those of a single engine, and the
// cluster's.
type Options struct {
	simulate.Options
	File      string // cluster.yaml
	Instances int    // number of instances; 0 for that of the file
}

// Asked reports whether an option asks for a cluster.
func (o *Options) Asked() bool {
	return o.File != "" || o.Instances != 0
}

// simulation is one call of Simulate: its files and the results of the first seed.
type simulation struct {
	*simulate.Simulation
	o         *Options
	spec      *Spec
	gate      *coeff.Set // coefficients of the gateway's predictions; nil for those of the engines
	predictor *forest.Predictor
	groups    []*simulate.Simulation // deployment and coefficients of each group of instances
	first     *Part                  // the figures of the first seed
}

// Simulate runs a workload through several engines behind one gateway, once for each seed, and
// writes simulation.json, requests.parquet and decisions.parquet to o.Out. The tables are of the
// first seed.
func Simulate(ctx context.Context, o Options) (*document, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	s := &simulation{o: &o}
	in, err := s.readSpec()
	if err != nil {
		return nil, err
	}
	// Prefill and decode instances exchange KV blocks, whether or not run.yaml has a connector.
	o.Options.Transfers = s.spec.Instances.hasRoles()
	if s.Simulation, err = simulate.New(ctx, &o.Options); err != nil {
		return nil, err
	}
	s.Inputs = append(s.Inputs, in...)
	var runs []*simulate.Replication
	if err = s.loadFiles(); err == nil {
		runs, err = s.Replicate(s.runReplication)
	}
	if err != nil {
		return nil, s.spec.inFile(err)
	}
	doc := &document{Document: *s.Document(runs), Cluster: s.first}
	for _, g := range s.groups {
		for _, rule := range g.Deployment.Engine.RulesInForce(g.Deployment.PP, g.Deployment.DP) {
			if !slices.Contains(doc.Rules, rule) {
				doc.Rules = append(doc.Rules, rule)
			}
		}
	}
	doc.Command = option.Command("simulate", o.Flags())
	return doc, folder.WriteDocument(filepath.Join(o.Out, folder.SimulationFile), doc)
}

// readSpec reads the cluster file, or the defaults without one, and applies the flags to it.
func (s *simulation) readSpec() (inputs []result.Input, err error) {
	o := s.o
	spec := defaultSpec()
	s.spec = &spec
	if o.File != "" {
		text, in, err := folder.ReadYAML(o.File, o.Special)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
		if s.spec, err = parseSpec(text, o.File); err != nil {
			return nil, err
		}
	}
	if o.Instances != 0 {
		s.spec.Instances.Groups = []group{{Count: o.Instances}}
	}
	if err = s.spec.Check(); err != nil && o.File == "" { // the error can only come from flags
		err = &option.Misuse{Msg: err.Error(), Hint: trace.HintOf(err)}
	}
	return inputs, err
}

// loadFiles reads the files that cluster.yaml names (coefficients, predictor, deployments) and
// prepares each group of instances.
func (s *simulation) loadFiles() error {
	if n := s.spec.Instances.Count(); n > 1 && (s.o.EmitOTLP != "" || s.o.EmitKVEvents != "") {
		return option.Misusef("--emit-otlp, --emit-kv-events: got %d instances, want one engine", n)
	}
	if path := s.spec.Admission.Controller; path != "" {
		set, in, err := folder.LoadCoefficients(pathBeside(s.o.File, path), s.o.Special)
		if err != nil {
			return err
		}
		s.gate = set
		s.Inputs = append(s.Inputs, in)
		s.AddNotes(set.FileWarnings())
	}
	if path := cmp.Or(s.spec.Admission.Predictor, s.spec.Routing.Predictor); path != "" {
		path = pathBeside(s.o.File, path)
		text, in, err := folder.ReadInput(path, s.o.Special)
		if err != nil {
			return err
		}
		s.Inputs = append(s.Inputs, in)
		if s.predictor, err = forest.Load(bytes.NewReader(text)); err != nil {
			return &trace.SyntaxError{
				File: path,
				Code: codeBadSpec,
				Msg:  strings.TrimPrefix(err.Error(), "forest: "),
				Hint: "predictor: FILE names a predictor.json, which blis-train predictor fit writes",
			}
		}
	}
	for i, g := range s.spec.Instances.Groups {
		one, err := s.group(i, g)
		if err != nil {
			return err
		}
		s.groups = append(s.groups, one)
	}
	return nil
}

// pathBeside returns the path that a file contains as seen from the working directory: relative
// paths are relative to the folder of the file.
func pathBeside(file, path string) string {
	if filepath.IsAbs(path) || file == "" {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// group loads the deployment and coefficients of group i of the instances, which default to those of
// the command line.
func (s *simulation) group(i int, g group) (*simulate.Simulation, error) {
	own := s.With(&s.o.Options)
	if g.Deployment != "" || len(g.Set) > 0 {
		path := s.o.Deployment
		if g.Deployment != "" {
			path = pathBeside(s.o.File, g.Deployment)
		}
		err := own.LoadDeployment(path, append(slices.Clone(s.o.Set), g.Set...))
		if coded, ok := errors.AsType[*trace.Error](err); ok && coded.Code == deploy.BadSetting {
			return nil, specErrorf(at("instances", i, "set"), "instances: %s", coded.Msg).withHint(coded.Hint)
		}
		if err != nil {
			return nil, err
		}
	}
	if g.Coefficients != "" {
		set, in, err := folder.LoadCoefficients(pathBeside(s.o.File, g.Coefficients), s.o.Special)
		if err != nil {
			return nil, err
		}
		own.UseCoefficients(set, in)
	}
	if own.Deployment.DP > 1 {
		if err := s.spec.checkBlind("data-parallel instances"); err != nil {
			return nil, err
		}
	}
	if err := s.checkRole(own.Deployment, i, g.Role); err != nil {
		return nil, err
	}
	if b := own.Deployment.Engine.BlockSize; b != s.Deployment.Engine.BlockSize {
		return nil, specErrorf(at("instances", i),
			"instances: got blocks of %d and of %d tokens, want one size for the gateway's index",
			s.Deployment.Engine.BlockSize, b)
	}
	s.Join(own)
	return own, nil
}

// checkRole returns an error for a deployment that cannot play its role: one without a role must be
// able to serve alone, and prefill and decode instances must exchange KV blocks. i is the group's position in the file.
func (s *simulation) checkRole(d *deploy.Deployment, i int, role string) error {
	switch {
	case role == "":
		return d.CheckAlone()
	case d.PP > 1:
		return specErrorf(at("instances", i),
			"instances: got pipeline_parallel_size %d in a %s instance, want 1", d.PP, role).
			withHint("NIXL moves KV blocks between servers without pipeline stages alone")
	case d.Model.ID != s.Deployment.Model.ID:
		return specErrorf(at("instances", i),
			"instances: got model %q in a %s instance, want %q as in the others", d.Model.ID, role,
			s.Deployment.Model.ID)
	}
	return nil
}

// parts returns what the gateway needs for one seed: the configurations of the engines, forecasts
// with the engines' own coefficients (Plants) and with the gateway's (Controllers), and the
// predictor.
func (s *simulation) parts(seed int64) (parts, error) {
	p := parts{Seed: seed}
	for i, g := range s.groups {
		cfg, err := g.Engine(seed)
		if err != nil {
			return p, err
		}
		plant := rolloutOf(&cfg)
		controller := plant
		if s.gate != nil {
			other, err := sim.EngineOf(g.Deployment, s.gate)
			if err != nil {
				return p, err
			}
			other.Async = cfg.Async
			if s.o.OverheadUs != nil { // --overhead-us replaces the overhead of any coefficients
				other.Overhead = cfg.Overhead
			}
			controller = rolloutOf(&other)
		}
		for range s.spec.Instances.Groups[i].Count {
			p.Engines = append(p.Engines, cfg)
			p.Plants = append(p.Plants, plant)
			p.Controllers = append(p.Controllers, controller)
		}
	}
	p.Prior = priorQuantile(cmp.Or(s.gate, s.Set))
	if s.predictor != nil {
		t, err := newTrees(s.predictor)
		if err != nil {
			owner := "routing"
			if s.spec.Admission.Predictor != "" {
				owner = "admission"
			}
			return p, specErrorf(at(owner, "predictor"), "%s", err)
		}
		p.Trees = t
	}
	return p, nil
}

// rolloutOf returns a forecast engine with the deployment, step times and overhead of a simulated
// engine.
func rolloutOf(cfg *sim.Config) *forecast.Engine {
	// Options of the simulation may replace these two settings of the deployment.
	d := *cfg.Deployment
	d.Engine.AsyncScheduling = trace.Some(cfg.Async)
	if cfg.KVBlocks > 0 {
		d.Engine.KVBlocksGPU = trace.Some(cfg.KVBlocks)
	}
	e := forecast.NewWith(cfg.Latency, &d)
	e.SetOverhead(cfg.Overhead)
	return e
}

// priorQuantile returns a function from a level to the quantile of observed/predicted step times of
// the set's mixed steps (prefill and decode); it returns 1 if the set has none. Admission uses it
// as the error of TTFT estimates until first tokens were observed.
func priorQuantile(set *coeff.Set) func(level float64) float64 {
	var quantiles []sim.Quantile
	if set != nil {
		for _, q := range set.Residuals[coeff.RegimeMixed] { // pairs of level and ratio
			quantiles = append(quantiles, sim.Quantile{Q: q[0], Ratio: q[1]})
		}
	}
	return func(level float64) float64 { return sim.RatioAt(quantiles, level) }
}

// decisionRow is one row of decisions.parquet: what the gateway did with a request.
type decisionRow struct {
	ID              string             `col:"request_id" doc:"id of the workload"`
	ArrivalUs       int64              `col:"arrival_us" unit:"us" doc:"first arrival at the gateway"`
	DecidedUs       int64              `col:"decided_us" unit:"us" doc:"last decision"`
	Tries           int64              `col:"tries" doc:"arrivals, the first included"`
	SLOClass        string             `col:"slo_class" doc:"service class"`
	Priority        int64              `col:"priority" doc:"of the class; below 0 it may be shed"`
	Admitted        bool               `col:"admitted" doc:"the gateway let it in"`
	Reason          string             `col:"reason" doc:"why it was rejected; of an admitted one with an estimate: the exception that let it in, if any, then the estimate and its budget"`
	Instance        trace.Opt[int64]   `col:"instance" doc:"where it went; null when it was rejected"`
	PrefillInstance trace.Opt[int64]   `col:"prefill_instance" doc:"instance that computed its prompt, where prefill and decode have instances of their own; else null"`
	PredictedTTFTMs trace.Opt[float64] `col:"predicted_ttft_ms" unit:"ms" doc:"estimate from the decision on; null without one"`
	BoundTTFTMs     trace.Opt[float64] `col:"bound_ttft_ms" unit:"ms" doc:"the calibrated estimate that was judged"`
	ShadowTTFTMs    trace.Opt[float64] `col:"shadow_ttft_ms" unit:"ms" doc:"what a rejected request of the sample would have had"`
	ExpectedTokens  int64              `col:"expected_cached_tokens" unit:"tokens" doc:"cached tokens the index expected where it went"`
	PotentialTokens int64              `col:"potential_cached_tokens" unit:"tokens" doc:"the most it expected anywhere at the first arrival"`
}

// rowOfDecision returns the row of decisions.parquet for a request.
func rowOfDecision(r *record) decisionRow {
	knownMs := func(us float64) trace.Opt[float64] { return trace.Opt[float64]{V: us / 1e3, OK: !math.IsNaN(us)} }
	row := decisionRow{
		ID:              r.ID,
		ArrivalUs:       r.ArrivalUs,
		DecidedUs:       r.DecidedUs,
		Tries:           int64(r.Tries),
		SLOClass:        r.Class,
		Priority:        int64(r.Priority),
		Admitted:        r.Admitted(),
		Reason:          reasonText(&r.Decision),
		PredictedTTFTMs: knownMs(r.Decision.PredictedUs),
		BoundTTFTMs:     knownMs(r.Decision.BoundUs),
		ExpectedTokens:  r.Expected,
		PotentialTokens: r.Potential,
	}
	if r.Admitted() {
		row.Instance = trace.Some(int64(r.Instance))
		row.PrefillInstance = r.Prefill
	}
	if r.Shadow.OK {
		row.ShadowTTFTMs = trace.Some(float64(r.Shadow.V) / 1e3)
	}
	return row
}

// reasonText returns the code of a rejection. Of an admission with an estimate it returns the
// estimate and its budget, after the code of the exception by which it was admitted, if any.
func reasonText(d *Decision) string {
	if !d.Admit || math.IsNaN(d.BoundUs) {
		return d.Reason
	}
	text := fmt.Sprintf("estimate %.1f ms, no budget", d.BoundUs/1e3)
	if d.BudgetUs != 0 {
		text = fmt.Sprintf("estimate %.1f ms, budget %.1f ms", d.BoundUs/1e3, d.BudgetUs/1e3)
	}
	if d.Reason != "" {
		text = d.Reason + ": " + text
	}
	return text
}

// runReplication simulates one seed and returns its figures and warnings. For the first seed it
// also writes the tables, logs and dumps.
func (s *simulation) runReplication(seed int64, first bool) (*simulate.Replication, error) {
	reqs, err := s.Requests(seed)
	if err != nil {
		return nil, err
	}
	unused := s.spec.unused(reqs)
	reqs = s.spec.TakeTargets(reqs)
	p, err := s.parts(seed)
	if err != nil {
		return nil, err
	}
	var closeLogs func([]*sim.Result) error
	if first {
		if p.Observe, closeLogs, err = s.watchInstances(reqs, len(p.Engines)); err != nil {
			return nil, err
		}
	}
	cfg := s.spec.Build(p)
	run, err := Run(cfg, reqs)
	if err != nil {
		return nil, err
	}
	sum := simulate.NewCollector(reqs)
	for i := range run.Records {
		sum.Add(&run.Records[i].RequestResult)
	}
	out := &simulate.Replication{Summary: sum.Close(sim.Totals(run.Engines)), Findings: unused}
	for _, g := range cfg.Engines {
		out.Findings = append(out.Findings, simulate.WarningsOf(&g)...)
	}
	stat.SortStable(out.Findings, func(a, b trace.Finding) int { return strings.Compare(a.Message, b.Message) })
	out.Findings = slices.Compact(out.Findings)
	if t, ok := p.Trees.(*trees); ok && t.Outside > 0 {
		out.Findings = append(out.Findings, trace.Findingf(coeff.OutsideTraining,
			"%d estimates lay outside what the predictor was trained on: trees answer with their nearest leaf",
			t.Outside))
	}
	if !first {
		return out, nil
	}
	// The files and the cluster's part of the document are those of the first seed.
	s.first = s.partOf(run, reqs)
	if err := s.write(run); err != nil {
		return nil, err
	}
	return out, closeLogs(run.Engines)
}

// write writes requests.parquet and decisions.parquet of a run.
func (s *simulation) write(run *Result) error {
	request := func(r *record) sim.RequestResult { return *r.Timed() }
	if err := writeRows(s.o.Out, "requests", run.Records, request); err != nil {
		return err
	}
	return writeRows(s.o.Out, "decisions", run.Records, rowOfDecision)
}

// writeRows writes the table `name` to folder dir with one row for each record.
func writeRows[R any](dir, name string, records []record, row func(*record) R) error {
	rows, err := table.Create[R](dir, name, table.Parquet)
	if err != nil {
		return err
	}
	for i := range records {
		if err := rows.Append(row(&records[i])); err != nil {
			rows.Abort()
			return err
		}
	}
	return rows.Close()
}

// watchInstances returns the observers that write event logs and dumps of n instances, and a
// function that closes them. With several instances each writes files of its own, with its number
// before the extension.
func (s *simulation) watchInstances(reqs []sim.Request, n int) (func(int) sim.Observer, func([]*sim.Result) error,
	error) {
	obs := make([]sim.Observer, n)
	var closers []func(*sim.Result) error
	for i := range n {
		o := s.o.Options
		if n > 1 && o.EventLog != "" {
			ext := filepath.Ext(o.EventLog)
			o.EventLog = strings.TrimSuffix(o.EventLog, ext) + "-" + strconv.Itoa(i) + ext
		}
		var done func(*sim.Result) error
		var err error
		if obs[i], done, err = s.With(&o).Observers(reqs); err != nil {
			return nil, nil, err
		}
		closers = append(closers, done)
	}
	return func(i int) sim.Observer { return obs[i] }, func(engines []*sim.Result) error {
		for i, done := range closers {
			if err := done(engines[i]); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// Codes of errors and warnings.
const (
	codeBadSpec   trace.Code = "bad_cluster_spec" // an impossible cluster, policy, routing or experiment
	unusedSetting trace.Code = "unused_setting"   // what nothing in this simulation uses
)

// document is simulation.json of a cluster: that of a single engine and the cluster's part.
type document struct {
	simulate.Document
	Cluster *Part `json:"cluster"`
}

// Part is what simulation.json has of a cluster in addition to what it has of one engine; figures
// are of the first seed.
type Part struct {
	Instances int      `json:"instances"`
	Admission string   `json:"admission_policy"`
	Routing   string   `json:"routing_policy"`
	Scorers   string   `json:"routing_scorers"` // "" unless the policy is weighted
	Scheduler string   `json:"scheduler"`       // "": the deployment's
	RefreshUs int64    `json:"snapshot_refresh_us"`
	Arrived   int      `json:"arrived"`
	Admitted  int      `json:"admitted"`
	Rejected  int      `json:"rejected_requests"`
	Arrivals  int      `json:"arrivals"` // those that came again included
	Goodput   *float64 `json:"goodput_share"`
	// P99 of TTFT of class critical. Rejected requests count as infinite; null if the P99 is
	// infinite.
	P99Critical  *float64              `json:"ttft_p99_critical_ms"`
	P99Admitted  *float64              `json:"ttft_p99_admitted_ms"`  // of admitted requests
	P99Everybody *float64              `json:"ttft_p99_everybody_ms"` // of all requests, rejected ones infinite
	CachedShare  *float64              `json:"cached_token_share"`    // of admitted requests' prompt tokens
	Potential    *float64              `json:"potential_token_share"` // best expectation at arrival, over all arrivals
	PhantomShare *float64              `json:"phantom_hit_share"`     // expected and not found / expected
	Jain         *float64              `json:"jain_fairness"`         // of goodput / arrivals over prefix groups
	OutputPerS   *float64              `json:"output_tokens_per_s"`   // from the first to the last arrival
	Prediction   *AuditPart            `json:"prediction"`            // of admitted requests; null without predictions
	Shadow       *AuditPart            `json:"shadow"`                // of the sample of rejected ones
	Classes      []classPart           `json:"classes"`
	ByInstance   []simulate.EnginePart `json:"by_instance"`
	Transfers    *Transfers            `json:"kv_transfers,omitempty"` // with prefill and decode instances
}

// AuditPart is how well predicted TTFT matched the observed one. Figures are shares or relative
// errors.
type AuditPart struct {
	Requests   int      `json:"requests"`
	MedianAPE  *float64 `json:"median_ape"`
	Bias       *float64 `json:"bias"`               // sum predicted / sum observed - 1
	Coverage90 *float64 `json:"coverage_p90"`       // share of requests whose TTFT was within the 90 % bound
	FalseShare *float64 `json:"false_reject_share"` // share of rejected requests that would have met their target
}

// classPart is the counts of one class at the gateway.
type classPart struct {
	Name     string   `json:"name"`
	Arrived  int      `json:"arrived"`
	Admitted int      `json:"admitted"`
	Good     int      `json:"good"` // completed within every target
	Goodput  *float64 `json:"goodput_share"`
	Miss     *float64 `json:"ttft_miss_share"`         // of admitted requests
	RuleMiss *float64 `json:"ttft_miss_share_by_rule"` // of those that no floor let in
}

// partOf computes the cluster's part of simulation.json from a run. Targets of the cluster file
// replace those of the requests.
func (s *simulation) partOf(run *Result, reqs []sim.Request) *Part {
	targets := promisedTargets(reqs) // the workload's own
	maps.Copy(targets, s.spec.ByClass())
	g := goodputOf(run.Records, targets, window{ToUs: math.MaxInt64})
	p := &Part{
		Transfers:    run.Transfers,
		Instances:    len(run.Engines),
		Admission:    s.spec.Admission.Policy,
		Routing:      s.spec.Routing.Policy,
		Scheduler:    s.spec.Scheduler,
		RefreshUs:    s.spec.RefreshUs,
		Arrived:      g.All.Arrived,
		Admitted:     g.All.Admitted,
		Rejected:     g.Shed,
		Arrivals:     g.Tries,
		Goodput:      result.OrNull(g.All.Goodput()),
		P99Critical:  result.OrNull(g.Critical),
		P99Admitted:  result.OrNull(g.Admitted),
		P99Everybody: result.OrNull(g.Everybody),
		CachedShare:  result.OrNull(g.CachedShare),
		Potential:    result.OrNull(g.PotentialShare),
		PhantomShare: result.OrNull(g.PhantomShare),
		Jain:         result.OrNull(g.Jain),
		OutputPerS:   result.OrNull(g.OutputPerS),
		Prediction:   auditPart(g.Live),
		Shadow:       auditPart(g.Shadow),
		Classes:      []classPart{},
		ByInstance:   make([]simulate.EnginePart, len(run.Engines)),
	}
	if s.spec.Routing.Policy == Weighted {
		p.Scorers = s.spec.Routing.ScorersText()
	}
	for i := range g.Classes {
		c := &g.Classes[i]
		p.Classes = append(p.Classes, classPart{
			Name:     c.Name,
			Arrived:  c.Arrived,
			Admitted: c.Admitted,
			Good:     c.Good,
			Goodput:  result.OrNull(c.Goodput()),
			Miss:     result.OrNull(c.MissShare()),
			RuleMiss: result.OrNull(c.RuleMissShare()),
		})
	}
	for i, e := range run.Engines {
		p.ByInstance[i] = simulate.PartOf(e)
		p.ByInstance[i].Role = s.spec.Instances.roles()[i]
	}
	return p
}

// auditPart returns an audit as the document has it; nil if nothing could be compared.
func auditPart(a audit) *AuditPart {
	if a.N == 0 {
		return nil
	}
	return &AuditPart{
		Requests:   a.N,
		MedianAPE:  result.OrNull(a.MedianAPE),
		Bias:       result.OrNull(a.Bias),
		Coverage90: result.OrNull(a.Coverage90),
		FalseShare: result.OrNull(a.FalseShare),
	}
}
