package simulate

// This file writes the results of a simulation in BLIS's form.

import (
	"bufio"
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/sim"
)

// blisFile is the name of the results in BLIS's form.
const blisFile = "blis_results.json"

// blisRequest is one finished request as `blis replay` writes and `blis calibrate` reads it
// (sim/workload/calibrate.go, inference-sim@f90a1e3).
type blisRequest struct {
	ID           int     `json:"request_id"`
	TTFTUs       float64 `json:"ttft_us"`
	E2EUs        float64 `json:"e2e_us"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	SLOClass     string  `json:"slo_class,omitempty"`
	ITLMeanUs    float64 `json:"itl_mean_us,omitempty"`
}

// blisWriter writes the finished requests of a run to blis_results.json, one by one. Its methods do
// nothing on a nil writer.
type blisWriter struct {
	f *files.Pending
	w *bufio.Writer
	n int
}

// blisWriter opens blis_results.json and returns its writer; nil unless the options ask for BLIS's
// form.
func (o *Options) blisWriter() (*blisWriter, error) {
	if o.Format == "" {
		return nil, nil
	}
	f, err := files.Begin(filepath.Join(o.Out, blisFile))
	if err != nil {
		return nil, err
	}
	return &blisWriter{f: f, w: bufio.NewWriter(f.File)}, nil
}

// writeRequest writes a finished request under its number in the trace, or under its position if it
// has none.
func (b *blisWriter) writeRequest(i int, r *sim.RequestResult) error {
	if b == nil {
		return nil
	}
	ttft, started := r.TTFTUs()
	e2e, done := r.E2EUs()
	if !started || !done {
		return nil // BLIS does not write it either
	}
	row := blisRequest{ID: i, TTFTUs: ttft, E2EUs: e2e, InputTokens: r.PromptTokens, OutputTokens: r.OutputTokens, SLOClass: r.SLOClass}
	if n, err := strconv.Atoi(r.ID); err == nil {
		row.ID = n
	}
	row.ITLMeanUs, _ = r.ITLUs()
	data, err := json.Marshal(row)
	if err != nil {
		return err
	}
	separator := ",\n "
	if b.n == 0 {
		separator = "[\n "
	}
	b.n++
	_, err = b.w.Write(append([]byte(separator), data...))
	return err
}

// close completes the JSON list and gives the file its name.
func (b *blisWriter) close() error {
	if b == nil {
		return nil
	}
	end := "\n]\n"
	if b.n == 0 {
		end = "[]\n"
	}
	_, err := b.w.WriteString(end)
	return errors.Join(err, b.w.Flush(), b.f.Commit())
}
