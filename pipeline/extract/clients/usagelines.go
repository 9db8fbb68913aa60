package clients

// This file reads usage_*.jsonl: a line for each request with the tokens that the server's usage
// states, and no times. A recorder writes it beside the file of a client that drops the usage.

import (
	"bytes"
	"fmt"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// sniffUsage reports whether a file has lines of usage without times, by the keys of the first one.
func sniffUsage(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return isObject(line) && containsAll(line, `"id"`, `"prompt_tokens"`, `"cached_tokens"`, `"output_tokens"`) &&
		!bytes.Contains(line, []byte("_ns\"")) && !bytes.Contains(line, []byte(`"usage"`))
}

// parseUsageLine returns the tokens of a line as a request without times, which joinUsage merges with
// the one of the client.
func parseUsageLine(line []byte) (trace.ObservedRequest, error) {
	var j struct {
		ID     string           `json:"id"`
		Prompt trace.Opt[int64] `json:"prompt_tokens"`
		Cached trace.Opt[int64] `json:"cached_tokens"`
		Output trace.Opt[int64] `json:"output_tokens"`
	}
	if err := trace.UnmarshalJSON(line, &j); err != nil {
		return trace.ObservedRequest{}, err
	}
	if j.ID == "" {
		return trace.ObservedRequest{}, fmt.Errorf(`got no "id"`)
	}
	return trace.ObservedRequest{
		ID:           j.ID,
		Source:       sourceUsage,
		PromptTokens: j.Prompt,
		CachedTokens: j.Cached,
		OutputTokens: j.Output,
	}, nil
}

// joinUsage merges usage lines with the requests of the clients: by id, else line by line with the
// file of as many requests whose output tokens are the same. Lines that belong to no request are
// dropped.
func (c *Reader) joinUsage() {
	byID := map[string]int{} // index in c.Requests of the clients' requests
	hasUsage := false
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Source == sourceUsage {
			hasUsage = true
		} else {
			byID[r.ID] = i
		}
	}
	if !hasUsage {
		return
	}
	isRemoved := make([]bool, len(c.Requests))
	for _, f := range c.requestFiles {
		if f.to == f.from || c.Requests[f.from].Source != sourceUsage {
			continue
		}
		partner, hasPartner := c.usagePartner(f)
		lost := int64(0) // lines that belong to no request
		for i := f.from; i < f.to; i++ {
			isRemoved[i] = true // it is no request
			usage := &c.Requests[i]
			k, isNamed := byID[usage.ID]
			switch {
			case isNamed:
			case hasPartner:
				k = partner.from + i - f.from // the line of the same number
			default:
				lost++
				continue
			}
			r := &c.Requests[k]
			r.PromptTokens = firstKnown(usage.PromptTokens, r.PromptTokens)
			r.OutputTokens = firstKnown(usage.OutputTokens, r.OutputTokens)
			r.CachedTokens = firstKnown(usage.CachedTokens, r.CachedTokens)
		}
		if lost > 0 {
			c.Acc.Keep(-lost)
			c.Acc.Drop(source.CodeBadRecord, lost, source.Place{File: f.name},
				"usage of requests that no client's file has, by id or line by line")
		}
	}
	c.removeRequests(isRemoved)
}

// usagePartner returns the only client's file with as many requests as a file of usage has lines, and
// with the same output tokens in nearly all of them.
func (c *Reader) usagePartner(usage requestFile) (partner requestFile, ok bool) {
	const leastEqual = 0.95
	lines := c.Requests[usage.from:usage.to]
	found := 0
	for _, f := range c.requestFiles {
		rows := c.Requests[f.from:f.to]
		if len(rows) != len(lines) || len(rows) == 0 || rows[0].Source == sourceUsage {
			continue
		}
		equal := 0
		for i := range rows {
			if rows[i].OutputTokens == lines[i].OutputTokens {
				equal++
			}
		}
		if float64(equal) >= leastEqual*float64(len(rows)) {
			partner = f
			found++
		}
	}
	return partner, found == 1
}
