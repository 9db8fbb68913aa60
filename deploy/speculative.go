package deploy

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Speculation is vLLM's --speculative-config, as far as a schedule depends on it.
type Speculation struct {
	Method      string     `json:"method"`
	Tokens      int64      `json:"num_speculative_tokens"`                // k
	ByBatchSize [][3]int64 `json:"num_speculative_tokens_per_batch_size"` // requests from, to, k
	Parallel    bool       `json:"parallel_drafting"`                     // one pass of the drafter
	KeepBlock   bool       `json:"disable_eagle_block_drop"`
	PlainHashes bool       `json:"disable_lookahead_block_hashes"`
	// Rates is P(the first i drafts are accepted), i from 1, never increasing; nil = unknown.
	Rates  []float64 `json:"synthetic_acceptance_rates"`
	Length float64   `json:"synthetic_acceptance_length"` // tokens a verify yields on average; 0 = unknown
}

// Methods of speculative decoding that are modelled.
var (
	eagleMethods = []string{"eagle", "eagle3", "mtp"}
	specMethods  = append([]string{"draft_model", "ngram", "ngram_gpu", "suffix", "dflash", "dspark"}, eagleMethods...)
)

// IsEagle reports whether the drafter reads the model's hidden states: EAGLE and MTP.
func (s *Speculation) IsEagle() bool { return slices.Contains(eagleMethods, s.Method) }

// Lookahead is the number of tokens behind those of a step that the drafter's KV takes.
func (s *Speculation) Lookahead() int64 {
	switch {
	case s.IsEagle() || s.Method == "draft_model" || s.Method == "dspark":
		return s.Tokens
	case s.Method == "dflash":
		return s.Tokens + 1
	}
	return 0
}

// Slots is the number of tokens that the drafter adds to its own batch for each request.
func (s *Speculation) Slots() int64 {
	n := int64(0)
	if s.Parallel {
		n = s.Tokens - 1
	}
	if s.Method == "draft_model" {
		n++
	}
	return n
}

// TokensFor is the number of drafts proposed in a step of n requests, as
// num_speculative_tokens_per_batch_size has it: a gap keeps the number before it, and
// more requests than the last range the last.
func (s *Speculation) TokensFor(n int64) int64 {
	k := s.Tokens
	for i, r := range s.ByBatchSize {
		if i == 0 || n >= r[0] {
			k = min(s.Tokens, r[2])
		}
	}
	return k
}

// Speculation reads speculative_config; nil where there is none. Code: bad_knobs.
func (e *Engine) Speculation() (*Speculation, error) {
	given := e.Extra["speculative_config"]
	if given == nil {
		return nil, nil
	}
	text, isText := given.(string)
	if !isText {
		b, err := json.Marshal(given)
		if err != nil {
			return nil, trace.Errorf(BadKnobs, "speculative_config: %v", err)
		}
		text = string(b)
	}
	s := &Speculation{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, trace.Errorf(BadKnobs, "speculative_config: %v", err)
	}
	if strings.HasSuffix(s.Method, "_mtp") {
		s.Method = "mtp"
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.Length > 0 {
		s.Rates = ratesOf(s.Length, s.Tokens)
	}
	return s, nil
}

// check refuses what vLLM refuses (vllm/config/speculative.py) and what is not modelled.
func (s *Speculation) check() error {
	bad := func(key, want string, got any) error {
		return trace.Errorf(BadKnobs, "speculative_config.%s: got %v, want %s", key, got, want)
	}
	switch {
	case !slices.Contains(specMethods, s.Method):
		return bad("method", strings.Join(specMethods, ", "), strconv.Quote(s.Method))
	case s.Tokens < 1 || s.Tokens > maxDevices:
		return bad("num_speculative_tokens", fmt.Sprintf("1 to %d", int64(maxDevices)), s.Tokens)
	case len(s.Rates) > 0 && s.Length != 0:
		return bad("synthetic_acceptance_length", "it or synthetic_acceptance_rates, not both", s.Length)
	case s.Length != 0 && !(s.Length >= 1 && s.Length <= float64(s.Tokens+1)):
		return bad("synthetic_acceptance_length", fmt.Sprintf("1 to %d tokens", s.Tokens+1), s.Length)
	case len(s.Rates) > 0 && int64(len(s.Rates)) != s.Tokens:
		return bad("synthetic_acceptance_rates", fmt.Sprintf("%d rates", s.Tokens), s.Rates)
	}
	last := 1.0
	for _, r := range s.Rates {
		if !(r >= 0 && r <= last) {
			return bad("synthetic_acceptance_rates", "rates from 0 to 1 that never increase", s.Rates)
		}
		last = r
	}
	end := int64(0)
	for i, r := range s.ByBatchSize {
		if r[0] <= end || i == 0 && r[0] != 1 || r[1] < r[0] || r[2] < 0 {
			return bad("num_speculative_tokens_per_batch_size", "[from, to, k] from 1 on, in order and apart", s.ByBatchSize)
		}
		end = r[1]
	}
	return nil
}

// ratesOf is vLLM's rule for a mean length alone: as many sure drafts as it has whole
// tokens beyond the first, then the fraction (synthetic rejection sampling).
func ratesOf(length float64, k int64) []float64 {
	rates := make([]float64, k)
	for i := range rates {
		rates[i] = math.Max(0, math.Min(1, length-1-float64(i)))
	}
	return rates
}
