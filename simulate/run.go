package simulate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Simulation is one simulation with its files read: what runs, what arrives and what times
// the steps.
type Simulation struct {
	Deployment   *deploy.Deployment
	Set          *coeff.Set // nil without coefficients
	Inputs       []result.Input
	LatencyModel string        // what times the steps: ModelTables, ModelPhysics, ...
	Step         *library.Step // the plan of a step; nil where no kernel tables time the steps
	Trust        *Trust        // of step times that are not fitted; nil with coefficients

	ctx   context.Context
	o     *Options
	load  load
	alpha []float64
	beta  []float64
	notes []trace.Finding
}

// Replication is the outcome of one seed.
type Replication struct {
	Summary  *Summary
	Findings []trace.Finding
}

// Run simulates and writes requests.parquet, and what else the options name, to
// o.Out. The document is not written.
func Run(ctx context.Context, o Options) (*Document, error) {
	s, err := New(ctx, &o)
	if err != nil {
		return nil, err
	}
	runs, err := s.Replicate(s.one)
	if err != nil {
		return nil, err
	}
	return s.Document(runs), nil
}

// For prepares the simulation of a deployment that is built already. Of the options it uses
// what arrives and what times the steps; coefficients must come with the deployment's own file,
// so Options.Coefficients is not read. Codes: those of [library.Bound] and of deploy.
func For(ctx context.Context, d *deploy.Deployment, o *Options) (*Simulation, error) {
	s := &Simulation{Deployment: d, ctx: ctx, o: o}
	return s, s.bind()
}

// New checks the options and reads what runs; Replicate what arrives.
func New(ctx context.Context, o *Options) (*Simulation, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	s := &Simulation{ctx: ctx, o: o}
	if o.Library != "" {
		g, in, err := TablesFile(o.Library, o.Special)
		if err != nil {
			return nil, err
		}
		o.GPU, s.Inputs = g, append(s.Inputs, in)
	}
	if err := s.LoadDeployment(o.Deployment, o.Set); err != nil {
		return nil, err
	}
	if path := o.Coefficients; path != "" || o.Model == ModelPhysics {
		set, in, sentence, err := CoefficientsFor(path, s.Deployment, o.Special)
		if err != nil {
			return nil, err
		}
		if sentence != "" && o.Say != nil {
			o.Say(sentence)
		}
		s.Set, s.Inputs, s.notes = set, append(s.Inputs, in), slices.Concat(s.notes, set.FileWarnings(), set.Outside(s.Deployment))
	}
	var err error
	if s.alpha, err = numbers("--alpha-coeffs", o.Alpha); err != nil {
		return nil, err
	}
	s.beta, err = numbers("--beta-coeffs", o.Beta)
	return s, err
}

// With is the simulation of another deployment or other coefficients: nothing is shared
// that one of the two may change.
func (s *Simulation) With(o *Options) *Simulation {
	own := *s
	own.o, own.Inputs = o, nil
	return &own
}

// LoadDeployment reads run.yaml, or that of a folder, with its overrides.
func (s *Simulation) LoadDeployment(path string, set []string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		path = filepath.Join(path, "run.yaml")
	}
	_, in, err := folder.ReadInput(path, s.o.Special)
	if err != nil {
		return err
	}
	s.Inputs = append(s.Inputs, in)
	if s.Deployment, err = deploy.LoadRunFile(path, set...); err != nil {
		return err
	}
	if s.o.Transfers {
		s.Deployment.Transfer()
	}
	if err = s.bind(); err == nil {
		s.notes = stat.AppendNew(slices.Clone(s.notes), s.assumed()...)
	}
	return err
}

// Join adds what the simulation of a part of the same cluster read and assumed, and how little its step times can be relied on.
func (s *Simulation) Join(part *Simulation) {
	s.Inputs, s.notes = append(s.Inputs, part.Inputs...), stat.AppendNew(s.notes, part.notes...)
	if t := part.Trust; t != nil && t.Judged == nil {
		s.Trust = t
	}
}

// assumed is what the simulation takes for granted of the deployment and no
// flag states.
func (s *Simulation) assumed() []trace.Finding {
	d := *s.Deployment
	d.Sums = s.LatencyModel == ModelTables
	if mode := s.o.Async; mode != "auto" {
		d.Engine.AsyncScheduling = trace.Some(mode == "on")
	}
	if n := s.o.KVBlocks; n > 0 {
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
			return nil, option.Misusef("%s: got %q, want comma-separated numbers", flag, text)
		}
		out = append(out, v)
	}
	return out, nil
}

