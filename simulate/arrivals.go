package simulate

// This file makes the requests of a simulation: recorded, from a file, or drawn.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/trace/tracev2"
)

// load is the workload of a simulation: a fixed list of requests, or a function that draws one for
// each seed.
type load struct {
	fixed *workload.Workload                           // nil with draw
	draw  func(seed int64) (*workload.Workload, error) // nil with fixed
	from  *workload.Generator                          // draw is its Generate
	loop  workload.Loop                                // closed loop of clients; without clients requests arrive at their own times
}

// loopOf returns the closed loop that the options describe: clients that keep the arrivals of the
// workload as long as fewer than MaxConcurrency requests are in flight (--max-concurrency, which holds arrivals back),
// or Concurrency clients whose next request follows an answer (--concurrency). Without either it has no clients.
// Options.check refuses both at once, and think time and ramp without --concurrency.
func loopOf(o *Options) workload.Loop {
	if n := o.MaxConcurrency; n > 0 {
		return workload.Loop{Clients: n, KeepArrivals: true}
	}
	// ToUs rounds a time in us to whole ones.
	return workload.Loop{Clients: o.Concurrency, ThinkUs: sim.ToUs(o.ThinkMs * 1e3), RampUs: sim.ToUs(o.RampS * 1e6)}
}

// Requests returns the requests of one seed. A recording gives the same ones for every seed, a
// generator draws new ones. The options' rate scale, limits and closed loop are applied.
func (s *Simulation) Requests(seed int64) ([]sim.Request, error) {
	w := s.load.fixed
	if s.load.draw != nil {
		var err error
		if w, err = s.load.draw(seed); err != nil {
			return nil, err
		}
	}
	reqs := w.Requests
	if n := s.o.MaxRequests; n > 0 && n < len(reqs) {
		reqs = reqs[:n]
	}
	// A change of the arrivals is made on a copy, because replications share the recorded requests.
	factor, loop := s.o.RateScale, s.load.loop
	if factor == 1 && loop.Clients == 0 && !s.o.closesSessions() {
		return reqs, nil
	}
	own := *w
	own.Requests = slices.Clone(reqs)
	own.Scale(factor)
	switch think, err := s.o.think(seed); {
	case err != nil || loop.Clients > 0:
		return own.Requests, errors.Join(err, own.Close(loop))
	case s.o.closesSessions() && !own.HasSessions():
		return nil, option.Misusef("--session-mode %s: got a workload without sessions, want TraceV2 with session_id, or Weka's", sessionsClosed)
	case s.o.closesSessions():
		own.CloseSessions(think)
	}
	return own.Requests, nil
}

// requests are the requests of one seed: a list, or drawn while the simulation runs.
type requests struct {
	list  []sim.Request
	drawn sim.Drawn // N is 0 with a list
}

// len returns the number of requests.
func (q *requests) len() int { return len(q.list) + q.drawn.N }

// requests returns what Requests returns. They are drawn while the simulation runs if nothing needs all of them at once, as a
// closed loop and the observers of Observers do.
func (s *Simulation) requests(seed int64) (*requests, error) {
	if s.load.from != nil && s.load.loop.Clients == 0 && !s.o.closesSessions() && s.o.EventLog == "" && s.o.EmitOTLP == "" {
		if drawn, ok := s.load.from.Draw(seed); ok {
			if n := s.o.MaxRequests; n > 0 {
				drawn.N = min(drawn.N, n)
			}
			if factor := s.o.RateScale; factor != 1 {
				next := drawn.Next
				drawn.Next = func() sim.Request {
					q := next()
					workload.ScaleRequest(&q, factor)
					return q
				}
			}
			return &requests{drawn: drawn}, nil
		}
	}
	reqs, err := s.Requests(seed)
	return &requests{list: reqs}, err
}

// drawFrom makes the workload that of a generator.
func (l *load) drawFrom(g *workload.Generator) {
	l.from = g
	l.draw = g.Generate
}

// LoadWorkload reads the workload file or, without one, prepares to draw requests with the lengths
// and the rate of the options.
func (s *Simulation) LoadWorkload() error {
	s.load.loop = loopOf(s.o)
	path := s.o.Workload
	if path == "" {
		point := workload.Point{
			Requests:     s.o.Requests,
			InputTokens:  s.o.InputTokens,
			OutputTokens: s.o.OutputTokens,
			RangeRatio:   s.o.RangeRatio,
			RateRPS:      s.o.RateRPS,
		}
		g, err := point.Generator()
		if err != nil {
			return err
		}
		s.load.drawFrom(g)
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return s.recordedWorkload(path)
	}
	if s.o.Phase != "" {
		return option.Misusef("--phase: goes with a recorded run as --workload only")
	}
	fixed, g, inputs, err := readWorkload(path, s.o.Special)
	s.load.fixed = fixed
	if g != nil {
		s.load.drawFrom(g)
	}
	if s.Inputs = append(s.Inputs, inputs...); s.load.fixed != nil {
		s.notes = append(s.notes, s.load.fixed.Notes...)
	}
	return err
}

// ReadWorkload returns the requests in a workload file or, for a generator's file, a function that
// draws them; the other result is nil. inputs describe the files that it read.
func ReadWorkload(path string, special bool) (w *workload.Workload, draw func(seed int64) (*workload.Workload, error),
	inputs []result.Input, err error) {
	w, g, inputs, err := readWorkload(path, special)
	if g != nil {
		draw = g.Generate
	}
	return w, draw, inputs, err
}

