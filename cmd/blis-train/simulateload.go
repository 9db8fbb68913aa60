package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/trace/tracev2"
)

// maxInput is far above any workload file, bytes.
const maxInput = 4 << 30

// load is what arrives: one list of requests, or one drawn for each seed.
type load struct {
	fixed *workload.Workload
	draw  func(seed int64) (*workload.Workload, error)
	loop  workload.Loop // no clients: arrivals as they are
}

func loadFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "phase", Usage: "use one phase, `NAME`, of a recorded run; a closed one is replayed as a closed loop"},
		&cli.Float64Flag{Name: "rate-scale", Value: 1, Usage: "multiply arrival rates by `FACTOR`"},
		&cli.IntFlag{Name: "max-requests", Usage: "use the first `N` requests; 0: all"},
		&cli.IntFlag{Name: "concurrency", Usage: "closed loop: `N` clients, each sends its next request when its last one is answered"},
		&cli.Float64Flag{Name: "think-time-ms", Usage: "`MS` between an answer and the client's next request (closed loop)"},
		&cli.Float64Flag{Name: "ramp-s", Usage: "the clients start evenly over `S` seconds (closed loop)"},
		&cli.IntFlag{Name: "max-concurrency", Usage: "hold arrivals back while `N` requests are in flight; 0: never"},
		&cli.Int64Flag{Name: "input-len", Usage: "prompt `TOKENS` of every request, in place of --workload"},
		&cli.Int64Flag{Name: "output-len", Usage: "output `TOKENS` of every request"},
		&cli.Float64Flag{Name: "random-range-ratio", Usage: "spread both lengths evenly over 1-R to 1+R times, `R`"},
		&cli.IntFlag{Name: "num-prompts", Value: 1000, Usage: "`N` requests of --input-len"},
		&cli.Float64Flag{Name: "request-rate", Usage: "Poisson arrivals, `RPS` per second, with --input-len; 0: all at once"},
	}
}

func checkLoadFlags(c *cli.Context) error {
	point := c.IsSet("input-len") || c.IsSet("output-len")
	switch {
	case c.String("workload") == "" && !point:
		return usagef("simulate: missing --workload FILE or RUNDIR, or --input-len and --output-len")
	case c.String("workload") != "" && point:
		return usagef("simulate: --workload and --input-len: got both, want one")
	case point && (c.Int64("input-len") < 1 || c.Int64("output-len") < 1):
		return usagef("--input-len, --output-len: got %d and %d, want both >= 1", c.Int64("input-len"), c.Int64("output-len"))
	case !(c.Float64("rate-scale") > 0):
		return usagef("--rate-scale: got %g, want > 0", c.Float64("rate-scale"))
	case c.Int("concurrency") < 0 || c.Int("max-concurrency") < 0 || c.Int("concurrency") > 0 && c.Int("max-concurrency") > 0:
		return usagef("--concurrency, --max-concurrency: got %d and %d, want one of them >= 1", c.Int("concurrency"), c.Int("max-concurrency"))
	case c.Int("concurrency") == 0 && (c.IsSet("think-time-ms") || c.IsSet("ramp-s")):
		return usagef("--think-time-ms, --ramp-s: got no closed loop, want --concurrency N with them")
	}
	for _, name := range []string{"random-range-ratio", "num-prompts", "request-rate"} {
		if c.IsSet(name) && !point {
			return usagef("--%s: got no --input-len, want it with it", name)
		}
	}
	return nil
}

func pointOf(c *cli.Context) workload.Point {
	return workload.Point{
		Requests: c.Int("num-prompts"), InputTokens: c.Int64("input-len"), OutputTokens: c.Int64("output-len"),
		RangeRatio: c.Float64("random-range-ratio"), RateRPS: c.Float64("request-rate"),
	}
}

func loopOf(c *cli.Context) workload.Loop {
	if n := c.Int("max-concurrency"); n > 0 {
		return workload.Loop{Clients: n, KeepArrivals: true}
	}
	return workload.Loop{
		Clients: c.Int("concurrency"), ThinkUs: int64(c.Float64("think-time-ms") * 1e3), RampUs: int64(c.Float64("ramp-s") * 1e6),
	}
}

// requests are those of one seed: a generator draws anew, a recording stays.
func (s *simulation) requests(seed int64) ([]sim.Request, error) {
	w := s.load.fixed
	if s.load.draw != nil {
		var err error
		if w, err = s.load.draw(seed); err != nil {
			return nil, err
		}
	}
	reqs := w.Requests
	if n := s.c.Int("max-requests"); n > 0 && n < len(reqs) {
		reqs = reqs[:n]
	}
	factor, loop := s.c.Float64("rate-scale"), s.load.loop
	if factor == 1 && loop.Clients == 0 {
		return reqs, nil
	}
	own := &workload.Workload{Requests: slices.Clone(reqs)}
	own.Scale(factor)
	if loop.Clients == 0 {
		return own.Requests, nil
	}
	return own.Requests, own.Close(loop)
}

