package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file reads GuideLLM's results: the JSON report with its requests or, where they were not
// kept, its means; and the CSV (also as a JSON list of rows).
//
//	JSON object with `benchmarks`    v0.2 and later
//	JSON list of flat rows           the CSV of v0.3 as objects
//	CSV with one header row          v0.3, or our own columns
//	CSV with three header rows       v0.4 and later
//
// GuideLLM before v0.7.0 wrote the three-row header of the first benchmark above rows with more
// columns (corrected in b537f5d9), so that all values behind the request counts have wrong
// names: see realign.go.

// sniffGuideLLM reports whether a file is the report of v0.4 and later.
func sniffGuideLLM(head []byte) bool {
	return containsAll(head, `"guidellm_version"`) || containsAll(head, `"benchmarks"`, `"type_"`)
}

// sniffOldGuideLLM accepts reports without a version; other tools have the key as well.
func sniffOldGuideLLM(head []byte) bool { return containsAll(head, `"benchmarks"`) }

// guideRequest is one request of a report.
type guideRequest struct {
	RequestID  string             `json:"request_id"`
	ResponseID trace.Opt[string]  `json:"response_id"`
	Type       trace.Opt[string]  `json:"request_type"`
	Start      trace.Opt[float64] `json:"request_start_time"` // s, wall clock
	End        trace.Opt[float64] `json:"request_end_time"`
	Latency    trace.Opt[float64] `json:"request_latency"` // s
	Prompt     trace.Opt[float64] `json:"prompt_tokens"`
	Output     trace.Opt[float64] `json:"output_tokens"`
	Cached     trace.Opt[float64] `json:"cached_tokens"`
	Total      trace.Opt[float64] `json:"total_tokens"`
	TTFTMs     trace.Opt[float64] `json:"time_to_first_token_ms"`
	ITLMs      trace.Opt[float64] `json:"inter_token_latency_ms"`
	VisibleMs  trace.Opt[float64] `json:"time_to_first_output_token_ms"` // first token that is not reasoning
	Dispatch   trace.Opt[float64] `json:"request_dispatch_delay"`        // s, the client's lateness
	Metrics    *serverMetrics     `json:"response_metrics"`
	Args       json.RawMessage    `json:"request_args"`
	Info       struct {
		Error   any `json:"error"`
		Timings struct {
			First  trace.Opt[float64] `json:"first_token_iteration"` // s, wall clock
			Last   trace.Opt[float64] `json:"last_token_iteration"`
			Chunks trace.Opt[float64] `json:"token_iterations"`
		} `json:"timings"`
	} `json:"info"`
}

// readGuideLLM reads the requests of a report, below
// benchmarks[].requests.{successful,errored,incomplete}, or its load levels where it has none.
// One request at a time is in memory, and nothing of what is not read.
func (c *Reader) readGuideLLM(f *clientFile) error {
	before := len(c.Requests)
	w := c.newWalker(f)
	var args []any // of the report; it is the data of all benchmarks
	err := w.object(func(key string) error {
		switch key {
		case "benchmarks":
			return w.array(func() error { return c.readGuideBenchmark(f, w) })
		case "args", "config":
			var v any
			err := w.dec.Decode(&v)
			args = append(args, v)
			return err
		}
		return w.skip()
	})
	guideDataset(args).applyTo(c.Requests[before:])
	if err != nil || len(c.Requests) > before {
		return err
	}
	return c.readLevelsIn(f, "guidellm without a limit on the requests it keeps")
}

// guideOutcomes are the outcomes of requests.
var guideOutcomes = []string{"successful", "errored", "incomplete"}

// closedStrategies are those that send a request when another one has ended.
var closedStrategies = []string{"synchronous", "concurrent"}

// strategyName returns the name of a strategy with its rate or its number of streams.
func strategyName(kind string, rate float64, streams int64) string {
	switch {
	case rate > 0:
		return fmt.Sprintf("%s@%.4g", kind, rate)
	case streams > 0:
		return fmt.Sprintf("%s@%d", kind, streams)
	}
	return kind
}

