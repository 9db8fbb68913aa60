package pipeline

// This file checks that a coefficient file can be made again from its recorded inputs.

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// RefitOptions are the options of checking a coefficient file by a new fit.
type RefitOptions struct {
	Data     string   // folder above the run folders
	Set      []string // what overrode run.yaml when the file was made
	Workers  int      // 0 uses every core
	Special  bool     // read pipes and devices given as files
	Progress trace.Progress
}

// RefitResult compares a coefficient file with a new fit of its recorded inputs.
//
// The same program on the same platform has to write the same bytes. Another platform may fuse
// multiplications with additions. Its numbers have to agree within refitTolerance, and everything
// else exactly.
type RefitResult struct {
	SchemaVersion string        `json:"schema_version"`
	ToolVersion   string        `json:"tool_version"`
	Platform      string        `json:"platform"` // of this build
	RecordedOn    string        `json:"recorded_on"`
	File          result.Input  `json:"file"`
	Command       string        `json:"command"` // that was run again
	Refit         *result.Input `json:"refit"`   // null when the inputs already differ
	Identical     bool          `json:"identical"`
	// Equal is true for identical files, and between platforms for files whose numbers agree.
	Equal bool `json:"equal"`
	// LargestDeviation is the largest relative deviation of a number; null without a refit and
	// where more than numbers differs.
	LargestDeviation *float64 `json:"largest_deviation"`
	Differences      []string `json:"differences"`
}

// Tolerances between platforms, relative. Covariances of directions that the data do not
// determine amplify the last bits of a fit, so they get a wider one.
const (
	refitTolerance           = 1e-9
	refitCovarianceTolerance = 1e-5
)

// Refit fits the recorded inputs of a coefficient file again and returns the comparison: first of
// the inputs, which are found by the hash of their run.yaml, then of the file. Gates are taken from
// the file.
func Refit(ctx context.Context, file string, set *coeff.Set, o RefitOptions) (*RefitResult, error) {
	recorded, in, err := folder.ReadInput(file, o.Special)
	if err != nil {
		return nil, err
	}
	doc := &RefitResult{
		SchemaVersion: result.SchemaVersion,
		ToolVersion:   folder.ToolVersion,
		Platform:      result.Platform(),
		RecordedOn:    set.Platform,
		File:          in,
		Command:       set.Command,
	}
	fitOptions, err := recordedOptions(set.Command)
	if err != nil {
		return nil, err
	}
	fitOptions.Workers = o.Workers
	runs, err := recordedRuns(set, o)
	if err != nil {
		return nil, err
	}
	tmp, remove, err := files.Temporary("", "blis-train-refit-")
	if err != nil {
		return nil, err
	}
	defer remove()
	// Extract the recorded runs to a temporary folder.
	extractOptions := extract.DefaultOptions()
	extractOptions.Out = tmp
	extractOptions.Workers = o.Workers
	extractOptions.ToolVersion = folder.ToolVersion
	extractOptions.Progress = o.Progress
	ext, err := extract.Run(ctx, runs, extractOptions)
	if ext == nil {
		return nil, err
	}
	doc.Differences = inputDifferences(set.Inputs, ext.Inputs)
	if len(doc.Differences) > 0 {
		return doc, nil
	}
	// Inputs are the same by content. Their names depend on where the data lie, so the
	// recorded names are used.
	for i := range ext.Inputs {
		ext.Inputs[i].Name = set.Inputs[i].Name
	}
	again, err := refitBytes(ctx, tmp, ext, fitOptions, set, o.Progress)
	if err != nil {
		return nil, err
	}
	if _, bound := coeff.Body(recorded); !bound { // files of older versions carry no digest
		again, _ = coeff.Body(again)
	}
	if err := doc.compare(recorded, again); err != nil {
		return nil, err
	}
	return doc, nil
}

// compare sets the fields of r that describe the new file.
func (r *RefitResult) compare(recorded, again []byte) error {
	made := folder.InputOf(filepath.Base(r.File.Name), again)
	r.Refit = &made
	r.Identical = made.SHA256 == r.File.SHA256
	if r.Identical {
		r.Equal = true
		r.LargestDeviation = new(float64)
		return nil
	}
	// On another platform the last digits of numbers may differ; on the same one nothing may.
	deviation, err := largestDeviation(recorded, again)
	if err != nil {
		return err
	}
	if !math.IsInf(deviation.relative, 1) {
		r.LargestDeviation = &deviation.relative
	}
	if r.RecordedOn == r.Platform {
		r.Differences = lineDifferences(recorded, again)
		return nil
	}
	r.Equal = deviation.tolerable
	if r.Equal {
		return nil
	}
	r.Differences = append([]string{fmt.Sprintf("the file was made on %s, this is %s: numbers may differ by %g relative, but more differs",
		cmp.Or(r.RecordedOn, "an unrecorded platform"), r.Platform, refitTolerance)}, lineDifferences(recorded, again)...)
	return nil
}

// recordedOptions returns the options in the recorded command of a coefficient file.
func recordedOptions(command string) (fit.Options, error) {
	o := fit.BareOptions()
	if err := option.Parse(command, "fit", o.Flags()); err != nil {
		return o, trace.Errorf(export.NotReproducible, "%v", err).WithHint("use the blis-train that wrote the file")
	}
	o, err := o.Resolve()
	if err != nil {
		return o, trace.Errorf(export.NotReproducible, "command %q: %v", command, err).WithHint("use the blis-train that wrote the file")
	}
	return o, nil
}

