package export

// This file checks whether coefficients are valid for a deployment.

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// rangeFactor is the ratio to its largest value in training up to which a feature may go
// (spec#training-range).
const rangeFactor = 1.5

// Vectorizer is a function that returns the features of the step time of one batch in a deployment,
// in the order of the coefficients.
type Vectorizer func(d *deploy.Deployment, batch []trace.Chunk) ([]float64, error)

// Check compares a coefficient file with a deployment and returns one finding per mismatch: model,
// GPU, tp, engine version, settings, widths of numbers, features that the largest batches of the
// deployment push out of the trained range, terms that were not learned, and whether the file can
// drive a replay. If the deployment is nil it checks only the file itself. Of a deployment of the
// training data, what its largest batches would exceed is in beyond instead: the file fits it, but no
// recording came near those batches. So is a missing overhead of a file whose replays passed.
func Check(set *coeff.Set, d *deploy.Deployment, vec Vectorizer) (mismatches, beyond []trace.Finding, err error) {
	mismatches = slices.Concat(set.FileWarnings(), impossible(set))
	if set.VerdictFor(coeff.PurposeReplay) == coeff.VerdictPass {
		// Its replays passed with the overhead of requests that found the server idle.
		beyond = replayable(set)
	} else {
		mismatches = append(mismatches, replayable(set)...)
	}
	if d == nil {
		return mismatches, beyond, nil
	}
	mismatches = slices.Concat(mismatches, set.Outside(d), widths(set, d), knobs(set, d))
	if vec == nil {
		return mismatches, beyond, nil
	}
	ranges, err := featureRanges(set, d, vec)
	if isTrained(set, d) {
		return mismatches, append(beyond, ranges...), err
	}
	return append(mismatches, ranges...), beyond, err
}

// isTrained reports whether the deployment is a configuration of the training data, with the same
// longest sequence, which decides how much context its batches can have.
func isTrained(set *coeff.Set, d *deploy.Deployment) bool {
	key := d.Config()
	return slices.ContainsFunc(set.Configs, func(c coeff.Config) bool {
		return c.Key == key && c.Deployment.LongestSequence() == d.LongestSequence()
	})
}

// replayable returns a finding if the file has no overhead model that a replay can use.
func replayable(set *coeff.Set) []trace.Finding {
	if m := set.AlphaModel(coeff.Overhead); m != nil && m.Replay {
		return nil
	}
	return []trace.Finding{trace.Findingf(NotReplayable,
		"the file has no overhead that a replay may add, got %q: give simulate --overhead-us, the delay before the engine",
		set.AlphaTargets())}
}

// widths returns a finding if the file was trained on the same model in another precision only.
func widths(set *coeff.Set, d *deploy.Deployment) []trace.Finding {
	var have []string
	for i := range set.Configs {
		m := &set.Configs[i].Deployment.Model
		if m.ID != d.Model.ID {
			continue
		}
		if widthText(m) == widthText(&d.Model) {
			return nil
		}
		have = append(have, widthText(m))
	}
	if len(have) == 0 {
		return nil
	}
	slices.Sort(have)
	return []trace.Finding{trace.Findingf(coeff.OutsideTraining,
		"precision of %s: got %s, trained on %s", d.Model.ID, widthText(&d.Model),
		strings.Join(slices.Compact(have), "; "))}
}

// widthText returns the widths of a model's numbers in bytes, as text.
func widthText(m *model.Model) string {
	return fmt.Sprintf("weights %g B, KV %g B, activations %g B, compute %s", m.BytesPerWeight, m.BytesPerKV,
		m.BytesPerActivation,
		m.LinearCompute)
}

// knobs returns a finding for each setting of the deployment that changes what a step consists of
// and that no training configuration had. It does not check max_num_seqs and
// max_num_batched_tokens, because featureRanges checks their effect on a step.
func knobs(set *coeff.Set, d *deploy.Deployment) []trace.Finding {
	var out []trace.Finding
	for _, k := range []struct {
		name string
		of   func(*deploy.Deployment) any
	}{
		{"enable_chunked_prefill", func(d *deploy.Deployment) any { return d.Engine.ChunkedPrefill }},
		{"cpu_offloading", func(d *deploy.Deployment) any { return d.Engine.CPUOffloading }},
		{"block_size", func(d *deploy.Deployment) any { return d.Engine.BlockSize }},
	} {
		got := k.of(d)
		var trained []string
		seen := false
		for i := range set.Configs {
			v := k.of(&set.Configs[i].Deployment)
			seen = seen || v == got
			trained = append(trained, fmt.Sprint(v))
		}
		if seen || len(trained) == 0 { // trained with this value, or nothing is known of the training
			continue
		}
		slices.Sort(trained)
		out = append(out, trace.Findingf(coeff.OutsideTraining, "%s: got %v, trained on %s", k.name, got,
			strings.Join(slices.Compact(trained), ", ")))
	}
	return out
}

