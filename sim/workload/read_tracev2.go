package workload

// This file reads TraceV2, the trace format of BLIS (package trace/tracev2).

import (
	"bytes"
	"errors"
	"hash/fnv"
	"io"
	"strconv"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/tracev2"
)

// IsTraceV2 reports whether data is a TraceV2 file: its rows, its header, or both.
func IsTraceV2(data []byte) bool {
	return bytes.HasPrefix(data, []byte(tracev2.FirstColumn+",")) || bytes.HasPrefix(data, []byte("trace_version:")) ||
		bytes.Contains(data[:min(len(data), 1<<16)], []byte("\ntrace_version:"))
}

// readTraceV2 reads a trace whose header, if it has one, is before the rows.
func readTraceV2(data []byte, name string) (*Workload, error) { return ReadTraceV2(data, name, nil) }

// ReadTraceV2 reads a trace. header is nil if it is before the rows or there is none. A request
// arrives at send_time_us if that is above 0, otherwise at arrival_time_us. The requests of a
// prefix group share prefix_length tokens; those of a session whose context accumulates share all
// earlier tokens of the session (see [Workload.CloseSessions] for the order of its rounds). Rows
// that ended in an error are requests too. A part of a longer trace begins with its first request (startAtFirst).
func ReadTraceV2(data []byte, name string, header *tracev2.Header) (*Workload, error) {
	rd, err := tracev2.NewReader(bytes.NewReader(data), name, header)
	switch {
	case errors.As(err, new(*trace.SyntaxError)):
		return nil, err
	case err != nil:
		return nil, badLine(name, 1, "%v", err)
	}
	for _, c := range []string{"output_tokens", "arrival_time_us"} {
		if !rd.Has(c) {
			return nil, badLine(name, 1, "header: got no column %q, want it", c)
		}
	}
	w := withRoom(data)
	groups := names{}
	lastRound := map[string]int{} // by session id: position of its last round so far, from 1
	w.rounds = make([]round, 0, cap(w.Requests))
	for {
		rec, err := rd.Read()
		switch {
		case err == io.EOF:
			if rd.Header.Offload != nil {
				w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete,
					"kv_offload of the trace's header is ignored: the deployment says what is offloaded"))
			}
			w.startAtFirst()
			return w.checkNotEmpty(name)
		case err != nil:
			return nil, badLine(name, int(rd.Line()), "%v", err)
		}
		q := tracedRequest(&rec, groups)
		if q.PromptTokens < 1 || q.ArrivalUs < 0 {
			return nil, badLine(name, int(rd.Line()),
				"request: got %d input tokens at %d us, want >= 1 and >= 0", q.PromptTokens, q.ArrivalUs)
		}
		if err := w.addFromLine(name, int(rd.Line()), q); err != nil {
			return nil, err
		}
		if rec.ThinkUs < 0 || rec.ThinkUs > sim.LatestUs {
			return nil, badLine(name, int(rd.Line()), "think_time_us: got %d, want 0 to %d", rec.ThinkUs, sim.LatestUs)
		}
		r := round{thinkUs: rec.ThinkUs}
		if rec.SessionID != "" {
			r.before = lastRound[rec.SessionID]
			lastRound[rec.SessionID] = len(w.Requests)
		}
		w.rounds = append(w.rounds, r)
	}
}

// names numbers texts in the order in which they are met, from 1.
type names map[string]uint64

// id returns the number of a name.
func (n names) id(name string) uint64 {
	if n[name] == 0 {
		n[name] = uint64(len(n) + 1)
	}
	return n[name]
}

// tracedRequest returns a row of the trace as a request of the simulator. groups numbers prefix
// groups.
func tracedRequest(rec *tracev2.Record, groups names) sim.Request {
	q := sim.Request{
		ID: rec.RequestID, SLOClass: rec.SLOClass, ArrivalUs: rec.SentUs(),
		PromptTokens: rec.PromptTokens(), OutputTokens: max(1, rec.OutputTokens),
		Priority: rec.Priority.V, SLOTTFTUs: rec.SLOTargetUs,
	}
	if group, tokens := rec.Shared(); group != "" {
		q.Group = groups.id(group)
		q.GroupTokens = min(tokens, q.PromptTokens)
	}
	if rec.Accumulates {
		setSessionContent(&q, rec)
	}
	if rec.DeadlineUs > 0 {
		q.AbortAtUs = trace.Some(max(rec.DeadlineUs, q.ArrivalUs))
		q.AbortKind = sim.OutcomeTimedOut
	}
	return q
}

// longSpan is a number of tokens that no prompt reaches.
const longSpan = 1 << 40

// setSessionContent sets what the prompt of a round of a session shares: its first tokens with the
// prefix group, the tokens after them with the other rounds of the session. Group and GroupTokens
// cannot state both, so it replaces them by content ids: one of the group for a span of its length,
// then ids of the session and the number of the span, as many as the prompt needs. Without a group
// one span of longSpan tokens is enough.
func setSessionContent(q *sim.Request, rec *tracev2.Record) {
	q.HashTokens = longSpan
	if q.GroupTokens > 0 {
		q.HashTokens = q.GroupTokens
		q.Hashes = append(q.Hashes, q.Group)
	}
	for n := int64(len(q.Hashes)); n*q.HashTokens < q.PromptTokens; n++ {
		h := fnv.New64a()
		h.Write([]byte(rec.SessionID + "\x00" + strconv.FormatInt(n, 10)))
		q.Hashes = append(q.Hashes, h.Sum64())
	}
	q.Group = 0
	q.GroupTokens = 0
}
