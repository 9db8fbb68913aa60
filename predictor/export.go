package predictor

// This file writes trained trees in the formats of routers.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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
	Target string // ttft, tpot or e2e
	Data   []byte
}

// ExportXGBoost returns an XGBoost model document for each target: of the forest for the mean
// (model "trees"), or of a quantile ("trees-q90"), with warnings.
func ExportXGBoost(p *Document, model string) ([]targetModel, []trace.Finding, error) {
	var out []targetModel
	var warnings []trace.Finding
	if p.Options.Rows.Features != featuresLLMD {
		warnings = append(warnings, trace.Findingf(codeOtherColumns,
			"the rows were made with --features %s: llm-d's server feeds other columns; make them with --features "+
				"llmd for it",
			p.Options.Rows.Features))
	}
	if p.Options.Rows.PrefixScore == prefixActual {
		warnings = append(warnings, trace.Findingf(codeOtherColumns,
			"prefix_cache_score is what was measured after the decision: no router can feed it"))
	}
	for i := range p.Targets {
		t := &p.Targets[i]
		f, err := forestOf(t, model)
		if err != nil {
			return nil, nil, err
		}
		var b bytes.Buffer
		columns := ColumnsOf(t.Name == targetTPOT, p.Options.Rows.Features)
		if err := xgBoost(&b, f, columns); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		out = append(out, targetModel{Target: strings.TrimSuffix(t.Name, "_ms"), Data: b.Bytes()})
	}
	return out, warnings, nil
}

// forestOf returns the forest that --option model names: "trees", or that of the quantile 0.90 for
// "trees-q90".
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

// ServerBucketRows is the number of rows of a bucket that llm-d's training server keeps
// (LATENCY_MAX_TRAINING_DATA_SIZE_PER_BUCKET).
const ServerBucketRows = bucketRows

// bulkValues returns the limit of rows in a bucket of the file (most) and the server's own limits
// (latency-predictor 04e44cd), for the sidecar. dropped is the number of rows beyond the limit.
func bulkValues(most int, dropped int) []export.SideValue {
	value := func(key string, v float64, effect string) export.SideValue {
		return export.SideValue{
			Key:        key,
			Name:       key,
			Value:      &v,
			Unit:       "rows",
			Identified: "by definition",
			Learned:    true,
			Origin:     "llm-d-latency-predictor 04e44cd, training/training_server.py",
			Effect:     effect,
		}
	}
	own := value("bucket-rows", float64(most),
		fmt.Sprintf("most rows of a bucket in this file; %d more are not in it", dropped))
	own.Origin = "--option bucket-rows"
	return []export.SideValue{
		own,
		value("LATENCY_MAX_TRAINING_DATA_SIZE_PER_BUCKET", bucketRows,
			"the server forgets the oldest rows of a bucket beyond so many: raise it with bucket-rows"),
		value("LATENCY_MIN_SAMPLES_FOR_RETRAIN", 1000, "rows before the server trains again"),
		value("LATENCY_MIN_SAMPLES_FOR_RETRAIN_FRESH", 10,
			"rows before the first training of a server without models"),
	}
}

// ExportBulk writes a stratified sample of the rows in dir, at most so many (most) of each bucket,
// as batches for llm-d's training server: all TTFT rows, then all TPOT rows. It returns the values
// for the sidecar.
func ExportBulk(w io.Writer, dir string, p *Document, most int) ([]export.SideValue, error) {
	list, err := readRuns(dir, &RowsDocument{Runs: p.Runs})
	if err != nil {
		return nil, err
	}
	if got := rowsDigest(list); got != p.Digest {
		return nil, fmt.Errorf("%s: the rows are not those of the predictor: make both again with predictor fit", dir)
	}
	var rows []Row
	for _, r := range list {
		rows = append(rows, r.Rows...)
	}
	isE2E := p.Options.Rows.Target == TargetE2E
	withTPOT := 0
	if isE2E { // a router that does not stream reports the whole latency as TTFT
		rows = slices.DeleteFunc(rows, func(r Row) bool { return !r.E2EMs.OK })
		for i := range rows {
			rows[i].TTFTMs = rows[i].E2EMs.V
		}
	}
	sample := Sample(rows, false, most, p.Options.Seed)
	if !isE2E {
		sample = append(sample, Sample(rows, true, most, p.Options.Seed)...)
		for i := range rows {
			if rows[i].TPOTMs.OK {
				withTPOT++
			}
		}
	}
	return bulkValues(most, len(rows)+withTPOT-len(sample)), writeBulk(w, sample)
}