// loadWorkload reads what arrives, or draws it from a point's lengths.
func (s *simulation) loadWorkload() error {
	s.load.loop = loopOf(s.c)
	path := s.c.String("workload")
	if path == "" {
		s.load.draw = pointOf(s.c).Workload
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return s.recordedWorkload(path)
	}
	data, in, err := s.con.readInput(path)
	if err != nil {
		return err
	}
	s.inputs = append(s.inputs, in)
	plain, err := files.Unpack(bytes.NewReader(data), path)
	if err != nil {
		return err
	}
	if data, err = files.ReadBounded(plain, path, maxInput); err != nil {
		return err
	}
	if header, err := s.headerOf(data, path); err != nil || header != nil {
		if err == nil {
			s.load.fixed, err = workload.ReadTraceV2(data, path, header)
		}
		return err
	}
	w, g, err := workload.Read(data, path)
	if s.load.fixed = w; g != nil {
		s.load.draw = g.Generate
	}
	return err
}

// headerOf is the header of a TraceV2 CSV: the YAML file of the same stem, where
// there is one.
func (s *simulation) headerOf(data []byte, path string) (*tracev2.Header, error) {
	stem := strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".csv")
	if !bytes.HasPrefix(data, []byte(tracev2.FirstColumn+",")) || stem == path {
		return nil, nil
	}
	if _, err := os.Stat(stem + ".yaml"); err != nil {
		return nil, nil
	}
	text, in, err := s.con.readInput(stem + ".yaml")
	if err != nil || !workload.IsTraceV2(text) { // another file that happens to have the name
		return nil, err
	}
	s.inputs = append(s.inputs, in)
	header, err := tracev2.ParseHeader(text, stem+".yaml")
	return &header, err
}

// recordedWorkload takes the arrivals of a run folder, or of its extracted tables.
func (s *simulation) recordedWorkload(dir string) error {
	run, err := s.recordedRun(dir)
	if err != nil {
		return err
	}
	phase := s.c.String("phase")
	w, err := workload.FromRun(run, s.dep, workload.RunOptions{Phase: phase})
	if err != nil {
		return err
	}
	s.load.fixed, s.notes = w, append(s.notes, w.Notes...)
	closed := slices.ContainsFunc(s.dep.Phases, func(p deploy.Phase) bool { return p.Name == phase && p.Load == deploy.LoadClosed })
	if !closed || s.load.loop.Clients > 0 {
		return nil
	}
	loop, err := w.Reclose(run, 0)
	if err == nil {
		s.notes = append(s.notes, trace.Findingf(workload.CodeReclosed,
			"phase %q is a closed loop: %d clients send when they are answered, not at the recorded moments", phase, loop.Clients))
	}
	return err
}

func (s *simulation) recordedRun(dir string) (*trace.Run, error) {
	if strings.HasPrefix(filepath.Base(dir), "run=") { // OUT/tables/run=<id>
		return table.Read(dir)
	}
	switch ids, err := table.RunIDs(dir); {
	case err == nil && len(ids) == 1:
		return table.Read(table.RunDir(dir, ids[0]))
	case err == nil && len(ids) > 1:
		return nil, &usageError{msg: fmt.Sprintf("--workload: %s holds %d runs, want one", dir, len(ids)), hint: "give one of them, such as " + table.RunDir(dir, ids[0])}
	}
	runs, err := extract.Discover([]string{dir}, nil, nil)
	if err != nil {
		return nil, err
	}
	if len(runs) != 1 {
		return nil, &usageError{msg: fmt.Sprintf("--workload: %s holds %d runs, want one", dir, len(runs)), hint: "give one of them, such as " + runs[0].Dir}
	}
	tmp, err := os.MkdirTemp("", "blis-train-simulate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	o := extract.DefaultOptions()
	o.Out, o.ToolVersion = tmp, pipeline.ToolVersion
	doc, err := extract.Run(s.c.Context, runs, o)
	if err != nil {
		return nil, err
	}
	s.inputs = append(s.inputs, doc.Inputs...)
	ids, err := table.RunIDs(tmp)
	if err != nil || len(ids) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%s: got %d engine runs, want one; extract it and give one of its runs", dir, len(ids)))
	}
	return table.Read(table.RunDir(tmp, ids[0]))
}
