package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
)

// IsolationOptions say which experiment is run.
type IsolationOptions struct {
	Preset           string
	Seeds, Instances int
	Controller       string // of the headline: same, fitted, or a coefficient file
	Plant            string // coefficient file that drives the engines; "": the published blackbox
	Workload         string // recorded requests of preset mooncake
	Deployment       string // run.yaml; "": Llama-3.1-8B on one H100, 2,048 tokens a step, 256 seats
	Alone            bool   // no other controllers
	Out              string
	Force            bool
	Workers          int
	Special          bool
	Progress         trace.Progress
}

// DefaultIsolationOptions are those of the command line but for Out.
func DefaultIsolationOptions() IsolationOptions {
	return IsolationOptions{Preset: "seed", Seeds: 20, Instances: 8, Controller: kindFitted}
}

// plays says what a preset that plays recorded requests wants.
func plays(preset string) string {
	if preset == "mooncake" {
		return "the Mooncake trace that preset mooncake plays"
	}
	return "the file that preset " + preset + " plays: TraceV2, a workload-spec of BLIS, or any other that simulate reads"
}

// checkPreset says whether the preset is one, and has the recording that it needs.
func (o *IsolationOptions) checkPreset() error {
	p, ok := presetOf(o.Preset)
	switch {
	case !ok:
		return option.Misusef("--preset: got %q, want %s", o.Preset, presetNames())
	case p.Recorded() && o.Workload == "":
		return option.Misusef("--workload: got none, want %s", plays(o.Preset))
	case !p.Recorded() && o.Workload != "":
		return option.Misusef("--workload: got %q with preset %s, which draws its requests, want none or --preset workload", o.Workload, o.Preset)
	}
	return nil
}

// inputs are the engines and the gates of an experiment, loaded.
type inputs struct {
	plant  plant
	gate   gate          // of the headline
	others []rival       // other gates, for the headline again
	hour   []sim.Request // recorded, of a preset that plays them
	files  []result.Input
	log    *runLog // nil: nothing is kept
}

// Isolation runs the isolation experiment and writes experiment.json and
// report.html to o.Out.
func Isolation(ctx context.Context, o IsolationOptions) (*Document, error) {
	if o.Seeds < 1 || o.Seeds > 1000 || o.Instances < 1 || o.Instances > 64 {
		return nil, option.Misusef("--seeds, --num-instances: got %d and %d, want 1 to 1000 and 1 to 64", o.Seeds, o.Instances)
	}
	if err := o.checkPreset(); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := loadInputs(ctx, &o)
	if err != nil {
		return nil, err
	}
	of := o
	path := filepath.Join(o.Out, folder.ExperimentLog)
	of.Seeds = 0 // each has runs of its own
	if l.log, err = openRuns(path, fmt.Sprint(folder.ToolVersion, " ", option.Command("experiment isolation", of.Flags()), " ", l.files)); err != nil {
		return nil, err
	}
	doc, err := run(ctx, o, *l)
	if err = errors.Join(err, l.log.file.Close()); err != nil {
		return nil, err
	}
	doc.Header = folder.Header(option.Command("experiment isolation", o.Flags()), nil)
	doc.Inputs = append(doc.Inputs, l.files...)
	if err := folder.WriteDocument(filepath.Join(o.Out, folder.ExperimentFile), doc); err != nil {
		return nil, err
	}
	page, err := files.Begin(filepath.Join(o.Out, folder.ReportFile))
	if err != nil {
		return nil, err
	}
	return doc, errors.Join(writePage(page, doc), page.Commit(), os.Remove(path))
}

