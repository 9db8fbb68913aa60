package report

// This file words what is known of cached prompt tokens.

import (
	"fmt"

	"github.com/blis-train/blis-train/result"
)

// CachedTokens returns a sentence for the report: how many prompt tokens came from the prefix cache
// (in percent) and how that is known, or that it is not known. It returns "" if the extract counts
// no prompt tokens this way, because the engine's spans record cached tokens or because there are
// no requests.
func CachedTokens(e *result.Extract) string {
	t := e.CachedTokens()
	switch {
	case t.Unpaired > 0 && t.Unpaired == t.Requests: // nothing states it for any request
		return fmt.Sprintf("what the prefix cache gave %d prompts is not known: keep /metrics before and after each load, or log the iterations",
			t.Requests)
	case t.PromptTokens == 0:
		return ""
	}
	atLeast := ""
	if t.Unpaired > 0 {
		atLeast = "at least "
	}
	percent := 100 * float64(t.HitTokens) / float64(t.PromptTokens)
	return fmt.Sprintf("%s%.0f %% of prompt tokens came from the prefix cache (%s)", atLeast, percent, cachedTokensSource(t))
}

// cachedTokensSource returns the words for where the counts of cached tokens come from: the usage
// that the server reports, single iterations of the log, counters of /metrics, or hit rates of the
// log.
func cachedTokensSource(t result.CachedTokens) string {
	switch {
	case t.Usage > 0:
		return fmt.Sprintf("the server's usage reports it for %d of %d requests", t.Usage, t.Requests)
	case t.Chains > 0:
		return fmt.Sprintf("from the log's iterations; exact for %d of %d requests", t.Exact, t.Requests)
	case t.CounterTokens.OK:
		return fmt.Sprintf("from the server's counters, for all prompts together; exact for %d of %d requests", t.Exact, t.Requests)
	default:
		return fmt.Sprintf("from the log's hit rates, for all prompts together; exact for %d of %d requests", t.Exact, t.Requests)
	}
}
