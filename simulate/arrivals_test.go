package simulate

import (
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestWorkloadFiles: plain tables, Vidur's, a TraceV2 header in place of its CSV, and a generator in JSON are read as what they
// are.
func TestWorkloadFiles(t *testing.T) {
	dir := t.TempDir()
	const rows = "request_id,streaming,input_tokens,output_tokens,arrival_time_us,send_time_us,status\n" +
		"0,true,100,20,0,0,ok\n1,true,90,21,500000,500000,ok\n"
	for name, text := range map[string]string{
		"plain.csv":   "arrival,prompt,output\n0,100,20\n0.5,90,21\n",
		"vidur.csv":   "arrived_at,num_prefill_tokens,num_decode_tokens\n3,100,20\n3.5,90,21\n",
		"lengths.csv": "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n100,20,120,5\n90,21,111,4.3\n",
		"trace.csv":   rows,
		"trace.yaml":  "trace_version: 2\ntime_unit: us\nmode: real\nwarm_up_requests: 0\n",
		"load.json":   "{\n  \"requests\": 2,\n  \"arrivals\": {\"kind\": \"constant\", \"rate_rps\": 2},\n  \"prompt\": {\"kind\": \"constant\", \"value\": 100},\n  \"output\": {\"kind\": \"constant\", \"value\": 20}\n}\n",
		"lost.yaml":   "trace_version: 2\ntime_unit: us\n",
	} {
		repo.Write(t, text, dir, name)
	}
	for name, second := range map[string]struct{ arrivalUs, prompt, output int64 }{
		"plain.csv":   {500_000, 90, 21},
		"vidur.csv":   {500_000, 90, 21},
		"lengths.csv": {0, 90, 21},
		"trace.csv":   {500_000, 90, 21},
		"trace.yaml":  {500_000, 90, 21},
		"load.json":   {500_000, 100, 20},
	} {
		w, draw, _, err := ReadWorkload(filepath.Join(dir, name), false)
		if err == nil && draw != nil {
			w, err = draw(1)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(w.Requests) != 2 {
			t.Errorf("%s: got %d requests, want 2", name, len(w.Requests))
			continue
		}
		gap := w.Requests[1].ArrivalUs - w.Requests[0].ArrivalUs
		if q := w.Requests[1]; gap != second.arrivalUs || q.PromptTokens != second.prompt || q.OutputTokens != second.output {
			t.Errorf("%s: got %d us, %d and %d tokens, want %+v", name, gap, q.PromptTokens, q.OutputTokens, second)
		}
	}
	if _, _, _, err := ReadWorkload(filepath.Join(dir, "lost.yaml"), false); err == nil {
		t.Error("a header without its rows is read")
	}
}