// unusedLoad returns a name for a load: the given one, with a number behind it where another load of the
// run has that name, because a load may become a phase, and phases have different names.
func (c *Reader) unusedLoad(name string) string {
	unused := name
	for n := 2; slices.ContainsFunc(c.Loads, func(l Load) bool { return l.Name == unused }); n++ {
		unused = fmt.Sprintf("%s.%d", name, n)
	}
	return unused
}

// readGuideBenchmark reads the requests of one benchmark of a report, which is one load, and compares them
// with the means that the benchmark states. Its keys may come in any order, so what its configuration says
// of the load is set behind the loop.
func (c *Reader) readGuideBenchmark(f *clientFile, w walker) error {
	var config struct {
		Strategy struct {
			Type    string             `json:"type_"`
			Rate    trace.Opt[float64] `json:"rate"`
			Streams trace.Opt[float64] `json:"streams"`
		} `json:"strategy"`
		Profile struct {
			RampUp trace.Opt[float64] `json:"rampup_duration"`
		} `json:"profile"`
	}
	load := c.newLoad(f.src.Name)
	var args []any // may state the data
	before := len(c.Requests)
	var sums requestSums       // over the successful requests
	var metrics map[string]any // the stated means
	readRequest := func(outcome string) error {
		var g guideRequest
		if err := w.decode(&g); err != nil {
			return err
		}
		if outcome == "successful" && !g.Start.OK {
			c.dropLine(f.src, 1, 1, fmt.Errorf("request %s: got no request_start_time", g.RequestID))
			return nil
		}
		r := g.request(outcome)
		load.extend(&r)
		if outcome == "successful" {
			g.addTo(&sums)
		}
		c.addRequest(f.src, r)
		return nil
	}
	err := w.object(func(key string) error {
		switch key {
		case "args", "config":
			var text json.RawMessage
			var v any
			err := errors.Join(w.dec.Decode(&text), json.Unmarshal(text, &v))
			args = append(args, v)
			if err == nil && key == "config" {
				err = json.Unmarshal(text, &config)
			}
			return err
		case "metrics":
			var v any
			err := w.dec.Decode(&v)
			metrics, _ = v.(map[string]any)
			return err
		case "requests":
			return w.object(func(key string) error {
				if !slices.Contains(guideOutcomes, key) {
					return w.skip()
				}
				return w.array(func() error { return readRequest(key) })
			})
		}
		return w.skip()
	})
	if kind := config.Strategy.Type; kind != "" { // it may follow the requests
		load.Name = c.unusedLoad(strategyName(kind, config.Strategy.Rate.V, int64(config.Strategy.Streams.V)))
		load.IsClosed = slices.Contains(closedStrategies, kind)
		for i := range c.Requests[before:] {
			c.Requests[before+i].Phase = trace.Some(load.Name)
		}
		c.addLoad(load)
	}
	guideDataset(args).applyTo(c.Requests[before:])
	c.reportGuideTotals(load, metrics, &sums, offeredLoad{
		rateKey:  "strategy.rate",
		rate:     config.Strategy.Rate.V,
		isRampUp: config.Profile.RampUp.V > 0,
		limitKey: "strategy.streams",
		limit:    config.Strategy.Streams.V,
		sends:    sendsOf(c.Requests[before:]),
	})
	return err
}

// reportGuideTotals compares what a benchmark states, its means (metrics) and its load (offered), with its
// requests. If the report keeps a sample of these, their times of sending do not show the load.
func (c *Reader) reportGuideTotals(load *Load, metrics map[string]any, sums *requestSums, offered offeredLoad) {
	if sums.requests == 0 {
		return
	}
	stated := statedLoad{name: load.Name}
	guideTotals(&stated, metrics, sums)
	if sent := numberAt(metrics, "request_totals.successful"); sent > sums.requests {
		c.addFinding(source.CodeClientSample, "%s: the report has %.0f of the %.0f requests that succeeded: the others were load, and nothing states when they "+
			"were sent; keep all of them (GuideLLM without --sample-requests)", load.Name, sums.requests, sent)
	} else {
		stated.load, stated.isFast = offered.unlike()
	}
	c.stated = append(c.stated, stated)
}

