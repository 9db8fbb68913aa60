package sweep

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
// concurrency, and e2e_ms, requests, input_sd and output_sd beside them.
var levelColumns = []string{"input_tokens", "output_tokens", "concurrency", "ttft_ms", "tpot_ms"}

// isLevels says that a header is that of load levels: two of their columns.
func isLevels(header []byte) bool {
	names := bytes.Split(bytes.TrimSpace(header), []byte(","))
	has := func(name string) bool {
		return slices.ContainsFunc(names, func(n []byte) bool { return string(bytes.Trim(n, `" `)) == name })
	}
	return has("input_tokens") && (has("ttft_ms") || has("tpot_ms"))
}

// levels reads a table of load levels: nominal lengths, clients or a rate, mean TTFT
// and TPOT in ms. Codes: bad_points.
func (f *File) levels(rows [][]string, lines []int, name string) error {
	bad := func(line int, format string, args ...any) error {
		return &trace.SyntaxError{File: name, Line: int64(line), Col: 1, Code: BadLevels,
			Msg:  "measured points: " + fmt.Sprintf(format, args...),
			Hint: "the columns are " + strings.Join(levelColumns, ",") + "; rate_rps may stand in place of concurrency"}
	}
	at := map[string]int{}
	for k, h := range rows[0] {
		at[strings.TrimSpace(h)] = k
	}
	for _, want := range levelColumns {
		if _, ok := at[want]; !ok && !(want == "concurrency" && slices.Contains(rows[0], "rate_rps")) {
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
		p := Point{Sweep: name, Line: int64(line),
			PromptTokens: number("input_tokens", 1, true), OutputTokens: number("output_tokens", 2, true),
			Clients: int(number("concurrency", 1, true)), OfferedRPS: number("rate_rps", 1e-9, false),
			TTFTMeanMs: number("ttft_ms", 1e-9, true), ITLMs: number("tpot_ms", 1e-9, true), E2EMs: number("e2e_ms", 1e-9, false),
			PromptSD: number("input_sd", 0, false), OutputSD: number("output_sd", 0, false), Requests: int(number("requests", 1, false))}
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
