// This file reads what benchmarks print: each benchmark is one operating point
// with its load, mean lengths, TTFT and ITL. The form is known by content:
//
//	JSON object with `benchmarks`           GuideLLM's report, v0.2 and later
//	JSON list of flat rows                  GuideLLM's CSV of v0.3 as objects
//	CSV with one header row                 the same, or our own columns (columns)
//	CSV with three header rows              GuideLLM v0.4 and later
//	JSON object with total_input_tokens     vllm bench serve --save-result (client.go)
//	JSON object with metrics of unit, avg   AIPerf and genai-perf (perf.go); CSV beginning with Metric
//	JSON object with load_summary           stage and summary reports of inference-perf (lines.go)
//	JSON object or list with tput_per_gpu   InferenceX's aggregates (inferencex.go)
//	CSV with concurrency, ttft_ms, tpot_ms  load levels
//
// GuideLLM before v0.7.0 wrote the three-row header of the first benchmark over
// rows with more columns (fixed upstream in b537f5d9), so that all values behind
// the request counts stand under wrong names. Such rows are put right by the
// identities their numbers obey, or dropped with a reason; see realign.go.
//
// A point is kept or dropped for a counted reason. A file that is none of these
// is an error that says what was expected.

package clients

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Point is one benchmark of a sweep, means over successful requests.
type Level struct {
	Sweep    string // file
	Strategy string // synchronous, throughput, constant@RATE, poisson@RATE, concurrent, ...
	Requests int
	RateRPS  float64 // completed requests per second
	// Concurrency is the mean number of requests in flight; 0 = not given.
	Concurrency              float64
	PromptTokens, PromptSD   float64
	OutputTokens, OutputSD   float64
	TTFTMeanMs, TTFTMedianMs float64
	ITLMs                    float64 // over tokens
	E2EMs                    float64 // 0 = not given
	Clients                  int     // of a closed loop; 0 = not stated
	OfferedRPS               float64 // of open arrivals; 0 = not stated
	Line                     int64   // in a table
	TP, EP, DP               int     // parallel sizes it was measured at; 0 = not stated
	Realigned                bool    // the file's columns were out of step with its header
}

// Closed reports whether the load waited for the server: a queueing model of
// open arrivals does not apply, except to one client at a time.
func (p *Level) Closed() bool {
	return strings.HasPrefix(p.Strategy, "throughput") || strings.HasPrefix(p.Strategy, "concurrent")
}

// offered names the strategy of a load whose clients or rate are stated.
func (p *Level) offered() {
	switch {
	case p.Clients > 0:
		p.Strategy = fmt.Sprintf("concurrent@%d", p.Clients)
	case p.OfferedRPS > 0:
		p.Strategy = fmt.Sprintf("poisson@%.4g", p.OfferedRPS)
	}
}

// File is what Read found.
type LevelFile struct {
	Points  []Level
	Read    int // benchmarks
	Dropped map[trace.Code]int
	// Findings say what was put right and what was dropped, with the line.
	Findings []trace.Finding
}

// columns are those of our own table, in order.
var columns = []string{"sweep", "benchmark", "requests", "rate_rps", "concurrency", "prompt_mean", "prompt_sd", "output_mean", "output_sd",
	"ttft_ms_mean", "ttft_ms_median", "itl_ms_mean"}

// byteOrderMark is what spreadsheets put before UTF-8.
const byteOrderMark = "\ufeff"

// Read reads one file; name is what errors and points call it.
func ReadLevels(r io.Reader, name string) (*LevelFile, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	f := newLevelFile()
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(trimmed) == 0:
		err = &trace.SyntaxError{File: name, Code: source.CodeUnknownFile, Msg: "benchmark sweep: got an empty file, want GuideLLM JSON or CSV"}
	case trimmed[0] == '{':
		err = f.object(trimmed, name)
	case trimmed[0] == '[':
		err = f.list(trimmed, name)
	default:
		err = f.table(data, name)
	}
	if err != nil {
		return nil, err
	}
	if f.Read == 0 {
		return nil, &trace.SyntaxError{File: name, Code: source.CodeUnknownFile, Msg: "benchmark sweep: got no benchmark, want at least one",
			Hint: "of recordings extract makes what queue fit reads: blis-train extract RUNDIR -o OUT"}
	}
	return f, nil
}

