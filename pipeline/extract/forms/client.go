// Package forms reads every form but OTLP: client.go results of clients, sweep.go load levels,
// lines.go logs, kv.go KV events, prometheus.go metrics; foreign.go refuses what cannot be read.
package forms

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Sources of observed requests.
const (
	sourceClient   = "client"
	sourceGuideLLM = "guidellm"
	sourceTraceV2  = "tracev2"
	sourceServing  = "llmservingsim"
	sourceBench    = "vllm_bench"
	sourceAIPerf   = "aiperf"
	sourceSGLang   = "sglang"

	sourceInferencePerf = "inference_perf"
)

// Reader reads client-side files; the form is recognised by content.
type Reader struct {
	Names []source.Input
	Acc   *source.Account
	Rows  []trace.ObservedRequest
	Loads []Load // of files that tell how the load was offered

	Points   []trace.LoadPoint // of benchmarks that say levels only
	Findings []trace.Finding   // what was assumed or put right

	traceFiles []traceFile
	chunkSets  []chunkSet
}

// Finish joins what stands in several files and looks for what the forms are known
// to get wrong, once all files are read.
func (c *Reader) Finish(dep *deploy.Deployment) {
	c.joinChunks()
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Streaming.OK && !r.Streaming.V { // its one chunk is the end
			r.FirstChunkNs = trace.Opt[int64]{}
			r.TTFTUs = trace.Opt[float64]{}
			r.ChunkGapsUs = nil
			r.Chunks = trace.Opt[int64]{}
		}
	}
	c.dropRepeatedPoints()
	c.audit(dep)
}

// IsRead says that a file is of a form that Reader knows by itself, by its beginning.
func IsRead(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n\ufeff")
	return bytes.Contains(head, []byte(`"guidellm_version"`)) || isAIPerf(head) || isInferencePerf(head) || is(head) ||
		isTraceV2(head) || bytes.HasPrefix(head, sglangHead)
}

func (c *Reader) File(in *source.Input, how source.Options) error {
	src, err := source.Open(in, how.Stdin, how.Limits)
	if src == nil {
		return err
	}
	defer func(before int) {
		c.strays(src, before)
		in.Size, in.Sum = src.Digest()
		in.Gave += int64(len(c.Rows) - before)
		src.Close()
	}(len(c.Rows))
	if e := source.AsSyntax(err); e != nil && e.Code != source.CodeNotOTLP {
		return c.lost(src, e)
	}
	head, _ := src.R.Peek(1 << 15)
	if err := Refuse(src.Name, head); err != nil {
		return err
	}
	switch trimmed := bytes.TrimLeft(head, " \t\r\n"); {
	case len(trimmed) == 0:
		return nil
	case isInferencePerf(trimmed):
		err = c.inferencePerf(src)
	case bytes.Contains(head, []byte(`"guidellm_version"`)) || bytes.Contains(head, []byte(`"benchmarks"`)):
		rows := len(c.Rows)
		if err = c.guideLLM(src); err == nil && len(c.Rows) == rows {
			err = c.points(in, how, "guidellm without a limit on the requests it keeps")
		}
	case isBench(head):
		if err = c.bench(src); err == errNoDetails {
			err = c.points(in, how, "vllm bench serve --save-detailed")
		}
	case isAIPerf(trimmed):
		load := fileLoad(src.Name)
		err = c.lines(src, func(text []byte) (trace.ObservedRequest, error) {
			r, err := aiperfRequest(text)
			if err == nil {
				load.see(&r)
			}
			return r, err
		})
		c.offered(load)
	case is(trimmed):
		err = c.points(in, how, "")
	case bytes.HasPrefix(trimmed, []byte(chunkHeader)):
		err = c.chunkFile(src)
		in.Gave++
	case trimmed[0] != '{':
		err = c.traceV2(src, in, how)
	default:
		rows := len(c.Rows)
		if err = c.lines(src, clientLine); err == nil && len(c.Rows) == rows {
			return unknownFile(src.Name, trimmed)
		}
	}
	if err != nil {
		return c.lost(src, err)
	}
	return c.Acc.Err
}

// Keys names the keys of the first JSON object of a file, or how it begins.
func Keys(head []byte) string {
	var first map[string]json.RawMessage
	if json.NewDecoder(bytes.NewReader(head)).Decode(&first) != nil {
		line, _, _ := bytes.Cut(head, []byte("\n"))
		return fmt.Sprintf("the first line %.60q", bytes.TrimRight(line, "\r"))
	}
	list := slices.Sorted(maps.Keys(first))
	return "the keys " + strings.Join(list[:min(len(list), 8)], ", ")
}

