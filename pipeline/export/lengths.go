package export

// This file states the lengths of requests for which a format is projected.

import (
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Lengths in tokens that are assumed where neither the options nor the fit state them.
const (
	assumedPrompt = 512
	assumedOutput = 128
)

// Lengths are the mean prompt and output lengths of a configuration.
type Lengths struct{ Prompt, Output float64 }

// MeanLengths returns the mean lengths of a configuration in tokens: those of the options, else the
// fit's means, else the assumed ones with a warning.
func (o *Options) MeanLengths(c result.FitConfig) (Lengths, []trace.Finding) {
	l := Lengths{Prompt: o.PromptTokens, Output: o.OutputTokens}
	assumed := false
	// pick replaces a length of 0 by the mean, or by def if the mean is unknown.
	pick := func(v *float64, mean *float64, def float64) {
		if *v > 0 {
			return
		}
		if mean != nil && *mean > 0 {
			*v = *mean
			return
		}
		*v = def
		assumed = true
	}
	pick(&l.Prompt, c.MeanPromptTokens, assumedPrompt)
	pick(&l.Output, c.MeanOutputTokens, assumedOutput)
	if !assumed {
		return l, nil
	}
	return l, []trace.Finding{trace.Findingf(AssumedValue, "%s: %.0f prompt and %.0f output tokens", c.Label,
		l.Prompt, l.Output)}
}
