package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// errNoDetails is a bench result that holds summaries only.
var errNoDetails = errors.New("got a vllm bench result without its requests")

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
func (f *LevelFile) benches(data []byte, name string) error {
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
func (f *LevelFile) bench(doc any, name string) {
	p := forms().Bench.point(doc, name)
	n := float64(p.Requests)
	p.PromptTokens = p.PromptTokens / n
	p.OutputTokens = p.OutputTokens / n
	if p.Clients == 0 && p.OfferedRPS == 0 {
		p.Clients = p.Requests // all at once
	}
	p.offered()
	f.addLevel(p, name)
}