// unknownFile is the error of a file that gave no request.
func unknownFile(name string, head []byte) error {
	return trace.Errorf(CodeUnknownFile, "%s: got a client file of unknown kind (%s), want the result of vllm bench serve, GuideLLM, AIPerf, "+
		"genai-perf or inference-perf, TraceV2, a table of load levels, or lines with id and send_ns", name,
		Keys(head)).WithHint("leave it out of `files.client_requests` in run.yaml")
}

// lost counts the unread rest of a file as one dropped record.
func (c *Reader) lost(src *source.Source, err error) error {
	c.Acc.Read++
	rest := max(1, src.Size-src.Offset())
	c.Acc.BadBytes += rest
	c.Acc.Bytes += rest
	code := source.CodeUnreadable
	if e := source.AsSyntax(err); e != nil {
		code, err = e.Code, errors.New(e.Msg) // the place names the file
	}
	c.Acc.Drop(code, 1, source.Place{File: src.Name}, "%v", err)
	return c.Acc.Err
}

// Limits of what clients say (spec#value-limits).
var observedRanges = trace.RangesOf[trace.ObservedRequest]()

// row counts one record and keeps it where its values can be.
func (c *Reader) row(src *source.Source, r trace.ObservedRequest) {
	c.Acc.Read++
	why := observedRanges.Check(&r)
	reversed := func(from, to trace.Opt[int64]) bool { return from.OK && to.OK && to.V < from.V }
	if why == "" && (reversed(r.FirstChunkNs, r.LastChunkNs) || reversed(r.SendNs, r.EndNs)) {
		why = "its stamps run backwards"
	}
	if why == "" && r.OutputTokens.OK && r.OutputTokens.V == 0 && len(r.ChunkGapsUs) > 0 {
		why = fmt.Sprintf("output_tokens: got 0, want at least 1 beside %d chunks", 1+len(r.ChunkGapsUs))
	}
	if why != "" {
		c.Acc.Drop(source.CodeBadRecord, 1, source.Place{File: src.Name, Line: r.Line}, "request %s: %s", r.ID, why)
		return
	}
	c.Acc.Keep(1)
	c.Rows = append(c.Rows, r)
}

// strays drops the requests of a file, which stand from a place on, with a stamp that is far from
// the others of its kind.
func (c *Reader) strays(src *source.Source, from int) {
	names := [...]string{"arrival_ns", "send_ns", "first_chunk_ns", "last_chunk_ns", "end_ns", "send_wall_ns", "queued_ns", "scheduled_ns",
		"engine_first_ns", "engine_last_ns"}
	of := func(r *trace.ObservedRequest) [len(names)]trace.Opt[int64] {
		return [...]trace.Opt[int64]{r.ArrivalNs, r.SendNs, r.FirstChunkNs, r.LastChunkNs, r.EndNs, r.SendWallNs, r.QueuedNs, r.ScheduledNs,
			r.EngineFirstNs, r.EngineLastNs}
	}
	var clocks [len(names)]source.Stamps
	for i := range c.Rows[from:] {
		for k, at := range of(&c.Rows[from+i]) {
			if at.OK {
				clocks[k].See(at.V)
			}
		}
	}
	if !slices.ContainsFunc(clocks[:], func(s source.Stamps) bool { return s.AnyStray() }) {
		return
	}
	kept := slices.DeleteFunc(c.Rows[from:], func(r trace.ObservedRequest) bool {
		for k, at := range of(&r) {
			if why := clocks[k].Check(names[k], at.V); at.OK && why != "" {
				c.Acc.Keep(-1)
				c.Acc.Drop(source.CodeBadRecord, 1, source.Place{File: src.Name, Line: r.Line}, "request %s: %s", r.ID, why)
				return true
			}
		}
		return false
	})
	c.Rows = c.Rows[:from+len(kept)]
}

func (c *Reader) bad(src *source.Source, line, n int64, err error) {
	code := source.CodeUnreadable
	if e := source.AsSyntax(err); e != nil {
		code, err = e.Code, errors.New(e.Msg)
	}
	c.Acc.Read++
	c.Acc.BadBytes += n
	c.Acc.Drop(code, 1, source.Place{File: src.Name, Line: line}, "client request: %v", err)
}

