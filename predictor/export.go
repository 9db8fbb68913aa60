package predictor

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Formats of a predictor.
const (
	FormatXGBoost = "predictor-xgboost"
	FormatBulk    = "llmd-bulk"
)

// Formats lists them in the order help shows them.
var Formats = []string{FormatXGBoost, FormatBulk}

// targetModel is one target's model in XGBoost's form.
type targetModel struct {
	Target string
	Data   []byte
}

// ExportXGBoost writes one XGBoost model document per target: of the mean
// forest (trees), or of a quantile (trees-q90).
func ExportXGBoost(p *Document, model string) ([]targetModel, []trace.Finding, error) {
	var out []targetModel
	var warnings []trace.Finding
	if p.Options.Rows.Features != featuresLLMD {
		warnings = append(warnings, trace.Findingf(codeOtherColumns,
			"the rows were made with --features %s: llm-d's server feeds other columns; make them with --features llmd for it",
			p.Options.Rows.Features))
	}
	if p.Options.Rows.PrefixScore == prefixActual {
		warnings = append(warnings, trace.Findingf(codeOtherColumns, "prefix_cache_score is what was measured after the decision: no "+
			"router can feed it"))
	}
	for i := range p.Targets {
		t := &p.Targets[i]
		f, err := forestOf(t, model)
		if err != nil {
			return nil, nil, err
		}
		var b bytes.Buffer
		columns := ColumnsOf(t.Name == targetTPOT, p.Options.Rows.Features)
		if err := xgBoost(&b, f, columns, true); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		out = append(out, targetModel{strings.TrimSuffix(t.Name, "_ms"), b.Bytes()})
	}
	return out, warnings, nil
}

// forestOf is the named forest of a target.
func forestOf(t *forest.Target, model string) (*forest.Forest, error) {
	if model == "trees" {
		return t.Trees, nil
	}
	if level, err := strconv.ParseFloat("0."+strings.TrimPrefix(model, "trees-q"), 64); err == nil {
		k := slices.IndexFunc(t.Quantiles, func(q forest.LevelForest) bool { return q.Level == level })
		if k >= 0 {
			return &t.Quantiles[k].Forest, nil
		}
	}
	return nil, fmt.Errorf("--option model: got %q, want trees, trees-q50, trees-q90 or trees-q99", model)
}

// ExportBulk writes the stratified sample of the rows beside json as
// batches for llm-d's training server, TTFT first.
func ExportBulk(w io.Writer, dir string, p *Document) error {
	made := &RowsDocument{Runs: p.Runs}
	list, err := readRuns(dir, made)
	if err != nil {
		return err
	}
	if got := rowsDigest(list); got != p.Digest {
		return fmt.Errorf("%s: the rows are not those of the predictor: make both again with predictor fit", dir)
	}
	var rows []Row
	for _, r := range list {
		rows = append(rows, r.Rows...)
	}
	if p.Options.Rows.Target == TargetE2E { // what the server learns as TTFT of a router that does not stream
		rows = slices.DeleteFunc(rows, func(r Row) bool { return !r.E2EMs.OK })
		for i := range rows {
			rows[i].TTFTMs = rows[i].E2EMs.V
		}
		return writeBulk(w, Sample(rows, false, p.Options.Seed))
	}
	return writeBulk(w, slices.Concat(Sample(rows, false, p.Options.Seed), Sample(rows, true, p.Options.Seed)))
}

// Sidecar is the provenance of a predictor's export; its region is the columns of the rows that
// the forests were grown on, which no forest sees beyond.
func Sidecar(p *Document, in result.Input, format, command string) *export.Sidecar {
	side := export.NewSidecar(&p.Header, in, format, command, "llm-d's latency predictor")
	for i := range p.Targets {
		t := &p.Targets[i]
		var columns []string
		for _, c := range t.Columns {
			columns = append(columns, fmt.Sprintf("%s %g to %g", c.Name, c.Min, c.Max))
		}
		side.Configs = append(side.Configs, export.SideConfig{Label: t.Name, Note: "rows it was grown on: " + strings.Join(columns, ", ")})
	}
	return side
}
