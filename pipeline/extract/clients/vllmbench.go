package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// This file reads the results of `vllm bench serve` and of SGLang's bench_serving, which began as
// a copy of it (spec#wire-bench). With --save-detailed a result has lists with one value for
// each request; without, means over the requests that completed. Both tools append one document
// a run to a file (--append-result, --output-file): each is a load of its own.

// sniffBenchResult reports whether a file is the result of `vllm bench serve --save-result`. A script that sorted its keys puts the
// lists before the totals.
func sniffBenchResult(head []byte) bool {
	isSorted := containsAll(head, `"completed"`, `"burstiness"`) || containsAll(head, `"completed"`, `"input_lens"`)
	return isObject(head) && (containsAll(head, `"total_input_tokens"`, `"completed"`) || isSorted)
}

// benchResult is what is read of one result: lists with one value for each request. Times are
// seconds, start_times of Python's perf_counter, which is CLOCK_MONOTONIC on Linux. The texts are
// not read.
type benchResult struct {
	inputs, outputs          numberList     // tokens
	cached                   numberList     // tokens; of SGLang with --cache-report
	waits                    numberList     // the client's own, for its limit of requests in flight
	stated                   map[string]any // values of benchKeys and totalKeys
	ttfts, starts, latencies numberList
	itls                     []numberList      // times between the chunks of each request
	errors                   []string          // "" for a request that succeeded
	concurrency              trace.Opt[int64]  // max_concurrency: the limit of requests in flight
	sessions, turns          []json.RawMessage // of clients that send conversations; vLLM's own does not
	hasDetails               bool              // one of the lists was there
}

// textBytes returns the memory of an element of a list of JSON values, with the room of the growing list.
func textBytes(text *json.RawMessage) int64 { return 2*24 + int64(cap(*text)) }

// errNoDetails is the error of a result that has means only.
var errNoDetails = errors.New("got a vllm bench result without its requests")

// readBenchResults reads the requests of every result in a file, or the load levels if the first
// result has no requests.
func (c *Reader) readBenchResults(f *clientFile) error {
	err := c.readBenchRequests(f)
	if err == errNoDetails {
		return c.readLevelsIn(f, "vllm bench serve --save-detailed")
	}
	return err
}

// readBenchRequests reads the requests of every result in a file.
func (c *Reader) readBenchRequests(f *clientFile) error {
	c.Acc.Lines++
	text := &pythonJSON{r: bufio.NewReader(&countingReader{c, f.src.R})}
	listBytes := int64(0) // memory of the lists of the current result
	w := newWalkerOf(text, func(n int64) {
		listBytes += n
		c.countMemory(f.src, n)
	})
	for number := int64(1); ; number++ {
		result, err := readBenchResult(w)
		switch {
		case err == nil:
		case number == 1: // may be errNoDetails, which readBenchResults compares
			return err
		case err == io.EOF:
			return nil
		default:
			return fmt.Errorf("result %d of the file: %w", number, err)
		}
		load := c.newLoad(f.src.Name)
		load.IsClosed = result.concurrency.OK
		if number > 1 {
			load.Name += fmt.Sprintf(".%d", number)
		}
		before := len(c.Requests)
		for i := range result.inputs {
			r := result.request(i)
			r.ID = fmt.Sprintf("%s-%d", strings.TrimPrefix(load.Name, "bench_"), i)
			r.Line = number
			load.extend(&r)
			c.addRequest(f.src, r)
		}
		c.held -= listBytes // the lists are requests now
		listBytes = 0
		data := benchDataset(result.stated, len(result.inputs))
		data.applyTo(c.Requests[before:])
		if data.isStated { // drawn prompts, which another load may have drawn before
			drawn := drawnLoad{name: load.Name, startNs: load.StartNs, from: before, to: len(c.Requests)}
			if seed := result.stated["seed"]; seed != nil {
				drawn.seed = fmt.Sprint(seed)
			}
			c.drawn = append(c.drawn, drawn)
		}
		c.addLoad(load)
		c.stated = append(c.stated, result.contradictions(load.Name))
	}
}

// readBenchResult returns the next result, after it has checked that its lists have equal lengths.
func readBenchResult(w walker) (*benchResult, error) {
	b := &benchResult{}
	if err := b.decode(w); err != nil {
		return nil, err
	}
	if err := b.checkLengths(); err != nil {
		return nil, err
	}
	return b, nil
}

// decode reads one result.
func (b *benchResult) decode(w walker) error {
	lists := map[string]*numberList{
		"input_lens":  &b.inputs,
		"output_lens": &b.outputs,
		"ttfts":       &b.ttfts,
		"start_times": &b.starts,
		"latencies":   &b.latencies,
		"queue_times": &b.waits,
	}
	b.stated = map[string]any{}
	return w.object(func(key string) error {
		if list := lists[key]; list != nil {
			b.hasDetails = true
			return w.numbers(list)
		}
		if slices.Contains(benchKeys, key) || slices.Contains(totalKeys, key) {
			var v any
			err := w.dec.Decode(&v)
			b.stated[key] = v
			return err
		}
		switch key {
		case "cached_tokens":
			return w.numbers(&b.cached)
		case "itls":
			return list(w, &b.itls, func(gaps *numberList) int64 { return 2*24 + 8*int64(cap(*gaps)) })
		case "errors":
			return list(w, &b.errors, func(text *string) int64 { return 2*16 + int64(len(*text)) })
		case "conversation":
			return list(w, &b.sessions, textBytes)
		case "turn":
			return list(w, &b.turns, textBytes)
		case "max_concurrency":
			return w.dec.Decode(&b.concurrency)
		}
		return w.skip()
	})
}