func loadInputs(ctx context.Context, o *IsolationOptions) (*inputs, error) {
	l := &inputs{plant: plant{Name: "the published blackbox, 6910.42 + 17.67/uncached + 2.84/decode token us, noise of a few percent",
		Deployment: defaultDeployment()}}
	if o.Deployment != "" {
		path := o.Deployment
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			path = filepath.Join(path, deploy.RunFile)
		}
		_, in, err := folder.ReadInput(path, o.Special)
		if err != nil {
			return nil, err
		}
		if l.plant.Deployment, err = deploy.LoadRunFile(path); err != nil {
			return nil, err
		}
		if n := l.plant.Deployment.DP; n > 1 {
			return nil, trace.Errorf(codeBadSpec, "data_parallel_size: got %d, want 1: what a gate predicts is one engine", n).
				WithHint("simulate --cluster FILE plays data-parallel instances behind gates that predict nothing")
		}
		l.files = append(l.files, in)
	}
	if o.Plant != "" {
		set, in, err := folder.LoadCoefficients(o.Plant, o.Special)
		if err != nil {
			return nil, err
		}
		l.plant.Set = set
		l.plant.Name = in.Name
		l.files = append(l.files, in)
	}
	if o.Workload != "" {
		if err := l.readHour(o); err != nil {
			return nil, err
		}
	}
	return l, l.loadGates(ctx, o)
}

// readHour reads recorded requests, or draws them once: seeds differ in where they start.
// Requests that the preset cannot play are refused before anything is simulated.
func (l *inputs) readHour(o *IsolationOptions) error {
	w, draw, inputs, err := simulate.ReadWorkload(o.Workload, o.Special)
	if err == nil && draw != nil {
		w, err = draw(1)
	}
	if err != nil {
		return err
	}
	l.files = append(l.files, inputs...)
	l.hour = w.Requests
	preset, _ := presetOf(o.Preset)
	_, err = loadOf(preset.Load, l.hour)
	return err
}

// loadGates makes the headline's coefficients, and those of the rivals.
func (l *inputs) loadGates(ctx context.Context, o *IsolationOptions) error {
	same := gate{Kind: kindSame, Scale: 1}
	fitted := func(p *plant, kind string) (gate, error) {
		set, err := calibrated(ctx, p, o.Workers)
		return gate{Kind: kind, Set: set, Scale: 1}, err
	}
	var err error
	switch o.Controller {
	case kindSame:
		l.gate = same
	case kindFitted:
		l.gate, err = fitted(&l.plant, kindFitted)
	default:
		set, in, e := folder.LoadCoefficients(o.Controller, o.Special)
		l.gate = gate{Kind: in.Name, Set: set, Scale: 1}
		l.files = append(l.files, in)
		err = e
	}
	if err != nil || o.Alone {
		return err
	}
	if o.Controller != kindSame {
		l.others = append(l.others, rival{Plant: l.plant, Gate: same, Label: "upper bound: the engines' own coefficients"})
	}
	for _, g := range []gate{{Kind: kindBiasedLow, Scale: 0.7}, {Kind: kindBiasedUp, Scale: 1.3}} {
		l.others = append(l.others, rival{Plant: l.plant, Gate: g, Label: fmt.Sprintf("step times off by x%g", g.Scale)})
	}
	other := plant{Name: "trained-physics", Deployment: l.plant.Deployment, Other: true}
	gate, err := fitted(&other, kindOtherForm)
	if err != nil {
		return err
	}
	l.others = append(l.others, rival{Plant: other, Gate: gate,
		Label: "engines by trained-physics at the same share of their capacity, gate by physics fitted on them"})
	return nil
}

// calibrationRun describes the recording of a calibration run.
//
//go:embed calibration_run.yaml
var calibrationRun string

// calibrated is what the pipeline makes of a calibration run: the plant's engine
// alone at half to nine tenths of its capacity, recorded as a trace dump, extracted
// and fitted.
func calibrated(ctx context.Context, p *plant, workers int) (*coeff.Set, error) {
	dir, remove, err := files.Temporary("", "blis-train-calibration-")
	if err != nil {
		return nil, err
	}
	defer remove()
	in := filepath.Join(dir, "calibration")
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(in, 0o777); err != nil {
		return nil, err
	}
	if err := recordCalibration(p, in); err != nil {
		return nil, err
	}
	o := pipeline.DefaultRunOptions()
	o.Extract.Out, o.Extract.Workers = out, workers
	o.Fit.Bootstraps = 50
	o.Validate.StepsOnly = true
	if _, err := pipeline.Run(ctx, []string{in}, o); err != nil {
		return nil, fmt.Errorf("calibration run: %w", err)
	}
	set, _, err := folder.LoadCoefficients(filepath.Join(out, folder.CoefficientsFile), false)
	return set, err
}