// object reads a JSON document of the tool that its keys name.
func (f *LevelFile) object(data []byte, name string) error {
	if !isBench(data) && !isStages(data) && !isPerf(data) && !isInferenceX(data) {
		return f.report(data, name)
	}
	if isBench(data) {
		return f.benches(data, name)
	}
	var doc map[string]any
	if err := trace.UnmarshalJSON(data, &doc); err != nil {
		return syntax(name, data, err)
	}
	switch {
	case isStages(data):
		f.stage(doc, name)
	case isInferenceX(data):
		f.inferenceX(doc, name, name)
	default:
		f.perf(doc, name)
	}
	return nil
}

// is says that a file is of a form that Read knows and its beginning tells.
func is(head []byte) bool {
	head = bytes.TrimSpace(bytes.TrimPrefix(head, []byte(byteOrderMark)))
	if len(head) > 0 && head[0] == '{' {
		return isBench(head) || isStages(head) || isPerf(head) || isInferenceX(head)
	}
	if isInferenceX(head) {
		return true
	}
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return isLevels(first) || bytes.HasPrefix(head, []byte(perfHeader))
}

// Bounds of what a benchmark can have measured: a request in eleven days, and tokens, requests or ms beyond any server.
const (
	leastRate = 1e-6
	mostValue = 1e8
)

// keep takes a point that is complete, or drops it.
func (f *LevelFile) addLevel(p Level, at string) {
	for _, x := range []struct {
		name         string
		value, least float64
	}{{"request rate or clients", firstAbove0(p.RateRPS, p.OfferedRPS, float64(p.Clients)), leastRate}, {"prompt tokens", p.PromptTokens, 0},
		{"output tokens", p.OutputTokens, 0}, {"TTFT", firstAbove0(p.TTFTMedianMs, p.TTFTMeanMs), 0}, {"ITL", p.ITLMs, 0}} {
		if !(x.value > 0 && x.value >= x.least && x.value <= mostValue) {
			f.dropLevel("%s: %s: got %g, want > %g and at most %g", at, x.name, x.value, x.least, mostValue)
			return
		}
	}
	if min(p.PromptTokens, p.OutputTokens) < 1 {
		f.dropLevel("%s: mean lengths: got %g and %g tokens, want at least 1", at, p.PromptTokens, p.OutputTokens)
		return
	}
	if n := max(p.Clients, p.TP, p.EP, p.DP); n > mostCount {
		f.dropLevel("%s: clients and parallel sizes: got %d, want at most %g", at, n, float64(mostCount))
		return
	}
	if p.Concurrency > mostValue || p.PromptSD > mostValue || p.OutputSD > mostValue {
		f.dropLevel("%s: requests in flight, spread of lengths: got %g, %g and %g, want at most %g", at, p.Concurrency, p.PromptSD,
			p.OutputSD, mostValue)
		return
	}
	if !(p.TTFTMeanMs > 0) || math.IsInf(p.TTFTMeanMs, 0) {
		f.Findings = append(f.Findings, trace.Findingf(CodeClientFile, "%s: mean TTFT: got %g ms; only the median is used", at, p.TTFTMeanMs))
		p.TTFTMeanMs = 0
	}
	if why := pointRanges.Check(new(p.LoadPoint())); why != "" {
		f.dropLevel("%s: %s", at, why)
		return
	}
	f.Read++
	f.Points = append(f.Points, p)
}

// pointRanges are the limits of what benchmarks print (spec#value-limits).
var pointRanges = trace.RangesOf[trace.LoadPoint]()

// firstAbove0 is the first value above 0, or the first.
func firstAbove0(values ...float64) float64 {
	for _, v := range values {
		if v > 0 {
			return v
		}
	}
	return values[0]
}

