package simulate

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/forest"
	"github.com/blis-train/blis-train/pipeline/fleet"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/predict"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/admission"
	"github.com/blis-train/blis-train/sim/cluster"
	"github.com/blis-train/blis-train/sim/gateway"
	"github.com/blis-train/blis-train/sim/summary"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// ClusterOptions are a cluster file and what BLIS calls its flags.
type ClusterOptions struct {
	File          string // cluster.yaml
	Instances     int    // 0: the file's
	RoutingPolicy string
	Scorers       string
	Admission     string
	RefreshUs     *float64
	Scheduler     string
	TTFTTargets   string // critical=100ms,standard=500ms
}

// Asked reports whether anything asks for a cluster.
func (c *ClusterOptions) Asked() bool { return *c != ClusterOptions{} }

func (c *ClusterOptions) table() option.Table {
	return option.Table{
		baseName("cluster", &c.File, "`FILE`: several engines behind one gateway (docs/clusters.md)"),
		option.Whole("num-instances", &c.Instances, "`N` engines behind one gateway; 0: the cluster file's, or one engine alone").
			Recorded().Unless("0"),
		option.String("routing-policy", &c.RoutingPolicy, "`ROUTER` of the cluster: round-robin, least-loaded or weighted").Recorded(),
		option.String("routing-scorers", &c.Scorers, "`NAME:WEIGHT,...` of routing policy weighted").Recorded(),
		option.String("admission-policy", &c.Admission, "`POLICY` of the cluster's gateway, with its defaults").Recorded(),
		option.Maybe("snapshot-refresh-interval", &c.RefreshUs, "`US` between two scrapes of an instance; 0: live; -1: the cluster file's").
			Recorded(),
		option.String("scheduler", &c.Scheduler, "`NAME` of the cluster's engines: fcfs or priority-fcfs (by class)").Recorded(),
		option.String("slo-ttft", &c.TTFTTargets, "TTFT targets, `CLASS=TIME,...` such as critical=100ms").Recorded(),
	}
}

// spec is the cluster file with what the flags override.
func (s *simulation) spec() (*fleet.Spec, error) {
	o := &s.o.Cluster
	spec := fleet.DefaultSpec()
	if o.File != "" {
		text, in, err := s.readInput(o.File)
		if err != nil {
			return nil, err
		}
		s.inputs = append(s.inputs, in)
		parsed, err := fleet.ParseSpec(text, o.File)
		if err != nil {
			return nil, err
		}
		spec = *parsed
	}
	if o.Instances != 0 {
		spec.Instances.Groups = []fleet.Group{{Count: o.Instances}}
	}
	if o.RoutingPolicy != "" {
		if spec.Routing.Policy = o.RoutingPolicy; o.RoutingPolicy != gateway.Weighted {
			spec.Routing.Scorers = ""
		}
	}
	if o.Scorers != "" {
		spec.Routing.Scorers = o.Scorers
	}
	if o.Admission != "" && o.Admission != spec.Admission.Policy {
		spec.Admission = fleet.DefaultAdmission(o.Admission)
	}
	if o.RefreshUs != nil {
		if spec.RefreshUs = int64(*o.RefreshUs); float64(spec.RefreshUs) != *o.RefreshUs {
			return nil, option.Misusef("--snapshot-refresh-interval: got %g us, want a whole number", *o.RefreshUs)
		}
	}
	if o.Scheduler != "" {
		spec.Scheduler = o.Scheduler
	}
	if o.TTFTTargets != "" {
		if err := spec.TakeTTFTTargets(o.TTFTTargets); err != nil {
			return nil, &option.Misuse{Msg: err.Error()}
		}
	}
	err := spec.Check()
	if err != nil && o.File == "" { // only flags can have said it
		err = &option.Misuse{Msg: err.Error(), Hint: trace.HintOf(err)}
	}
	return &spec, err
}

// gate is what the gateway predicts with, read once.
type gate struct {
	set       *coeff.Set // nil: what drives the engines
	predictor *forest.Predictor
	groups    []*simulation // one a group of instances: its deployment and coefficients
}

func (s *simulation) loadCluster() error {
	if !s.o.Cluster.Asked() {
		return nil
	}
	var err error
	if s.fleet, err = s.spec(); err != nil {
		return err
	}
	if n := s.fleet.Instances.Count(); n > 1 && (s.o.EmitOTLP != "" || s.o.EmitKVEvents != "") {
		return option.Misusef("--emit-otlp, --emit-kv-events: got %d instances, want one engine", n)
	}
	if path := s.fleet.Admission.Controller; path != "" {
		set, in, err := folder.LoadCoefficients(beside(s.o.Cluster.File, path), s.o.Special)
		if err != nil {
			return err
		}
		s.gate.set, s.inputs = set, append(s.inputs, in)
	}
	if path := s.fleet.Admission.Predictor; path != "" {
		text, in, err := s.readInput(beside(s.o.Cluster.File, path))
		if err != nil {
			return err
		}
		s.inputs = append(s.inputs, in)
		if s.gate.predictor, err = forest.Load(bytes.NewReader(text)); err != nil {
			return err
		}
	}
	for _, g := range s.fleet.Instances.Groups {
		one, err := s.group(g)
		if err != nil {
			return err
		}
		s.gate.groups = append(s.gate.groups, one)
	}
	return nil
}

