package predictor

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/option"
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

// Options decide what rows hold.
type Options struct {
	Target      string `json:"target"`       // token: TTFT and TPOT; e2e: the whole answer, of servers that do not stream
	Features    string `json:"features"`     // llmd or full: what two of llm-d's columns mean
	State       string `json:"state"`        // auto, step or journey
	StalenessUs int64  `json:"staleness_us"` // age of what is observable at the decision, >= 0
	PrefixScore string `json:"prefix_score"` // index or actual
	// Shared are the first prompt tokens that requests share where nothing records it: RUNGLOB=TOKENS each.
	Shared        []string `json:"shared_prefix_tokens"`
	KeepSaturated bool     `json:"keep_saturated"` // requests that arrived while the run was saturated
}

// DefaultOptions are everything the traces offer, nothing stale, an index.
func DefaultOptions() Options {
	return Options{Target: TargetToken, Features: featuresFull, State: stateAuto, PrefixScore: prefixIndex, Shared: []string{}}
}

// Check names the first option out of bounds.
func (o *Options) Check() error {
	for _, of := range []struct {
		name, got string
		want      []string
	}{{"target", o.Target, []string{TargetToken, TargetE2E}}, {"features", o.Features, []string{featuresLLMD, featuresFull}},
		{"state", o.State, []string{stateAuto, stateStep, stateJourney}}, {"prefix-score", o.PrefixScore, []string{prefixIndex, prefixActual}}} {
		if !slices.Contains(of.want, of.got) {
			return option.Misusef("--%s: got %q, want %s", of.name, of.got, trace.OneOf(of.want))
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

// parseShare reads TOKENS or RUNGLOB=TOKENS: which runs, and how many first prompt tokens their requests share.
func parseShare(text string) (runs string, tokens int64, err error) {
	runs, number := "*", text
	if i := strings.LastIndex(text, "="); i >= 0 {
		runs, number = text[:i], text[i+1:]
	}
	tokens, err = strconv.ParseInt(number, 10, 64)
	if _, bad := path.Match(runs, ""); err != nil || bad != nil || tokens < 0 {
		return "", 0, option.Misusef("--shared-prefix-tokens: got %q, want TOKENS or RUNGLOB=TOKENS with tokens >= 0", text)
	}
	return runs, tokens, nil
}
