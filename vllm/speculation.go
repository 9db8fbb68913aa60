package vllm

// This file reads --speculative-config.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Speculation is vLLM's --speculative-config, as far as a schedule depends on it.
type Speculation struct {
	Method      string     `json:"method"`
	Model       string     `json:"model"`                                 // of a drafter with weights of its own
	TP          int64      `json:"draft_tensor_parallel_size"`            // devices of the drafter; 0 = the model's
	Tokens      int64      `json:"num_speculative_tokens"`                // k, the drafts of a request in a step
	ByBatchSize [][3]int64 `json:"num_speculative_tokens_per_batch_size"` // for steps of so many requests, from and to, k
	Parallel    bool       `json:"parallel_drafting"`                     // one pass of the drafter for all k, not k
	KeepBlock   bool       `json:"disable_eagle_block_drop"`              // the last cached block of a prefix counts as a hit
	PlainHashes bool       `json:"disable_lookahead_block_hashes"`        // see Rules.LookaheadHashes
	// Rates is P(the first i drafts are accepted), i from 1, never increasing; nil = unknown.
	Rates  []float64 `json:"synthetic_acceptance_rates"`
	Length float64   `json:"synthetic_acceptance_length"` // tokens a verify yields on average; 0 = unknown

	AnyVocabulary bool  `json:"use_heterogeneous_vocab"` // the drafter may have another one than the model
	LookupMin     int64 `json:"prompt_lookup_min"`       // tokens of an n-gram; 0 = the release's
	LookupMax     int64 `json:"prompt_lookup_max"`
}

// specKeys are all keys of vLLM's SpeculativeConfig, of 0.15.1 to 0.33.0.
var specKeys = strings.Fields(`attention_backend code_revision disable_by_batch_size disable_eagle_block_drop disable_lookahead_block_hashes
	disable_padded_drafter_batch draft_lm_head_quantization draft_load_config draft_model_config draft_parallel_config draft_sample_method
	draft_tensor_parallel_size dspark_draft_topk enable_adaptive_verification enforce_eager fly_entropy_threshold fly_entropy_top_k
	fly_window_size index_share_for_mtp_iteration kv_cache_dtype max_model_len method model moe_backend num_speculative_tokens
	num_speculative_tokens_per_batch_size parallel_drafting prompt_lookup_max prompt_lookup_min quantization rejection_sample_method
	revision speculative_token_tree suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor suffix_decoding_max_tree_depth
	suffix_decoding_min_token_prob synthetic_acceptance_length synthetic_acceptance_rate synthetic_acceptance_rates target_model_config
	target_parallel_config tensor_parallel_size use_heterogeneous_vocab use_local_argmax_reduction xpress_topc`)

// Methods of speculative decoding that are modelled.
var (
	eagleMethods = []string{"eagle", "eagle3", "mtp"}
	specMethods  = append([]string{"draft_model", "ngram", "ngram_gpu", "suffix", "dflash", "dspark"}, eagleMethods...)
)

// IsEagle reports whether the drafter reads the model's hidden states: EAGLE and MTP.
func (s *Speculation) IsEagle() bool { return slices.Contains(eagleMethods, s.Method) }

// Lookahead returns the number of KV slots after a step's own tokens that the drafter needs for
// each request.
func (s *Speculation) Lookahead() int64 {
	switch {
	case s.IsEagle() || s.Method == "draft_model" || s.Method == "dspark":
		return s.Tokens
	case s.Method == "dflash":
		return s.Tokens + 1
	}
	return 0
}

// Slots returns the number of tokens that the drafter adds to its own batch for each request.
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

// TokensFor returns the number of drafts proposed in a step of n requests, by
// num_speculative_tokens_per_batch_size: in a gap between ranges that of the range before, above
// the last range that of the last.
func (s *Speculation) TokensFor(n int64) int64 {
	k := s.Tokens
	for i, r := range s.ByBatchSize {
		from, drafts := r[0], r[2]
		if i == 0 || n >= from {
			k = min(s.Tokens, drafts)
		}
	}
	return k
}

// Speculation returns speculative_config; nil if there is none. Code: bad_knobs.
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
	all := map[string]any{} // also the keys that Speculation has no field for
	if err := errors.Join(json.Unmarshal([]byte(text), s), json.Unmarshal([]byte(text), &all)); err != nil {
		return nil, trace.Errorf(BadKnobs, "speculative_config: %v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(specKeys, key) {
			e := trace.Errorf(BadKnobs, "speculative_config: got the key %q, want one of vLLM's", key)
			if near := files.Nearest(key, specKeys); near != "" {
				return nil, e.WithHint("did you mean " + near + "?")
			}
			return nil, e
		}
	}
	stat.SortStable(s.ByBatchSize, func(a, b [3]int64) int { return cmp.Compare(a[0], b[0]) })
	s.infer()
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.Length > 0 {
		s.Rates = ratesOf(s.Length, s.Tokens)
	}
	return s, nil
}

// infer sets the method as vLLM does when it is not stated, or when the drafter's name determines
// it (vllm/config/speculative.py).
func (s *Speculation) infer() {
	name := strings.ToLower(s.Model)
	switch {
	case strings.HasSuffix(s.Method, "_mtp"):
		s.Method = "mtp"
	case strings.Trim(cmp.Or(s.Method, name), "[]") == "ngram":
		s.Method = "ngram"
	case s.Method == "":
		s.Method = "draft_model"
	}
	for _, part := range []string{"eagle-", "eagle3", "dflash", "dspark"} {
		if (s.Method == "draft_model" || s.Method == "mtp") && strings.Contains(name, part) {
			s.Method = strings.TrimSuffix(part, "-")
		}
	}
}

// check returns an error for settings that vLLM refuses (vllm/config/speculative.py) and for those
// that are not modelled.
func (s *Speculation) check() error {
	bad := func(key, want string, got any) error {
		return trace.Errorf(BadKnobs, "speculative_config.%s: got %v, want %s", key, got, want)
	}
	switch {
	case !slices.Contains(specMethods, s.Method):
		return bad("method", strings.Join(specMethods, ", "), strconv.Quote(s.Method))
	case s.Tokens < 1 || s.Tokens > MaxDevices:
		return bad("num_speculative_tokens", fmt.Sprintf("1 to %d", int64(MaxDevices)), s.Tokens)
	case s.LookupMax > 0 && s.LookupMin > s.LookupMax:
		return bad("prompt_lookup_min", fmt.Sprintf("at most prompt_lookup_max %d", s.LookupMax), s.LookupMin)
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
	end := int64(0) // of the range before
	for i, r := range s.ByBatchSize {
		from, to, drafts := r[0], r[1], r[2]
		if from <= end || i == 0 && from != 1 || to < from || drafts < 0 {
			return bad("num_speculative_tokens_per_batch_size", "[from, to, k] from 1 on, apart", s.ByBatchSize)
		}
		end = to
	}
	return nil
}

// ratesOf returns the acceptance rates of a mean length, as vLLM's synthetic rejection sampling
// does: as many drafts are certain as the length has whole tokens after the first, the next has the
// fraction, the others 0.
func ratesOf(length float64, k int64) []float64 {
	rates := make([]float64, k)
	for i := range rates {
		rates[i] = math.Max(0, math.Min(1, length-1-float64(i)))
	}
	return rates
}
