package clients

import (
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

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file reads the summaries of benchmarks: each benchmark is one load level with its load,
// mean lengths, TTFT and ITL (spec#wire-points). A level is kept, or dropped for a counted
// reason; a file of unknown form is an error that lists what was expected.

// levelReader is a function that adds the levels of a file to f. name is the file's name in errors
// and levels.
type levelReader func(f *LevelFile, data []byte, name string) error

// levelFormats are the forms of files with load levels. The first whose Sniff accepts a file
// reads it; the guesses at the end are for files that are named as benchmarks.
var levelFormats = []source.Format[levelReader]{
	{Name: "vllm bench serve", Sniff: sniffBenchResult, Read: readBenchLevels},
	{Name: "inference-perf", Sniff: sniffStageReport, Read: readStageReport},
	{Name: "InferenceX", Sniff: sniffInferenceX, Read: readInferenceX},
	{Name: "genai-perf", Sniff: sniffPerfSummary, Read: readPerfSummary},
	{Name: "genai-perf", Sniff: sniffPerfTable, Read: readPerfTable},
	{Name: "load levels", Sniff: sniffLevelTable, Read: readLevelTable},
	{Name: "GuideLLM", Sniff: isObject, IsGuess: true, Read: readGuideReport},
	{Name: "GuideLLM", Sniff: isList, IsGuess: true, Read: readGuideRows},
	{Name: "GuideLLM", Sniff: isNoObject, IsGuess: true, Read: readGuideTable},
}

// sniffLevels reports whether a file proves by its beginning that it contains load levels.
func sniffLevels(head []byte) bool { return source.IsProven(levelFormats, head) }

// Level is one load level of a benchmark: means over the requests that succeeded. 0 is a value
// that is not given.
type Level struct {
	Sweep    string // file, or the name of it in the column sweep of our own table
	Line     int64  // in a table or list; 0 for the only level of a file
	Strategy string // synchronous, throughput, constant@RATE, poisson@RATE, concurrent@CLIENTS, ...

	Requests    int
	RateRPS     float64 // completed requests per second
	Concurrency float64 // mean number of requests in flight
	Clients     int     // of a closed loop, as stated
	OfferedRPS  float64 // of open arrivals, as stated

	PromptTokens, PromptSD float64 // of a request: mean and standard deviation
	OutputTokens, OutputSD float64
	TTFTMeanMs             float64
	TTFTMedianMs           float64
	ITLMs                  float64 // mean over tokens
	E2EMs                  float64

	// CachedTokens are the prompt tokens of a request, on average, that came from the prefix cache, by the
	// server's counts or by what the prompts share.
	CachedTokens trace.Opt[float64]

	TP, EP, DP int // parallel sizes it was measured at, as stated

	Realigned bool // the file's columns did not agree with its header (realign.go)
}

// Measured returns what was measured, without where it was written and how it had to be read. Two levels of which it is
// the same are one benchmark.
func (l *Level) Measured() Level {
	out := *l
	out.Sweep = ""
	out.Line = 0
	out.Realigned = false
	return out
}

// Closed reports whether the load waited for the server (a closed loop). A queueing model of open
// arrivals does not apply to it, except with one client.
func (l *Level) Closed() bool {
	return strings.HasPrefix(l.Strategy, "throughput") || strings.HasPrefix(l.Strategy, "concurrent")
}

// setDataset sets the cached tokens to what the prompts of the level share, unless the server
// counted them.
func (l *Level) setDataset(d dataset) {
	if d.isStated && !l.CachedTokens.OK {
		l.CachedTokens = trace.Some(math.Min(float64(d.prefix), l.PromptTokens))
	}
}

// nameStrategy names the strategy of a load by its stated clients or rate.
func (l *Level) nameStrategy() {
	switch {
	case l.Clients > 0:
		l.Strategy = fmt.Sprintf("concurrent@%d", l.Clients)
	case l.OfferedRPS > 0:
		l.Strategy = fmt.Sprintf("poisson@%.4g", l.OfferedRPS)
	}
}

// LoadPoint returns the level as a row of the table of load levels. A figure that the tool did not
// print (0 in Level) is unknown in the row.
func (l *Level) LoadPoint() trace.LoadPoint {
	known := func(v float64) trace.Opt[float64] { return trace.Opt[float64]{V: v, OK: v != 0} }
	count := func(n int) trace.Opt[int64] { return trace.Opt[int64]{V: int64(n), OK: n != 0} }
	return trace.LoadPoint{
		Name:         source.Place{File: l.Sweep, Line: l.Line}.String(),
		Strategy:     l.Strategy,
		Requests:     count(l.Requests),
		Clients:      count(l.Clients),
		OfferedRPS:   known(l.OfferedRPS),
		RateRPS:      known(l.RateRPS),
		PromptTokens: l.PromptTokens,
		PromptSD:     known(l.PromptSD),
		OutputTokens: l.OutputTokens,
		OutputSD:     known(l.OutputSD),
		TTFTMs:       known(l.TTFTMeanMs),
		TTFTMedianMs: known(l.TTFTMedianMs),
		TPOTMs:       l.ITLMs,
		E2EMs:        known(l.E2EMs),
		CachedTokens: l.CachedTokens,
		TP:           count(l.TP),
		EP:           count(l.EP),
		DP:           count(l.DP),
		File:         l.Sweep,
		Line:         l.Line,
	}
}

// LevelFile has the load levels in a file.
type LevelFile struct {
	Levels   []Level
	Form     string             // of the table levelFormats
	Read     int                // benchmarks: kept and dropped levels
	Dropped  map[trace.Code]int // by reason
	Findings []trace.Finding    // what was corrected, and the first mostDropFindings drops with their places

	WithoutColumn string // of the mean or of the median TTFT, of which a table lacks one; "" for none and for other files
}

// newLevelFile returns an empty LevelFile.
func newLevelFile() *LevelFile { return &LevelFile{Dropped: map[trace.Code]int{}} }

// byteOrderMark is what spreadsheets write before UTF-8.
const byteOrderMark = "\ufeff"

// ReadLevels returns the load levels of one file; name is its name in errors and levels. Code:
// unknown_client_file.
func ReadLevels(r io.Reader, name string) (*LevelFile, error) {
	data, err := files.ReadBounded(r, name, maxLevelFile)
	if err != nil {
		return nil, err
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	head := bytes.TrimSpace(data)
	if len(head) == 0 {
		return nil, sweepError(name, "got an empty file, want a benchmark's JSON or CSV")
	}
	f := newLevelFile()
	format := source.FormatOf(levelFormats, head) // the guesses leave no file without one
	f.Form = format.Name
	if err := format.Read(f, data, name); err != nil {
		return nil, err
	}
	if f.Read == 0 {
		e := sweepError(name, "got no benchmark, want at least one")
		e.Hint = "for recordings run blis-train extract RUNDIR -o OUT first, and give OUT to queue fit"
		return nil, e
	}
	f.dropImpossible()
	return f, nil
}

// sweepError returns an error about a file of load levels.
func sweepError(name, msg string) *trace.SyntaxError {
	return &trace.SyntaxError{File: name, Code: source.CodeUnknownFile, Msg: "benchmark sweep: " + msg}
}

// jsonError returns an error of a JSON document, with its place.
func jsonError(name string, data []byte, err error) error {
	e := sweepError(name, err.Error())
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		e.Line, e.Col = trace.Position(data, at.Offset)
	}
	return e
}

// decodeObject returns a JSON document that is one object.
func decodeObject(data []byte, name string) (map[string]any, error) {
	var doc map[string]any
	if err := trace.UnmarshalJSON(data, &doc); err != nil {
		return nil, jsonError(name, data, err)
	}
	return doc, nil
}

// readRows calls addLevel with each object of a JSON list and its place in words, and sets the line of the
// level that it added to the place in the list.
func (f *LevelFile) readRows(data []byte, name string, addLevel func(row map[string]any, where string)) error {
	var rows []map[string]any
	if err := trace.UnmarshalJSON(data, &rows); err != nil {
		return jsonError(name, data, err)
	}
	for i, row := range rows {
		kept := len(f.Levels)
		addLevel(row, fmt.Sprintf("%s: benchmark %d", name, i+1))
		for k := range f.Levels[kept:] {
			f.Levels[kept+k].Line = int64(i + 1)
		}
	}
	return nil
}

// readCSV returns the rows of a table of any number of columns, and their lines.
func readCSV(data []byte, name string) (rows [][]string, lines []int, err error) {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, lines, nil
		}
		if at, ok := errors.AsType[*csv.ParseError](err); ok {
			e := sweepError(name, at.Err.Error())
			e.Line = int64(at.Line)
			e.Col = int64(at.Column)
			return nil, nil, e
		}
		if err != nil {
			return nil, nil, sweepError(name, err.Error())
		}
		line, _ := r.FieldPos(0)
		rows = append(rows, row)
		lines = append(lines, line)
	}
}