// dropLevel counts a load level that is not kept, with the reason.
func (f *LevelFile) dropLevel(format string, args ...any) {
	f.Read++
	f.Dropped[codeIncomplete]++
	f.Findings = append(f.Findings, trace.Findingf(codeIncomplete, format, args...))
}

func newLevelFile() *LevelFile { return &LevelFile{Dropped: map[trace.Code]int{}} }

// look is the value at a path of keys, which may hold dots; an element of a list has its name for a key.
func look(v any, path string) any {
	if path == "" {
		return v
	}
	key, rest, _ := strings.Cut(path, ".")
	switch v := v.(type) {
	case map[string]any:
		if whole, ok := v[path]; ok {
			return whole
		}
		return look(v[key], rest)
	case []any:
		for _, e := range v {
			if look(e, "name") == key {
				return look(e, rest)
			}
		}
	}
	return nil
}

// numberAt is the first number other than 0 at paths that semicolons part, as a number or as text; 0 for none.
func numberAt(doc any, paths string) (none float64) {
	for path := range strings.SplitSeq(paths, ";") {
		v := look(doc, path)
		switch x := v.(type) {
		case string:
			x = strings.TrimSpace(x)
			n, err := strconv.ParseFloat(x, 64)
			switch {
			case err != nil && !slices.Contains([]string{"", "-", "None", "null", "N/A"}, x):
				none = math.NaN()
			case err == nil && !math.IsNaN(n) && !math.IsInf(n, 0): // vLLM has the rate "inf"
				v = n
			}
		case map[string]any:
			if path == "" {
				continue
			}
			none = math.NaN() // something, and no number
		}
		if n, ok := v.(float64); ok && n != 0 {
			return n
		}
	}
	return none
}

// fields are the paths of a point's values in one form.
type fields struct {
	Strategy, Requests, Rate, Concurrency, Prompt, Output, TTFT, ITL, E2E, Clients, Offered string

	PromptSD   string  `yaml:"prompt_sd"`
	OutputSD   string  `yaml:"output_sd"`
	TTFTMedian string  `yaml:"ttft_median"`
	TimeMs     float64 `yaml:"time_ms"` // units of times and of e2e; 0: ms
	E2EMs      float64 `yaml:"e2e_ms"`
}

//go:embed sweep.yaml
var sweepYAML []byte

// forms are the forms there are; a column sweep of a flat one overrides the file's name.
var forms = files.Embedded[struct {
	Flat                                     []fields
	GuideLLM, Bench, Stage, Perf, InferenceX fields
}](sweepYAML, "sweep.yaml")

// point makes a point of what a form finds in a document.
func (form fields) point(doc any, name string) Level {
	number := func(path string) float64 { return numberAt(doc, path) }
	count := func(path string) int { return int(trace.Int(number(path))) }
	ms := cmp.Or(form.TimeMs, 1)
	e2eMs := cmp.Or(form.E2EMs, 1)
	p := Level{
		Sweep: name, Requests: count(form.Requests), Clients: count(form.Clients), OfferedRPS: number(form.Offered),
		RateRPS: number(form.Rate), Concurrency: number(form.Concurrency), PromptTokens: number(form.Prompt), PromptSD: number(form.PromptSD),
		OutputTokens: number(form.Output), OutputSD: number(form.OutputSD), TTFTMeanMs: ms * number(form.TTFT),
		TTFTMedianMs: ms * number(form.TTFTMedian), ITLMs: ms * number(form.ITL), E2EMs: e2eMs * number(form.E2E),
	}
	p.Strategy, _ = look(doc, form.Strategy).(string)
	return p
}

// list reads a JSON list of flat rows.
func (f *LevelFile) list(data []byte, name string) error {
	var rows []map[string]any
	if err := trace.UnmarshalJSON(data, &rows); err != nil {
		return syntax(name, data, err)
	}
	for i, row := range rows {
		kept := len(f.Points)
		if at := fmt.Sprintf("%s: benchmark %d", name, i+1); isInferenceX(data) {
			f.inferenceX(row, name, at)
		} else {
			f.flat(row, name, at)
		}
		for k := range f.Points[kept:] {
			f.Points[kept+k].Line = int64(i + 1) // of the list, to tell its levels apart
		}
	}
	return nil
}