// Sidecar returns the provenance of a predictor's export. Its region is the range of every column in
// the training rows: beyond it a forest predicts as at its edge.
func Sidecar(p *Document, in result.Input, format, command string) *export.Sidecar {
	side := export.NewSidecar(&p.Header, in, format, command, "llm-d's latency predictor")
	if p.Verdict != nil {
		side.Verdict = p.Verdict.Verdict
	}
	for i := range p.Targets {
		t := &p.Targets[i]
		var columns []string
		for _, c := range t.Columns {
			columns = append(columns, fmt.Sprintf("%s %g to %g", c.Name, c.Min, c.Max))
		}
		side.Configs = append(side.Configs, export.SideConfig{
			Label: t.Name,
			Note:  "rows it was grown on: " + strings.Join(columns, ", "),
		})
	}
	return side
}

// bulkEntry is a training row as llm-d's router sends it. A TTFT row has 0 for actual_tpot_ms, and
// a TPOT row 0 for actual_ttft_ms.
type bulkEntry struct {
	KVCachePercentage  float64 `json:"kv_cache_percentage"`
	InputTokenLength   int64   `json:"input_token_length"`
	NumRequestWaiting  int64   `json:"num_request_waiting"`
	NumRequestRunning  int64   `json:"num_request_running"`
	ActualTTFTMs       float64 `json:"actual_ttft_ms"`
	ActualTPOTMs       float64 `json:"actual_tpot_ms"`
	NumTokensGenerated int64   `json:"num_tokens_generated"`
	PrefixCacheScore   float64 `json:"prefix_cache_score"`
	PodType            string  `json:"pod_type"`
	PrefillTokens      int64   `json:"prefill_tokens_in_flight"`
	DecodeTokens       int64   `json:"decode_tokens_in_flight"`
	EncoderMatched     int64   `json:"encoder_matched_size"`
	EncoderInput       int64   `json:"encoder_input_size"`
	Timestamp          string  `json:"timestamp"`
}

// batchEntries is the largest number of entries of one batch.
const batchEntries = 1000

// Sample returns the stratified sample of rows for one target: at most so many (most) of each
// bucket, in the order of buckets.
func Sample(rows []Row, tpot bool, most int, seed uint64) []bulkEntry {
	r := newReservoir[*Row](buckets, most, seed)
	for i := range rows {
		row := &rows[i]
		if tpot && !row.TPOTMs.OK {
			continue
		}
		r.Add(Bucket(row), row)
	}
	var out []bulkEntry
	r.Each(func(_ int, row *Row, _ float64) { out = append(out, entryOf(row, tpot)) })
	return out
}

// entryOf returns the entry that llm-d's router would send for a row, whatever --features the rows
// were made with: the router's own in-flight count for running requests, no decode tokens, and no
// prefix score with TPOT. The timestamp is the run's clock taken as Unix time; the server uses only
// the order.
func entryOf(r *Row, tpot bool) bulkEntry {
	e := bulkEntry{
		KVCachePercentage: math.Max(0, math.Min(1, r.KVCachePercentage)),
		InputTokenLength:  r.InputTokenLength,
		NumRequestWaiting: r.NumRequestWaiting,
		NumRequestRunning: r.RunningInflight,
		PrefillTokens:     r.PrefillTokensInFlight,
		Timestamp:         time.Unix(0, r.DecisionNs).UTC().Format(time.RFC3339Nano),
	}
	if tpot {
		e.ActualTPOTMs = r.TPOTMs.V
	} else {
		e.ActualTTFTMs = r.TTFTMs
		e.PrefixCacheScore = r.PrefixCacheScore
	}
	return e
}

