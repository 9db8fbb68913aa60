package predictor

// This file has the options of rows, and checks them.

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Choices of Options.
const (
	TargetToken = "token"
	TargetE2E   = "e2e"

	featuresLLMD = "llmd"
	featuresFull = "full"

	stateAuto    = "auto"
	stateStep    = "step"
	stateJourney = "journey"

	prefixIndex  = "index"
	prefixActual = "actual"
)

// Options decide what rows contain.
type Options struct {
	Target      string `json:"target"`       // token: TTFT and TPOT; e2e: for servers that do not stream
	Features    string `json:"features"`     // llmd or full: what two of llm-d's columns mean
	State       string `json:"state"`        // auto, step or journey
	StalenessUs int64  `json:"staleness_us"` // age of what is observable at the decision, >= 0
	PrefixScore string `json:"prefix_score"` // index or actual
	// Shared are the lengths of shared prompt prefixes that the recordings do not contain, each as
	// RUNGLOB=TOKENS.
	Shared        []string `json:"shared_prefix_tokens"`
	KeepSaturated bool     `json:"keep_saturated"` // requests that arrived while the run was saturated
}

// DefaultOptions returns options to predict TTFT and TPOT from all columns, with a router that
// knows the current state and an index of cached blocks.
func DefaultOptions() Options {
	return Options{
		Target:      TargetToken,
		Features:    featuresFull,
		State:       stateAuto,
		PrefixScore: prefixIndex,
		Shared:      []string{},
	}
}

// Check returns an error for the first option out of bounds.
func (o *Options) Check() error {
	choices := []struct {
		name, got string
		want      []string
	}{
		{"target", o.Target, []string{TargetToken, TargetE2E}},
		{"features", o.Features, []string{featuresLLMD, featuresFull}},
		{"state", o.State, []string{stateAuto, stateStep, stateJourney}},
		{"prefix-score", o.PrefixScore, []string{prefixIndex, prefixActual}},
	}
	for _, c := range choices {
		if !slices.Contains(c.want, c.got) {
			return option.Misusef("--%s: got %q, want %s", c.name, c.got, trace.OneOf(c.want))
		}
	}
	if o.StalenessUs < 0 {
		return option.Misusef("--staleness-us: got %d us, want >= 0", o.StalenessUs)
	}
	for _, text := range o.Shared {
		if _, _, err := parseShare(text); err != nil {
			return err
		}
	}
	return nil
}

// checkShares returns an error for a --shared-prefix-tokens that matches none of the runs.
func (o *Options) checkShares(runs []result.ExtractRun) error {
	for _, text := range o.Shared {
		glob, _, _ := parseShare(text)
		found := false
		for i := range runs {
			ok, _ := path.Match(glob, runs[i].ID)
			found = found || ok
		}
		if !found {
			return option.Misusef("--shared-prefix-tokens: got %q, want one of the runs", text)
		}
	}
	return nil
}

// parseShare returns the parts of TOKENS or RUNGLOB=TOKENS: a pattern of run ids ("*" without a
// glob), and the length in tokens of the prompt prefix that the requests of these runs share.
func parseShare(text string) (runs string, tokens int64, err error) {
	runs, number := "*", text
	if i := strings.LastIndex(text, "="); i >= 0 {
		runs, number = text[:i], text[i+1:]
	}
	tokens, err = strconv.ParseInt(number, 10, 64)
	if _, bad := path.Match(runs, ""); err != nil || bad != nil || tokens < 0 {
		return "", 0, option.Misusef(
			"--shared-prefix-tokens: got %q, want TOKENS or RUNGLOB=TOKENS with tokens >= 0", text)
	}
	return runs, tokens, nil
}