// flat makes a point of one row.
func (f *LevelFile) flat(row map[string]any, name, at string) {
	flat := forms().Flat
	for i := range flat {
		if _, ok := row[flat[i].Rate]; !ok {
			continue
		}
		p := flat[i].point(row, name)
		if s, _ := row["sweep"].(string); s != "" {
			p.Sweep = s
		}
		f.addLevel(p, at)
		return
	}
	f.dropLevel("%s: got none of the request-rate columns %q, %q, %q", at, flat[0].Rate, flat[1].Rate, flat[2].Rate)
}

// table reads CSV with one or three header rows.
func (f *LevelFile) table(data []byte, name string) error {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	var rows [][]string
	var lines []int
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return syntaxCSV(name, err)
		}
		line, _ := r.FieldPos(0)
		rows = append(rows, row)
		lines = append(lines, line)
	}
	switch names := strings.Join(rows[0], ","); {
	case isLevels([]byte(names)):
		return f.levels(rows, lines, name)
	case strings.HasPrefix(names, perfHeader):
		f.perfTable(rows, name)
		return nil
	}
	header, first := headerOf(rows)
	if header == nil {
		hint := "columns are cut at commas, not at semicolons or tabs"
		if strings.ContainsRune(rows[0][0], 0) {
			hint = "the file is UTF-16: iconv -f UTF-16 -t UTF-8"
		}
		return &trace.SyntaxError{File: name, Line: 1, Code: source.CodeUnknownFile, Msg: fmt.Sprintf("benchmark sweep: got columns %.60q, want "+
			"GuideLLM's, or those of load levels (%s), or %s", strings.Join(rows[0], ","), strings.Join(levelColumns, ","),
			strings.Join(columns, ",")), Hint: hint}
	}
	for i := first; i < len(rows); i++ {
		at := fmt.Sprintf("%s:%d", name, lines[i])
		if len(rows[i]) != len(header) {
			f.crooked(header, rows[i], name, at)
			continue
		}
		row := map[string]any{}
		for k := len(header) - 1; k >= 0; k-- { // of equal names the first counts
			row[header[k]] = rows[i][k]
		}
		f.flat(row, name, at)
	}
	return nil
}

// headerOf joins the header rows, and says where the data begin; nil when the
// columns are none we know.
func headerOf(rows [][]string) (header []string, first int) {
	known := func(header []string) bool {
		return slices.ContainsFunc(forms().Flat, func(form fields) bool { return slices.Contains(header, form.Rate) })
	}
	if known(rows[0]) {
		return rows[0], 1
	}
	if len(rows) < 4 {
		return nil, 0
	}
	for k := range rows[0] {
		parts := stat.Map(stat.Filter(rows[:3], func(row []string) bool { return k < len(row) && row[k] != "" }), func(row []string) string {
			return row[k]
		})
		header = append(header, strings.Join(parts, " | "))
	}
	if !known(header) {
		return nil, 0
	}
	return header, 3
}

// syntax places a JSON error.
func syntax(name string, data []byte, err error) error {
	e := &trace.SyntaxError{File: name, Code: source.CodeUnknownFile, Msg: "benchmark sweep: " + err.Error()}
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		e.Line, e.Col = trace.Position(data, at.Offset)
	}
	return e
}

func syntaxCSV(name string, err error) error {
	e := &trace.SyntaxError{File: name, Code: source.CodeUnknownFile, Msg: "benchmark sweep: " + err.Error()}
	if at, ok := errors.AsType[*csv.ParseError](err); ok {
		e.Line, e.Col, e.Msg = int64(at.Line), int64(at.Column), "benchmark sweep: "+at.Err.Error()
	}
	return e
}