// Engine is the engine of one seed; models are not shared between replications.
func (s *Simulation) Engine(seed int64) (sim.Config, error) {
	set := s.Set
	if s.o.SampleCoefficients && set != nil {
		set, _ = sim.DrawBeta(set, rand.New(rand.NewPCG(uint64(seed), 0xd4a)))
	}
	cfg, err := s.config(set)
	if err != nil {
		return cfg, err
	}
	if cfg.Latency = sim.WithDrafter(cfg.Latency, s.Deployment); s.LatencyModel != ModelTables { // whose plan has the exchange
		cfg.Latency = sim.WithExchange(cfg.Latency, s.Deployment)
	}
	cfg.ExpertImbalance, cfg.EPLBPauseUs = s.o.ExpertImbalance, sim.ToUs(s.o.EPLBPauseMs*1e3)
	cfg.Seed, cfg.TokenGaps, cfg.KVBlocks, cfg.Done = seed, true, s.o.KVBlocks, s.ctx.Done()
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
		if cfg.Noise = sim.SetNoise(set); cfg.Noise == nil {
			return cfg, &trace.Error{Code: sim.CodeBadConfig, Msg: "noise: the coefficient file holds no residual quantiles",
				Hint: "fit with a hold-out, or use --noise none"}
		}
	}
	return cfg, nil
}

