package enginelog

// This file reads SGLang's log lines of a batch. Which figures a line has, and in which order, varies
// by version, so they are found by name.
//
// Source: sgl-project/sglang metrics_reporter.py and scheduler_metrics_mixin.py.

import (
	"bytes"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// sglangPrefill is the line of a batch of prompts, which counts as one without decodes; sglangDecode is
// that of a batch of decodes.
var (
	sglangPrefill = lineForm{
		form:        trace.IterationSGLang,
		mark:        []byte("Prefill batch"),
		isMarkFirst: true,
		stamp:       sglangStamp,
		engine:      sglangRank,
		fields: []lineField{
			{label: "#new-seq: ", isNeeded: true, value: count, set: func(r *passRecord, v float64) {
				r.ContextReqs = int64(v)
				r.DecodeKVTokens = trace.Some(int64(0))
			}},
			{label: "#new-token: ", isNeeded: true, value: count, set: setContextTokens},
			{label: "#cached-token: ", isNeeded: true, value: count, set: setContextKVTokens},
			{label: "token usage: ", value: fraction, set: setKVUsage},
			{label: "#queue-req: ", value: count, set: setQueuedReqs},
			{label: "#pending-token: ", value: count, set: func(r *passRecord, v float64) {
				r.QueuedTokens = trace.Some(int64(v))
			}},
		},
	}
	sglangDecode = lineForm{
		form:        trace.IterationSGLang,
		mark:        []byte("Decode batch"),
		isMarkFirst: true,
		stamp:       sglangStamp,
		engine:      sglangRank,
		fields: []lineField{
			{label: "#running-req: ", isNeeded: true, value: count, set: setDecodes},
			{label: "#token: ", otherLabel: "#full token: ", isNeeded: true, value: count, set: setDecodeKVTokens},
			{label: "token usage: ", value: fraction, set: setKVUsage},
			{label: "#queue-req: ", value: count, set: setQueuedReqs},
			{label: "gen throughput (token/s): ", value: rate, set: func(r *passRecord, v float64) {
				r.TokensPerS = v
			}},
			{label: "accept len: ", value: valueKind{max: 1000}, set: func(r *passRecord, v float64) {
				r.AcceptedTokens = v
			}},
		},
	}
)

// unnumbered is the index of a pass without a number.
const unnumbered = math.MinInt64

// sglangIndex returns the number of a batch, ` [N]` behind the mark, which SGLang writes if asked to.
func sglangIndex(behindMark []byte) int64 {
	number, ok := bytes.CutPrefix(behindMark, []byte(" ["))
	const most = 18 // digits of any int64
	if n := digits(number); ok && n > 0 && n <= most {
		index, _ := strconv.ParseInt(source.Text(number[:n]), 10, 64)
		return index
	}
	return unnumbered
}

// sglangStamp returns the stamp `[YYYY-MM-DD HH:MM:SS DPk TPk]`, whose seconds have a fraction with
// SGLANG_LOG_MS.
func sglangStamp(before, _ []byte) stamp {
	words := lastBracket(before)
	if len(words) < 2 {
		return stamp{}
	}
	return parseStamp(bytes.Join(words[:2], []byte(" ")))
}

// lastBracket returns the words in the last bracket: two of a stamp, and ranks such as DP0.
func lastBracket(before []byte) [][]byte {
	inside := before[bytes.LastIndexByte(before, '[')+1:]
	return bytes.Fields(bytes.TrimRight(inside, "] "))
}

// sglangRank returns the data-parallel rank as engine and the tensor-parallel rank as process. The
// lines of all pipeline stages except the first are copies. So are those of all tensor-parallel
// ranks but one, which Lives removes, because any rank may be the one that writes.
func sglangRank(before, _ []byte) (engine, process []byte) {
	engine = []byte("0")
	process = []byte("0")
	for _, word := range lastBracket(before) {
		if len(word) < 3 || digits(word[2:]) < len(word[2:]) {
			continue
		}
		rank := withoutZeros(word[2:])
		switch string(word[:2]) {
		case "DP":
			engine = rank
		case "TP":
			process = rank
		case "PP":
			if rank[0] != '0' {
				return nil, nil
			}
		}
	}
	return engine, process
}

// decodePace compares the throughputs that SGLang logs for decodes with the times between them.
// With --decode-log-interval above 1 it logs one decode of several, and more tokens are generated
// between two logged decodes than by one pass.
type decodePace struct {
	LastNs     int64   // stamp of the last decode
	LastPerS   float64 // throughput of the last decode
	Decodes    int64   // with a throughput and a precise stamp
	SeveralFor int64   // of these, decodes since which more tokens came than one pass makes
}

// leastDecodes are enough for their throughputs to decide.
const leastDecodes = 5

// addDecode adds a decode whose passes yield tokensPerReq tokens for each of reqs requests. Its throughput
// times the time since the decode before is the number of tokens in between: of one pass, or of at least
// two, so the border is at one and a half. A throughput that is the same as before may not be a new one.
func (p *decodePace) addDecode(r *passRecord, tokensPerReq, reqs float64) {
	const tooCoarseNs = 1e9 // resolution of a stamp in whole seconds
	if p.LastNs > 0 && r.StampStepNs.V < tooCoarseNs && r.TokensPerS != p.LastPerS {
		p.Decodes++
		tokens := r.TokensPerS * float64(r.StampNs.V-p.LastNs) / 1e9
		if tokens > 1.5*tokensPerReq*reqs {
			p.SeveralFor++
		}
	}
	p.LastNs = r.StampNs.V
	p.LastPerS = r.TokensPerS
}

// isSampled reports whether most decodes were logged for several passes.
func (p *decodePace) isSampled() bool { return p.Decodes >= leastDecodes && 2*p.SeveralFor > p.Decodes }

// followSGLang decides whether next, which follows last in SGLang's log, was logged for several
// passes, and sets its Sampled. Most throughputs show it (decodePace), or the KV tokens: if no request
// ended since the decode before, they may grow by what one pass adds and by the prompts in between, and
// not by more. Running, HeldTokens and Pace carry what is known of the running requests from line to line.
func followSGLang(last, next *passRecord) {
	if next.GenerationReqs == 0 { // a prefill, whose requests decode next
		next.Running = last.Running + next.ContextReqs
		next.HeldTokens = last.HeldTokens + next.ContextTokens + next.ContextKVTokens.V
		next.Pace = last.Pace
		return
	}
	reqs := float64(next.GenerationReqs)
	tokensPerReq := max(1, next.AcceptedTokens) // of one pass
	next.Pace = last.Pace
	next.Pace.addDecode(next, tokensPerReq, reqs)
	next.Sampled = next.Pace.isSampled()
	if last.Running == next.GenerationReqs { // no request ended
		grown := float64(next.DecodeKVTokens.V-last.HeldTokens) / reqs // tokens of a request
		isGap := last.ContextReqs == 0 && next.Index > last.Index+1    // numbered batches are missing between two decodes
		next.Sampled = next.Sampled || grown >= 2*tokensPerReq || isGap
	}
	next.Running = next.GenerationReqs
	next.HeldTokens = next.DecodeKVTokens.V
}