// addTo adds what the report states of a request that succeeded to sums, and compares each figure that
// GuideLLM derives from others with what these give.
func (g *guideRequest) addTo(sums *requestSums) {
	sums.add(g.Prompt.V, g.Output.V, nanOr(g.TTFTMs)/1e3, nanOr(g.Latency))
	timings := &g.Info.Timings
	var figures []derivedFigure
	add := func(key string, stated, computed float64) {
		figures = append(figures, derivedFigure{key: key, stated: stated, computed: computed})
	}
	if g.End.OK && g.Start.OK {
		add("request_latency", g.Latency.V, g.End.V-g.Start.V)
	}
	if timings.First.OK && timings.Last.OK && g.Output.V > 1 {
		add("inter_token_latency_ms", g.ITLMs.V, 1e3*(timings.Last.V-timings.First.V)/(g.Output.V-1))
	}
	if timings.First.OK && g.Start.OK {
		add("time_to_first_token_ms", g.TTFTMs.V, 1e3*(timings.First.V-g.Start.V))
	}
	add("total_tokens", g.Total.V, g.Prompt.V+g.Output.V)
	sums.derive("request "+g.RequestID, figures)
}

// request converts a request of a report, whose outcome is one of guideOutcomes.
func (g *guideRequest) request(outcome string) trace.ObservedRequest {
	r := trace.ObservedRequest{
		ID:           g.ResponseID.Or(g.RequestID),
		Source:       sourceGuideLLM,
		SendWallNs:   stampNs(g.Start),
		PromptTokens: tokenCount(g.Prompt),
		OutputTokens: tokenCount(g.Output),
		CachedTokens: tokenCount(g.Cached),
		Success:      trace.Some(outcome == "successful"),
		Aborted:      trace.Some(outcome == "incomplete"),
		Error:        optText(g.Info.Error),
		Line:         1,
	}
	// The latency ends with the answer's last message, which comes after the last token.
	timings := &g.Info.Timings
	e2eUs := nanOr(g.Latency) * 1e6
	if timings.Last.V > g.Start.V {
		e2eUs = 1e6 * (timings.Last.V - g.Start.V)
	}
	setTimes(&r, r.SendWallNs, nanOr(g.TTFTMs)*1e3, e2eUs)
	r.EndNs = stampNs(g.End)
	r.VisibleUs = fromMs(g.VisibleMs)
	r.ClientWaitUs = fromSeconds(g.Dispatch)
	r.Chunks = tokenCount(timings.Chunks)
	g.Metrics.applyTo(&r)
	args := g.args()
	r.Streaming = args.Stream
	r.AskedTokens = firstKnown(args.Body.MaxTokens, args.Body.MaxCompletionTokens)
	switch {
	case strings.HasPrefix(g.Type.V, "chat"), args.Body.Messages != nil, strings.HasPrefix(g.ResponseID.V, "chatcmpl-"):
		r.Route = trace.Some("chat")
	case g.Type.OK, args.Body.Prompt != nil:
		r.Route = trace.Some("completions")
	}
	return r
}

// guideArgs is what is read of the request that was sent.
type guideArgs struct {
	Stream trace.Opt[bool] `json:"stream"`
	Body   struct {
		MaxTokens           trace.Opt[int64] `json:"max_tokens"`
		MaxCompletionTokens trace.Opt[int64] `json:"max_completion_tokens"` // of chat, since 0.5
		Messages            json.RawMessage  `json:"messages"`
		Prompt              json.RawMessage  `json:"prompt"`
	} `json:"body"`
}

// args returns the request that was sent; of 0.5 and later it is JSON in a text.
func (g *guideRequest) args() (args guideArgs) {
	text := []byte(g.Args)
	var inner string
	if json.Unmarshal(text, &inner) == nil {
		text = []byte(inner)
	}
	if json.Unmarshal(text, &args) != nil {
		return guideArgs{}
	}
	return args
}