// readWorkload does what ReadWorkload does, and returns the generator itself.
func readWorkload(path string, special bool) (w *workload.Workload, g *workload.Generator, inputs []result.Input, err error) {
	data, in, err := folder.ReadInput(path, special)
	if err != nil {
		return nil, nil, nil, err
	}
	inputs = append(inputs, in)
	if data, err = files.UnpackAll(data, path, files.MaxInput); err != nil {
		return nil, nil, inputs, err
	}
	// TraceV2 is a YAML header and a CSV file, of which either may be named.
	if rows := rowsBeside(data, path); rows != "" {
		return readWorkload(rows, special) // it reads the header again
	}
	header, in, err := headerBeside(data, path, special)
	switch {
	case err != nil:
		return nil, nil, inputs, err
	case header != nil:
		w, err = workload.ReadTraceV2(data, path, header)
		return w, nil, append(inputs, in), err
	}
	w, g, err = workload.Read(data, path)
	return w, g, inputs, err
}

// rowsBeside returns the path of the CSV file that has the requests of a TraceV2 header: beside it,
// with the same name apart from the extension. It returns "" if there is none, and if data is not a
// header or has the requests itself.
func rowsBeside(data []byte, path string) string {
	ext := filepath.Ext(path)
	isHeader := (ext == ".yaml" || ext == ".yml") && workload.IsTraceV2(data) && !bytes.Contains(data, []byte(tracev2.FirstColumn+","))
	if !isHeader {
		return ""
	}
	stem := strings.TrimSuffix(path, ext)
	for _, rows := range []string{stem + ".csv", stem + ".csv.gz"} {
		if _, err := os.Stat(rows); err == nil {
			return rows
		}
	}
	return ""
}

// headerBeside returns the header of a TraceV2 CSV from the YAML file with the same name apart from
// the extension; nil if there is none.
func headerBeside(data []byte, path string, special bool) (*tracev2.Header, result.Input, error) {
	stem := strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".csv")
	if !bytes.HasPrefix(data, []byte(tracev2.FirstColumn+",")) || stem == path {
		return nil, result.Input{}, nil
	}
	if _, err := os.Stat(stem + ".yaml"); err != nil {
		return nil, result.Input{}, nil
	}
	text, in, err := folder.ReadYAML(stem+".yaml", special)
	if err != nil || !workload.IsTraceV2(text) { // another file with that name
		return nil, in, err
	}
	header, err := tracev2.ParseHeader(text, stem+".yaml")
	return &header, in, err
}

// recordedWorkload sets the workload to the arrivals in a run folder, or in the folder of its
// extracted tables.
func (s *Simulation) recordedWorkload(dir string) error {
	run, err := s.recordedRun(dir)
	if err != nil {
		return err
	}
	phase := s.o.Phase
	run = workload.OfClients(run)
	w, err := workload.FromRun(run, s.Deployment, workload.RunOptions{Phase: phase})
	if err != nil {
		return err
	}
	s.load.fixed = w
	s.notes = append(s.notes, w.Notes...)
	// Clients that waited for answers do so in the simulation too, unless the options say otherwise.
	closed := slices.ContainsFunc(s.Deployment.Phases, func(p deploy.Phase) bool { return p.Name == phase && p.Load == deploy.LoadClosed })
	if !closed || s.load.loop.Clients > 0 {
		return nil
	}
	loop, err := w.Reclose(run) // changes w, which is s.load.fixed
	if err == nil {
		s.notes = append(s.notes, trace.Findingf(codeReclosed,
			"phase %q is a closed loop: %d clients send when they are answered, not at the recorded moments", phase, loop.Clients))
	}
	return err
}

// recordedRun returns the run of a run folder, or of the folder of its tables (OUT/tables/run=ID).
func (s *Simulation) recordedRun(dir string) (*trace.Run, error) {
	if strings.HasPrefix(filepath.Base(dir), "run=") { // OUT/tables/run=<id>
		return table.Read(dir)
	}
	several := func(n int, first string) error {
		return &option.Misuse{Msg: fmt.Sprintf("--workload: %s holds %d runs, want one", dir, n), Hint: "give one of them, such as " + first}
	}
	switch ids, err := table.RunIDs(dir); {
	case err == nil && len(ids) == 1:
		return table.Read(table.RunDir(dir, ids[0]))
	case err == nil && len(ids) > 1:
		return nil, several(len(ids), table.RunDir(dir, ids[0]))
	}
	runs, err := extract.Discover([]string{dir})
	if err != nil {
		return nil, err
	}
	if len(runs) != 1 {
		return nil, several(len(runs), runs[0].Dir)
	}
	// A recording is extracted to a temporary folder first.
	tmp, remove, err := files.Temporary("", "blis-train-simulate-")
	if err != nil {
		return nil, err
	}
	defer remove()
	o := extract.DefaultOptions()
	o.Out, o.ToolVersion = tmp, folder.ToolVersion
	doc, err := extract.Run(s.ctx, runs, o)
	if err != nil {
		return nil, err
	}
	s.Inputs = append(s.Inputs, doc.Inputs...)
	ids, err := table.RunIDs(tmp)
	if err != nil || len(ids) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%s: got %d engine runs, want one; extract it and give one of its runs", dir, len(ids)))
	}
	return table.Read(table.RunDir(tmp, ids[0]))
}

// codeReclosed is the code of the note that a phase recorded under a closed loop is replayed as a
// closed loop.
const codeReclosed trace.Code = "replayed_closed_loop"
