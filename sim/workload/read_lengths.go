package workload

// This file reads plain tables of requests: lengths, with or without arrivals.

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Columns that a table of requests may have, lower case: arrival in seconds, tokens of prompt and answer.
// The second names are Vidur's, whose tables of lengths have no arrivals.
var (
	arrivalColumns = []string{"arrival", "arrived_at", "arrival_s", "arrival_time"}
	promptColumns  = []string{"prompt_tokens", "num_prefill_tokens", "input_tokens", "input_len", "prompt"}
	outputColumns  = []string{"output_tokens", "num_decode_tokens", "output_len", "output"}
)

// isLengthTable reports whether a header line is that of a plain table of requests.
func isLengthTable(header string) bool {
	names := columnNames(header)
	return column(names, promptColumns) != "" && column(names, outputColumns) != ""
}

// isOtherTable reports whether a line is the header of a table with columns that are not known, or with another
// separator than commas. A line of YAML or JSON has a colon.
func isOtherTable(header string) bool {
	return strings.ContainsAny(header, ",;\t") && !strings.ContainsAny(header, ":{}[]#")
}

// columnNames returns the names of a header line, which may be in quotes.
func columnNames(header string) []string {
	names, err := csv.NewReader(strings.NewReader(header)).Read()
	if err != nil {
		names = strings.Split(header, ",")
	}
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	return names
}

// column returns the name of the header that is the first of the wanted ones, whatever its case; "" if none is.
func column(names, wanted []string) string {
	for _, w := range wanted {
		for _, name := range names {
			if strings.EqualFold(name, w) {
				return name
			}
		}
	}
	return ""
}

// isTime reports whether the name of a column that is not known is that of a time of arrival, in a unit that nobody
// states: arrival_ms, timestamp, start_time, sent_at.
func isTime(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"arriv", "stamp", "datetime", "submit", "sent", "send"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	first, _, _ := strings.Cut(strings.ReplaceAll(name, " ", "_"), "_")
	return slices.Contains([]string{"time", "ts", "t", "date", "start", "started", "created", "issued"}, first)
}

// readLengthTable reads a plain CSV table of requests: tokens of prompt and answer and, if the
// table has them, arrivals in seconds. Without arrivals all requests arrive at 0, and the caller
// sets a rate or clients.
func readLengthTable(data []byte, name string) (*Workload, error) {
	head, _, _ := bytes.Cut(data, []byte("\n"))
	names := columnNames(string(head))
	arrival := column(names, arrivalColumns)
	prompt := column(names, promptColumns)
	output := column(names, outputColumns)
	if i := slices.IndexFunc(names, isTime); arrival == "" && i >= 0 {
		return nil, &trace.SyntaxError{File: name, Line: 1, Col: int64(1 + bytes.Index(head, []byte(names[i]))), Code: codeBadWorkload,
			Msg:  fmt.Sprintf("columns: got %q and no arrival, want times of arrival in a column arrival (seconds)", names[i]),
			Hint: "convert the column to seconds and name it arrival, or remove it if all requests come at once"}
	}
	w := withRoom(data)
	firstUs := int64(math.MaxInt64)
	required := []string{prompt, output}
	if arrival != "" {
		required = append(required, arrival)
	}
	err := readCSV(data, name, required, func(r *csvRow) error {
		q := sim.Request{ID: strconv.Itoa(r.line - 1)}
		for _, count := range []struct {
			column string
			to     *int64
		}{{column: prompt, to: &q.PromptTokens}, {column: output, to: &q.OutputTokens}} {
			n, err := strconv.ParseInt(r.field(count.column), 10, 64)
			if err != nil || n < 1 {
				return r.fail(count.column, "got %q, want a whole number of at least 1", r.field(count.column))
			}
			*count.to = n
		}
		if arrival != "" {
			s, err := strconv.ParseFloat(r.field(arrival), 64)
			if err != nil || !files.IsDecimal(r.field(arrival)) || !(s >= 0) || s*1e6 > float64(sim.LatestUs) {
				return r.fail(arrival, "got %q, want seconds of at least 0", r.field(arrival))
			}
			q.ArrivalUs = sim.ToUs(s * 1e6)
		}
		firstUs = min(firstUs, q.ArrivalUs)
		return w.addFromLine(name, r.line, q)
	})
	if err != nil {
		return nil, err
	}
	for i := range w.Requests { // stamps of an epoch: simulated time starts with the first arrival
		w.Requests[i].ArrivalUs -= firstUs
	}
	return w.checkNotEmpty(name)
}