// guideReportPaths are the means of one benchmark of a report.
var guideReportPaths = levelPaths{
	requests:    "request_totals.successful;metrics.request_totals.successful",
	rate:        "metrics.requests_per_second.successful.mean",
	concurrency: "metrics.request_concurrency.successful.mean",
	prompt:      "metrics.prompt_token_count.successful.mean",
	promptSD:    "metrics.prompt_token_count.successful.std_dev",
	output:      "metrics.output_token_count.successful.mean",
	outputSD:    "metrics.output_token_count.successful.std_dev",
	ttft:        "metrics.time_to_first_token_ms.successful.mean",
	ttftMedian:  "metrics.time_to_first_token_ms.successful.median",
	itl:         "metrics.inter_token_latency_ms.successful.mean",
	e2e:         "metrics.request_latency.successful.mean",
	clients:     "strategy.streams",
	offered:     "strategy.rate",
	e2eMs:       1000,
}

// readGuideReport reads the means of a report; its requests are not kept.
func readGuideReport(f *LevelFile, data []byte, name string) error {
	var doc struct {
		Args       any `json:"args"`
		Config     any `json:"config"`
		Benchmarks []struct {
			Args    any `json:"args"`   // v0.2, v0.3
			Config  any `json:"config"` // v0.4 and later
			Totals  any `json:"request_totals"`
			Metrics any `json:"metrics"`
		} `json:"benchmarks"`
	}
	if err := trace.UnmarshalJSON(data, &doc); err != nil {
		return jsonError(name, data, err)
	}
	for i, b := range doc.Benchmarks {
		strategy := valueAt(b.Config, "strategy")
		if valueAt(strategy, "type_") == nil {
			strategy = valueAt(b.Args, "strategy")
		}
		l := guideReportPaths.level(map[string]any{ // one form for all releases
			"strategy":       strategy,
			"request_totals": b.Totals,
			"metrics":        b.Metrics,
		}, name)
		kind, _ := valueAt(strategy, "type_").(string)
		l.Strategy = strategyName(kind, l.OfferedRPS, int64(l.Clients))
		// The benchmark's own data, or else that of the report: the second call does not replace the first.
		l.setDataset(guideDataset([]any{b.Args, b.Config}))
		l.setDataset(guideDataset([]any{doc.Args, doc.Config}))
		f.addLevel(l, fmt.Sprintf("%s: benchmark %d", name, i+1))
	}
	return nil
}

// flatPaths are the columns of the flat forms: GuideLLM v0.3, v0.4 and later, and our own table.
// A row has the form whose rate column it has.
var flatPaths = []levelPaths{
	{
		strategy:    "Name",
		requests:    "Successful Requests",
		rate:        "Successful Requests per second mean",
		concurrency: "Successful Request concurrency mean",
		prompt:      "Successful Prompt token count mean",
		promptSD:    "Successful Prompt token count std dev",
		output:      "Successful Output token count mean",
		outputSD:    "Successful Output token count std dev",
		ttft:        "Successful Time to first token ms mean",
		ttftMedian:  "Successful Time to first token ms median",
		itl:         "Successful Inter token latency ms mean",
	},
	{
		strategy:    "Benchmark | Strategy",
		requests:    "Request Counts | Successful",
		rate:        "Server Throughput | Successful Requests/Sec | Mean",
		concurrency: "Server Throughput | Successful Concurrency | Mean",
		prompt:      "Token Metrics | Successful Input Tokens | Mean",
		promptSD:    "Token Metrics | Successful Input Tokens | Std Dev",
		output:      "Token Metrics | Successful Output Tokens | Mean",
		outputSD:    "Token Metrics | Successful Output Tokens | Std Dev",
		ttft:        "Time to First Token | Successful ms | Mean",
		ttftMedian:  "Time to First Token | Successful ms | Median",
		itl:         "Inter Token Latency | Successful ms | Mean",
	},
	{
		strategy:    "benchmark",
		requests:    "requests",
		rate:        "rate_rps",
		concurrency: "concurrency",
		prompt:      "prompt_mean",
		promptSD:    "prompt_sd",
		output:      "output_mean",
		outputSD:    "output_sd",
		ttft:        "ttft_ms_mean",
		ttftMedian:  "ttft_ms_median",
		itl:         "itl_ms_mean",
	},
}