// firstRecord returns the first record of CSV; none of JSON.
func firstRecord(head []byte) []string {
	if isObject(head) || isList(head) {
		return nil
	}
	r := csv.NewReader(bytes.NewReader(head))
	r.LazyQuotes = true
	record, _ := r.Read()
	return record
}

// unknownColumns returns the error of a table whose columns are of no known form.
func unknownColumns(columns []string, name string) error {
	joined := strings.Join(columns, ",")
	e := sweepError(name, fmt.Sprintf("got columns %.60q, want GuideLLM's, or those of load levels (%s), or %s",
		joined, strings.Join(levelColumns, ","), strings.Join(ownColumns, ",")))
	e.Line = 1
	e.Hint = "columns are cut at commas, not at semicolons or tabs"
	if strings.ContainsRune(columns[0], 0) {
		e.Hint = "the file is UTF-16: iconv -f UTF-16 -t UTF-8"
	}
	return e
}

// Limits of plausible figures: at least one request in eleven days, and at most more tokens or ms than any
// server has.
const (
	leastRate  = 1e-6
	mostValue  = 1e8
	mostCounts = 1e5 // clients, parallel sizes
)

// levelRanges are the limits of what benchmarks print (spec#value-limits).
var levelRanges = trace.RangesOf[trace.LoadPoint]()

