package workload

// This file reads the Azure LLM inference traces.

import (
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/sim"
)

// azureColumns are the columns of Azure's traces.
var azureColumns = []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}

// isAzure reports whether a header line is that of Azure's traces: the first column is their time, whatever its case,
// and one of the others is theirs.
func isAzure(header string) bool {
	names := columnNames(header)
	return strings.EqualFold(names[0], azureColumns[0]) && column(names, azureColumns[1:]) != ""
}

// readAzure reads a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens.
// Arrivals count from the first request. A request that generated 0 tokens is read as one of 1 token, the fewest
// that a sim.Request can have.
func readAzure(data []byte, name string) (*Workload, error) {
	w := withRoom(data)
	var origin time.Time
	err := readCSV(data, name, azureColumns,
		func(r *csvRow) error {
			at, err := parseAzureTime(r.field("TIMESTAMP"))
			if err != nil {
				return r.fail("TIMESTAMP", "got %q, want YYYY-MM-DD hh:mm:ss.fraction", r.field("TIMESTAMP"))
			}
			in, err := strconv.ParseInt(r.field("ContextTokens"), 10, 64)
			if err != nil || in < 1 {
				return r.fail("ContextTokens", "got %q tokens, want >= 1", r.field("ContextTokens"))
			}
			out, err := strconv.ParseInt(r.field("GeneratedTokens"), 10, 64)
			if err != nil || out < 0 {
				return r.fail("GeneratedTokens", "got %q tokens, want >= 0", r.field("GeneratedTokens"))
			}
			if len(w.Requests) == 0 {
				origin = at
			}
			us := at.Sub(origin).Microseconds()
			if us < 0 {
				return r.fail("TIMESTAMP", "got %q, before the first request, want time order", r.field("TIMESTAMP"))
			}
			return w.addFromLine(name, r.line,
				sim.Request{ID: strconv.Itoa(len(w.Requests)), ArrivalUs: us, PromptTokens: in, OutputTokens: max(1, out)})
		})
	if err != nil {
		return nil, err
	}
	return w.checkNotEmpty(name)
}

// parseAzureTime parses a time of the traces of 2023, which state no zone, or of those of 2024, which end in +00:00.
func parseAzureTime(text string) (time.Time, error) {
	at, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		at, err = time.Parse("2006-01-02 15:04:05Z07:00", text)
	}
	return at, err
}