// writeBulk writes entries in batches, one per line. Each line is a body for POST
// /add_training_data_bulk.
func writeBulk(w io.Writer, entries []bulkEntry) error {
	enc := json.NewEncoder(w)
	for len(entries) > 0 {
		n := min(len(entries), batchEntries)
		if err := enc.Encode(map[string][]bulkEntry{"entries": entries[:n]}); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// ColumnsOf returns the columns of a target's models with the types that XGBoost expects.
func ColumnsOf(tpot bool, features string) []Column {
	var out []Column
	for _, f := range featuresOf(tpot, features) {
		c := Column{Name: f.Name, Type: float}
		switch {
		case f.IsCategory:
			c.Type = category
		case f.Integer:
			c.Type = Int
		}
		out = append(out, c)
	}
	return out
}

// Types of XGBoost's columns.
const (
	float    = "float"
	Int      = "int"
	category = "c" // a pandas category; our trees never split on one
)

// Column is one column of an XGBoost model.
type Column struct{ Name, Type string }

// xgBoost writes a forest as an XGBoost model document, the JSON that save_model writes and
// load_model reads. A forest of logarithms becomes a model with a log link (reg:gamma): XGBoost
// then predicts exp(margin), and base_score is in the unit of the output.
//
// base_score is the scalar that versions before 3.1 write. Versions from 3.1 on write a list and
// read both; an older version reads the list without an error and predicts wrong (2.1.4: as if it
// were 0.5), so the list is never written.
//
// Predictions are those of forest.Evaluator to the bit; the log link adds the rounding of exp in
// float32, about 6e-8.
func xgBoost(w io.Writer, f *forest.Forest, columns []Column) error {
	base := math.Exp(f.Base)
	if b := float32(base); math.IsInf(float64(b), 0) || b == 0 {
		return fmt.Errorf("base of the forest: got %g, want a float32 that is not 0", base)
	}
	if _, err := f.Compile(len(columns)); err != nil {
		return err
	}
	var names, types []string
	for _, c := range columns {
		names = append(names, c.Name)
		types = append(types, c.Type)
	}
	// The trees, and where each boosting round ends in their list: a round has one tree, of group 0.
	ends := []int{0}
	info := make([]int, len(f.Trees)) // output group of each tree: 0, the only one
	trees := make([]any, 0, len(f.Trees))
	for i, t := range f.Trees {
		for _, n := range t {
			if n.Feature != forest.Leaf && columns[n.Feature].Type == category {
				return fmt.Errorf("tree %d splits on the category %q, want splits on numbers only",
					i, columns[n.Feature].Name)
			}
		}
		ends = append(ends, i+1)
		trees = append(trees, xgbTree(i, t, len(columns)))
	}
	booster := map[string]any{
		"name": "gbtree",
		"model": map[string]any{
			"gbtree_model_param": map[string]string{
				"num_parallel_tree": "1",
				"num_trees":         strconv.Itoa(len(f.Trees)),
			},
			"iteration_indptr": ends,
			"tree_info":        info,
			"trees":            trees,
		},
	}
	learner := map[string]any{
		"attributes":       map[string]any{},
		"feature_names":    names,
		"feature_types":    types,
		"gradient_booster": booster,
		"learner_model_param": map[string]string{
			"base_score":         strconv.FormatFloat(base, 'E', -1, 32),
			"boost_from_average": "1",
			"num_class":          "0",
			"num_feature":        strconv.Itoa(len(columns)),
			"num_target":         "1",
		},
		"objective": map[string]any{
			"name":           "reg:gamma",
			"reg_loss_param": map[string]string{"scale_pos_weight": "1"},
		},
	}
	return json.NewEncoder(w).Encode(map[string]any{"version": [3]int{2, 0, 0}, "learner": learner})
}

// xgbNoParent is the parent of a root: the largest int32.
const xgbNoParent = math.MaxInt32

// xgbTree returns a tree in XGBoost's JSON. Statistics that only describe training (gains,
// hessians) are 0, but XGBoost's reader requires their keys.
func xgbTree(id int, t forest.Tree, columns int) map[string]any {
	n := len(t)
	parents := make([]int, n)
	left := make([]int, n)
	right := make([]int, n)
	indices := make([]int, n)
	defaultLeft := make([]int, n)
	conditions := make([]xgbNumber, n)
	weights := make([]xgbNumber, n)
	parents[0] = xgbNoParent
	splits := 0
	for i, node := range t {
		conditions[i] = xgbNumber(node.Value)
		if node.Feature == forest.Leaf {
			left[i] = -1
			right[i] = -1
			weights[i] = xgbNumber(node.Value)
			continue
		}
		first := 2*splits + 1 // nodes are level by level, so children follow in the order of splits
		splits++
		left[i] = first
		right[i] = first + 1
		indices[i] = node.Feature
		defaultLeft[i] = 1
		parents[first] = i
		parents[first+1] = i
	}
	return map[string]any{
		"id":                  id,
		"parents":             parents,
		"left_children":       left,
		"right_children":      right,
		"split_indices":       indices,
		"default_left":        defaultLeft,
		"split_conditions":    conditions,
		"base_weights":        weights,
		"split_type":          make([]int, n),
		"loss_changes":        make([]xgbNumber, n),
		"sum_hessian":         make([]xgbNumber, n),
		"categories":          []int{},
		"categories_nodes":    []int{},
		"categories_segments": []int{},
		"categories_sizes":    []int{},
		"tree_param": map[string]string{
			"num_deleted":      "0",
			"num_feature":      strconv.Itoa(columns),
			"num_nodes":        strconv.Itoa(n),
			"size_leaf_vector": "1",
		},
	}
}

// xgbNumber is a float that always has an exponent in JSON. XGBoost's reader distinguishes integers
// from reals and refuses a list of reals that starts with 0 instead of 0.0.
type xgbNumber float32

// MarshalJSON returns the number with an exponent.
func (n xgbNumber) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(n), 'E', -1, 32), nil
}
