// Package tracev2 reads BLIS's TraceV2: a YAML header and a CSV of requests, in two files or in one after
// the other.
//
// [NewReader] reads the header, [Reader.Read] one [Record] after another. Counts are tokens and times us;
// 0 and "" are unknown. A row that is no request is a [RowError], after which reading can continue.
// The reader follows sessions whose prompts contain the earlier rounds, and fills ContextTokens of
// their records.
//
// Columns have the meaning that BLIS's own reader and writer give them
// (https://github.com/inference-sim/inference-sim, sim/workload/tracev2.go and replay.go).
package tracev2

// This file has the header and the records of the format, and the sessions whose prompts grow.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// badHeader is the code of this package.
const badHeader trace.Code = "tracev2_header"

// accumulate is the growth of sessions in which each prompt contains the earlier rounds.
const accumulate = "accumulate"

// Header has the keys of the YAML that affect the meaning of rows.
type Header struct {
	Version        int    `yaml:"trace_version"`
	TimeUnit       string `yaml:"time_unit"`
	Mode           string `yaml:"mode"` // real, generated or replayed
	WarmUpRequests int    `yaml:"warm_up_requests"`
	Growth         string `yaml:"session_context_growth,omitempty"` // "" or accumulate

	Server  Server  `yaml:"server,omitempty"`
	Network Network `yaml:"network,omitempty"`
	Offload any     `yaml:"kv_offload,omitempty"`
}

// Server describes the server that the requests were sent to. 0 and "" are unknown.
type Server struct {
	Type                 string  `yaml:"type"`
	Model                string  `yaml:"model"`
	TensorParallel       int64   `yaml:"tensor_parallel"`
	MaxNumSeqs           int64   `yaml:"max_num_seqs"`
	BlockSize            int64   `yaml:"block_size"`
	GPUMemoryUtilization float64 `yaml:"gpu_memory_utilization"`
	MaxModelLen          int64   `yaml:"max_model_len"`
}

// Network describes the connection between the client and the server.
type Network struct {
	RTTMs float64 `yaml:"measured_rtt_ms"` // 0: unknown
}

// ParseHeader returns the header in a YAML text. Keys that Header does not have are allowed. file
// is the file's name for errors.
func ParseHeader(text []byte, file string) (h Header, err error) {
	node, err := files.ParseYAML(text, file)
	if err != nil || node == nil {
		return h, err
	}
	bad := func(format string, args ...any) (Header, error) {
		return h, &trace.SyntaxError{File: file, Line: int64(node.Line), Code: badHeader,
			Msg: fmt.Sprintf(format, args...)}
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

// Record is one row, a request. Counts are tokens, times us; 0 and "" are unknown.
type Record struct {
	RequestID, SLOClass         string
	Priority                    trace.Opt[int64] // vllm_priority, where there is such a column
	SessionID                   string
	Round                       int64
	PrefixGroup                 string
	PrefixTokens                int64 // prefix_length: the part of the prompt that the group shares
	Streaming                   bool
	SuffixTokens                int64 // input_tokens: the rest of the prompt
	OutputTokens                int64
	DeadlineUs, SLOTargetUs     int64
	ServerPromptTokens          int64 // server_input_tokens: the whole prompt as the server counted it
	ArrivalUs, SendUs           int64
	ThinkUs                     int64 // think_time_us: from the session's last answer to this round
	FirstChunkUs, LastChunkUs   int64
	Chunks                      int64
	Status, Error, FinishReason string

	// ContextTokens are the prompts and answers of the earlier rounds of the session. The reader sets it if
	// sessions accumulate.
	ContextTokens int64
	Accumulates   bool    // the record is a round of a session that accumulates
	first         *shared // prefix of the session's first round; nil without such a session
}

// shared is the prefix that the prompts of a prefix group have in common.
type shared struct {
	group  string
	tokens int64
}

// Shared returns the prefix group with whose tokens the prompt begins, and their number. The
// prompts of a session that accumulates begin like that of its first round.
func (r *Record) Shared() (group string, tokens int64) {
	if r.first != nil {
		return r.first.group, r.first.tokens
	}
	return r.PrefixGroup, r.prefix()
}

// PromptTokens returns the length of the whole prompt in tokens (spec#wire-tracev2). It is the
// server's count if that is known; else the request's own tokens plus the tokens of the session's
// earlier rounds, or plus the prefix of the group.
func (r *Record) PromptTokens() int64 {
	if r.ServerPromptTokens > 0 {
		return r.ServerPromptTokens
	}
	if r.ContextTokens > 0 {
		return r.ContextTokens + r.SuffixTokens // the context includes the prefix
	}
	return r.prefix() + r.SuffixTokens
}

// prefix returns the tokens of the group's prefix; 0 without a group.
func (r *Record) prefix() int64 {
	if r.PrefixGroup == "" {
		return 0
	}
	return r.PrefixTokens
}

// SentUs returns the time at which the request was sent, us: send_time_us, or else the planned
// arrival.
func (r *Record) SentUs() int64 {
	if r.SendUs > 0 {
		return r.SendUs
	}
	return r.ArrivalUs
}

// Succeeded reports whether the status is one of success. A missing status is.
func (r *Record) Succeeded() bool {
	return slices.Contains([]string{"", "ok", "completed", "success"}, r.Status)
}

// sessions has the sessions of a file by session_id. In a session that accumulates each prompt
// contains the prompts and answers of the rounds before.
type sessions map[string]*session

// session is what the next round of a session depends on.
type session struct {
	round  int64  // index of the round that was read last; -1 before the first
	tokens int64  // of that round's prompt and answer together, with which the next prompt begins
	first  shared // prefix of the first round
}

// addRound sets the fields of r that depend on the earlier rounds of its session. It returns an
// error if the rounds are not in order.
func (s sessions) addRound(r *Record) error {
	if r.SessionID == "" {
		return nil
	}
	past, isKnown := s[r.SessionID]
	if !isKnown {
		past = &session{round: -1, first: shared{group: r.PrefixGroup, tokens: r.prefix()}}
		s[r.SessionID] = past
	}
	if r.Round != past.round+1 {
		return fmt.Errorf("session %q: got round %d after %d, want them in order", shortened(r.SessionID), r.Round,
			past.round)
	}
	r.ContextTokens = past.tokens
	r.Accumulates = true
	r.first = &past.first
	past.round = r.Round
	past.tokens = r.PromptTokens() + r.OutputTokens // after ContextTokens is set, on which PromptTokens depends
	return nil
}

// shortened returns s, cut to 40 bytes.
func shortened(s string) string {
	const most = 40
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
