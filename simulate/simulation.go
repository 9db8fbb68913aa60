// Package simulate is the stage behind the command simulate: it runs the simulator of package sim on
// a deployment, a workload and a source of step times that the user names.
//
// [Run] takes [Options], simulates every replication, and writes requests.parquet and the files
// that the options name. The [Document] that it returns is simulation.json. Callers with several
// engines use a [Simulation] ([New], [For]) step by step: [Simulation.LoadWorkload] and
// [Simulation.Requests] give the workload, [Simulation.Engine] the configuration of one seed, and a
// [NewCollector] reduces results to a [Summary]. [Trust] states how far step times can be relied on
// that were not fitted.
//
// Document keys end in their unit; latencies are in ms.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Simulation is a simulation with its input files read: the deployment, the workload and the source
// of step times.
type Simulation struct {
	Deployment   *deploy.Deployment
	Set          *coeff.Set // nil without coefficients
	Inputs       []result.Input
	LatencyModel string        // source of the step times: ModelTables, ModelPhysics, ...
	Step         *library.Step // the kernels of a step; nil unless the source is kernel tables
	Trust        *Trust        // how far the step times can be relied on; nil for fitted coefficients
	NoTables     error         // why steps take the roofline's times instead of kernel tables; nil: they were not looked for, or found
	asked        library.Asked // the load, by which intervals of step times are chosen

	ctx   context.Context
	o     *Options
	load  load
	alpha []float64       // of --alpha-coeffs
	beta  []float64       // of --beta-coeffs
	notes []trace.Finding // warnings about files and assumptions, the same for every seed
}

// Replication is the outcome of one seed.
type Replication struct {
	Summary  *Summary
	Findings []trace.Finding
}

// Run simulates every replication and writes requests.parquet, and what else the options name, to
// o.Out. It does not write the document that it returns.
func Run(ctx context.Context, o Options) (*Document, error) {
	s, err := New(ctx, &o)
	if err != nil {
		return nil, err
	}
	runs, err := s.Replicate(s.runSeed)
	if err != nil {
		return nil, err
	}
	return s.Document(runs), nil
}

// For returns the simulation of a deployment that is already built. It uses the options about the
// workload and the latency model, but not Options.Coefficients: a coefficient file must be named in
// the deployment's own file. Codes: those of [library.Bound] and of deploy.
func For(ctx context.Context, d *deploy.Deployment, o *Options) (*Simulation, error) {
	s := &Simulation{Deployment: d, ctx: ctx, o: o}
	return s, s.bind()
}

// New checks the options and returns the simulation with its deployment. Replicate reads the
// workload.
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
		o.GPU = g
		s.Inputs = append(s.Inputs, in)
	}
	if err := s.LoadDeployment(o.Deployment, o.Set); err != nil {
		if coded, ok := errors.AsType[*trace.Error](err); ok && coded.Code == deploy.BadSetting {
			return nil, &option.Misuse{Msg: "--set: " + coded.Msg, Hint: coded.Hint}
		}
		return nil, err
	}
	path := o.Coefficients
	if path == LibraryWord && !o.usesSet() {
		path = "" // the tables' own times, in LoadDeployment
	}
	if path != "" || o.Model == ModelPhysics {
		set, in, sentence, err := CoefficientsFor(path, s.Deployment, o.Special)
		if err != nil {
			return nil, err
		}
		if sentence != "" && o.Say != nil {
			o.Say(sentence)
		}
		s.UseCoefficients(set, in)
	}
	var err error
	if s.alpha, err = parseNumbers("--alpha-coeffs", o.Alpha); err != nil {
		return nil, err
	}
	if s.beta, err = parseNumbers("--beta-coeffs", o.Beta); err != nil {
		return nil, err
	}
	return s, o.checkCoefficients(s.alpha, s.beta)
}

// With returns a copy of the simulation with other options, without its inputs. Changes to one do not
// affect the other.
func (s *Simulation) With(o *Options) *Simulation {
	own := *s
	own.o = o
	own.Inputs = nil
	return &own
}

// LoadDeployment reads run.yaml, given itself or by its folder, with its overrides.
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
	if err := s.bind(); err != nil {
		return err
	}
	s.AddNotes(s.assumed())
	return nil
}

// UseCoefficients makes the set of a file the coefficients of the simulation. It adds what is to be
// known of the file, and of a deployment that it was not trained on.
func (s *Simulation) UseCoefficients(set *coeff.Set, in result.Input) {
	s.Set = set
	s.Inputs = append(s.Inputs, in)
	s.AddNotes(set.FileWarnings())
	s.AddNotes(set.Outside(s.Deployment))
}

// Join adds the inputs and assumptions of the simulation of another part of the same cluster. If
// the step times of that part were not validated, those of the whole count as not validated.
func (s *Simulation) Join(part *Simulation) {
	s.Inputs = append(s.Inputs, part.Inputs...)
	s.AddNotes(part.notes)
	if t := part.Trust; t != nil && t.Judged == nil {
		s.Trust = t
	}
}

// AddNotes adds the notes that are new. It copies the list first, because copies of the simulation
// share it.
func (s *Simulation) AddNotes(notes []trace.Finding) {
	s.notes = slices.Clone(s.notes)
	for _, note := range notes {
		if !slices.Contains(s.notes, note) {
			s.notes = append(s.notes, note)
		}
	}
}

// assumed returns findings about what the simulation assumes of the deployment because no option
// states it.
func (s *Simulation) assumed() []trace.Finding {
	d := *s.Deployment
	d.Sums = s.LatencyModel == ModelTables
	if mode := s.o.Async; mode != "auto" {
		d.Engine.AsyncScheduling = trace.Some(mode == "on")
	}
	if n := s.o.KVBlocks; n > 0 {
		d.Engine.KVBlocksGPU = trace.Some(n)
	}
	return append(d.AssumedInSimulation(), d.DoubtsKVCache()...)
}

// Replicate reads the workload, calls run for every seed, several at a time, and returns the
// results in the order of seeds. first is true for the first seed, which writes files.
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

// runSeed returns the outcome of one replication of a single engine.
func (s *Simulation) runSeed(seed int64, first bool) (*Replication, error) {
	reqs, err := s.requests(seed)
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
	sum := newCollector(reqs.len(), sim.IsClosedLoop(reqs.list))
	add := sum.Add
	early := 0 // rounds of sessions that are sent before the previous round is answered
	if w := s.load.fixed; w != nil && w.HasSessions() && !s.o.closesSessions() {
		isEarly := w.EarlyRounds()
		add = func(r *sim.RequestResult) {
			sum.Add(r)
			if isEarly(r) {
				early++
			}
		}
	}
	var res *sim.Result
	if first {
		res, err = s.runRecorded(cfg, reqs, add)
	} else {
		res, err = reqs.stream(cfg, nil, func(r *sim.RequestResult) error {
			add(r)
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	findings := append(slices.Clone(res.Findings), WarningsOf(&cfg)...)
	if early > 0 {
		findings = append(findings, trace.Findingf(workload.CodeIncomplete,
			"%d rounds of sessions are sent at their recorded times, before the previous round is answered; session-mode %s waits for it",
			early, sessionsClosed))
	}
	if s.LatencyModel == ModelPhysics && s.Set != nil && s.Set.AlphaModel(coeff.Overhead) == nil && s.o.OverheadUs == nil {
		findings = append(findings, trace.Findingf(export.NotReplayable,
			"the coefficient file has no overhead that a simulation may add: requests reach the engine without delay; --overhead-us sets one"))
	}
	return &Replication{Summary: sum.Close(res), Findings: findings}, nil
}