// beside is a path of a file, relative to the folder that file is in.
func beside(file, path string) string {
	if filepath.IsAbs(path) || file == "" {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// group is the simulation of one group of instances.
func (s *simulation) group(g fleet.Group) (*simulation, error) {
	own := *s
	own.inputs = nil
	if g.Deployment != "" || len(g.Set) > 0 {
		path := s.o.Deployment
		if g.Deployment != "" {
			path = beside(s.o.Cluster.File, g.Deployment)
		}
		if err := own.loadDeployment(path, append(slices.Clone(s.o.Set), g.Set...)); err != nil {
			return nil, err
		}
	}
	if g.Coefficients != "" {
		set, in, err := folder.LoadCoefficients(beside(s.o.Cluster.File, g.Coefficients), s.o.Special)
		if err != nil {
			return nil, err
		}
		own.set, own.inputs = set, append(own.inputs, in)
	}
	if b := own.dep.Engine.BlockSize; b != s.dep.Engine.BlockSize {
		return nil, trace.Errorf(fleet.CodeBadSpec, "instances: got blocks of %d and of %d tokens, want one size for the gateway's index",
			s.dep.Engine.BlockSize, b)
	}
	s.inputs = append(s.inputs, own.inputs...)
	return &own, nil
}

// parts are the engines of one seed and what the gate predicts with.
func (s *simulation) parts(seed int64) (fleet.Parts, error) {
	p := fleet.Parts{Seed: seed}
	for i, g := range s.gate.groups {
		cfg, err := g.config(seed)
		if err != nil {
			return p, err
		}
		plant := Estimator(&cfg)
		controller := plant
		if s.gate.set != nil {
			other, err := EngineOf(g.dep, s.gate.set)
			if err != nil {
				return p, err
			}
			if other.Async = cfg.Async; s.o.OverheadUs != nil {
				other.Overhead = cfg.Overhead
			}
			controller = Estimator(&other)
		}
		for range s.fleet.Instances.Groups[i].Count {
			p.Engines, p.Plants, p.Controllers = append(p.Engines, cfg), append(p.Plants, plant), append(p.Controllers, controller)
		}
	}
	set := s.set
	if s.gate.set != nil {
		set = s.gate.set
	}
	p.Prior = Prior(set)
	if s.gate.predictor != nil {
		t, err := admission.NewTrees(s.gate.predictor)
		if err != nil {
			return p, err
		}
		p.Trees = t
	}
	return p, nil
}

// Estimator is the rollout of an engine with the step times that drive it.
func Estimator(cfg *sim.Config) *predict.Engine {
	d := *cfg.Deployment
	d.Engine.AsyncScheduling = trace.Some(cfg.Async)
	if cfg.KVBlocks > 0 {
		d.Engine.KVBlocksGPU = trace.Some(cfg.KVBlocks)
	}
	e := predict.NewWith(cfg.Latency, &d)
	e.SetOverhead(cfg.Overhead)
	return e
}

// Prior is the quantile of observed / predicted step times of an artifact's mixed
// steps, 1 without: what calibration goes by until it has seen some first tokens.
func Prior(set *coeff.Set) func(p float64) float64 {
	var points [][2]float64
	if set != nil {
		for _, r := range set.Residuals {
			if r.Regime == "mixed" {
				points = r.Quantiles
			}
		}
	}
	return func(p float64) float64 {
		for i, q := range points {
			if p <= q[0] {
				if i == 0 {
					return q[1]
				}
				f := (p - points[i-1][0]) / (q[0] - points[i-1][0])
				return points[i-1][1] + float64(f*(q[1]-points[i-1][1]))
			}
		}
		if len(points) > 0 {
			return points[len(points)-1][1]
		}
		return 1
	}
}

// DecisionRow is one row of decisions.parquet: what the gateway did with a request.
type DecisionRow struct {
	ID              string             `col:"request_id" doc:"id of the workload"`
	ArrivalUs       int64              `col:"arrival_us" unit:"us" doc:"first arrival at the gateway"`
	DecidedUs       int64              `col:"decided_us" unit:"us" doc:"last decision"`
	Tries           int64              `col:"tries" doc:"arrivals, the first included"`
	SLOClass        string             `col:"slo_class" doc:"service class"`
	Priority        int64              `col:"priority" doc:"of the class; below 0 it may be shed"`
	Admitted        bool               `col:"admitted" doc:"the gateway let it in"`
	Reason          string             `col:"reason" doc:"why it was rejected, or which exception let it in"`
	Instance        trace.Opt[int64]   `col:"instance" doc:"where it went; null when it was rejected"`
	PredictedTTFTMs trace.Opt[float64] `col:"predicted_ttft_ms" unit:"ms" doc:"estimate from the decision on; null without one"`
	BoundTTFTMs     trace.Opt[float64] `col:"bound_ttft_ms" unit:"ms" doc:"the calibrated estimate that was judged"`
	ShadowTTFTMs    trace.Opt[float64] `col:"shadow_ttft_ms" unit:"ms" doc:"what a rejected request of the sample would have had"`
	ExpectedTokens  int64              `col:"expected_cached_tokens" unit:"tokens" doc:"cached tokens the index expected where it went"`
	PotentialTokens int64              `col:"potential_cached_tokens" unit:"tokens" doc:"the most it expected anywhere at the first arrival"`
}

func rowOfDecision(r *cluster.Record) DecisionRow {
	known := func(us float64) trace.Opt[float64] { return trace.Opt[float64]{V: us / 1e3, OK: us == us} }
	row := DecisionRow{ID: r.ID, ArrivalUs: r.ArrivalUs, DecidedUs: r.DecidedUs, Tries: int64(r.Tries), SLOClass: r.Class,
		Priority: int64(r.Priority), Admitted: r.Admitted(), Reason: r.Decision.Reason, PredictedTTFTMs: known(r.Decision.PredictedUs),
		BoundTTFTMs: known(r.Decision.BoundUs), ExpectedTokens: r.Expected, PotentialTokens: r.Potential}
	if r.Admitted() {
		row.Instance = trace.Some(int64(r.Instance))
	}
	if r.Shadow.OK {
		row.ShadowTTFTMs = trace.Some(float64(r.Shadow.V) / 1e3)
	}
	return row
}

// oneCluster is one seed of a cluster.
func (s *simulation) oneCluster(seed int64, first bool) (*replication, error) {
	reqs, err := s.requests(seed)
	if err != nil {
		return nil, err
	}
	reqs = s.fleet.TakeTargets(reqs)
	p, err := s.parts(seed)
	if err != nil {
		return nil, err
	}
	var close func([]*sim.Result) error
	if first {
		if p.Observe, close, err = s.watchInstances(reqs, len(p.Engines)); err != nil {
			return nil, err
		}
	}
	cfg, err := s.fleet.Build(p)
	if err != nil {
		return nil, err
	}
	run, err := cluster.Run(cfg, reqs)
	if err != nil {
		return nil, err
	}
	sum := summary.New()
	for i := range run.Records {
		sum.Add(&run.Records[i].RequestResult)
	}
	out := &replication{summary: sum.Close(run.Totals()), cluster: s.clusterPart(run, reqs)}
	for _, g := range cfg.Engines {
		out.findings = append(out.findings, WarningsOf(&g)...)
	}
	slices.SortFunc(out.findings, func(a, b trace.Finding) int { return strings.Compare(a.Message, b.Message) })
	out.findings = slices.Compact(out.findings)
	if t, ok := p.Trees.(*admission.Trees); ok && t.Outside > 0 {
		out.findings = append(out.findings, trace.Findingf(codeOutsidePredictor,
			"%d estimates lay outside what the predictor was trained on: trees answer with their nearest leaf", t.Outside))
	}
	if !first {
		return out, nil
	}
	if err := s.writeCluster(run); err != nil {
		return nil, err
	}
	return out, close(run.Engines)
}

// writeCluster writes requests.parquet and decisions.parquet.
func (s *simulation) writeCluster(run *cluster.Result) error {
	request := func(r *cluster.Record) RequestRow { return rowOfRequest(&r.RequestResult) }
	if err := writeRows(s.o.Out, "requests", run.Records, request); err != nil {
		return err
	}
	return writeRows(s.o.Out, "decisions", run.Records, rowOfDecision)
}

func writeRows[R any](dir, name string, records []cluster.Record, row func(*cluster.Record) R) error {
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

// watchInstances gives each instance its own files: the name given for one, with
// its number before the extension for several.
func (s *simulation) watchInstances(reqs []sim.Request, n int) (func(int) sim.Observer, func([]*sim.Result) error, error) {
	obs := make([]sim.Observer, n)
	var closers []func(*sim.Result) error
	for i := range n {
		own := *s
		o := *s.o
		own.o = &o
		if n > 1 && o.EventLog != "" {
			ext := filepath.Ext(o.EventLog)
			o.EventLog = strings.TrimSuffix(o.EventLog, ext) + "-" + strconv.Itoa(i) + ext
		}
		var done func(*sim.Result) error
		var err error
		if obs[i], done, err = own.observers(reqs); err != nil {
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

// codeOutsidePredictor is a predictor that was asked about loads it has not seen.
const codeOutsidePredictor trace.Code = "predictor_extrapolates"

// Codes describes this package's codes.
var Codes = []trace.CodeEntry{{Code: codeOutsidePredictor, Kind: "warning",
	Meaning: "a latency predictor estimated requests outside what it was trained on",
	Action:  "train it on loads like these, or let the rollout predict: leave predictor out of cluster.yaml"}}