// addLevel keeps a level that is complete and whose values are plausible, or drops it; where is its place
// in the file. A mean TTFT or cached tokens that are not plausible are removed from a level that is kept:
// it can be used without them.
func (f *LevelFile) addLevel(l Level, where string) {
	needed := []struct {
		name         string
		value, least float64
	}{
		{"request rate or clients", firstAbove0(l.RateRPS, l.OfferedRPS, float64(l.Clients)), leastRate},
		{"prompt tokens", l.PromptTokens, 0},
		{"output tokens", l.OutputTokens, 0},
		{"TTFT", firstAbove0(l.TTFTMedianMs, l.TTFTMeanMs), 0},
		{"ITL", l.ITLMs, 0},
	}
	for _, need := range needed {
		if !(need.value > 0 && need.value >= need.least && need.value <= mostValue) {
			f.dropLevel("%s: %s: got %g, want > %g and at most %g", where, need.name, need.value, need.least, mostValue)
			return
		}
	}
	if min(l.PromptTokens, l.OutputTokens) < 1 {
		f.dropLevel("%s: mean lengths: got %g and %g tokens, want at least 1", where, l.PromptTokens, l.OutputTokens)
		return
	}
	if cached := l.CachedTokens; cached.OK && !(cached.V >= 0 && cached.V <= l.PromptTokens) {
		f.Findings = append(f.Findings, trace.Findingf(CodeClientFile,
			"%s: cached tokens: got %g of prompts of %g tokens on average; they are not used", where, cached.V, l.PromptTokens))
		l.CachedTokens = trace.Opt[float64]{}
	}
	if n := max(l.Clients, l.TP, l.EP, l.DP); n > mostCounts {
		f.dropLevel("%s: clients and parallel sizes: got %d, want at most %g", where, n, float64(mostCounts))
		return
	}
	isCount := func(v float64) bool { return v >= 0 && v <= mostValue }
	if !isCount(l.Concurrency) || !isCount(l.PromptSD) || !isCount(l.OutputSD) {
		f.dropLevel("%s: requests in flight, spread of lengths: got %g, %g and %g, want 0 to %g", where,
			l.Concurrency,
			l.PromptSD, l.OutputSD, mostValue)
		return
	}
	if !(l.TTFTMeanMs > 0) || math.IsInf(l.TTFTMeanMs, 0) {
		f.Findings = append(f.Findings, trace.Findingf(CodeClientFile,
			"%s: mean TTFT: got %g ms; only the median is used", where, l.TTFTMeanMs))
		l.TTFTMeanMs = 0
	}
	point := l.LoadPoint()
	if why := levelRanges.Check(&point); why != "" {
		f.dropLevel("%s: %s", where, why)
		return
	}
	f.Read++
	f.Levels = append(f.Levels, l)
}

// firstAbove0 returns the first value above 0, or the first.
func firstAbove0(values ...float64) float64 {
	for _, v := range values {
		if v > 0 {
			return v
		}
	}
	return values[0]
}

// mostDropFindings is the number of dropped levels of a file that have a finding each; more are only counted.
const mostDropFindings = 1000

// dropLevel counts a load level that is not kept; the first mostDropFindings have a finding each, with the reason.
func (f *LevelFile) dropLevel(format string, args ...any) {
	f.Read++
	if f.Dropped[codeIncomplete]++; f.Dropped[codeIncomplete] > mostDropFindings {
		return
	}
	f.Findings = append(f.Findings, trace.Findingf(codeIncomplete, format, args...))
}