// lines reads one JSON object a line, a request each.
func (c *Reader) lines(src *source.Source, parse func(text []byte) (trace.ObservedRequest, error)) error {
	for line := int64(1); ; line++ {
		text, n, err := readLine(src)
		g := source.AsGap(err)
		switch {
		case g != nil: // the line it cut is lost with it
			c.Acc.Bytes += g.Lost
			c.bad(src, line, max(1, g.Lost), g)
		case n > src.Limits.MaxLine:
			c.Acc.Lines++
			c.Acc.Bytes += n
			c.bad(src, line, n, src.Errorf(source.CodeOverLimit, "line of more than %d bytes (--max-line)", src.Limits.MaxLine))
		case len(bytes.TrimSpace(text)) > 0:
			c.line(src, line, text, parse)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil && g == nil {
			return src.ReadError(err)
		}
	}
}

// line takes one line.
func (c *Reader) line(src *source.Source, line int64, text []byte, parse func(text []byte) (trace.ObservedRequest, error)) {
	c.Acc.Lines++
	c.Acc.Bytes += int64(len(text))
	row, err := parse(text)
	if err != nil {
		c.bad(src, line, int64(len(text)), err)
		return
	}
	row.Line = line
	c.row(src, row)
}

// readLine reads a line of n bytes; of one above the limit there is no text.
func readLine(src *source.Source) (text []byte, n int64, err error) {
	for {
		part, err := src.R.ReadSlice('\n')
		n += int64(len(part))
		if n <= src.Limits.MaxLine {
			text = append(text, part...)
		} else {
			text = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, n, err
		}
	}
}

// usage is what an OpenAI-style server says that an answer used.
type usage struct {
	Prompt     trace.Opt[int64] `json:"prompt_tokens"`
	Completion trace.Opt[int64] `json:"completion_tokens"`
	Details    struct {
		Cached trace.Opt[int64] `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// clientJSON is a line of client_requests.jsonl (spec#wire-client) or of
// llmservingsim's requests.jsonl; unknown keys are allowed.
type clientJSON struct {
	trace.ObservedRequest         // of client_requests.jsonl
	PrefixGroup           any     `json:"prefix_group"`
	Error                 any     `json:"error"`
	ITLUs                 numbers `json:"itl_us"`
	Usage                 *usage  `json:"usage"`

	RequestID   string             `json:"request_id"`
	InputToks   trace.Opt[int64]   `json:"input_toks"`
	OutputToks  trace.Opt[int64]   `json:"output_toks"`
	ArrivalTime trace.Opt[float64] `json:"arrival_time"`
	QueuedTs    trace.Opt[float64] `json:"queued_ts"`
	ScheduledTs trace.Opt[float64] `json:"scheduled_ts"`
	FirstTs     trace.Opt[float64] `json:"first_token_ts"`
	LastTs      trace.Opt[float64] `json:"last_token_ts"`
}

func clientLine(text []byte) (trace.ObservedRequest, error) {
	if bytes.HasPrefix(text, sglangHead) {
		return sglangRequest(text)
	}
	var j clientJSON
	if err := trace.UnmarshalJSON(text, &j); err != nil {
		return trace.ObservedRequest{}, err
	}
	switch {
	case j.ID != "":
		return j.client(), nil
	case j.RequestID != "":
		return j.serving(), nil
	}
	return trace.ObservedRequest{}, errors.New(`got neither "id" nor "request_id"`)
}

// client is a request of client_requests.jsonl.
func (j *clientJSON) client() trace.ObservedRequest {
	r := j.ObservedRequest
	r.Source, r.PrefixGroup, r.ChunkGapsUs, r.Error = sourceClient, optText(j.PrefixGroup), j.ITLUs, optText(j.Error)
	if j.Usage != nil {
		if j.Usage.Prompt.OK {
			r.PromptTokens = j.Usage.Prompt
		}
		r.OutputTokens = j.Usage.Completion
		if j.Usage.Details.Cached.OK {
			r.CachedTokens = j.Usage.Details.Cached
		}
	}
	r.Success = trace.Some(!r.Error.OK && !j.Aborted.V && (!j.Status.OK || j.Status.V >= 200 && j.Status.V < 300))
	r.TTFTUs, r.E2EUs = gapUs(r.SendNs, r.FirstChunkNs), gapUs(r.SendNs, r.LastChunkNs)
	return r
}

func gapUs(from, to trace.Opt[int64]) trace.Opt[float64] {
	if !from.OK || !to.OK {
		return trace.Opt[float64]{}
	}
	return trace.Some(float64(to.V-from.V) / 1000)
}

// optText is a JSON value as text; null is unknown.
func optText(v any) trace.Opt[string] {
	switch v := v.(type) {
	case nil:
		return trace.Opt[string]{}
	case string:
		return trace.Some(v)
	case float64:
		return trace.Some(strconv.FormatFloat(v, 'g', -1, 64))
	}
	b, _ := json.Marshal(v)
	return trace.Some(string(b))
}

// serving is a request of llmservingsim: arrival on the client's wall clock,
// the rest on the engine's monotonic clock.
func (j *clientJSON) serving() trace.ObservedRequest {
	r := trace.ObservedRequest{
		ID: j.RequestID, Source: sourceServing, PromptTokens: j.InputToks, OutputTokens: j.OutputToks, AskedTokens: j.OutputToks,
		SendWallNs: optNs(j.ArrivalTime, 1e9), QueuedNs: optNs(j.QueuedTs, 1e9), ScheduledNs: optNs(j.ScheduledTs, 1e9),
		EngineFirstNs: optNs(j.FirstTs, 1e9), EngineLastNs: optNs(j.LastTs, 1e9),
	}
	r.Success = trace.Some(j.LastTs.OK)
	return r
}

// optNs scales a stamp to ns.
func optNs(v trace.Opt[float64], scale float64) trace.Opt[int64] {
	return trace.Opt[int64]{V: trace.Int(v.V * scale), OK: v.OK}
}

// optCount is a number of tokens.
func optCount(v trace.Opt[float64]) trace.Opt[int64] {
	return trace.Opt[int64]{V: trace.Count(v.V), OK: v.OK}
}

// guideRequest is one request of a GuideLLM result file.
type guideRequest struct {
	RequestID  string             `json:"request_id"`
	ResponseID trace.Opt[string]  `json:"response_id"`
	Type       trace.Opt[string]  `json:"request_type"`
	Start      trace.Opt[float64] `json:"request_start_time"`
	End        trace.Opt[float64] `json:"request_end_time"`
	Latency    trace.Opt[float64] `json:"request_latency"`
	Prompt     trace.Opt[float64] `json:"prompt_tokens"`
	Output     trace.Opt[float64] `json:"output_tokens"`
	TTFTMs     trace.Opt[float64] `json:"time_to_first_token_ms"`
	Args       json.RawMessage    `json:"request_args"`
	Info       struct {
		Error any `json:"error"`
	} `json:"info"`
}

// nanOr is the value, NaN when unknown.
func nanOr(v trace.Opt[float64]) float64 { return v.Or(math.NaN()) }

// tally adds the bytes read to a count.
type tally struct {
	r io.Reader
	n *int64
}

func (t *tally) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	*t.n += int64(n)
	return n, err
}

func (g *guideRequest) row(outcome string) trace.ObservedRequest {
	r := trace.ObservedRequest{
		ID: g.ResponseID.Or(g.RequestID), Source: sourceGuideLLM, SendWallNs: optNs(g.Start, 1e9),
		PromptTokens: optCount(g.Prompt), OutputTokens: optCount(g.Output), Success: trace.Some(outcome == "successful"),
		Aborted: trace.Some(outcome == "incomplete"), Error: optText(g.Info.Error), Line: 1,
	}
	if strings.HasPrefix(g.Type.V, "chat") {
		r.Route = trace.Some("chat")
	} else if g.Type.OK {
		r.Route = trace.Some("completions")
	}
	timed(&r, r.SendWallNs, nanOr(g.TTFTMs)*1e3, nanOr(g.Latency)*1e6)
	var args struct {
		Stream trace.Opt[bool] `json:"stream"`
		Body   struct {
			MaxTokens trace.Opt[int64] `json:"max_tokens"`
		} `json:"body"`
	}
	if json.Unmarshal(g.Args, &args) == nil {
		r.Streaming = args.Stream
		r.AskedTokens = args.Body.MaxTokens
	}
	return r
}

// Load is how one file's client offered its requests: the phase it makes where
// run.yaml names none.
type Load struct {
	Name           string // of the file, without its extension
	StartNs, EndNs int64  // first send and end of the last answer, client's clock
	Closed         bool   // a bound of concurrent requests held it
}

// fileLoad begins the load of a file.
func fileLoad(file string) *Load {
	name, _ := stemOf(path.Base(file))
	return &Load{Name: name}
}

// see takes the time of a request in.
func (l *Load) see(r *trace.ObservedRequest) {
	if !r.SendNs.OK {
		return
	}
	if l.EndNs == 0 || r.SendNs.V < l.StartNs {
		l.StartNs = r.SendNs.V
	}
	l.EndNs = max(l.EndNs, r.LastChunkNs.Or(r.SendNs.V)+1)
}

// offered keeps the load of a file whose requests have stamps.
func (c *Reader) offered(l *Load) {
	if l.EndNs > 0 {
		c.Loads = append(c.Loads, *l)
	}
}

// errNoDetails is a bench result that holds summaries only.
var errNoDetails = errors.New("got a vllm bench result without its requests")

// numbers is a list of numbers; one that is null is NaN, not 0.
type numbers []float64

// UnmarshalJSON reads the list.
func (n *numbers) UnmarshalJSON(text []byte) error {
	if !bytes.Contains(text, []byte("null")) {
		return json.Unmarshal(text, (*[]float64)(n))
	}
	var list []trace.Opt[float64]
	err := json.Unmarshal(text, &list)
	for _, v := range list {
		*n = append(*n, nanOr(v))
	}
	return err
}

// benchResult is what is read of `vllm bench serve --save-detailed`: lists with one
// value a request. Times are seconds, start_times of Python's perf_counter, which
// is CLOCK_MONOTONIC on Linux. Texts are not read.
type benchResult struct {
	inputs, outputs          numbers
	sessions, turns          []any // of drivers that send conversations; not of vllm's own client
	ttfts, starts, latencies numbers
	itls                     [][]float64
	errors                   []string
	concurrency              trace.Opt[int64]
	ok                       bool // one of the lists was there
}

func (b *benchResult) read(w walker) error {
	lists := map[string]*numbers{"input_lens": &b.inputs, "output_lens": &b.outputs, "ttfts": &b.ttfts, "start_times": &b.starts,
		"latencies": &b.latencies}
	return w.object(func(key string) error {
		if list := lists[key]; list != nil {
			b.ok = true
			return w.dec.Decode(list)
		}
		switch key {
		case "itls":
			return w.array(func() error {
				var gaps numbers
				err := w.dec.Decode(&gaps)
				b.itls = append(b.itls, gaps)
				return err
			})
		case "errors":
			return w.dec.Decode(&b.errors)
		case "conversation":
			return w.dec.Decode(&b.sessions)
		case "turn":
			return w.dec.Decode(&b.turns)
		case "max_concurrency":
			return w.dec.Decode(&b.concurrency)
		}
		return w.skip()
	})
}

// check refuses lists that do not belong together.
func (b *benchResult) check() error {
	n := len(b.inputs)
	if !b.ok {
		return errNoDetails
	}
	for _, l := range []struct {
		name     string
		n        int
		required bool
	}{{"output_lens", len(b.outputs), true}, {"ttfts", len(b.ttfts), true}, {"itls", len(b.itls), true},
		{"start_times", len(b.starts), false}, {"latencies", len(b.latencies), false}, {"errors", len(b.errors), false}} {
		if l.n != n && (l.required || l.n > 0) {
			return fmt.Errorf("vllm bench result: got %d %s for %d input_lens", l.n, l.name, n)
		}
	}
	return nil
}

// bench reads a result file of vllm's own client or of SGLang's, which append one document a run
// to it (--append-result, --output-file): each is a load of its own.
func (c *Reader) bench(src *source.Source) error {
	c.Acc.Lines++
	w := walker{json.NewDecoder(&finite{r: bufio.NewReader(&tally{src.R, &c.Acc.Bytes})})}
	for n := int64(1); ; n++ {
		var b benchResult
		err := b.read(w)
		if n > 1 && err == io.EOF {
			return nil
		}
		if err == nil {
			err = b.check()
		}
		if n > 1 && err != nil {
			return fmt.Errorf("result %d of the file: %w", n, err)
		}
		if err != nil {
			return err
		}
		load := fileLoad(src.Name)
		if load.Closed = b.concurrency.OK; n > 1 {
			load.Name += fmt.Sprintf(".%d", n)
		}
		for i := range b.inputs {
			r := b.row(i)
			r.ID = fmt.Sprintf("%s-%d", strings.TrimPrefix(load.Name, "bench_"), i)
			r.Line = n
			load.see(&r)
			c.row(src, r)
		}
		c.offered(load)
	}
}

// finite reads JSON as Python's json module writes it: Infinity, -Infinity and NaN, which are no
// JSON, become null.
type finite struct {
	r               *bufio.Reader
	inText, escaped bool
	rest            string // of a null
}

func (f *finite) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if f.rest != "" {
			k := copy(p[n:], f.rest)
			f.rest = f.rest[k:]
			n += k
			continue
		}
		if n > 0 && f.r.Buffered() == 0 {
			return n, nil
		}
		b, err := f.r.ReadByte()
		if err != nil {
			return n, err
		}
		switch {
		case f.escaped:
			f.escaped = false
		case b == '"':
			f.inText = !f.inText
		case f.inText:
			f.escaped = b == '\\'
		case b == '-' || b == 'I' || b == 'N':
			for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
				if more, _ := f.r.Peek(len(word) - 1); string(b)+string(more) == word {
					if _, err := f.r.Discard(len(more)); err != nil {
						return n, err
					}
					f.rest = "null"
				}
			}
			if f.rest != "" {
				continue
			}
		}
		p[n] = b
		n++
	}
	return n, nil
}

// row is the i-th request. A failed one has an error text and no first token.
func (b *benchResult) row(i int) trace.ObservedRequest {
	r := trace.ObservedRequest{Source: sourceBench, Line: 1, Streaming: trace.Some(true), Success: trace.Some(true),
		PromptTokens: trace.Some(trace.Count(b.inputs[i])), OutputTokens: trace.Some(trace.Count(b.outputs[i]))}
	if i < len(b.sessions) && i < len(b.turns) {
		r.Session = optText(b.sessions[i])
		if n, ok := b.turns[i].(float64); ok {
			r.Turn = trace.Some(trace.Int(n))
		}
	}
	if len(b.errors) > 0 && b.errors[i] != "" {
		r.Success, r.Error = trace.Some(false), trace.Some(lastLine(b.errors[i]))
	}
	if len(b.starts) > 0 {
		r.SendNs = optNs(trace.Some(b.starts[i]), 1e9)
	}
	if b.ttfts[i] == 0 || !r.Success.V && math.IsNaN(b.ttfts[i]) {
		return r
	}
	last := b.ttfts[i]
	for _, gap := range b.itls[i] {
		last += gap
		r.ChunkGapsUs = append(r.ChunkGapsUs, gap*1e6)
	}
	r.Chunks = trace.Some(int64(1 + len(b.itls[i])))
	timed(&r, r.SendNs, b.ttfts[i]*1e6, last*1e6)
	return r
}

// lastLine is the last line of a Python traceback, which says what happened.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// isBench recognises the result of `vllm bench serve --save-result`.
func isBench(head []byte) bool {
	return bytes.Contains(head, []byte(`"total_input_tokens"`)) && bytes.Contains(head, []byte(`"completed"`))
}

// benches reads the summaries that vllm bench serve or SGLang's client appended to one file.
func (f *File) benches(data []byte, name string) error {
	dec := json.NewDecoder(&finite{r: bufio.NewReader(bytes.NewReader(data))})
	for at := name; ; at = fmt.Sprintf("%s:%d", name, f.Read+1) {
		var text json.RawMessage
		err := dec.Decode(&text)
		if err == io.EOF {
			return nil
		}
		var doc map[string]any
		if err == nil {
			err = trace.UnmarshalJSON(text, &doc)
		}
		if err != nil {
			return syntax(at, data, err)
		}
		kept := len(f.Points)
		if f.bench(doc, at); len(f.Points) > kept && f.Read > 1 {
			f.Points[kept].Sweep = name
			f.Points[kept].Line = int64(f.Read)
		}
	}
}

// bench reads the summary of vllm bench serve: means over the requests that
// completed, times in ms.
func (f *File) bench(doc any, name string) {
	p := forms().Bench.point(doc, name)
	n := float64(p.Requests)
	p.PromptTokens = p.PromptTokens / n
	p.OutputTokens = p.OutputTokens / n
	if p.Clients == 0 && p.OfferedRPS == 0 {
		p.Clients = p.Requests // all at once
	}
	p.offered()
	f.keep(p, name)
}

// chunkHeader begins the chunk file beside a TraceV2 (.itl.csv).
const chunkHeader = "request_id,chunk_index,timestamp_us"

// chunk is one row of a chunk file.
type chunk struct{ index, ns int64 }

// chunkSet are the chunks of one file by request, as far as they wait for the
// requests they belong to.
type chunkSet struct {
	file   string
	chunks map[string][]chunk
}

// isTraceV2 recognises BLIS's traces: a header, rows, or chunks.
func isTraceV2(head []byte) bool {
	return bytes.HasPrefix(head, []byte("trace_version:")) || bytes.HasPrefix(head, []byte("request_id,")) ||
		bytes.HasPrefix(head, []byte("---\ntrace_version:"))
}

// chunkFile reads the times of chunks, in any order.
func (c *Reader) chunkFile(src *source.Source) error {
	rd := csv.NewReader(&tally{src.R, &c.Acc.Bytes})
	rd.FieldsPerRecord, rd.ReuseRecord = -1, true
	set := chunkSet{file: src.Name, chunks: map[string][]chunk{}}
	for line := int64(0); ; line++ {
		fields, err := rd.Read()
		c.Acc.Lines++
		switch {
		case err == io.EOF:
			c.chunkSets = append(c.chunkSets, set)
			return nil
		case errors.As(err, new(*csv.ParseError)):
			c.bad(src, line+1, 1, err)
			continue
		case err != nil:
			c.chunkSets = append(c.chunkSets, set)
			return src.ReadError(err)
		case line == 0:
			continue
		}
		index, at, err := chunkFields(fields)
		if err != nil {
			row, _ := rd.FieldPos(0)
			c.bad(src, int64(row), 1, err)
			continue
		}
		id := strings.Clone(fields[0])
		set.chunks[id] = append(set.chunks[id], chunk{index, at * 1000})
	}
}

func chunkFields(fields []string) (index, us int64, err error) {
	if len(fields) != 3 {
		return 0, 0, fmt.Errorf("chunk: got %d fields, want 3", len(fields))
	}
	if index, err = strconv.ParseInt(fields[1], 10, 64); err == nil {
		us, err = strconv.ParseInt(fields[2], 10, 64)
	}
	if err != nil || index < 0 || us < 0 {
		return 0, 0, fmt.Errorf("chunk: got the index %.20q at %.20q us, want integers of at least 0", fields[1], fields[2])
	}
	return index, us, nil
}

// joinChunks gives requests the chunks that stand in a file of their own. Where ids
// are those of several files, the file of the same name has them.
func (c *Reader) joinChunks() {
	for _, set := range c.chunkSets {
		rows := map[string]int{}
		for i := range c.Rows {
			if r := &c.Rows[i]; r.Source == sourceTraceV2 && (len(c.traceFiles) < 2 || c.stemAt(i) == dataStem(set.file)) {
				rows[r.ID] = i
			}
		}
		for _, id := range slices.Sorted(maps.Keys(set.chunks)) {
			list := set.chunks[id]
			c.Acc.Read += int64(len(list))
			i, ok := rows[id]
			if !ok {
				c.Acc.Drop(CodeClientFile, int64(len(list)), source.Place{File: set.file}, "chunks of request %q, which no TraceV2 file has", id)
				continue
			}
			c.Acc.Keep(int64(len(list)))
			setChunks(&c.Rows[i], list)
		}
	}
}

// dataStem is the name of the trace that a chunk file belongs to.
func dataStem(file string) string {
	stem, _ := stemOf(file)
	return strings.TrimSuffix(stem, ".itl")
}

// setChunks gives a request the times of its chunks.
func setChunks(r *trace.ObservedRequest, list []chunk) {
	slices.SortStableFunc(list, func(a, b chunk) int { return cmp.Compare(a.index, b.index) })
	r.Chunks = trace.Some(int64(len(list)))
	r.ChunkGapsUs = nil
	r.FirstChunkNs, r.LastChunkNs = trace.Some(list[0].ns), trace.Some(list[len(list)-1].ns)
	for k := 1; k < len(list); k++ {
		r.ChunkGapsUs = append(r.ChunkGapsUs, float64(list[k].ns-list[k-1].ns)/1000)
	}
	r.TTFTUs, r.E2EUs = gapUs(r.SendNs, r.FirstChunkNs), gapUs(r.SendNs, r.LastChunkNs)
}
