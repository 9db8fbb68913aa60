package trace

import "strings"

// StockSpans returns the spans of an unmodified vLLM by the ids that a client may have recorded: that of its response, and the
// one that it sent. An id of several spans has nil: they are of repeated calls.
func (r *Run) StockSpans() map[string]*Request {
	out := map[string]*Request{}
	for i := range r.Requests {
		span := &r.Requests[i]
		if span.Source != SourceStock || !span.APIID.OK {
			continue
		}
		// vLLM appends the number of the prompt in its call.
		id := strings.TrimSuffix(span.APIID.V, "-0")
		ids := []string{id}
		for _, prefix := range []string{"cmpl-", "chatcmpl-"} {
			if sent, hasPrefix := strings.CutPrefix(id, prefix); hasPrefix {
				ids = append(ids, sent)
			}
		}
		for _, id := range ids {
			if _, isRepeated := out[id]; isRepeated {
				out[id] = nil
				continue
			}
			out[id] = span
		}
	}
	return out
}