// Columns of a table of load levels; rate_rps may replace concurrency.
var (
	levelColumns         = []string{"input_tokens", "output_tokens", "concurrency", "ttft_ms", "tpot_ms"}
	optionalLevelColumns = []string{"rate_rps", "e2e_ms", "requests", "input_sd", "output_sd", "cached_tokens", "tp", "ep", "dp"}
)

// sniffLevelTable reports whether a file is a table of load levels, by two of its columns.
func sniffLevelTable(head []byte) bool {
	var columns []string
	for _, column := range firstRecord(head) {
		columns = append(columns, strings.Trim(column, `" `))
	}
	return slices.Contains(columns, "input_tokens") &&
		(slices.Contains(columns, "ttft_ms") || slices.Contains(columns, "tpot_ms"))
}

// readLevelTable reads a table of load levels: nominal lengths, clients or a rate, mean TTFT and
// TPOT in ms. The first bad value is an error.
func readLevelTable(f *LevelFile, data []byte, name string) error {
	rows, lines, err := readCSV(data, name)
	if err != nil {
		return err
	}
	t := &levelTable{name: name, columns: map[string]int{}}
	if err := t.readHeader(rows[0]); err != nil {
		return err
	}
	if len(t.unused) > 0 {
		f.Findings = append(f.Findings, trace.Findingf(CodeClientFile,
			"%s: nothing is taken from %s: every row counts as a load level of the one deployment", name,
			strings.Join(t.unused, ", ")))
	}
	for i, row := range rows[1:] {
		l, err := t.level(row, lines[i+1])
		if err != nil {
			return err
		}
		f.addLevel(l, fmt.Sprintf("%s:%d", name, l.Line))
	}
	if f.Read == 0 {
		return t.errorf(2, "got no row, want measured points")
	}
	return nil
}

// levelTable is a table of load levels while it is read.
type levelTable struct {
	name    string
	columns map[string]int // index by name
	unused  []string       // quoted names
}

// errorf returns an error at a line of the table.
func (t *levelTable) errorf(line int, format string, args ...any) error {
	return &trace.SyntaxError{
		File: t.name,
		Line: int64(line),
		Col:  1,
		Code: source.CodeUnknownFile,
		Msg:  "measured points: " + fmt.Sprintf(format, args...),
		Hint: "the columns are " + strings.Join(levelColumns, ",") + "; rate_rps may replace concurrency",
	}
}

// readHeader reads the names of the columns.
func (t *levelTable) readHeader(header []string) error {
	for k, column := range header {
		column = strings.TrimSpace(column)
		if _, isTwice := t.columns[column]; isTwice {
			return t.errorf(1, "got column %q twice, want it once", column)
		}
		t.columns[column] = k
		if !slices.Contains(levelColumns, column) && !slices.Contains(optionalLevelColumns, column) {
			t.unused = append(t.unused, strconv.Quote(column))
		}
	}
	_, hasRate := t.columns["rate_rps"]
	for _, want := range levelColumns {
		if _, ok := t.columns[want]; !ok && !(want == "concurrency" && hasRate) {
			return t.errorf(1, "got no column %q, want it", want)
		}
	}
	return nil
}

// level returns the load level in one row. The first value that is no number or out of its range is an
// error: a table of our own form was written for this program, so a mistake in it is corrected there.
func (t *levelTable) level(row []string, line int) (Level, error) {
	if len(row) != len(t.columns) {
		return Level{}, t.errorf(line, "got %d fields, want %d", len(row), len(t.columns))
	}
	var failed error                                                        // the first bad value
	number := func(column string, least float64, isRequired bool) float64 { // 0 for a missing one
		k, ok := t.columns[column]
		if !ok || !isRequired && strings.TrimSpace(row[k]) == "" {
			return 0
		}
		text := strings.TrimSpace(row[k])
		v, err := strconv.ParseFloat(text, 64)
		if failed == nil && (err != nil || !files.IsDecimal(text) || !(v >= least) || math.IsInf(v, 0)) {
			failed = t.errorf(line, "%s: got %q, want a number of at least %g", column, row[k], least)
		}
		return v
	}
	required := func(column string, least float64) float64 { return number(column, least, true) }
	optional := func(column string, least float64) float64 { return number(column, least, false) }
	count := func(column string, isRequired bool) int {
		v := number(column, 1, isRequired)
		if failed == nil && (v != math.Trunc(v) || v > mostCounts) {
			failed = t.errorf(line, "%s: got %g, want a whole number of at most %g", column, v, float64(mostCounts))
		}
		if failed != nil {
			return 0
		}
		return int(v)
	}
	l := Level{
		Sweep:        t.name,
		Line:         int64(line),
		PromptTokens: required("input_tokens", 1),
		OutputTokens: required("output_tokens", 2),
		Clients:      count("concurrency", true),
		OfferedRPS:   optional("rate_rps", 1e-9),
		TTFTMeanMs:   required("ttft_ms", 1e-9),
		ITLMs:        required("tpot_ms", 1e-9),
		E2EMs:        optional("e2e_ms", 1e-9),
		PromptSD:     optional("input_sd", 0),
		OutputSD:     optional("output_sd", 0),
		Requests:     count("requests", false),
		TP:           count("tp", false),
		EP:           count("ep", false),
		DP:           count("dp", false),
	}
	if k, ok := t.columns["cached_tokens"]; ok && strings.TrimSpace(row[k]) != "" {
		l.CachedTokens = trace.Some(optional("cached_tokens", 0))
	}
	l.nameStrategy()
	return l, failed
}