// recordedRuns returns the run folders below the data whose run.yaml is recorded, with
// the overrides of the original extraction.
func recordedRuns(set *coeff.Set, o RefitOptions) ([]extract.RunDir, error) {
	want := map[string]bool{}
	for _, in := range set.Inputs {
		if filepath.Base(in.Name) == deploy.RunFile {
			want[in.SHA256] = true
		}
	}
	found, err := extract.Discover([]string{o.Data}, o.Set...)
	if err != nil {
		return nil, err
	}
	var runs []extract.RunDir
	for _, r := range found {
		_, in, err := folder.ReadInput(filepath.Join(r.Dir, deploy.RunFile), o.Special)
		if err != nil {
			return nil, err
		}
		if want[in.SHA256] {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return nil, trace.Errorf(export.NotReproducible, "no run below %s has a %s that the file records", o.Data, deploy.RunFile)
	}
	return runs, nil
}

// inputDifferences returns the differences between recorded and found inputs, by content and order.
func inputDifferences(want []coeff.Input, got []result.Input) []string {
	out := []string{}
	have := map[string]int{} // found inputs by hash that no recorded one has used yet
	for _, in := range got {
		have[in.SHA256]++
	}
	for _, in := range want {
		if have[in.SHA256] == 0 {
			out = append(out, fmt.Sprintf("input %s (%d bytes, sha256 %s) is missing or changed", in.Name, in.Bytes, in.SHA256))
			continue
		}
		have[in.SHA256]--
	}
	for _, in := range got {
		if have[in.SHA256] > 0 {
			have[in.SHA256]--
			out = append(out, fmt.Sprintf("input %s (sha256 %s) is not recorded", in.Name, in.SHA256))
		}
	}
	// The same files in another order give the rows another order, and so other last digits.
	if len(out) == 0 {
		for i := range want {
			if want[i].SHA256 != got[i].SHA256 {
				return []string{fmt.Sprintf("input %d: got %s, recorded %s: the order of the runs differs", i+1, got[i].Name, want[i].Name)}
			}
		}
	}
	return out
}

// refitBytes returns the coefficient file of a new fit, with what a fit does not decide (gates and
// platform) taken from the recorded one.
func refitBytes(ctx context.Context, out string, ext *result.Extract, o fit.Options, recorded *coeff.Set,
	progress trace.Progress) ([]byte, error) {
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	doc, err := FitTables(ctx, out, ext, o, result.NewHeader(folder.ToolVersion, command), progress)
	if err != nil {
		return nil, err
	}
	set, err := fit.Native(doc, nil)
	if err != nil {
		return nil, err
	}
	set.Gates = recorded.Gates
	set.Purposes = recorded.Purposes
	set.ValidatedFor = recorded.ValidatedFor
	set.Warnings = append(set.Warnings, result.DoubtsIn(recorded.Warnings)...)
	set.Platform = recorded.Platform
	return folder.SetBytes(set)
}

// lineDifferences returns the first lines that differ, at most ten.
func lineDifferences(want, got []byte) []string {
	a := strings.Split(string(want), "\n")
	b := strings.Split(string(got), "\n")
	line := func(s []string, i int) string {
		if i < len(s) {
			return strings.TrimSpace(s[i])
		}
		return "nothing"
	}
	out := []string{}
	for i := 0; i < max(len(a), len(b)) && len(out) < 10; i++ {
		if x, y := line(a, i), line(b, i); x != y || (i < len(a)) != (i < len(b)) {
			out = append(out, fmt.Sprintf("line %d: recorded %q, refit %q", i+1, x, y))
		}
	}
	return out
}

// deviation describes how far the numbers of two coefficient files are apart.
type deviation struct {
	relative  float64 // largest relative deviation; +Inf where anything but a number differs
	tolerable bool    // every number is within its tolerance and all else is the same
}

// largestDeviation returns the deviation of two coefficient files, number by number. Platform and
// digest are expected to differ and do not count.
func largestDeviation(recorded, again []byte) (deviation, error) {
	a, err := files.ParseYAML(recorded, "recorded")
	if err != nil {
		return deviation{}, err
	}
	b, err := files.ParseYAML(again, "refit")
	if err != nil {
		return deviation{}, err
	}
	d := deviation{tolerable: true}
	d.addNodes(a, b, refitTolerance)
	return d, nil
}

// addNodes adds the deviation of two nodes and everything below them.
func (d *deviation) addNodes(a, b *yaml.Node, tolerance float64) {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) {
		d.relative = math.Inf(1)
		d.tolerable = false
		return
	}
	switch a.Kind {
	case yaml.ScalarNode:
		d.addScalars(a.Value, b.Value, tolerance)
	case yaml.MappingNode:
		for i := 0; i < len(a.Content); i += 2 {
			key := a.Content[i].Value
			if key == "platform" || key == coeff.DigestKey { // these differ on another platform in any case
				continue
			}
			within := tolerance
			if key == "covariance" {
				within = refitCovarianceTolerance
			}
			d.addScalars(key, b.Content[i].Value, 0) // keys have to be equal
			d.addNodes(a.Content[i+1], b.Content[i+1], within)
		}
	default:
		for i := range a.Content {
			d.addNodes(a.Content[i], b.Content[i], tolerance)
		}
	}
}

// addScalars adds the deviation of two scalars, which are compared as numbers if both are numbers.
func (d *deviation) addScalars(a, b string, tolerance float64) {
	if a == b {
		return
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	relative := math.Inf(1)
	if errX == nil && errY == nil {
		relative = math.Abs(x-y) / math.Max(math.Abs(x), math.Abs(y))
	}
	d.relative = math.Max(d.relative, relative)
	if !(relative <= tolerance) {
		d.tolerable = false
	}
}
