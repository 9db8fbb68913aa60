package shard

// This file divides a run into tasks.

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// A run of many processes does the work of pipeline.Run, divided by run folder: what a stage does
// with one run folder is a task, a function from the task's text to files. Work that needs all runs
// at once is a single task in a pass of its own. Between passes one process, in Collect, offers the
// tasks of the next pass; after the last pass it writes the documents.
//
//	pass      task        reads                      writes
//	parse     part        lines or messages there    their records, for long inputs only
//	tables    run folder  its inputs, their records  tables, its part of extract.json
//	rows      engine run  its tables                 rows of every model, lag, quality, findings
//	fit       all         rows                       fit.json, coefficients.yaml
//	steps     engine run  its tables, the fit        rows that judge; another one: its inspection
//	limits    all         times of those rows        what an outlier is
//	replay    engine run  its tables, rows, limits   its replays, compared

// Names in the folder of a plan, in addition to those of a job.
const (
	planFile = "plan.json"
	outDir   = "out" // the output folder of the run
)

// Plan is plan.json: the inputs and options of a run whose tasks any process may do.
type Plan struct {
	ToolVersion string            `json:"tool_version"`
	Build       string            `json:"build"`   // of the program, see buildName
	Extract     string            `json:"extract"` // command line with the options that can change the result; so Fit, Validate
	Fit         string            `json:"fit"`
	Validate    string            `json:"validate"`
	MaxBadFrac  float64           `json:"max_bad_frac"`
	GatesFrom   map[string]string `json:"gates_from,omitempty"` // by gate: the flag or file that set its threshold
	Config      *result.Config    `json:"config,omitempty"`
	Bytes       int64             `json:"bytes"` // of all inputs
	Runs        []extract.Planned `json:"runs"`  // by id
	// Digest is the SHA-256 of the file's text with an empty digest. Tasks have the options in their own
	// text, so a plan that was edited would no longer be the plan of its tasks.
	Digest string   `json:"digest"`
	Open   []string `json:"-"` // ids of the first pass's tasks; of a new plan only
}

// DefaultPartBytes is the length of the parts in which long inputs are read.
const DefaultPartBytes = 256 << 20

// buildName identifies the program that does a task: version, source revision and platform.
// Results of two builds differ in their last digits, so tasks of one plan need one build.
func buildName() string {
	name := folder.ToolVersion + " " + result.Platform()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				name += "+" + s.Value
			}
		}
	}
	return name
}

// MakePlan plans a run of the inputs in the folder dir, offers its first tasks and returns the
// plan. Inputs longer than partBytes are divided into parts of that length if their format allows
// it; 0 divides none. o.Extract.Out is ignored, because results are written to dir/out.
func MakePlan(inputs []string, dir string, partBytes int64, o pipeline.RunOptions) (*Plan, error) {
	o.Extract.Out = filepath.Join(dir, outDir)
	p := planOf(&o)
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := o.Extract.Check(); err != nil {
		return nil, &option.Misuse{Msg: err.Error()}
	}
	if o.Extract.WhyRejected {
		return nil, option.Misusef("plan: --why-rejected goes with one process only: blis-train extract")
	}
	runs, err := pipeline.Discover(inputs, &o.Extract)
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{planFile}, jobDirs...) {
		if err := files.CheckTree(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, folder.ExtractFile)); err == nil {
		return nil, option.Misusef("%s: got a run's output, want an empty or new folder", dir)
	}
	// A run that cannot be planned makes the plan fail, with the errors of all such runs.
	var bad []extract.Failed
	for i := range runs {
		run, err := runs[i].Plan(partBytes)
		if err != nil {
			bad = append(bad, extract.Failed{ID: runs[i].ID, Err: err})
			continue
		}
		p.Runs = append(p.Runs, *run)
		p.Bytes += run.Bytes()
	}
	if len(bad) > 0 {
		return nil, extract.FailedRuns(bad, len(runs))
	}
	text, err := p.text()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, planFile)
	// Making the same plan again is allowed, because the first call may have been killed before it
	// printed the tasks.
	if old, err := files.ReadAll(path); !errors.Is(err, fs.ErrNotExist) && !bytes.Equal(old, text) {
		return nil, &option.Misuse{
			Msg:  fmt.Sprintf("%s: got a folder with another plan, want an empty or new folder", dir),
			Hint: "blis-train collect " + dir + " continues that plan",
		}
	}
	job := Job{Dir: dir}
	if p.isCut() {
		p.Open, err = p.offerParse(job)
	} else {
		p.Open, err = p.offerTables(job, make([][]extract.Stored, len(p.Runs)))
	}
	if err != nil {
		return nil, err
	}
	return p, files.Write(path, text)
}

// text sets the digest of the plan and returns the text of plan.json.
func (p *Plan) text() ([]byte, error) {
	p.Digest = ""
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return nil, err
	}
	p.Digest = fmt.Sprintf("%x", sha256.Sum256(text))
	text, err = json.MarshalIndent(p, "", " ")
	return append(text, '\n'), err
}

// planOf returns the plan of a run without its inputs, with the options as given.
func planOf(o *pipeline.RunOptions) *Plan {
	return &Plan{
		ToolVersion: folder.ToolVersion,
		Build:       buildName(),
		Extract:     option.Command("extract", o.Extract.Options.Flags()),
		Fit:         option.Command("fit", o.Fit.LearningFlags()),
		Validate:    option.Command("validate", o.Validate.Flags()),
		MaxBadFrac:  o.Extract.MaxBadFrac,
		GatesFrom:   o.Validate.ThresholdsFrom,
		Config:      o.Extract.Config,
	}
}

