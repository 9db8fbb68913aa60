// Package tracev2 reads BLIS's TraceV2: a YAML header and a CSV of
// requests, in two files or one behind the other. What the columns mean is what
// BLIS's own reader and writer do with them
// (https://github.com/inference-sim/inference-sim, sim/workload/tracev2.go and
// replay.go).
package tracev2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// badHeader is the code of this package.
const badHeader trace.Code = "tracev2_header"

// accumulate is the growth of sessions whose rounds hold what was said before.
const accumulate = "accumulate"

// Header is what the YAML says that changes what the rows mean.
type Header struct {
	Version        int    `yaml:"trace_version"`
	TimeUnit       string `yaml:"time_unit"`
	Mode           string `yaml:"mode"` // real, generated or replayed
	WarmUpRequests int    `yaml:"warm_up_requests"`
	Growth         string `yaml:"session_context_growth,omitempty"` // "" or Accumulate

	Server  Server  `yaml:"server,omitempty"` // as far as the file says
	Network Network `yaml:"network,omitempty"`
	Offload any     `yaml:"kv_offload,omitempty"`
}

// Server is what a header says of the server; 0 and "" are unknown.
type Server struct {
	Type                 string  `yaml:"type"`
	Model                string  `yaml:"model"`
	TensorParallel       int64   `yaml:"tensor_parallel"`
	MaxNumSeqs           int64   `yaml:"max_num_seqs"`
	BlockSize            int64   `yaml:"block_size"`
	GPUMemoryUtilization float64 `yaml:"gpu_memory_utilization"`
	MaxModelLen          int64   `yaml:"max_model_len"`
}

// Network is what a header says of the way to the server.
type Network struct {
	RTTMs float64 `yaml:"measured_rtt_ms"` // 0: unknown
}

// ParseHeader reads a header; keys that change nothing here are allowed.
func ParseHeader(text []byte, file string) (h Header, err error) {
	node, err := files.ParseYAML(text, file)
	if err != nil || node == nil {
		return h, err
	}
	bad := func(format string, args ...any) (Header, error) {
		return h, &trace.SyntaxError{File: file, Line: int64(node.Line), Code: badHeader, Msg: fmt.Sprintf(format, args...)}
	}
	if err := node.Decode(&h); err != nil {
		return bad("header: %v", err)
	}
	switch {
	case h.Version < 1 || h.Version > 3:
		return bad("trace_version: got %d, want 1 to 3", h.Version)
	case !slices.Contains([]string{"", "us", "microseconds"}, h.TimeUnit):
		return bad("time_unit: got %q, want microseconds", h.TimeUnit)
	case h.Growth != "" && h.Growth != accumulate:
		return bad("session_context_growth: got %q, want nothing or %s", h.Growth, accumulate)
	}
	return h, nil
}

// Record is one row. Counts are tokens, times us; 0 and "" are unknown.
type Record struct {
	RequestID, SLOClass         string
	Priority                    trace.Opt[int64] // vllm_priority, where there is such a column
	SessionID                   string
	Round                       int64
	PrefixGroup                 string
	PrefixTokens                int64 // prefix_length: what the group shares, at the head of the prompt
	Streaming                   bool
	SuffixTokens                int64 // input_tokens: the prompt behind the prefix
	OutputTokens                int64
	DeadlineUs, SLOTargetUs     int64
	ServerPromptTokens          int64 // server_input_tokens: the whole prompt as the server counted it
	ArrivalUs, SendUs           int64
	ThinkUs                     int64 // think_time_us: between the session's last answer and this round
	FirstChunkUs, LastChunkUs   int64
	Chunks                      int64
	Status, Error, FinishReason string

	// ContextTokens are said before in the session: prompts and answers of its
	// earlier rounds. The reader fills it where sessions accumulate.
	ContextTokens int64
	Accumulates   bool // it is a round of such a session
	first         *shared
}

// shared is what a group has in common.
type shared struct {
	group  string
	tokens int64
}

// Shared is the group whose tokens the prompt begins with, and how many; a
// session that accumulates begins as its first round did.
func (r *Record) Shared() (group string, tokens int64) {
	if r.first != nil {
		return r.first.group, r.first.tokens
	}
	return r.PrefixGroup, r.prefix()
}

// PromptTokens is the whole prompt (spec#wire-tracev2): as the server counted it, else what the
// session said before, the group's prefix and the request's own tokens.
func (r *Record) PromptTokens() int64 {
	if r.ServerPromptTokens > 0 {
		return r.ServerPromptTokens
	}
	if r.ContextTokens > 0 {
		return r.ContextTokens + r.SuffixTokens // the prefix stands in the context
	}
	return r.prefix() + r.SuffixTokens
}

// prefix is what the group shares; without a group nobody does.
func (r *Record) prefix() int64 {
	if r.PrefixGroup == "" {
		return 0
	}
	return r.PrefixTokens
}

// SentUs is when the request was sent: send_time_us, else the planned arrival.
func (r *Record) SentUs() int64 {
	if r.SendUs > 0 {
		return r.SendUs
	}
	return r.ArrivalUs
}

// Succeeded reports what the status says.
func (r *Record) Succeeded() bool {
	return slices.Contains([]string{"", "ok", "completed", "success"}, r.Status)
}

// sessions follows the context of sessions that accumulate.
type sessions map[string]*session

type session struct {
	round, tokens int64
	first         shared
}

// add fills the context of the next round of a session; rounds come in order.
func (s sessions) add(r *Record) error {
	if r.SessionID == "" {
		return nil
	}
	at, known := s[r.SessionID]
	if !known {
		at = &session{round: -1, first: shared{r.PrefixGroup, r.prefix()}}
		s[r.SessionID] = at
	}
	if r.Round != at.round+1 {
		return fmt.Errorf("session %q: got round %d after %d, want them in order", shortened(r.SessionID), r.Round, at.round)
	}
	r.ContextTokens = at.tokens
	r.Accumulates = true
	r.first = &at.first
	at.round, at.tokens = r.Round, r.PromptTokens()+r.OutputTokens
	return nil
}

func shortened(s string) string {
	const most = 40
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