func (s *Simulation) config(set *coeff.Set) (cfg sim.Config, err error) {
	cfg = sim.DefaultConfig(s.Deployment, nil)
	var whole interface{ Parts() sim.Parts }
	switch {
	case s.LatencyModel == ModelTables && set == nil: // one group of a cluster may have coefficients
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

// Replicate reads what arrives, runs every seed, several at a time, and keeps them in seed
// order; the first writes files.
func (s *Simulation) Replicate(run func(seed int64, first bool) (*Replication, error)) ([]*Replication, error) {
	if err := s.LoadWorkload(); err != nil {
		return nil, err
	}
	n := s.o.Replications
	out := make([]*Replication, n)
	err := par.Try(s.ctx, s.o.Workers, n, func(i int) (err error) {
		out[i], err = run(s.o.Seed+int64(i), i == 0)
		return err
	}, func(done int) { s.o.Progress.Report("replications", int64(done), int64(n), "runs") })
	if trace.CodeOf(err) == sim.CodeBadPrediction && s.o.Coefficients != "" {
		err = fmt.Errorf("%s: %w", s.o.Coefficients, err)
	}
	return out, err
}

// one is one seed of an engine alone.
func (s *Simulation) one(seed int64, first bool) (*Replication, error) {
	reqs, err := s.Requests(seed)
	if err != nil {
		return nil, err
	}
	cfg, err := s.Engine(seed)
	if err != nil {
		return nil, err
	}
	if err := s.Deployment.CheckAlone(); err != nil {
		return nil, err
	}
	cfg.Ranks = s.Deployment.DP > 1
	sum, early := NewCollector(len(reqs)), 0
	add := sum.Add
	if w := s.load.fixed; w != nil && w.HasSessions() && !s.o.closesSessions() {
		isEarly := w.EarlyRounds()
		add = func(r *sim.RequestResult) {
			if sum.Add(r); isEarly(r) {
				early++
			}
		}
	}
	var res *sim.Result
	if first {
		res, err = s.recorded(cfg, reqs, add)
	} else {
		res, err = Stream(cfg, reqs, nil, func(r *sim.RequestResult) error { add(r); return nil })
	}
	if err != nil {
		return nil, err
	}
	findings := append(append([]trace.Finding(nil), res.Findings...), WarningsOf(&cfg)...)
	if early > 0 {
		findings = append(findings, trace.Findingf(workload.CodeIncomplete,
			"%d rounds of sessions are sent at their recorded times, before the round before them is answered; session-mode %s waits for it",
			early, sessionsClosed))
	}
	if s.LatencyModel == ModelPhysics && s.Set != nil && s.Set.AlphaModel(coeff.Overhead) == nil && s.o.OverheadUs == nil {
		findings = append(findings, trace.Findingf(export.NotReplayable,
			"the coefficient file has no overhead that a simulation may add: requests reach the engine at once; --overhead-us gives them one"))
	}
	return &Replication{Summary: sum.Close(res), Findings: findings}, nil
}

// recorded is the run whose requests and events go to files as they happen.
func (s *Simulation) recorded(cfg sim.Config, reqs []sim.Request, add func(*sim.RequestResult)) (*sim.Result, error) {
	obs, done, err := s.Observers(reqs)
	if err != nil {
		return nil, err
	}
	rows, err := table.Create[sim.RequestResult](s.o.Out, "requests", table.Parquet)
	if err != nil {
		return nil, err
	}
	blis, err := s.o.blisWriter()
	if err != nil {
		rows.Abort()
		return nil, err
	}
	i := 0
	res, err := Stream(cfg, reqs, obs, func(r *sim.RequestResult) error {
		add(r)
		i++
		return errors.Join(rows.Append(*r.Timed()), blis.add(i-1, r))
	})
	if err != nil {
		rows.Abort()
		if blis != nil {
			blis.f.Abort()
		}
		return nil, err
	}
	if err := errors.Join(rows.Close(), blis.close()); err != nil {
		return nil, err
	}
	return res, done(res)
}

// Stream runs the requests and calls each with the result of every request, in workload order.
func Stream(cfg sim.Config, reqs []sim.Request, obs sim.Observer, each func(*sim.RequestResult) error) (*sim.Result, error) {
	var failed error
	res, err := sim.Stream(cfg, reqs, obs, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		failed = each(r)
		return failed == nil
	}))
	return res, errors.Join(err, failed)
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

// Observers opens the files a run is watched into; done closes them under
// their final names.
func (s *Simulation) Observers(reqs []sim.Request) (sim.Observer, func(*sim.Result) error, error) {
	var both manyObservers
	var closers []func(*sim.Result) error
	if path := s.o.EventLog; path != "" {
		f, err := files.Begin(path)
		if err != nil {
			return nil, nil, err
		}
		log := &sim.Log{W: bufio.NewWriter(f.File), Requests: reqs}
		both = append(both, log)
		closers = append(closers, func(*sim.Result) error { return errors.Join(log.Flush(), f.Commit()) })
	}
	if path := s.o.EmitOTLP; path != "" {
		dump, closer, err := s.dump(path, reqs)
		if err != nil {
			return nil, nil, err
		}
		both = append(both, dump)
		closers = append(closers, closer)
	}
	var obs sim.Observer
	if len(both) > 0 {
		obs = both
	}
	return obs, func(r *sim.Result) error {
		return errors.Join(stat.Map(closers, func(c func(*sim.Result) error) error { return c(r) })...)
	}, nil
}

func (s *Simulation) dump(path string, reqs []sim.Request) (*sim.Dump, func(*sim.Result) error, error) {
	f, err := files.Begin(path)
	if err != nil {
		return nil, nil, err
	}
	var kv *files.Pending
	var events io.Writer
	if name := s.o.EmitKVEvents; name != "" {
		if kv, err = files.Begin(name); err != nil {
			return nil, nil, err
		}
		events = kv
	}
	o := sim.DefaultDumpOptions(s.Deployment)
	o.Seed = s.o.Seed
	dump, err := sim.NewDump(f, events, s.Deployment, reqs, o)
	if err != nil {
		return nil, nil, err
	}
	return dump, func(r *sim.Result) error {
		err := errors.Join(dump.Close(r.Steps), f.Commit())
		if kv != nil {
			err = errors.Join(err, kv.Commit())
		}
		return err
	}, nil
}

// manyObservers passes everything to each.
type manyObservers []sim.Observer

// Step passes a step on.
func (m manyObservers) Step(v *sim.StepView) {
	for _, o := range m {
		o.Step(v)
	}
}

// Event passes an event on.
func (m manyObservers) Event(e *sim.Event) {
	for _, o := range m {
		o.Event(e)
	}
}

// KV passes a KV event on to those that listen.
func (m manyObservers) KV(e *sim.KVEvent) {
	for _, o := range m {
		if kv, ok := o.(sim.KVObserver); ok {
			kv.KV(e)
		}
	}
}

// blisFile is the name of the results in BLIS's form.
const blisFile = "blis_results.json"

// blisRequest is one finished request as `blis replay` writes and `blis calibrate` reads it
// (sim/workload/calibrate.go, inference-sim@f90a1e3).
type blisRequest struct {
	ID           int     `json:"request_id"`
	TTFTUs       float64 `json:"ttft_us"`
	E2EUs        float64 `json:"e2e_us"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	SLOClass     string  `json:"slo_class,omitempty"`
	ITLMeanUs    float64 `json:"itl_mean_us,omitempty"`
}

// blisWriter writes finished requests as they come; nil writes nothing.
type blisWriter struct {
	f *files.Pending
	w *bufio.Writer
	n int
}

func (o *Options) blisWriter() (*blisWriter, error) {
	if o.Format == "" {
		return nil, nil
	}
	f, err := files.Begin(filepath.Join(o.Out, blisFile))
	if err != nil {
		return nil, err
	}
	return &blisWriter{f: f, w: bufio.NewWriter(f.File)}, nil
}

// add writes a request under the number that it has in its trace, else under its position.
func (b *blisWriter) add(i int, r *sim.RequestResult) error {
	if b == nil {
		return nil
	}
	ttft, started := r.TTFTUs()
	e2e, done := r.E2EUs()
	if !started || !done {
		return nil // BLIS leaves them out too
	}
	row := blisRequest{ID: i, TTFTUs: ttft, E2EUs: e2e, InputTokens: r.PromptTokens, OutputTokens: r.OutputTokens, SLOClass: r.SLOClass}
	if n, err := strconv.Atoi(r.ID); err == nil {
		row.ID = n
	}
	row.ITLMeanUs, _ = r.ITLUs()
	data, err := json.Marshal(row)
	if err != nil {
		return err
	}
	separator := ",\n "
	if b.n++; b.n == 1 {
		separator = "[\n "
	}
	_, err = b.w.Write(append([]byte(separator), data...))
	return err
}

func (b *blisWriter) close() error {
	if b == nil {
		return nil
	}
	end := "\n]\n"
	if b.n == 0 {
		end = "[]\n"
	}
	_, err := b.w.WriteString(end)
	return errors.Join(err, b.w.Flush(), b.f.Commit())
}
