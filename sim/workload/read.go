package workload

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/tracev2"
)

// mooncakeSpan is the number of tokens behind one Mooncake hash id.
const mooncakeSpan = 512

// Read reads a workload file of a public format, or a generator: one of the two
// results is nil. name is for messages.
func Read(data []byte, name string) (*Workload, *Generator, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	head, _, _ := bytes.Cut(data, []byte("\n"))
	first := strings.TrimSpace(string(head))
	read := readTraceV2
	switch {
	case strings.HasPrefix(first, "{"):
		read = readJSON
	case strings.HasPrefix(strings.ToUpper(first), "TIMESTAMP,"):
		read = readAzure
	case IsTraceV2(data):
	case len(bytes.TrimSpace(data)) == 0:
		return nil, nil, &trace.SyntaxError{File: name, Code: codeBadWorkload, Msg: "workload: got an empty file, want requests"}
	case isSpecV2(data):
		g, err := loadSpecV2(data, name)
		return nil, g, err
	default:
		g, err := loadGenerator(bytes.NewReader(data), name)
		return nil, g, err
	}
	w, err := read(data, name)
	return w, nil, err
}

func bad(name string, line int, format string, args ...any) error {
	e := trace.Errorf(codeBadWorkload, format, args...)
	return &trace.SyntaxError{File: name, Line: int64(line), Code: codeBadWorkload, Msg: e.Msg}
}

