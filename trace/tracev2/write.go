package tracev2

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
)

// column is one column: the field of a record it stands for.
type column struct {
	name   string
	text   func(*Record) *string
	number func(*Record) *int64
	// optional columns are written where any record has a value.
	optional bool
}

// columns in the order they are written.
var columns = []column{
	{name: "request_id", text: func(r *Record) *string { return &r.RequestID }},
	{name: "client_id", text: func(r *Record) *string { return &r.ClientID }},
	{name: "tenant_id", text: func(r *Record) *string { return &r.TenantID }},
	{name: "slo_class", text: func(r *Record) *string { return &r.SLOClass }},
	{name: "vllm_priority", optional: true},
	{name: "session_id", text: func(r *Record) *string { return &r.SessionID }},
	{name: "round_index", number: func(r *Record) *int64 { return &r.Round }},
	{name: "prefix_group", text: func(r *Record) *string { return &r.PrefixGroup }},
	{name: "prefix_length", number: func(r *Record) *int64 { return &r.PrefixTokens }},
	{name: "streaming"},
	{name: "input_tokens", number: func(r *Record) *int64 { return &r.SuffixTokens }},
	{name: "output_tokens", number: func(r *Record) *int64 { return &r.OutputTokens }},
	{name: "text_tokens", number: func(r *Record) *int64 { return &r.Text }},
	{name: "image_tokens", number: func(r *Record) *int64 { return &r.Image }},
	{name: "audio_tokens", number: func(r *Record) *int64 { return &r.Audio }},
	{name: "video_tokens", number: func(r *Record) *int64 { return &r.Video }},
	{name: "reason_ratio", text: func(r *Record) *string { return &r.ReasonRatio }},
	{name: "model", text: func(r *Record) *string { return &r.Model }},
	{name: "deadline_us", number: func(r *Record) *int64 { return &r.DeadlineUs }},
	{name: "slo_target_us", number: func(r *Record) *int64 { return &r.SLOTargetUs }, optional: true},
	{name: "server_input_tokens", number: func(r *Record) *int64 { return &r.ServerPromptTokens }},
	{name: "arrival_time_us", number: func(r *Record) *int64 { return &r.ArrivalUs }},
	{name: "send_time_us", number: func(r *Record) *int64 { return &r.SendUs }},
	{name: "first_chunk_time_us", number: func(r *Record) *int64 { return &r.FirstChunkUs }},
	{name: "last_chunk_time_us", number: func(r *Record) *int64 { return &r.LastChunkUs }},
	{name: "num_chunks", number: func(r *Record) *int64 { return &r.Chunks }},
	{name: "status", text: func(r *Record) *string { return &r.Status }},
	{name: "error_message", text: func(r *Record) *string { return &r.Error }},
	{name: "finish_reason", text: func(r *Record) *string { return &r.FinishReason }},
	{name: "x_request_id", text: func(r *Record) *string { return &r.XRequestID }, optional: true},
	{name: "adapter", text: func(r *Record) *string { return &r.Adapter }, optional: true},
	{name: "think_time_us", number: func(r *Record) *int64 { return &r.ThinkUs }, optional: true},
}

func columnOf(name string) column {
	for _, c := range columns {
		if c.name == name {
			return c
		}
	}
	return column{name: name}
}

// value is the field as text.
func (c *column) value(r *Record) string {
	switch {
	case c.name == "reason_ratio" && r.ReasonRatio == "": // a number in every row
		return "0"
	case c.text != nil:
		return *c.text(r)
	case c.number != nil:
		return strconv.FormatInt(*c.number(r), 10)
	case c.name == "streaming":
		return strconv.FormatBool(r.Streaming)
	}
	return strconv.FormatInt(r.Priority.V, 10)
}

// known reports whether any record has a value in an optional column.
func (c *column) known(recs []Record) bool {
	return slices.ContainsFunc(recs, func(r Record) bool {
		if c.name == "vllm_priority" {
			return r.Priority.OK
		}
		v := c.value(&r)
		return v != "" && v != "0"
	})
}

// Write writes the rows as CSV; their header is a text of its own.
func Write(out io.Writer, recs []Record) error {
	w := csv.NewWriter(out)
	var use []column
	var row []string
	for _, c := range columns {
		if !c.optional || c.known(recs) {
			use, row = append(use, c), append(row, c.name)
		}
	}
	w.Write(row) // the writer keeps its error
	for i := range recs {
		row = row[:0]
		for k := range use {
			row = append(row, use[k].value(&recs[i]))
		}
		w.Write(row)
	}
	w.Flush()
	return w.Error()
}