// probe is one extreme batch that a deployment can form, and its name for a message.
type probe struct {
	what  string
	batch []trace.Chunk
}

// probes returns the batches at the limits of what the engine allows: a full token budget
// (max_num_batched_tokens) of one long prompt, and max_num_seqs decodes with as much context as the
// KV cache has room for.
func probes(d *deploy.Deployment) []probe {
	e := &d.Engine
	longest := d.LongestSequence().Or(e.MaxNumBatchedTokens)
	prompt := max(1, min(longest, e.MaxNumBatchedTokens))
	decodes := d.Seats(1)
	context := max(1, longest-1)
	if blocks, _, err := d.KVBlocks(); err == nil {
		context = max(1, min(context, blocks/decodes*e.BlockSize-1)) // whole blocks for each
	}
	full := make([]trace.Chunk, decodes)
	for i := range full {
		full[i] = trace.Chunk{Computed: context, Prompt: context, New: 1}
	}
	return []probe{
		{
			what:  fmt.Sprintf("a prompt of %d tokens in one step", prompt),
			batch: []trace.Chunk{{Prompt: prompt, New: prompt}},
		},
		{
			what:  fmt.Sprintf("%d decodes at %d tokens of context", decodes, context),
			batch: full,
		},
	}
}

// featureRanges returns a finding for each feature whose value in a probe exceeds rangeFactor times
// its maximum in training, and for each feature without a learned coefficient that a probe uses,
// each feature once.
func featureRanges(set *coeff.Set, d *deploy.Deployment, vec Vectorizer) ([]trace.Finding, error) {
	var out []trace.Finding
	reported := map[int]bool{}
	unlearned := features.NotLearned(set)
	for _, p := range probes(d) {
		x, err := vec(d, p.batch)
		if err != nil {
			return nil, fmt.Errorf("features of %s: %w", p.what, err)
		}
		for i := range set.Beta {
			c := &set.Beta[i]
			if i >= len(x) || reported[i] || x[i] <= 0 {
				continue
			}
			switch {
			case slices.Contains(unlearned, i+1):
				out = append(out, trace.Findingf(coeff.OutsideTraining,
					"%s: not learned, but %s uses it", c.Name, p.what))
			case c.Range != nil && x[i] > rangeFactor*c.Range[1]:
				out = append(out, trace.Findingf(coeff.OutsideTraining,
					"%s: up to %s with %s, trained up to %s", c.Name, three(x[i]), p.what,
					three(c.Range[1])))
			default:
				continue
			}
			reported[i] = true
		}
	}
	return out, nil
}

// three returns a number as text, whole or with three digits.
func three(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Inputs is the result of looking for the files that coefficients were made from.
type Inputs struct {
	Verified int `json:"verified"` // found, with the recorded digest
	Changed  int `json:"changed"`  // found, with another digest
	Absent   int `json:"absent"`
}

// CheckInputs looks for the recorded inputs below the folder dir and compares their digests. It
// returns a finding for each changed file. A file that is not found is counted as absent, and is no
// mismatch.
func CheckInputs(inputs []coeff.Input, dir string) (n Inputs, changed []trace.Finding, err error) {
	for _, in := range inputs {
		path := filepath.Join(dir, filepath.FromSlash(in.Name))
		st, err := os.Stat(path)
		isOutside := !filepath.IsLocal(filepath.FromSlash(in.Name)) // a recorded name may lead out of dir
		switch {
		case isOutside, errors.Is(err, fs.ErrNotExist), err == nil && !st.Mode().IsRegular():
			n.Absent++
			continue
		case err != nil:
			return n, nil, err
		}
		_, sum, err := files.Hash(path)
		switch {
		case err != nil:
			return n, nil, err
		case sum == in.SHA256:
			n.Verified++
		default:
			n.Changed++
			changed = append(changed, trace.Findingf(inputChanged,
				"%s: sha256 %.12s, the coefficients were made from %.12s", path, sum, in.SHA256))
		}
	}
	return n, changed, nil
}

// impossible returns a finding for each step-time coefficient of the wrong sign. A fit by the
// relative recipe never has one, so the file was edited.
func impossible(s *coeff.Set) []trace.Finding {
	if s.Recipe != "relative" {
		return nil
	}
	var fs []trace.Finding
	for i, f := range features.BetaFeatures(s.SpecVersion) {
		if c := s.Beta[i]; c.Value < 0 && !f.Free {
			fs = append(fs, trace.Findingf(coeff.ImpossibleCoefficient,
				"%s: got %g %s, want >= 0: work cannot shorten a step",
				c.Name, c.Value, c.Unit))
		}
	}
	return fs
}