// readJSON reads JSON objects of two kinds. Mooncake's are requests: timestamp (ms), input_length, output_length, hash_ids of
// 512-token blocks. Weka's are sessions of agents: block_size (64 tokens) and requests with t (s since the session began), in,
// out, api_time (s) and hash_ids, the session's own unless hash_id_scope is global. Between an answer and the next request
// lies the think time. Requests of sub-agents are left out.
func readJSON(data []byte, name string) (*Workload, error) {
	w := withRoom(data)
	line := 1
	at := int64(0)
	subagents := 0
	for dec := json.NewDecoder(bytes.NewReader(data)); ; at = dec.InputOffset() {
		rest := bytes.TrimLeft(data[at:], " \t\r\n")
		line += bytes.Count(data[at:len(data)-len(rest)], []byte("\n"))
		in := struct {
			Timestamp float64  `json:"timestamp"`
			Input     int64    `json:"input_length"`
			Output    int64    `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
			BlockSize int64    `json:"block_size"`
			Scope     string   `json:"hash_id_scope"`
			Requests  []wekaRequest
		}{BlockSize: 64}
		err := dec.Decode(&in)
		switch {
		case err == io.EOF && subagents > 0:
			w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete, "%d requests of sub-agents are left out: a session is a chain", subagents))
			fallthrough
		case err == io.EOF:
			return w.check(name)
		case err != nil || in.BlockSize < 1:
			return nil, bad(name, line, "got no JSON object of a request (%v), want timestamp, input_length, output_length, hash_ids; "+
				"or block_size and requests with t, in, out, api_time, hash_ids", err)
		case in.Requests != nil:
			err = w.addSession(name, line, in.Requests, in.BlockSize, in.Scope == "global", &subagents)
		case in.Input < 1 || in.Output < 0 || in.Timestamp < 0:
			return nil, bad(name, line, "mooncake request: got timestamp %g ms, %d input, %d output tokens, want >= 0, >= 1, >= 0",
				in.Timestamp, in.Input, in.Output)
		default:
			err = w.addFrom(name, line, sim.Request{ID: strconv.Itoa(len(w.Requests)), ArrivalUs: sim.ToUs(math.Floor(in.Timestamp * 1000)),
				PromptTokens: in.Input, OutputTokens: max(1, in.Output), Hashes: in.Hashes, HashTokens: mooncakeSpan})
			w.rounds = append(w.rounds, round{})
		}
		if err != nil {
			return nil, err
		}
		line += bytes.Count(data[len(data)-len(rest):dec.InputOffset()], []byte("\n"))
	}
}

type wekaRequest struct {
	Type    string
	T       float64
	In, Out int64
	APITime float64  `json:"api_time"`
	Hashes  []uint64 `json:"hash_ids"`
}

// addSession adds a chain of requests but for those of sub-agents, which it counts.
func (w *Workload) addSession(name string, line int, requests []wekaRequest, block int64, global bool, subagents *int) error {
	own := uint64(len(w.Requests)+1) << 40
	before := 0
	answered := 0.0
	for i, q := range requests {
		if q.Type == "subagent" {
			*subagents++
			continue
		}
		if q.T < 0 || q.APITime < 0 || q.In < 1 || q.Out < 0 {
			return bad(name, line, "request %d: got t %g s, api_time %g s, %d input, %d output tokens, want >= 0, >= 0, >= 1, >= 0",
				i+1, q.T, q.APITime, q.In, q.Out)
		}
		for j := range q.Hashes {
			if !global {
				q.Hashes[j] ^= own
			}
		}
		if err := w.addFrom(name, line, sim.Request{ID: strconv.Itoa(len(w.Requests)), ArrivalUs: sim.ToUs(q.T * 1e6), PromptTokens: q.In,
			OutputTokens: max(1, q.Out), Hashes: q.Hashes, HashTokens: block}); err != nil {
			return err
		}
		w.rounds = append(w.rounds, round{before: before, thinkUs: min(sim.ToUs(max(0, q.T-answered)*1e6), sim.LatestUs)})
		before = len(w.Requests)
		answered = q.T + q.APITime
	}
	return nil
}

// withRoom is an empty workload with room for a request per line.
func withRoom(data []byte) *Workload {
	return &Workload{Requests: make([]sim.Request, 0, bytes.Count(data, []byte("\n"))+1)}
}

func (w *Workload) add(q sim.Request) { w.Requests = append(w.Requests, q) }

// addFrom adds a request that a line of a file holds, if it can be.
func (w *Workload) addFrom(name string, line int, q sim.Request) error {
	if why := tokenRange.Check("tokens", float64(max(q.PromptTokens, q.OutputTokens))); why != "" {
		return bad(name, line, "%s", why)
	}
	if q.ArrivalUs > sim.LatestUs {
		return bad(name, line, "arrival: got a time beyond %d us, want at most that", sim.LatestUs)
	}
	w.add(q)
	return nil
}

// tokenRange are the tokens of a request (spec#value-limits).
var tokenRange, _ = trace.RangeOf("", "tokens")

func (w *Workload) check(name string) (*Workload, error) {
	if len(w.Requests) == 0 {
		return nil, &trace.SyntaxError{File: name, Code: codeBadWorkload, Msg: "workload: got no request, want at least one"}
	}
	return w, nil
}

// rows walks a CSV file with a header line.
func rows(data []byte, name string, required []string, each func(line int, field func(string) string) error) error {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return bad(name, 1, "header: got %v, want a CSV header", err)
	}
	column := map[string]int{}
	for i, c := range head {
		column[strings.TrimSpace(c)] = i
	}
	for _, c := range required {
		if _, ok := column[c]; !ok {
			return bad(name, 1, "header: got no column %q, want it", c)
		}
	}
	for {
		rec, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil { // a record that cannot be read has no field to ask the line of
			line := 0
			if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
				line = parse.Line
			}
			return bad(name, line, "row: got %v, want CSV", err)
		}
		line, _ := r.FieldPos(0)
		field := func(c string) string {
			i, ok := column[c]
			if !ok || i >= len(rec) {
				return ""
			}
			return strings.TrimSpace(rec[i])
		}
		if err := each(line, field); err != nil {
			return err
		}
	}
}

// readAzure reads the columns TIMESTAMP, ContextTokens and GeneratedTokens.
func readAzure(data []byte, name string) (*Workload, error) {
	w := withRoom(data)
	var origin time.Time
	err := rows(data, name, []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, func(line int, field func(string) string) error {
		at, err := time.Parse("2006-01-02 15:04:05", field("TIMESTAMP"))
		if err != nil {
			return bad(name, line, "TIMESTAMP: got %q, want YYYY-MM-DD hh:mm:ss.fraction", field("TIMESTAMP"))
		}
		in, err1 := strconv.ParseInt(field("ContextTokens"), 10, 64)
		out, err2 := strconv.ParseInt(field("GeneratedTokens"), 10, 64)
		if err1 != nil || err2 != nil || in < 1 || out < 0 {
			return bad(name, line, "tokens: got %q and %q, want >= 1 and >= 0", field("ContextTokens"), field("GeneratedTokens"))
		}
		if len(w.Requests) == 0 {
			origin = at
		}
		us := at.Sub(origin).Microseconds()
		if us < 0 {
			return bad(name, line, "TIMESTAMP: got %q, before the first request, want time order", field("TIMESTAMP"))
		}
		return w.addFrom(name, line, sim.Request{ID: strconv.Itoa(len(w.Requests)), ArrivalUs: us, PromptTokens: in, OutputTokens: max(1, out)})
	})
	if err != nil {
		return nil, err
	}
	return w.check(name)
}

// unread is a key that a format has and a reader does not: where its value stands, 0 when it is absent, null, false or
// an empty text.
type unread struct{ Line, Col int }

// UnmarshalYAML notes where the value stands.
func (u *unread) UnmarshalYAML(n *yaml.Node) error {
	off := n.Kind == yaml.ScalarNode && (n.Tag == "!!null" || n.Value == "" || n.Tag == "!!bool" && strings.EqualFold(n.Value, "false"))
	if !off {
		u.Line, u.Col = n.Line, n.Column
	}
	return nil
}

// IsTraceV2 recognises rows of a TraceV2 file, their header, or both.
func IsTraceV2(data []byte) bool {
	return bytes.HasPrefix(data, []byte(tracev2.FirstColumn+",")) || bytes.HasPrefix(data, []byte("trace_version:")) ||
		bytes.Contains(data[:min(len(data), 1<<16)], []byte("\ntrace_version:"))
}

func readTraceV2(data []byte, name string) (*Workload, error) { return ReadTraceV2(data, name, nil) }

// ReadTraceV2 reads BLIS's trace, whose header may be in another file (nil: it
// stands before the rows or nowhere): injection at send_time_us if > 0, else
// arrival_time_us; a prefix group shares its prefix_length tokens, a session that
// accumulates everything said before (its rounds: [Workload.CloseSessions]). Rows that ended in an error carry their
// tokens all the same.
func ReadTraceV2(data []byte, name string, header *tracev2.Header) (*Workload, error) {
	rd, err := tracev2.NewReader(bytes.NewReader(data), name, header)
	switch {
	case errors.As(err, new(*trace.SyntaxError)):
		return nil, err
	case err != nil:
		return nil, bad(name, 1, "%v", err)
	}
	for _, c := range []string{"output_tokens", "arrival_time_us"} {
		if !rd.Has(c) {
			return nil, bad(name, 1, "header: got no column %q, want it", c)
		}
	}
	w := withRoom(data)
	ids := names{}
	sessions := map[string]int{}
	w.rounds = make([]round, 0, cap(w.Requests))
	for {
		rec, err := rd.Read()
		switch {
		case err == io.EOF:
			if rd.Header.Offload != nil {
				w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete,
					"kv_offload of the trace's header is ignored: the deployment says what is offloaded"))
			}
			return w.check(name)
		case err != nil:
			return nil, bad(name, int(rd.Line()), "%v", err)
		}
		q := tracedRequest(&rec, ids)
		if q.PromptTokens < 1 || q.ArrivalUs < 0 {
			return nil, bad(name, int(rd.Line()), "request: got %d input tokens at %d us, want >= 1 and >= 0", q.PromptTokens, q.ArrivalUs)
		}
		if err := w.addFrom(name, int(rd.Line()), q); err != nil {
			return nil, err
		}
		if rec.ThinkUs < 0 || rec.ThinkUs > sim.LatestUs {
			return nil, bad(name, int(rd.Line()), "think_time_us: got %d, want 0 to %d", rec.ThinkUs, sim.LatestUs)
		}
		r := round{thinkUs: rec.ThinkUs}
		if rec.SessionID != "" {
			r.before = sessions[rec.SessionID]
			sessions[rec.SessionID] = len(w.Requests)
		}
		w.rounds = append(w.rounds, r)
	}
}

// names numbers names in the order they are met, from 1.
type names map[string]uint64

func (n names) id(name string) uint64 {
	if n[name] == 0 {
		n[name] = uint64(len(n) + 1)
	}
	return n[name]
}

// tracedRequest is a row as the simulator takes it.
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
		inSession(&q, rec)
	}
	if rec.DeadlineUs > 0 {
		q.AbortAtUs = trace.Some(max(rec.DeadlineUs, q.ArrivalUs))
		q.AbortKind = sim.OutcomeTimedOut
	}
	return q
}

// longSpan is more tokens than any prompt has.
const longSpan = 1 << 40

// inSession says what the prompt of a session's round shares: the group's prefix
// with the group, what follows with the other rounds of the session.
func inSession(q *sim.Request, rec *tracev2.Record) {
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
	q.Group, q.GroupTokens = 0, 0
}