// levelColumns are those of a table of load levels; rate_rps may stand in place of
// concurrency, and the others beside them.
var (
	levelColumns      = []string{"input_tokens", "output_tokens", "concurrency", "ttft_ms", "tpot_ms"}
	otherLevelColumns = []string{"rate_rps", "e2e_ms", "requests", "input_sd", "output_sd", "tp", "ep", "dp"}
)

// mostCount is far above the clients or requests of any load level.
const mostCount = 1e5

// isLevels says that a header is that of load levels: two of their columns.
func isLevels(header []byte) bool {
	names := bytes.Split(bytes.TrimSpace(header), []byte(","))
	has := func(name string) bool {
		return slices.ContainsFunc(names, func(n []byte) bool { return string(bytes.Trim(n, `" `)) == name })
	}
	return has("input_tokens") && (has("ttft_ms") || has("tpot_ms"))
}

func isRate(column string) bool { return strings.TrimSpace(column) == "rate_rps" }

// levels reads a table of load levels: nominal lengths, clients or a rate, mean TTFT
// and TPOT in ms. Codes: bad_points.
func (f *LevelFile) levels(rows [][]string, lines []int, name string) error {
	bad := func(line int, format string, args ...any) error {
		return &trace.SyntaxError{File: name, Line: int64(line), Col: 1, Code: source.CodeUnknownFile,
			Msg:  "measured points: " + fmt.Sprintf(format, args...),
			Hint: "the columns are " + strings.Join(levelColumns, ",") + "; rate_rps may stand in place of concurrency"}
	}
	at, unused := map[string]int{}, []string(nil)
	for k, h := range rows[0] {
		h = strings.TrimSpace(h)
		if _, twice := at[h]; twice {
			return bad(1, "got column %q twice, want it once", h)
		}
		if at[h] = k; !slices.Contains(levelColumns, h) && !slices.Contains(otherLevelColumns, h) {
			unused = append(unused, strconv.Quote(h))
		}
	}
	if len(unused) > 0 {
		f.Findings = append(f.Findings, trace.Findingf(CodeClientFile, "%s: nothing is taken from %s: every row counts as a load level of the "+
			"one deployment", name, strings.Join(unused, ", ")))
	}
	for _, want := range levelColumns {
		if _, ok := at[want]; !ok && !(want == "concurrency" && slices.ContainsFunc(rows[0], isRate)) {
			return bad(1, "got no column %q, want it", want)
		}
	}
	for i, row := range rows[1:] {
		line := lines[i+1]
		if len(row) != len(rows[0]) {
			return bad(line, "got %d fields, want %d", len(row), len(rows[0]))
		}
		var failed error
		number := func(column string, least float64, required bool) float64 {
			k, ok := at[column]
			if !ok || !required && strings.TrimSpace(row[k]) == "" {
				return 0
			}
			v, err := strconv.ParseFloat(strings.TrimSpace(row[k]), 64)
			if failed == nil && (err != nil || !(v >= least) || math.IsInf(v, 0)) {
				failed = bad(line, "%s: got %q, want a number of at least %g", column, row[k], least)
			}
			return v
		}
		count := func(column string, required bool) int {
			v := number(column, 1, required)
			if failed == nil && (v != math.Trunc(v) || v > mostCount) {
				failed = bad(line, "%s: got %g, want a whole number of at most %g", column, v, mostCount)
			}
			if failed != nil {
				return 0
			}
			return int(v)
		}
		p := Level{Sweep: name, Line: int64(line),
			PromptTokens: number("input_tokens", 1, true), OutputTokens: number("output_tokens", 2, true),
			Clients: count("concurrency", true), OfferedRPS: number("rate_rps", 1e-9, false),
			TTFTMeanMs: number("ttft_ms", 1e-9, true), ITLMs: number("tpot_ms", 1e-9, true), E2EMs: number("e2e_ms", 1e-9, false),
			PromptSD: number("input_sd", 0, false), OutputSD: number("output_sd", 0, false), Requests: count("requests", false),
			TP: count("tp", false), EP: count("ep", false), DP: count("dp", false)}
		if failed != nil {
			return failed
		}
		p.offered()
		f.addLevel(p, fmt.Sprintf("%s:%d", name, line))
	}
	if f.Read == 0 {
		return bad(2, "got no row, want measured points")
	}
	return nil
}