// checkLengths returns an error for lists that do not belong together.
func (b *benchResult) checkLengths() error {
	if !b.hasDetails {
		return errNoDetails
	}
	lists := []struct {
		name       string
		length     int
		isRequired bool
	}{
		{"output_lens", len(b.outputs), true},
		{"ttfts", len(b.ttfts), true},
		{"itls", len(b.itls), len(b.latencies) == 0},
		{"start_times", len(b.starts), false},
		{"latencies", len(b.latencies), false},
		{"errors", len(b.errors), false},
		{"cached_tokens", len(b.cached), false},
	}
	want := len(b.inputs)
	for _, l := range lists {
		if l.length != want && (l.isRequired || l.length > 0) {
			return fmt.Errorf("vllm bench result: got %d %s for %d input_lens", l.length, l.name, want)
		}
	}
	return nil
}

// request returns the i-th request. A failed one has an error text and no first token, for which the lists
// have a TTFT of 0 or null.
func (b *benchResult) request(i int) trace.ObservedRequest {
	r := trace.ObservedRequest{
		Source:       sourceBench,
		Line:         1,
		Streaming:    trace.Some(true),
		Success:      trace.Some(true),
		PromptTokens: trace.Some(trace.Count(b.inputs[i])),
		OutputTokens: trace.Some(trace.Count(b.outputs[i])),
	}
	if i < len(b.cached) {
		r.CachedTokens = tokenCount(trace.Some(b.cached[i]))
	}
	if i < len(b.waits) {
		r.ClientWaitUs = fromSeconds(trace.Some(b.waits[i]))
	}
	if i < len(b.sessions) && i < len(b.turns) {
		var session any
		var turn trace.Opt[float64]
		if json.Unmarshal(b.sessions[i], &session) == nil {
			r.Session = optText(session)
		}
		if json.Unmarshal(b.turns[i], &turn) == nil && turn.OK {
			r.Turn = trace.Some(trace.Int(turn.V))
		}
	}
	if len(b.errors) > 0 && b.errors[i] != "" {
		r.Success = trace.Some(false)
		r.Error = trace.Some(lastLine(b.errors[i]))
	}
	if len(b.starts) > 0 {
		r.SendNs = stampNs(trace.Some(b.starts[i]))
	}
	ttft := b.ttfts[i]
	if ttft == 0 || !r.Success.V && math.IsNaN(ttft) {
		return r
	}
	if len(b.itls) == 0 { // a file from which a script has removed the gaps
		setTimes(&r, r.SendNs, ttft*1e6, b.latencies[i]*1e6)
		return r
	}
	last := ttft
	for _, gap := range b.itls[i] {
		last += gap
		r.ChunkGapsUs = append(r.ChunkGapsUs, gap*1e6)
	}
	r.Chunks = trace.Some(int64(1 + len(b.itls[i])))
	setTimes(&r, r.SendNs, ttft*1e6, last*1e6)
	return r
}

// lastLine returns the last line of a Python traceback, which names the exception.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// benchPaths are the means of one result. The lengths are totals; SGLang has the second name of
// the latency.
var benchPaths = levelPaths{
	requests:   "completed",
	rate:       "request_throughput",
	prompt:     "total_input_tokens",
	output:     "total_output_tokens",
	ttft:       "mean_ttft_ms",
	ttftMedian: "median_ttft_ms",
	itl:        "mean_tpot_ms",
	e2e:        "mean_e2el_ms;mean_e2e_latency_ms",
	clients:    "max_concurrency",
	offered:    "request_rate",

	cachedTotal: "cache_report.total_cached_tokens",
}

// readBenchLevels makes a load level of each result that was appended to a file. The first is named like
// the file; of the others the line is the number of the result.
func readBenchLevels(f *LevelFile, data []byte, name string) error {
	dec := json.NewDecoder(&pythonJSON{r: bufio.NewReader(bytes.NewReader(data))})
	for where := name; ; where = fmt.Sprintf("%s:%d", name, f.Read+1) {
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
			return jsonError(where, data, err)
		}
		kept := len(f.Levels)
		f.addBenchLevel(doc, where)
		if len(f.Levels) > kept && f.Read > 1 {
			f.Levels[kept].Sweep = name
			f.Levels[kept].Line = int64(f.Read)
		}
	}
}

// addBenchLevel makes a load level of one result.
func (f *LevelFile) addBenchLevel(doc map[string]any, where string) {
	l := benchPaths.level(doc, where)
	n := float64(l.Requests) // the file has totals of tokens
	l.PromptTokens /= n
	l.OutputTokens /= n
	l.setDataset(benchDataset(doc, l.Requests))
	if l.Clients == 0 && l.OfferedRPS == 0 {
		l.Clients = l.Requests // all were sent at once
	}
	l.nameStrategy()
	f.addLevel(l, where)
}
