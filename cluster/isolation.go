package cluster

// This file is the command `experiment isolation`: options, input files, the gates to compare, and
// the files written. experiment.go runs it.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
)

// IsolationOptions are the options of the isolation experiment, which tests published claims about
// admission by predicted TTFT.
type IsolationOptions struct {
	Preset           string
	Seeds, Instances int
	Controller       string // coefficients of the gate in the main comparison: same, fitted, or a file
	Plant            string // coefficient file of the engines; "" for the published blackbox model
	Workload         string // recorded requests of preset mooncake
	Deployment       string // run.yaml; "": Llama-3.1-8B on one H100, 2,048 tokens a step, max_num_seqs 256
	Alone            bool   // do not repeat the main comparison with other coefficients in the gate
	Out              string
	Force            bool
	Workers          int
	Special          bool // read inputs that are not regular files, such as pipes
	Progress         trace.Progress
}

// DefaultIsolationOptions returns the defaults of the command line, except for Out.
func DefaultIsolationOptions() IsolationOptions {
	return IsolationOptions{Preset: publishedPreset, Seeds: 20, Instances: 8, Controller: kindFitted}
}

// recordingFor describes the workload file that a preset needs, for an error message.
func recordingFor(preset string) string {
	if preset == "mooncake" {
		return "the Mooncake trace that preset mooncake plays"
	}
	return "the file that preset " + preset +
		" plays: TraceV2, a workload-spec of BLIS, or any other that simulate reads"
}

// checkPreset returns an error for an unknown preset and for one whose recording is missing.
func (o *IsolationOptions) checkPreset() error {
	p, ok := presetOf(o.Preset)
	switch {
	case !ok:
		return option.Misusef("--preset: got %q, want %s", o.Preset, presetNames())
	case p.Recorded() && o.Workload == "":
		return option.Misusef("--workload: got none, want %s", recordingFor(o.Preset))
	case !p.Recorded() && o.Workload != "":
		return option.Misusef("--workload: got %q with preset %s, which draws its requests, want none or --preset "+
			"workload", o.Workload, o.Preset)
	}
	return nil
}

// inputs are the engines, gates and requests of an experiment.
type inputs struct {
	plant    plant         // the simulated engines
	gate     gate          // the gate of the main comparison
	others   []rival       // other gates with which the main comparison is repeated
	recorded []sim.Request // recorded requests, if the preset uses them
	files    []result.Input
	// warnings are about the coefficient files: changed after they were written, or made by hand.
	warnings []trace.Finding
	log      *runLog // nil if finished runs are not kept
}

// Isolation runs the isolation experiment and writes experiment.json and
// report.html to o.Out.
func Isolation(ctx context.Context, o IsolationOptions) (*Document, error) {
	if o.Seeds < 1 || o.Seeds > 1000 || o.Instances < 1 || o.Instances > 64 {
		return nil, option.Misusef("--seeds, --num-instances: got %d and %d, want 1 to 1000 and 1 to 64", o.Seeds,
			o.Instances)
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
	// An interrupted experiment continues with the runs in the log (runlog.go), also with another number
	// of seeds, so the key does not contain that.
	logged := o
	logged.Seeds = 0
	logKey := fmt.Sprint(folder.ToolVersion, " ", option.Command("experiment isolation", logged.Flags()), " ", l.files)
	path := filepath.Join(o.Out, folder.ExperimentLog)
	if l.log, err = openRuns(path, logKey); err != nil {
		return nil, err
	}
	doc, err := runPreset(ctx, o, *l)
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
	return doc, errors.Join(writePage(page, doc), page.Commit(), os.Remove(path)) // the log is needed no longer
}

// loadInputs reads the files that the options name and returns the plant (simulated engines), the
// gates and the recorded requests.
func loadInputs(ctx context.Context, o *IsolationOptions) (*inputs, error) {
	l := &inputs{plant: plant{Name: "the published blackbox, 6910.42 + 17.67/uncached + 2.84/decode token us, " +
		"noise of a few percent",
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
			return nil, trace.Errorf(codeBadSpec,
				"data_parallel_size: got %d, want 1: what a gate predicts is one engine", n).
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
		l.warnings = append(l.warnings, set.FileWarnings()...)
	}
	if o.Workload != "" {
		if err := l.readRecorded(o); err != nil {
			return nil, err
		}
	}
	return l, l.loadGates(ctx, o)
}

// readRecorded reads the recorded requests of o.Workload into l.recorded. It is called once because seeds
// differ only in where the recording starts. A recording that the preset cannot use is an error
// here, before anything is simulated.
func (l *inputs) readRecorded(o *IsolationOptions) error {
	w, draw, inputs, err := simulate.ReadWorkload(o.Workload, o.Special)
	if err == nil && draw != nil { // a generator and not a recording: its requests of seed 1 are the recording
		w, err = draw(1)
	}
	if err != nil {
		return err
	}
	l.files = append(l.files, inputs...)
	l.recorded = w.Requests
	preset, _ := presetOf(o.Preset)
	_, err = loadOf(preset.Load, l.recorded)
	return err
}

// loadGates sets the gate (the gateway's predicting coefficients) of the main comparison and,
// unless o.Alone, the rivals with which it is repeated: the engines' own coefficients, biased ones,
// and a model of another form.
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
		set, in, err := folder.LoadCoefficients(o.Controller, o.Special)
		if err != nil {
			return err
		}
		l.gate = gate{Kind: in.Name, Set: set, Scale: 1}
		l.files = append(l.files, in)
		l.warnings = append(l.warnings, set.FileWarnings()...)
	}
	if err != nil || o.Alone {
		return err
	}
	if o.Controller != kindSame {
		l.others = append(l.others, rival{
			Plant: l.plant,
			Gate:  same,
			Label: "upper bound: the engines' own coefficients",
		})
	}
	for _, g := range []gate{{Kind: kindBiasedLow, Scale: 0.7}, {Kind: kindBiasedUp, Scale: 1.3}} {
		l.others = append(l.others, rival{
			Plant: l.plant,
			Gate:  g,
			Label: fmt.Sprintf("step times off by x%g", g.Scale),
		})
	}
	other := plant{Name: "trained-physics", Deployment: l.plant.Deployment, Other: true}
	gate, err := fitted(&other, kindOtherForm)
	if err != nil {
		return err
	}
	l.others = append(l.others, rival{
		Plant: other,
		Gate:  gate,
		Label: "engines by trained-physics at the same share of their capacity, gate by physics fitted on them",
	})
	return nil
}
