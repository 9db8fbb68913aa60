package predictor

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/internal/testkit/recordings"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace/table"
)

// TestFromRunsToAPredictor: the rows of each run and their counts, a predictor and its scores, an evaluation, and what routers get.
func TestFromRunsToAPredictor(t *testing.T) {
	ctx := context.Background()
	out, dest := t.TempDir(), t.TempDir()
	ext := recordings.Into(t, out, filepath.Join(repo.Root(t), "testdata", "traces", "real"))
	o := DefaultOptions()
	header := result.Header{Command: "predictor rows"}
	made, err := MakeRows(ctx, out, dest, ext, o, header, 1)
	if err != nil {
		t.Fatal(err)
	}
	if made.Command != "predictor rows" || len(made.Inputs) != len(ext.Inputs) || len(made.Runs) != len(ext.Runs) || !reflect.DeepEqual(made.Options, o) {
		t.Errorf("got %+v", made.Header)
	}
	for i, r := range made.Runs {
		rows, err := readPredictorRows(dest, r.ID)
		dropped := 0
		for _, n := range r.Dropped {
			dropped += n
		}
		if err != nil || r.ID != ext.Runs[i].ID || r.Config != ext.Runs[i].Deployment.Config() || r.Rows != len(rows) || r.Rows == 0 || r.Requests != r.Rows+dropped {
			t.Errorf("got %+v with %d rows, %v", r, len(rows), err)
		}
		gaps, n := 0.0, 0.0
		for k := range rows {
			if a, b := rows[k].PrefixScoreIndex, rows[k].PrefixScoreActual; a.OK && b.OK {
				gaps += math.Abs(a.V - b.V)
				n++
			}
		}
		if (r.PrefixGap != nil) != (n > 0) || n > 0 && math.Abs(*r.PrefixGap-gaps/n) > 1e-12 {
			t.Errorf("%s: got a gap of %v, want %g", r.ID, r.PrefixGap, gaps/n)
		}
	}
	train := DefaultTrainOptions()
	train.BucketRows = "none"
	dep := ext.Runs[0].Deployment
	set := testkit.PlantedOn(dep)
	for i := range ext.Runs[1:] {
		set.Configs = append(set.Configs, coeff.ConfigOf(ext.Runs[i+1].Deployment, nil, 1))
	}
	c := &Coefficients{Name: "planted", Set: set}
	data := Inputs{ExtractDir: out, Extract: ext, RowsDir: dest, Rows: made, Physics: c}
	scores, p, err := Fit(ctx, &data, train, result.Header{Command: "predictor fit"})
	if err != nil {
		t.Fatal(err)
	}
	if scores.Command != "predictor fit" || len(scores.Inputs) != len(ext.Inputs) || len(scores.Runs) != len(made.Runs) || scores.Options.Physics != "planted" || scores.Options.IsRefit || scores.Options.BucketRows != "none" || scores.Options.Seed != 1 || !reflect.DeepEqual(scores.Options.Rows, o) {
		t.Errorf("got %+v", scores.Options)
	}
	if p.Digest == "" || p.Bins != MaxBins || p.Verdict == nil || len(p.Targets) == 0 || p.Command != "predictor fit" {
		t.Errorf("got %+v", p)
	}
	all := 0
	for _, h := range scores.HoldOut {
		if h.Scope == scopeAll {
			all++
		}
	}
	for _, h := range p.HoldOut {
		if h.Scope != scopeAll {
			t.Errorf("got %+v", h)
		}
	}
	ofAll := 0
	for _, s := range scores.Models {
		if s.Scope == scopeAll {
			ofAll++
		}
	}
	if len(p.HoldOut) != all || len(p.Scores) != ofAll || all == 0 || ofAll == 0 {
		t.Errorf("got %d and %d, want %d and %d", len(p.HoldOut), len(p.Scores), all, ofAll)
	}
	judged, err := Evaluate(ctx, &data, p, train, result.Header{Command: "predictor eval"})
	if err != nil {
		t.Fatal(err)
	}
	if !judged.Options.Evaluate || judged.Command != "predictor eval" || len(judged.Inputs) != len(ext.Inputs) || len(judged.Runs) != len(made.Runs) || len(judged.Models) == 0 || len(judged.Warnings) == 0 {
		t.Errorf("got %+v, %v", judged.Options, judged.Warnings)
	}
	models, warnings, err := ExportXGBoost(p, "trees")
	if err != nil || len(models) != len(p.Targets) || models[0].Target != "ttft" || len(models[0].Data) == 0 || len(warnings) != 1 || warnings[0].Code != codeOtherColumns {
		t.Errorf("got %d models, %v, %v", len(models), warnings, err)
	}
	if _, _, err := ExportXGBoost(p, "trees-q42"); err == nil || !strings.Contains(err.Error(), `--option model: got "trees-q42", want trees, `) {
		t.Errorf("got %v", err)
	}
	own := *p
	own.Options.Rows.Features, own.Options.Rows.PrefixScore = featuresLLMD, prefixActual
	if _, warnings, _ = ExportXGBoost(&Document{Options: own.Options}, "trees"); len(warnings) != 1 || !strings.HasPrefix(warnings[0].Message, "prefix_cache_score is what was measured after the decision") {
		t.Errorf("llm-d's columns, with what was measured: got %v", warnings)
	}
	var bulk bytes.Buffer
	values, err := ExportBulk(&bulk, dest, p, 1<<20)
	if err != nil || bulk.Len() == 0 || *values[0].Value != 1<<20 || !strings.HasSuffix(values[0].Effect, "; 0 more are not in it") || values[0].Origin != "--option bucket-rows" || *values[1].Value != 500 || *values[2].Value != 1000 || *values[3].Value != 10 || values[1].Unit != "rows" {
		t.Errorf("got %+v, %v", values, err)
	}
	bulk.Reset()
	if values, err = ExportBulk(&bulk, dest, p, 1); err != nil || strings.HasSuffix(values[0].Effect, "; 0 more are not in it") {
		t.Errorf("one row a bucket: got %+v, %v", values[0], err)
	}
	own = *p
	own.Options.Rows.Target = TargetE2E
	bulk.Reset()
	if _, err = ExportBulk(&bulk, dest, &own, 1<<20); err != nil || strings.Contains(bulk.String(), `"actual_tpot_ms":1`) {
		t.Errorf("end to end: got %v", err)
	}
	own.Digest = "other"
	if _, err := ExportBulk(&bulk, dest, &own, 1); err == nil || !strings.Contains(err.Error(), "the rows are not those of the predictor") {
		t.Errorf("other rows: got %v", err)
	}
	side := Sidecar(p, result.Input{Name: "predictor.json"}, "xgboost", "export")
	if side.Verdict != p.Verdict.Verdict || len(side.Configs) != len(p.Targets) || side.Configs[0].Label != p.Targets[0].Name || !strings.HasPrefix(side.Configs[0].Note, "rows it was grown on: "+p.Targets[0].Columns[0].Name+" ") {
		t.Errorf("got %+v", side)
	}
	// Rows that are gone, fewer or more; runs that are gone; a set that does not fit.
	for name, do := range map[string]func(rows string, made *RowsDocument) error{
		"fit": func(rows string, made *RowsDocument) error {
			_, _, err := Fit(ctx, &Inputs{ExtractDir: out, Extract: ext, RowsDir: rows, Rows: made, Physics: c}, train, header)
			return err
		},
		"evaluate": func(rows string, made *RowsDocument) error {
			_, err := Evaluate(ctx, &Inputs{ExtractDir: out, Extract: ext, RowsDir: rows, Rows: made, Physics: c}, p, train, header)
			return err
		},
		"bulk": func(rows string, made *RowsDocument) error {
			d := *p
			d.Runs = made.Runs
			_, err := ExportBulk(&bulk, rows, &d, 1)
			return err
		},
	} {
		more := *made
		more.Runs = append([]runAccount{}, made.Runs...)
		more.Runs[0].Rows++
		if err := do(dest, &more); err == nil || !strings.Contains(err.Error(), "predictor_rows.json counts ") {
			t.Errorf("%s, a row less: got %v", name, err)
		}
		if err := do(t.TempDir(), made); err == nil {
			t.Errorf("%s without rows: got no error", name)
		}
	}
	if err := writePredictorRows(table.RunDir(dest, made.Runs[0].ID), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(table.RunDir(dest, made.Runs[0].ID), Table+".parquet")); !os.IsNotExist(err) {
		t.Errorf("no rows: got %v, want no table", err)
	}
	if err := writePredictorRows(filepath.Join(out, "tables"), nil); err != nil {
		t.Errorf("no table to remove: got %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dest, "x", Table+".parquet", "y"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writePredictorRows(filepath.Join(dest, "x"), nil); err == nil {
		t.Error("a folder in place of the table: got no error")
	}
	unfit := &Coefficients{Name: "x", Set: set, Fit: &result.Fit{Options: result.FitOptions{Spec: "9.9"}}}
	if set, err := refitted(ctx, out, ext, unfit.Fit, nil, false, 1); err == nil || set != nil {
		t.Errorf("a fit of version 9.9: got %v, %v", set, err)
	}
	// A refit leaves out the run that is hidden for all time.
	f := &result.Fit{Options: fit.DefaultOptions().Record(), Runs: []result.FitRun{{ID: ext.Runs[0].ID, Used: true}, {ID: ext.Runs[1].ID, Used: true}}}
	again, err := refitted(ctx, out, ext, f, []hidden{{Run: ext.Runs[1].ID, StartNs: math.MinInt64, EndNs: math.MaxInt64}}, false, 1)
	if err != nil || len(again.Configs) != 1 || again.Configs[0].Key != ext.Runs[0].Deployment.Config() && ext.Runs[0].Deployment.Config() != ext.Runs[1].Deployment.Config() || len(again.Configs[0].Runs) != 1 || again.Configs[0].Runs[0] != ext.Runs[0].ID {
		t.Errorf("got %+v, %v", again, err)
	}
	torn := filepath.Join(table.RunDir(out, ext.Runs[0].ID), table.Steps+".parquet")
	if err := os.WriteFile(torn, []byte("no table"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeRows(ctx, out, t.TempDir(), ext, o, header, 1); err == nil {
		t.Error("a damaged table has rows")
	}
}