// points reads the summary of a benchmark: load levels in place of requests, which
// more would save.
func (c *Reader) points(in *source.Input, how source.Options, more string) error {
	src, err := source.Open(in, how.Stdin, how.Limits)
	if src == nil {
		return err
	}
	defer src.Close()
	c.Acc.Lines++
	f, err := ReadLevels(&tally{src.R, &c.Acc.Bytes}, src.Name)
	if err != nil {
		return err
	}
	c.Findings = append(c.Findings, f.Findings...)
	c.Acc.Read += int64(f.Read)
	for _, drop := range f.Findings { // each drop has a finding of its own
		if f.Dropped[drop.Code] > 0 {
			c.Acc.Drop(drop.Code, 1, source.Place{File: src.Name}, "%s", drop.Message)
		}
	}
	c.Points = append(c.Points, stat.Map(f.Points, func(p Level) trace.LoadPoint { return p.LoadPoint() })...)
	in.Gave += int64(len(f.Points))
	if len(f.Points) > 0 && more != "" {
		c.finding(CodeClientFile, "%s: means of %d load levels and no single request; %s would save them", src.Name, len(f.Points), more)
	}
	return nil
}

// PointOf is a point of a sweep as a row of the table.
func (p *Level) LoadPoint() trace.LoadPoint {
	known := func(v float64) trace.Opt[float64] { return trace.Opt[float64]{V: v, OK: v != 0} }
	count := func(n int) trace.Opt[int64] { return trace.Opt[int64]{V: int64(n), OK: n != 0} }
	return trace.LoadPoint{Name: source.Place{File: p.Sweep, Line: p.Line}.String(), Strategy: p.Strategy, Requests: count(p.Requests),
		Clients: count(p.Clients), OfferedRPS: known(p.OfferedRPS), RateRPS: known(p.RateRPS), PromptTokens: p.PromptTokens,
		PromptSD: known(p.PromptSD), OutputTokens: p.OutputTokens, OutputSD: known(p.OutputSD), TTFTMs: known(p.TTFTMeanMs),
		TTFTMedianMs: known(p.TTFTMedianMs), TPOTMs: p.ITLMs, E2EMs: known(p.E2EMs),
		TP: count(p.TP), EP: count(p.EP), DP: count(p.DP), File: p.Sweep, Line: p.Line}
}

// dropRepeatedPoints keeps each level once: a tool writes the same figures as JSON and as
// CSV, and the mean over all stages of a run beside each of them.
func (c *Reader) dropRepeatedPoints() {
	stat.SortStable(c.Points, func(a, b trace.LoadPoint) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	staged := func(file string) bool { return matches(path.Base(file), "stage_*_lifecycle_metrics.json*") }
	kept := c.Points[:0]
	for _, p := range c.Points {
		stem, ext := stemOf(p.File)
		_, isTwin := slices.BinarySearchFunc(c.Points, stem+".json", func(o trace.LoadPoint, file string) int {
			return cmp.Compare(o.File, file)
		})
		isStage := func(o trace.LoadPoint) bool { return path.Dir(o.File) == path.Dir(p.File) && staged(o.File) }
		isMix := matches(path.Base(p.File), "summary_lifecycle_metrics.json*") && slices.ContainsFunc(c.Points, isStage)
		switch {
		case ext == ".csv" && isTwin:
			c.Acc.Drop(source.CodeDuplicate, 1, source.Place{File: p.File, Line: p.Line}, "the same level as in %s.json", stem)
		case isMix:
			c.Acc.Drop(CodeClientFile, 1, source.Place{File: p.File, Line: p.Line}, "the mean over stages that have reports of their own")
		default:
			c.Acc.Keep(1)
			kept = append(kept, p)
		}
	}
	c.Points = kept
}

func matches(name, pattern string) bool {
	ok, _ := path.Match(pattern, name)
	return ok
}