// runsLeft returns the runs of the plan that the filter accepts.
func (p *Plan) runsLeft(o *pipeline.ExtractOptions) (runs []extract.Planned, err error) {
	ext := &result.Extract{}
	for _, r := range p.Runs {
		ext.Runs = append(ext.Runs, result.ExtractRun{ID: r.ID})
	}
	without, err := o.Rejected(ext, o.Warn)
	return slices.DeleteFunc(slices.Clone(p.Runs), func(r extract.Planned) bool { return slices.Contains(without, r.ID) }), err
}

// isCut reports whether any input is read in parts, so that the plan starts with the pass parse.
func (p *Plan) isCut() bool {
	return slices.ContainsFunc(p.Runs, func(r extract.Planned) bool { return len(r.Pieces) > 0 })
}

// offerParse offers a task for each part of each long input, in order, and returns their ids.
func (p *Plan) offerParse(job Job) ([]string, error) {
	var tasks []Task
	for _, run := range p.Runs {
		for _, piece := range run.Pieces {
			name := run.ID + " " + piece.Name
			if piece.Part != nil {
				name += fmt.Sprintf(" [%d, %d)", piece.Part.From, piece.Part.To)
			}
			task, err := NewTask(passParse, name, parseTask{Build: p.Build, Command: p.Extract, Piece: piece})
			if err != nil {
				return nil, err
			}
			tasks = append(tasks, task)
		}
	}
	return offerAll(job, passParse, tasks)
}

// offerTables offers a task for each run folder and returns their ids. stored are, for each run,
// the inputs that were read in parts.
func (p *Plan) offerTables(job Job, stored [][]extract.Stored) ([]string, error) {
	var tasks []Task
	for i, run := range p.Runs {
		run.Pieces = nil // tasks of their own
		task, err := NewTask(passTables, run.ID, tableTask{Build: p.Build, Command: p.Extract, Run: run, Stored: stored[i]})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return offerAll(job, passTables, tasks)
}

// offerAll offers the tasks of a pass and returns their ids.
func offerAll(job Job, pass string, tasks []Task) (ids []string, err error) {
	for i := range tasks {
		ids = append(ids, tasks[i].ID())
	}
	return ids, job.Offer(pass, tasks)
}

// mostPlanBytes is the largest plan that is read. One of a million tasks is smaller.
const mostPlanBytes = 256 << 20

// ReadPlan returns the plan of a folder. It is an error if another build made the plan, or if the
// file was changed since.
func ReadPlan(dir string) (*Plan, error) {
	path := filepath.Join(dir, planFile)
	text, err := files.Read(path, mostPlanBytes, false)
	if err != nil {
		return nil, trace.Hinted(err, "blis-train plan RUN... -o "+dir)
	}
	p := &Plan{}
	if err = trace.UnmarshalJSON(text, p); err != nil {
		return nil, fmt.Errorf("%s: got no plan: %w", path, err)
	}
	if now := buildName(); p.Build != now {
		return nil, fmt.Errorf("%s: the plan was made by build %s, this is %s: use that build for every task of the plan", path, p.Build, now)
	}
	read := *p
	if want, err := read.text(); err != nil || !bytes.Equal(text, want) {
		return nil, trace.Hinted(fmt.Errorf("%s: the plan was changed after it was written: its tasks have the options of the old one", path),
			"blis-train plan RUN... -o another folder, or restore the file")
	}
	return p, nil
}

// options sets o to the options of the plan.
func (p *Plan) options(dir string, o *pipeline.RunOptions) error {
	o.Extract.Out = filepath.Join(dir, outDir)
	o.Extract.MaxBadFrac = p.MaxBadFrac
	o.Extract.Config = p.Config
	err := errors.Join(
		option.Parse(p.Extract, "extract", o.Extract.Options.Flags()),
		option.Parse(p.Fit, "fit", o.Fit.LearningFlags()),
		option.Parse(p.Validate, "validate", o.Validate.Flags()))
	if err != nil {
		return err
	}
	o.Validate.ThresholdsFrom = p.GatesFrom
	return o.Check()
}

// Cost of a run. A generated dump of 2 GB took 83 CPU-seconds. Shorter dumps cost more per byte,
// because some work of a fit does not depend on the size of the dump: 170 MB took 68e-9 s per byte.
const (
	costSecondsPerByte = 41e-9 // core-seconds a byte of raw JSON
	manyBytes          = 1e12  // below this one process is simpler and fast enough
)

// Estimate is the approximate cost of a plan.
type Estimate struct {
	Tasks   int           // of the first pass
	HereS   float64       // seconds in one process on the cores at hand
	ThereS  float64       // seconds when every task has a core of its own
	Longest extract.Sized // input that a single worker has to read
	Advice  string
}

// Estimate returns the plan's approximate cost on one machine with so many cores, and with one core
// for every task.
func (p *Plan) Estimate(cores int) Estimate {
	e := Estimate{Tasks: len(p.Open), HereS: costSecondsPerByte * float64(p.Bytes) / float64(cores)}
	most := int64(0) // bytes of the largest run, which one task reads
	for i := range p.Runs {
		most = max(most, p.Runs[i].Bytes())
		if l := p.Runs[i].Longest(); l.Bytes > e.Longest.Bytes {
			e.Longest = l
		}
	}
	e.ThereS = costSecondsPerByte * float64(most)
	e.Advice = "one process: blis-train run"
	if float64(p.Bytes) > manyBytes {
		e.Advice = "many processes"
	}
	return e
}