func recordCalibration(p *plant, in string) error {
	cfg, err := p.Config(999)
	if err != nil {
		return err
	}
	reqs, err := p.Calibration()
	if err != nil {
		return err
	}
	run, model := runFiles(p.Deployment, calibrationRun)
	for name, text := range map[string]string{"run.yaml": run, "config.json": model} {
		if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(in, "traces.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	dump, err := sim.NewDump(f, nil, p.Deployment, reqs, sim.DefaultDumpOptions(p.Deployment))
	if err != nil {
		return err
	}
	res, err := sim.Run(cfg, reqs, dump)
	if err != nil {
		return err
	}
	return errors.Join(dump.Close(res.Steps), f.Close())
}

// keptRun is a finished run as the log of an experiment holds it.
type keptRun struct {
	Key     string
	Outcome outcome
}

// runLog keeps finished runs in a file, a line each behind one that says what they are of, so that an interrupted experiment goes on.
type runLog struct {
	mu    sync.Mutex
	file  *os.File
	known map[string]*outcome
}

// openRuns opens the log of an experiment; runs of another one are dropped, as is a last line that was cut off.
func openRuns(path, of string) (*runLog, error) {
	l := &runLog{known: map[string]*outcome{}}
	of += "\n"
	text, err := files.ReadAll(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lines, same := bytes.CutPrefix(text[:bytes.LastIndexByte(text, '\n')+1], []byte(of))
	for line := range bytes.Lines(lines) {
		var r keptRun
		text, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(line)))
		if same && err == nil && yaml.Unmarshal(text, &r) == nil {
			l.known[r.Key] = &r.Outcome
		}
	}
	if l.file, err = files.Append(path); err != nil {
		return nil, err
	}
	whole := int64(len(lines) + len(of))
	if !same {
		whole = 0
	}
	if err = l.file.Truncate(whole); err == nil && !same {
		_, err = l.file.WriteString(of)
	}
	return l, err
}

// once is a run of a cell, or what the log has of it.
func (l *lab) once(c *cell, r *rival, seed int64, reqs []sim.Request, w window, rates map[string][]float64) (*outcome, error) {
	if l.log == nil {
		return l.one(c, r, seed, reqs, w, rates)
	}
	key := fmt.Sprint(r.Label, "/", c.Name, "/", seed, "/", digestOf(reqs), "/", w)
	l.log.mu.Lock()
	o := l.log.known[key]
	l.log.mu.Unlock()
	if o != nil {
		if o.Rates == nil {
			o.Rates = map[string][]float64{}
		}
		return o, nil
	}
	o, err := l.one(c, r, seed, reqs, w, rates)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(&keptRun{key, *o})
	if err != nil {
		return nil, err
	}
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	_, err = l.log.file.WriteString(base64.StdEncoding.EncodeToString(text) + "\n")
	return o, err
}

// optimiseOptions say which policy is tuned, and how.
type optimiseOptions struct {
	IsolationOptions
	Policy, Method                      string
	Start, Calls, TrainSeeds, TestSeeds int
}

// DefaultOptimiseOptions are those of the command line but for Out.
func DefaultOptimiseOptions() optimiseOptions {
	o := optimiseOptions{IsolationOptions: DefaultIsolationOptions(), Policy: "predictive-seed", Method: methodGP, Start: 12, Calls: 30,
		TrainSeeds: 10, TestSeeds: 20}
	o.Alone = true
	return o
}

func (o *optimiseOptions) check() error {
	names := slices.Sorted(maps.Keys(tunable()))
	switch {
	case !slices.Contains(names, o.Policy):
		return option.Misusef("--policy: got %q, want %s", o.Policy, strings.Join(names, ", "))
	case !slices.Contains([]string{methodGP, methodRandom, methodGrid}, o.Method):
		return option.Misusef("--method: got %q, want gp, random or grid", o.Method)
	case o.Start < 2 || o.Calls < 0 || o.Start+o.Calls > 1000:
		return option.Misusef("--start, --calls: got %d and %d, want at least 2, at least 0, at most 1000 together", o.Start, o.Calls)
	case o.TrainSeeds < 2 || o.TestSeeds < 2 || o.TrainSeeds > 100 || o.TestSeeds > 1000:
		return option.Misusef("--train-seeds, --test-seeds: got %d and %d, want 2 to 100 and 2 to 1000", o.TrainSeeds, o.TestSeeds)
	}
	return o.checkPreset()
}

// Optimise tunes policies with equal budgets and writes optimise.json to
// o.Out, and a line a call to optimise.jsonl, from which an interrupted search goes on.
func Optimise(ctx context.Context, o optimiseOptions) (*OptimiseDoc, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := loadInputs(ctx, &o.IsolationOptions)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(o.Out, folder.OptimiseLog)
	before, whole, err := loggedCalls(path)
	if err != nil {
		return nil, err
	}
	log, err := files.Append(path)
	if err != nil {
		return nil, err
	}
	if err := log.Truncate(whole); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	doc, err := tune(&tuner{lab: lab{IsolationOptions: o.IsolationOptions, inputs: *l, ctx: ctx}, ask: o, before: before,
		made: func(c loggedCall) error {
			line, err := json.Marshal(c)
			if err != nil {
				return err
			}
			_, err = log.Write(append(line, '\n'))
			return err
		}, always: map[string]*float64{}})
	if err = errors.Join(err, log.Close()); err != nil {
		return nil, err
	}
	doc.Header = folder.Header(option.Command("experiment optimise", o.Flags()), nil)
	doc.Inputs = append(doc.Inputs, l.files...)
	return doc, folder.WriteDocument(filepath.Join(o.Out, folder.OptimiseFile), doc)
}

// loggedCalls are those of an earlier search, and the bytes they take: a last line
// that was cut off is left.
func loggedCalls(path string) (out []loggedCall, whole int64, err error) {
	text, err := files.ReadAll(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for line := range bytes.Lines(text) {
		var c loggedCall
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, 0, &trace.SyntaxError{File: filepath.Base(path), Line: int64(len(out) + 1), Code: codeBadSpec,
				Msg: "optimise log: got " + err.Error() + ", want one call a line"}
		}
		out = append(out, c)
	}
	return out, int64(len(text)), nil
}

// OptimiseDoc is optimise.json: tuned policies on seeds and loads they were not tuned
// on. Goodput throughout.
type OptimiseDoc struct {
	result.Header
	Policy   string           `json:"policy"` // the one asked for
	Method   string           `json:"method"`
	Calls    int              `json:"calls"` // of every policy
	Train    []int64          `json:"train_seeds"`
	Test     []int64          `json:"test_seeds"`
	Baseline *float64         `json:"baseline_goodput"`          // always-admit, train seeds
	Critical *float64         `json:"baseline_goodput_critical"` // and of class critical: the constraint is 1 point below
	Tuned    []optimisePolicy `json:"policies"`
	Warnings []trace.Finding  `json:"warnings"`
}

// optimisePolicy is one policy, tuned or as it is.
type optimisePolicy struct {
	Policy      string              `json:"policy"`
	Method      string              `json:"method"` // "" untuned
	Parameters  map[string]float64  `json:"parameters"`
	Posterior   *float64            `json:"posterior_goodput"` // of the search, at what it recommends
	Train       *float64            `json:"train_goodput"`
	Test        *float64            `json:"test_goodput"`
	Gap         *float64            `json:"optimism_gap"` // train - test
	Critical    *float64            `json:"test_goodput_critical"`
	Transfer    []optimiseTransfer  `json:"transfer"`
	Sensitivity []optimiseParameter `json:"sensitivity"`
}

// optimiseTransfer is the goodput on another load or other engines.
type optimiseTransfer struct {
	To      string   `json:"to"`
	Goodput *float64 `json:"goodput"`
	Always  *float64 `json:"always_admit"`
	Tested  bool     `json:"tested"` // false: always-admit serves 99 % there, nothing needs rejecting
}

// optimiseParameter is what the full range of a parameter moves.
type optimiseParameter struct {
	Name   string   `json:"name"`
	Lo     float64  `json:"from"`
	Hi     float64  `json:"to"`
	Moves  *float64 `json:"goodput_range"` // largest paired difference over its range
	Band   *float64 `json:"interval"`      // half width of that difference's 95 % interval
	Effect string   `json:"effect"`        // yes, or no effect
}

// ledger is what the gateway saw itself.
type ledger struct {
	Of      []account // by instance
	Classes []class
	byName  map[string]int
	entries []entry // by request of the workload
	order   []int   // classes by priority
	lengths lengths
	leaving [leavingWindows]float64 // as Leaving gave it last
}

// class is what is known of one class.
type class struct {
	Priority int
	Finished int64 // requests
	Outputs  int64 // tokens of those
	sent     flow  // lately, to all instances together
}

// account is one instance.
type account struct {
	InFlight   int64   // requests sent and not finished
	Decodes    int64   // of those, past their first token
	DecodeToks int64   // prompt tokens of those
	StepEndUs  int64   // last end of a step that was seen, by a first token or an answer's end; -1: none yet
	Pending    []queue // by class: without a first token
	All        queue   // the same of all classes together
	inbound    flow    // what was sent lately
	served     rate    // the same of first tokens that came
	ages       ages    // of answers under way
}

// queue is requests without a first token, in the order they were sent.
type queue struct {
	Tokens   int64 // prompt tokens to compute of all
	Requests int64
	order    []int32 // of the workload; some have had their first token
	head     int
}

type state uint8

const (
	outside state = iota
	pending
	decoding
)

type entry struct {
	sentUs, prompt, cached int64
	class                  int32
	began                  int32 // place in ages.born
	state                  state
}

// rateWindowUs is the time constant of rates.
const (
	rateWindowUs = 2_000_000
	leastUs      = 100_000
)

// rate is an exponentially weighted rate of events.
type rate struct {
	perUs float64
	atUs  int64
}

func (r *rate) add(atUs int64, amount float64) {
	r.perUs = r.at(atUs) + amount/rateWindowUs
	r.atUs = atUs
}

func (r *rate) at(us int64) float64 { return r.perUs * decay(us-r.atUs) }

// perSecond corrects for the time before the window was full; a start shorter than
// leastUs counts as that long.
func (r *rate) perSecond(us int64) float64 { return r.at(us) / (1 - decay(max(us, leastUs))) * 1e6 }

// flow is requests that are sent somewhere: how many, and their prompt tokens to compute.
type flow struct{ tokens, prompts rate }

func (f *flow) add(atUs, tokens int64) {
	f.tokens.add(atUs, float64(tokens))
	f.prompts.add(atUs, 1)
}

// newLedger is an empty ledger for some instances and n requests.
func newLedger(instances, n int) *ledger {
	l := &ledger{Of: make([]account, instances), byName: map[string]int{}, entries: make([]entry, n)}
	for i := range l.Of {
		l.Of[i].StepEndUs = -1
	}
	return l
}

// Class is the number of a class; new ones are added.
func (l *ledger) Class(name string, priority int) int {
	if c, ok := l.byName[name]; ok {
		return c
	}
	c := len(l.Classes)
	l.byName[name] = c
	l.Classes = append(l.Classes, class{Priority: priority})
	for i := range l.Of {
		l.Of[i].Pending = append(l.Of[i].Pending, queue{})
	}
	return c
}

// Sent notes a request that goes to instance i.
func (l *ledger) Sent(r *Request, i int, nowUs, cached int64) {
	a := &l.Of[i]
	todo := max(1, r.PromptTokens-cached)
	l.entries[r.Index] = entry{sentUs: nowUs, prompt: r.PromptTokens, cached: cached, class: int32(r.Class), state: pending}
	a.InFlight++
	a.Pending[r.Class].push(int32(r.Index), todo)
	a.All.push(int32(r.Index), todo)
	a.inbound.add(nowUs, todo)
	l.Classes[r.Class].sent.add(nowUs, todo)
}

func (q *queue) push(request int32, tokens int64) {
	q.Tokens += tokens
	q.Requests++
	q.order = append(q.order, request)
}

// FirstToken notes the first token of a request on instance i.
func (l *ledger) FirstToken(request, i int, atUs int64) {
	e, a := &l.entries[request], &l.Of[i]
	if e.state != pending {
		return
	}
	e.state = decoding
	l.leaveQueue(e, a)
	a.served.add(atUs, float64(e.todo()))
	a.Decodes++
	a.DecodeToks += e.prompt
	e.began = int32(a.ages.steps / ageSteps)
	a.ages.born = append(a.ages.born, make([]int64, max(0, int(e.began)+1-len(a.ages.born)))...)
	a.ages.born[e.began]++
	a.StepEndUs = max(a.StepEndUs, atUs)
}

// Stepped notes the end of a step of instance i. A gateway sees it by the next token of
// every answer that is under way, and not without one.
func (l *ledger) Stepped(i int) {
	if l.Of[i].Decodes > 0 {
		l.Of[i].ages.steps++
	}
}

// leaveQueue takes a request out of its queue.
func (l *ledger) leaveQueue(e *entry, a *account) {
	for _, q := range []*queue{&a.Pending[e.class], &a.All} {
		q.Tokens -= e.todo()
		q.Requests--
		for q.head < len(q.order) && l.entries[q.order[q.head]].state != pending {
			q.head++
		}
		if q.head > 1024 && 2*q.head > len(q.order) {
			q.order = slices.Delete(q.order, 0, q.head)
			q.head = 0
		}
	}
}

// Left notes that a request has left instance i, after some output tokens: its step has
// ended, but for the time the answer takes on its way out.
func (l *ledger) Left(request, i int, atUs, outputs int64, finished bool) {
	e, a := &l.entries[request], &l.Of[i]
	switch e.state {
	case pending:
		e.state = outside
		l.leaveQueue(e, a)
	case decoding:
		a.Decodes--
		a.DecodeToks -= e.prompt
		for a.ages.born[e.began]--; a.ages.eldest < len(a.ages.born)-1 && a.ages.born[a.ages.eldest] == 0; {
			a.ages.eldest++
		}
		a.StepEndUs = max(a.StepEndUs, atUs)
	default:
		return
	}
	e.state = outside
	a.InFlight--
	if finished {
		c := &l.Classes[e.class]
		c.Finished++
		c.Outputs += outputs
		l.lengths.add(outputs)
	}
}

// MeanOutputs is the mean output length of finished requests of all classes, in
// tokens; 0: none has finished.
func (l *ledger) MeanOutputs() float64 {
	var n, tokens int64
	for i := range l.Classes {
		n += l.Classes[i].Finished
		tokens += l.Classes[i].Outputs
	}
	if n == 0 {
		return 0
	}
	return float64(tokens) / float64(n)
}

// Inbound is what was sent to instance i lately: prompt tokens to compute per second, and
// the mean of one prompt; 0: none was sent.
func (l *ledger) Inbound(i int, nowUs int64) (perS, one float64) {
	f := &l.Of[i].inbound
	return f.tokens.perSecond(nowUs), ratio(f.tokens.perUs, f.prompts.perUs)
}

// Better is the same of classes better than a priority, at an equal share of what all
// instances got.
func (l *ledger) Better(priority int, nowUs int64) (perS, one float64) {
	prompts, share := 0.0, float64(len(l.Of))
	for c := range l.Classes {
		if k := &l.Classes[c]; k.Priority > priority {
			perS += k.sent.tokens.perSecond(nowUs) / share
			prompts += k.sent.prompts.perSecond(nowUs) / share
		}
	}
	return perS, ratio(perS, prompts)
}

// ratio is a/b, 0 where b is.
func ratio(a, b float64) float64 {
	if b > 0 {
		return a / b
	}
	return 0
}

// ServedPerS is the rate of computed prompt tokens whose requests had their first
// token lately, over all instances.
func (l *ledger) ServedPerS(nowUs int64) float64 {
	sum := 0.0
	for i := range l.Of {
		sum += l.Of[i].served.perSecond(nowUs)
	}
	return sum
}

// Waiting visits the requests of a queue that have no first token, in the order
// they were sent, until visit says stop. todo is the prompt tokens to compute.
func (l *ledger) Waiting(q *queue, visit func(request int, sentUs, todo int64) bool) {
	for _, r := range q.order[q.head:] {
		if e := &l.entries[r]; e.state == pending && !visit(int(r), e.sentUs, e.todo()) {
			return
		}
	}
}

// Pending is a request without a first token: its class, and the prompt tokens to
// compute.
func (l *ledger) Pending(request int) (class int, todo int64, ok bool) {
	e := &l.entries[request]
	return int(e.class), e.todo(), e.state == pending
}

func (e *entry) todo() int64 { return max(1, e.prompt-e.cached) }

// Queues visits the lines of instance i in the order they are served until visit says stop: one of everybody, or, by
// priority, one a class, the most important first.
func (l *ledger) Queues(i int, byPriority bool) iter.Seq[*queue] {
	a := &l.Of[i]
	return func(visit func(*queue) bool) {
		if !byPriority {
			visit(&a.All)
			return
		}
		for _, c := range l.byPriority() {
			if !visit(&a.Pending[c]) {
				return
			}
		}
	}
}

// byPriority are the classes, the most important first.
func (l *ledger) byPriority() []int {
	if len(l.order) != len(l.Classes) {
		l.order = l.order[:0]
		for c := range l.Classes {
			l.order = append(l.order, c)
		}
		slices.SortStableFunc(l.order, func(a, b int) int { return l.Classes[b].Priority - l.Classes[a].Priority })
	}
	return l.order
}

// ageSteps is how finely the ages of answers are known, in steps: an answer grows by a
// token a step.
const ageSteps = 16

// ages is when the answers that are under way on an instance began.
type ages struct {
	steps  int64   // that showed a token
	born   []int64 // answers under way by the step of their first token / AgeSteps
	eldest int     // born is 0 before it
}

// lengths are those of answers that have ended, and the rates at which answers end that
// follow from them: a life table, in which answers under way count as far as they are.
type lengths struct {
	ended   []int64   // by output tokens / AgeSteps
	n, next int64     // of them; when rates are due again
	ends    []float64 // share that ends of answers of that age, within AgeSteps steps
}

func (k *lengths) add(outputs int64) {
	b := int(outputs / ageSteps)
	k.ended = append(k.ended, make([]int64, max(0, b+1-len(k.ended)))...)
	k.ended[b]++
	k.n++
}

// rates renews ends once some more answers have ended.
func (k *lengths) rates(of []account) {
	if k.n < k.next {
		return
	}
	k.next = k.n + 1 + k.n/32
	last := len(k.ended)
	running := make([]int64, last+1)
	for i := range of {
		a := &of[i].ages
		for b := a.eldest; b < len(a.born); b++ {
			running[min(last, int(a.steps/ageSteps)-b)] += a.born[b]
		}
	}
	k.ends = append(k.ends[:0], make([]float64, last)...)
	older := running[last]
	for b, n := range slices.Backward(k.ended) {
		if n > 0 {
			k.ends[b] = float64(n) / (float64(older+n) + float64(running[b])/2)
		}
		older += n + running[b]
	}
}

// at is the share at an age in AgeSteps; what is older than all that have ended is like
// the oldest of those.
func (k *lengths) at(age float64) float64 {
	age = max(0, age)
	b, last := int(age), len(k.ends)-1
	part := age - float64(b)
	return k.ends[min(b, last)]*(1-part) + k.ends[min(b+1, last)]*part
}

// leavingWindows is how many windows of AgeSteps steps ends are expected for.
const leavingWindows = 6

// Leaving is the share of the answers under way on instance i that is expected to end,
// per answer and step, in windows of AgeSteps steps to come; nil where no answer has ended
// or none is under way. The next call reuses it.
func (l *ledger) Leaving(i int) []float64 {
	a := &l.Of[i].ages
	if l.lengths.rates(l.Of); l.lengths.n == 0 || l.Of[i].Decodes == 0 {
		return nil
	}
	now := float64(a.steps)/ageSteps - 0.5
	var left, gone [leavingWindows]float64
	for b := a.eldest; b < len(a.born); b++ {
		x := float64(a.born[b])
		for w := range leavingWindows {
			share := l.lengths.at(now - float64(b-w))
			left[w] += x
			gone[w] += x * share
			x -= x * share
		}
	}
	for w := range leavingWindows {
		if left[w] > 0 {
			gone[w] /= left[w] * ageSteps
		}
	}
	l.leaving = gone
	return l.leaving[:]
}
