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
		func(line int, field func(string) string) error {
			at, err := parseAzureTime(field("TIMESTAMP"))
			if err != nil {
				return badLine(name, line, "TIMESTAMP: got %q, want YYYY-MM-DD hh:mm:ss.fraction", field("TIMESTAMP"))
			}
			in, err1 := strconv.ParseInt(field("ContextTokens"), 10, 64)
			out, err2 := strconv.ParseInt(field("GeneratedTokens"), 10, 64)
			if err1 != nil || err2 != nil || in < 1 || out < 0 {
				return badLine(name, line, "tokens: got %q and %q, want >= 1 and >= 0", field("ContextTokens"),
					field("GeneratedTokens"))
			}
			if len(w.Requests) == 0 {
				origin = at
			}
			us := at.Sub(origin).Microseconds()
			if us < 0 {
				return badLine(name, line,
					"TIMESTAMP: got %q, before the first request, want time order", field("TIMESTAMP"))
			}
			return w.addFromLine(name, line,
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
