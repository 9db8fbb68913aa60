package workload

// This file reads the Azure LLM inference traces.

import (
	"strconv"
	"time"

	"github.com/blis-train/blis-train/sim"
)

// readAzure reads a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens.
// Arrivals count from the first request. A request that generated 0 tokens is read as one of 1 token, the fewest
// that a sim.Request can have.
func readAzure(data []byte, name string) (*Workload, error) {
	w := withRoom(data)
	var origin time.Time
	err := readCSV(data, name, []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
		func(line int, field func(string) string) error {
			at, err := time.Parse("2006-01-02 15:04:05", field("TIMESTAMP"))
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