// readLevels adds the load levels of a client's file to the run.
func (c *Reader) readLevels(f *clientFile) error { return c.readLevelsIn(f, "") }

// readLevelsIn adds the load levels of a client's file, which it reads again from its start.
// perRequest is the option of the tool with which the file would have had the requests; "" if there
// is none.
func (c *Reader) readLevelsIn(file *clientFile, perRequest string) error {
	src, err := source.Open(file.in, file.how.Stdin, file.how.Limits)
	if src == nil {
		return err
	}
	defer src.Close()
	c.Acc.Lines++
	f, err := ReadLevels(&countingReader{c, src.R}, src.Name)
	if err != nil {
		return err
	}
	c.Findings = append(c.Findings, f.Findings...)
	c.Acc.Read += int64(f.Read)
	// Each of the first drops has a finding of its own, whose text is the reason; the rest are counted together.
	for _, finding := range f.Findings {
		if f.Dropped[finding.Code] > 0 {
			c.Acc.Drop(finding.Code, 1, source.Place{File: src.Name}, "%s", finding.Message)
			f.Dropped[finding.Code]--
		}
	}
	for _, code := range slices.Sorted(maps.Keys(f.Dropped)) {
		c.Acc.Drop(code, int64(f.Dropped[code]), source.Place{File: src.Name}, "load levels like those before")
	}
	for i := range f.Levels {
		c.Points = append(c.Points, f.Levels[i].LoadPoint())
	}
	if len(f.Levels) > 0 {
		c.summaries = append(c.summaries, summaryFile{name: src.Name, form: f.Form, levels: f.Levels})
	}
	file.in.Gave += int64(len(f.Levels))
	if len(f.Levels) > 0 && perRequest != "" {
		c.addFinding(CodeClientFile, "%s: means of %d load levels and no single request; %s would save them", src.Name,
			len(f.Levels), perRequest)
	}
	return nil
}

// dropRepeatedPoints keeps each level once: tools write the same figures as JSON and as CSV, and
// inference-perf writes the mean over all stages of a run next to a report of each.
func (c *Reader) dropRepeatedPoints() {
	stat.SortStable(c.Points, func(a, b trace.LoadPoint) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	files := map[string]bool{}        // with load levels
	stageFolders := map[string]bool{} // folders with reports of stages
	for i := range c.Points {
		file := c.Points[i].File
		files[file] = true
		if matchesName(file, "stage_*_lifecycle_metrics.json*") {
			stageFolders[path.Dir(file)] = true
		}
	}
	kept := c.Points[:0]
	for _, p := range c.Points {
		at := source.Place{File: p.File, Line: p.Line}
		stem, ext := stemOf(p.File)
		switch {
		case ext == ".csv" && files[stem+".json"]:
			c.Acc.Drop(source.CodeDuplicate, 1, at, "the same level as in %s.json", stem)
		case matchesName(p.File, "summary_lifecycle_metrics.json*") && stageFolders[path.Dir(p.File)]:
			c.Acc.Drop(CodeClientFile, 1, at, "the mean over stages that have reports of their own")
		default:
			c.Acc.Keep(1)
			kept = append(kept, p)
		}
	}
	c.Points = kept
}

// matchesName reports whether the name of a file matches a pattern.
func matchesName(file, pattern string) bool {
	ok, _ := path.Match(pattern, path.Base(file))
	return ok
}