// ownColumns are those of our own table, in order. The column sweep names a row's file.
var ownColumns = []string{"sweep", "benchmark", "requests", "rate_rps", "concurrency", "prompt_mean", "prompt_sd",
	"output_mean", "output_sd", "ttft_ms_mean", "ttft_ms_median", "itl_ms_mean"}

// readGuideRows reads a JSON list of flat rows.
func readGuideRows(f *LevelFile, data []byte, name string) error {
	return f.readRows(data, name, func(row map[string]any, where string) { f.addFlatRow(row, name, where) })
}

// addFlatRow adds the level of one row of the file name, or drops a row of none of the flat forms. where
// is the row's place in errors.
func (f *LevelFile) addFlatRow(row map[string]any, name, where string) {
	for _, paths := range flatPaths {
		if _, ok := row[paths.rate]; !ok {
			continue
		}
		if what, text := paths.infinite(row); what != "" {
			f.dropLevel("%s: %s: got %s, want a finite number", where, what, text)
			return
		}
		l := paths.level(row, name)
		if sweep, _ := row["sweep"].(string); sweep != "" {
			l.Sweep = sweep
		}
		f.addLevel(l, where)
		return
	}
	f.dropLevel("%s: got none of the request-rate columns %q, %q, %q", where, flatPaths[0].rate, flatPaths[1].rate,
		flatPaths[2].rate)
}

// readGuideTable reads CSV with one or three header rows.
func readGuideTable(f *LevelFile, data []byte, name string) error {
	rows, lines, err := readCSV(data, name)
	if err != nil {
		return err
	}
	header, first := joinHeader(rows)
	if header == nil {
		return unknownColumns(rows[0], name)
	}
	for _, paths := range flatPaths {
		if !slices.Contains(header, paths.rate) {
			continue
		}
		if missing := paths.missing(header); missing != "" {
			count := len(rows) - first
			f.Read += count
			f.Dropped[codeIncomplete] += count
			f.Findings = append(f.Findings, trace.Findingf(codeIncomplete, "%s:1: got no column %s, want it: none of the rows can be used (%d)",
				name, missing, count))
			return nil
		}
		if !slices.Contains(header, paths.ttft) {
			f.WithoutColumn = paths.ttft
		} else if !slices.Contains(header, paths.ttftMedian) {
			f.WithoutColumn = paths.ttftMedian
		}
		break
	}
	for i := first; i < len(rows); i++ {
		where := fmt.Sprintf("%s:%d", name, lines[i])
		if len(rows[i]) != len(header) {
			f.realign(header, rows[i], name, where)
			continue
		}
		row := map[string]any{}
		for k := len(header) - 1; k >= 0; k-- { // backwards: the first of equal names counts
			row[header[k]] = rows[i][k]
		}
		f.addFlatRow(row, name, where)
	}
	return nil
}

// joinHeader joins the one or three header rows of a table, as "Time to First Token | Successful ms |
// Mean" of three, and returns the index of the first data row; nil where no known column is among them.
func joinHeader(rows [][]string) (header []string, first int) {
	isKnown := func(header []string) bool {
		for _, paths := range flatPaths {
			if slices.Contains(header, paths.rate) {
				return true
			}
		}
		return false
	}
	if isKnown(rows[0]) {
		return rows[0], 1
	}
	const headerRows = 3
	if len(rows) <= headerRows {
		return nil, 0
	}
	for k := range rows[0] {
		var parts []string
		for _, row := range rows[:headerRows] {
			if k < len(row) && row[k] != "" {
				parts = append(parts, row[k])
			}
		}
		header = append(header, strings.Join(parts, " | "))
	}
	if !isKnown(header) {
		return nil, 0
	}
	return header, headerRows
}
