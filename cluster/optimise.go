package cluster

// This file is the command `experiment optimise`: it tunes the parameters of admission policies by
// simulation and compares the tuned policies on seeds that were not used for tuning. tune.go does
// the work.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// optimiseOptions are the options of tuning a policy.
type optimiseOptions struct {
	IsolationOptions
	Policy     string // one of tunable
	Method     string // gp, random or grid
	Start      int    // simulations before the Gaussian process chooses parameters
	Calls      int    // simulations after these
	TrainSeeds int    // number of seeds to tune on
	TestSeeds  int    // number of other seeds, on which the results are compared
}

// Defaults of the options that optimise.json records only if they have other values.
const (
	defaultStart      = 12
	defaultTrainSeeds = 10
	defaultTestSeeds  = 20
)

// DefaultOptimiseOptions returns the defaults of the command line, except for Out.
func DefaultOptimiseOptions() optimiseOptions {
	o := optimiseOptions{
		IsolationOptions: DefaultIsolationOptions(),
		Policy:           policySeed,
		Method:           methodGP,
		Start:            defaultStart,
		Calls:            30,
		TrainSeeds:       defaultTrainSeeds,
		TestSeeds:        defaultTestSeeds,
	}
	o.Alone = true
	return o
}

// checkSettings returns an error for a policy that cannot be tuned, an unknown method or counts out
// of range.
func (o *optimiseOptions) checkSettings() error {
	names := slices.Sorted(maps.Keys(tunable()))
	switch {
	case !slices.Contains(names, o.Policy):
		return option.Misusef("--policy: got %q, want %s", o.Policy, strings.Join(names, ", "))
	case !slices.Contains([]string{methodGP, methodRandom, methodGrid}, o.Method):
		return option.Misusef("--method: got %q, want gp, random or grid", o.Method)
	case o.Start < 2 || o.Calls < 0 || o.Start+o.Calls > 1000:
		return option.Misusef("--start, --calls: got %d and %d, want at least 2, at least 0, at most 1000 together",
			o.Start, o.Calls)
	case o.TrainSeeds < 2 || o.TestSeeds < 2 || o.TrainSeeds > 100 || o.TestSeeds > 1000:
		return option.Misusef("--train-seeds, --test-seeds: got %d and %d, want 2 to 100 and 2 to 1000",
			o.TrainSeeds, o.TestSeeds)
	}
	return o.checkPreset()
}

// Optimise tunes policies with equal numbers of simulations and writes optimise.json to o.Out. It
// writes each simulation to optimise.jsonl, from which an interrupted search continues.
func Optimise(ctx context.Context, o optimiseOptions) (*OptimiseDoc, error) {
	if err := o.checkSettings(); err != nil {
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
	doc, err := tunePolicies(&tuner{
		lab:    lab{IsolationOptions: o.IsolationOptions, inputs: *l, ctx: ctx},
		ask:    o,
		before: before,
		made: func(c loggedCall) error {
			line, err := json.Marshal(c)
			if err != nil {
				return err
			}
			_, err = log.Write(append(line, '\n'))
			return err
		},
		always: map[string]elsewhere{},
	})
	if err = errors.Join(err, log.Close()); err != nil {
		return nil, err
	}
	doc.Header = folder.Header(option.Command("experiment optimise", o.Flags()), nil)
	doc.Inputs = append(doc.Inputs, l.files...)
	return doc, folder.WriteDocument(filepath.Join(o.Out, folder.OptimiseFile), doc)
}

// loggedCalls reads the simulations of an interrupted search from optimise.jsonl. whole is the
// number of bytes of complete lines; an incomplete last line is ignored. No file means no calls.
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
		if err := trace.UnmarshalJSON(line, &c); err != nil {
			return nil, 0, &trace.SyntaxError{
				File: filepath.Base(path),
				Line: int64(len(out) + 1),
				Code: codeBadSpec,
				Msg:  "optimise log: got " + err.Error() + ", want one call a line",
			}
		}
		out = append(out, c)
	}
	return out, int64(len(text)), nil
}

// OptimiseDoc is optimise.json: the goodput of tuned policies with seeds and loads for which they
// were not tuned.
type OptimiseDoc struct {
	result.Header
	Policy   string   `json:"policy"` // the one asked for
	Method   string   `json:"method"`
	Calls    int      `json:"calls"` // of every policy
	Train    []int64  `json:"train_seeds"`
	Test     []int64  `json:"test_seeds"`
	Baseline *float64 `json:"baseline_goodput"` // of always-admit, mean over the train seeds
	// Critical is the baseline goodput of class critical. A tuned policy may be at most 1 point
	// below it.
	Critical *float64         `json:"baseline_goodput_critical"`
	Tuned    []optimisePolicy `json:"policies"`
	Warnings []trace.Finding  `json:"warnings"`
}

// optimisePolicy is one policy, tuned or with its defaults.
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

// optimiseTransfer is the goodput of a tuned policy at another load or on other engines.
type optimiseTransfer struct {
	To      string   `json:"to"`
	Goodput *float64 `json:"goodput"`
	Always  *float64 `json:"always_admit"`
	// Seats is the largest share of max_num_seqs that always-admit uses there. Below 1 the engines were not
	// filled: only the queue in front of prompts was tested, not the choice of who gets a place in the batch.
	Seats  *float64 `json:"seats_in_use"`
	Tested bool     `json:"tested"` // false: always-admit serves 99 % there, nothing needs rejecting
}

// optimiseParameter is how much goodput changes over the full range of one parameter.
type optimiseParameter struct {
	Name   string   `json:"name"`
	Lo     float64  `json:"from"`
	Hi     float64  `json:"to"`
	Moves  *float64 `json:"goodput_range"` // largest paired difference over its range
	Band   *float64 `json:"interval"`      // half width of that difference's 95 % interval
	Effect string   `json:"effect"`        // yes, or no effect
}
