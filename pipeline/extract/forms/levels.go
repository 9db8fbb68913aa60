package forms

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

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
func (f *File) levels(rows [][]string, lines []int, name string) error {
	bad := func(line int, format string, args ...any) error {
		return &trace.SyntaxError{File: name, Line: int64(line), Col: 1, Code: CodeUnknownFile,
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
		p := Point{Sweep: name, Line: int64(line),
			PromptTokens: number("input_tokens", 1, true), OutputTokens: number("output_tokens", 2, true),
			Clients: count("concurrency", true), OfferedRPS: number("rate_rps", 1e-9, false),
			TTFTMeanMs: number("ttft_ms", 1e-9, true), ITLMs: number("tpot_ms", 1e-9, true), E2EMs: number("e2e_ms", 1e-9, false),
			PromptSD: number("input_sd", 0, false), OutputSD: number("output_sd", 0, false), Requests: count("requests", false),
			TP: count("tp", false), EP: count("ep", false), DP: count("dp", false)}
		if failed != nil {
			return failed
		}
		p.offered()
		f.keep(p, fmt.Sprintf("%s:%d", name, line))
	}
	if f.Read == 0 {
		return bad(2, "got no row, want measured points")
	}
	return nil
}
