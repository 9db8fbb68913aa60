package pipeline_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// besideTheStages tests what reads the folder of a run without fitting its steps again: Gram files, explained steps, exports, baselines,
// inspections and summaries.
func besideTheStages(t *testing.T, dir, gram string) {
	set, _, err := folder.LoadCoefficients(filepath.Join(dir, folder.CoefficientsFile), false)
	if err != nil {
		t.Fatal(err)
	}
	doc := &result.Fit{}
	if err := folder.ReadDocument(filepath.Join(dir, folder.FitFile), doc, nil); err != nil {
		t.Fatal(err)
	}
	val := &result.Validation{}
	if err := folder.ReadDocument(filepath.Join(dir, folder.ValidationFile), val, nil); err != nil {
		t.Fatal(err)
	}
	ext := &result.Extract{}
	if err := folder.ReadDocument(filepath.Join(dir, folder.ExtractFile), ext, nil); err != nil {
		t.Fatal(err)
	}

	t.Run("a fit from sums", func(t *testing.T) {
		o := pipeline.DefaultFitOptions()
		o.Bootstraps, o.Out = 50, t.TempDir()
		got, err := pipeline.FitGrams(context.Background(), []string{gram}, o)
		if err != nil {
			t.Fatal(err)
		}
		// The rows of each run are cleaned apart from the other's, so that their number can differ.
		if math.Abs(float64(got.Beta.Rows.Kept-doc.Beta.Rows.Kept)) > 0.01*float64(doc.Beta.Rows.Kept) || len(got.Alpha) != 0 || len(got.Inputs) != 1 || got.Inputs[0].Name != filepath.Base(gram) ||
			got.Command != "fit --alpha-target admission --alpha-target egress --alpha-target overhead --beta-target cadence --bootstraps 50 --model blackbox --model roofline --model trained-physics --prior zero --recipe relative --seed 1 --spec 1.1 --split 0.8 --from-gram" {
			t.Errorf("got %d rows of %v by %q, want about %d", got.Beta.Rows.Kept, got.Inputs, got.Command, doc.Beta.Rows.Kept)
		}
		if _, _, err := folder.LoadCoefficients(filepath.Join(o.Out, folder.CoefficientsFile), false); err != nil {
			t.Error(err)
		}
		o.Force = true
		for want, names := range map[string][]string{"no such file": {"none"}, "read gram": {filepath.Join(dir, folder.FitFile)}, "got no file": nil} {
			if _, err := pipeline.FitGrams(context.Background(), names, o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: got %v, want %s", names, err, want)
			}
		}
		o.RefitAll = true
		if _, err := pipeline.FitGrams(context.Background(), []string{gram}, o); !errors.As(err, new(*option.Misuse)) {
			t.Errorf("all rows: got %v", err)
		}
		o.Out = ""
		if _, err := pipeline.FitGrams(context.Background(), []string{gram}, o); !errors.As(err, new(*option.Misuse)) || !strings.Contains(err.Error(), "needs -o OUT") {
			t.Errorf("no folder: got %v", err)
		}
	})

	t.Run("an explained step", func(t *testing.T) {
		r := &ext.Runs[1]
		run, err := table.Read(table.RunDir(dir, r.ID))
		if err != nil {
			t.Fatal(err)
		}
		lag := set.PipelineLag[r.ID].Lag
		explained := 0
		for i := 1; i < len(run.Steps) && explained < 3; i++ {
			id := run.Steps[i].ID
			got, err := pipeline.ExplainStep(dir, r, id, set.SpecVersion, set)
			if trace.CodeOf(err) != "" {
				continue // its batch is unknown
			}
			if err != nil {
				t.Fatal(err)
			}
			explained++
			sum := 0.0
			for _, f := range got.Explanation.Features {
				sum += *f.ContributionUs
			}
			for _, f := range got.Explanation.Factors {
				sum += f.AddedUs
			}
			tokens := int64(0)
			for _, m := range got.Members {
				if tokens += m.New; (m.Phase == "decode") != (m.Computed >= m.Prompt) || m.Request == "" {
					t.Errorf("got %+v", m)
				}
			}
			if got.Run != r.ID || got.Step != id || *got.Lag != lag || tokens != int64(run.Steps[i].ScheduledTokens) || got.Source == "" || math.Abs(max(1, sum)-*got.Explanation.PredictionUs) > 1e-6 {
				t.Errorf("step %d: got %+v of %d tokens, terms of %g us", id, got, tokens, sum)
			}
			if at := i + lag; at+1 < len(run.Steps) && run.Steps[at+1].ID == id+int64(lag)+1 {
				if want := float64(run.Steps[at+1].TsStartNs-run.Steps[at].TsStartNs) / 1e3; got.MeasuredUs == nil || *got.MeasuredUs != want {
					t.Errorf("step %d: got %v us, want %g", id, got.MeasuredUs, want)
				}
			}
			bare, err := pipeline.ExplainStep(dir, r, id, features.V11, nil)
			if err != nil || bare.Explanation.PredictionUs != nil || len(bare.Members) != len(got.Members) {
				t.Errorf("without coefficients: got %+v, %v", bare, err)
			}
		}
		if explained == 0 {
			t.Error("no step is explained")
		}
		first, last := run.Steps[0].ID, run.Steps[len(run.Steps)-1].ID
		for _, id := range []int64{first - 1, last + 1} {
			if _, err := pipeline.ExplainStep(dir, r, id, features.V11, set); err == nil || !strings.Contains(err.Error(), `has no step `) {
				t.Errorf("step %d: got %v", id, err)
			}
		}
	})

	t.Run("exports", func(t *testing.T) {
		for _, format := range []export.Format{export.FormatEPP, export.FormatCard} {
			o := pipeline.DefaultExportOptions()
			o.Format, o.Out, o.Accept.Any, o.Force = format, filepath.Join(t.TempDir(), "x"), true, string(export.PoorProjection)
			got, err := pipeline.Export(context.Background(), filepath.Join(dir, folder.FitFile), o)
			if err != nil {
				t.Errorf("%s: %v", format, err)
				continue
			}
			for _, f := range got.Files {
				if st, err := os.Stat(filepath.Join(filepath.Dir(o.Out), filepath.FromSlash(f.Name))); err != nil || st.Size() != f.Bytes {
					t.Errorf("%s: %s: got %v, want a file of %d bytes", format, f.Name, err, f.Bytes)
				}
			}
			if len(got.Files) != len(got.Output.Files) || len(got.Files) == 0 || got.Format != format {
				t.Errorf("%s: got %+v", format, got.Files)
			}
		}
		o := pipeline.DefaultExportOptions()
		o.Out = filepath.Join(t.TempDir(), "x")
		var refused *pipeline.VerdictError
		if _, err := pipeline.Export(context.Background(), filepath.Join(dir, folder.FitFile), o); !errors.As(err, &refused) || trace.HintOf(err) == "" {
			t.Errorf("coefficients that failed: got %v", err)
		}
		o.Validation = filepath.Join(dir, "none.json")
		if _, err := pipeline.Export(context.Background(), filepath.Join(dir, folder.FitFile), o); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a validation that is not there: got %v", err)
		}
		o.Validation = "none"
		if _, err := pipeline.Export(context.Background(), filepath.Join(dir, folder.FitFile), o); err != nil {
			t.Errorf("without a validation: got %v", err)
		}
		if _, err := pipeline.Export(context.Background(), filepath.Join(dir, folder.ExtractFile), o); err == nil {
			t.Error("an extraction is exported as a fit")
		}
	})

	t.Run("a validation of another fit", func(t *testing.T) {
		passed, other := *val, *val
		passed.Verdict, passed.Purposes = coeff.VerdictPass, slices.Clone(val.Purposes)
		for i := range passed.Purposes {
			passed.Purposes[i].Verdict = coeff.VerdictPass
		}
		other.Judged = &result.Input{Name: "fit.json", SHA256: strings.Repeat("0", 64)}
		doubt := trace.Finding{Code: result.StreamsDisagree, Message: "hardware in run.yaml may be wrong"}
		doubted := passed
		doubted.Warnings = append(slices.Clone(passed.Warnings), doubt)
		older, olderPassed, ofFile := *val, passed, passed
		older.Judged, olderPassed.Judged = nil, nil
		ofFile.Judged = &result.Input{Name: "other.yaml"}
		for what, c := range map[string]struct {
			v       *result.Validation
			warning string
			refused bool
		}{
			"of this fit":           {v: &passed},
			"with a doubt":          {v: &doubted},
			"of another fit":        {v: &other, warning: "x.json judged another file, fit.json of sha256 000000000000: this fit is exported as not validated; blis-train validate judges it"},
			"of a file":             {v: &ofFile, warning: "x.json judged another file, other.yaml of sha256 : this fit is exported as not validated; blis-train validate judges it"},
			"an older one, passed":  {v: &olderPassed, warning: "x.json does not name the fit that it judged: this fit is exported as not validated; blis-train validate judges it"},
			"an older one, refused": {v: &older, refused: true},
		} {
			o := pipeline.DefaultExportOptions()
			o.Validation, o.Out = filepath.Join(t.TempDir(), "x.json"), filepath.Join(t.TempDir(), "x.yaml")
			if err := folder.WriteDocument(o.Validation, c.v); err != nil {
				t.Fatal(err)
			}
			got, err := pipeline.Export(context.Background(), filepath.Join(dir, folder.FitFile), o)
			if errors.As(err, new(*pipeline.VerdictError)) != c.refused || (err == nil) == c.refused {
				t.Errorf("%s: got %v, want refused: %v", what, err, c.refused)
			}
			if err != nil {
				continue
			}
			set, _, err := folder.LoadCoefficients(o.Out, false)
			if err != nil {
				t.Fatal(err)
			}
			if c.v == &doubted {
				if !slices.Contains(got.Output.Warnings, doubt) || !slices.Contains(set.Warnings, doubt) {
					t.Errorf("%s: got the warnings %v, and %v in the file, want %v in both", what, got.Output.Warnings, set.Warnings, doubt)
				}
				continue
			}
			if warned := len(got.Output.Warnings) == 1; warned != (c.warning != "") ||
				warned && got.Output.Warnings[0] != (trace.Finding{Code: export.OtherFit, Message: c.warning}) {
				t.Errorf("%s: got the warnings %v, want %q", what, got.Output.Warnings, c.warning)
			}
			if verdict := set.VerdictFor(coeff.PurposeSteps); (verdict == coeff.VerdictPass) != (c.warning == "") {
				t.Errorf("%s: the file states %q", what, verdict)
			}
		}
	})

	t.Run("an earlier validation", func(t *testing.T) {
		for _, name := range []string{dir, filepath.Join(dir, folder.ValidationFile), filepath.Join(dir, folder.CoefficientsFile)} {
			o := pipeline.DefaultValidateOptions()
			o.Baseline = name
			old, err := o.ReadBaseline()
			if err != nil || old.Name != name || len(old.Gates) != len(val.Gates) || len(old.Purposes) == 0 || (old.Set == nil) != strings.HasSuffix(name, ".json") {
				t.Errorf("%s: got %+v, %v", name, old, err)
			}
		}
		empty := t.TempDir()
		for name, want := range map[string]string{empty: "got neither validation.json nor coefficients.yaml", filepath.Join(dir, "none.json"): "no such file", filepath.Join(dir, folder.ReportFile): ""} {
			o := pipeline.DefaultValidateOptions()
			o.Baseline = name
			if old, err := o.ReadBaseline(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %+v, %v", name, old, err)
			}
		}
		if err := os.WriteFile(filepath.Join(empty, folder.CoefficientsFile), []byte("schema_version: 9\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := pipeline.DefaultValidateOptions()
		o.Baseline = empty
		if old, err := o.ReadBaseline(); err == nil || strings.Contains(err.Error(), "neither") {
			t.Errorf("damaged coefficients: got %+v, %v", old, err)
		}
		if old, err := new(pipeline.ValidateOptions).ReadBaseline(); old != nil || err != nil {
			t.Errorf("none: got %+v, %v", old, err)
		}
	})

	t.Run("an inspection", func(t *testing.T) {
		o := pipeline.DefaultInspectOptions()
		got, err := pipeline.Inspect(context.Background(), []string{dir}, o)
		if err != nil || len(got.Runs) != 2 || got.Runs[0].ID != ext.Runs[0].ID || !reflect.DeepEqual(*got.Runs[1].Lag, doc.Beta.PipelineLag[got.Runs[1].ID]) || len(got.Runs[0].LagEvidence) != 3 || got.Identify != nil {
			t.Errorf("got %+v, %v", got, err)
		}
		for _, r := range got.Runs {
			for _, e := range r.LagEvidence {
				if e.Run != r.ID {
					t.Errorf("%s has the lag evidence of %s", r.ID, e.Run)
				}
			}
		}
		if _, err := os.Stat(filepath.Join(dir, folder.InspectFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an inspection without a folder of results is written: %v", err)
		}
		folders, others := pipeline.Extracted([]string{recordings, dir})
		if !slices.Equal(folders, []string{dir}) || !slices.Equal(others, []string{recordings}) {
			t.Errorf("got %v and %v", folders, others)
		}
		o.Identify = true
		if _, err := pipeline.Inspect(context.Background(), []string{dir, recordings}, o); !errors.As(err, new(*option.Misuse)) || !strings.Contains(err.Error(), "got 1 extracted folders and 1 others") {
			t.Errorf("a folder and recordings: got %v", err)
		}
	})

	t.Run("a summary", func(t *testing.T) {
		whole := pipeline.RunResult{Extract: ext, Fit: doc, Validation: val}
		brief := whole.Brief()
		for _, r := range brief.Extract.Runs {
			if r.Deployment != nil || r.Scopes != nil || r.Files != nil || r.TableFiles != nil || r.ID == "" {
				t.Errorf("got %+v", r)
			}
		}
		models := append([]result.Model{brief.Fit.Beta}, brief.Fit.Alpha...)
		for _, m := range models {
			if m.Grid != nil || m.Covariance != nil || m.Cells != nil || m.Figures != nil || m.StressSets != nil || m.ResidualQuant != nil || m.Drift != nil || m.TargetAudit != nil ||
				m.LagEvidence != nil || m.FoldFingerprints != nil || m.Loco != nil || m.AlphaRuns != nil || len(m.Coefficients) == 0 {
				t.Errorf("%s: got %+v", m.Name, m)
			}
		}
		if f := brief.Fit; f.Inputs != nil || f.Configs != nil || f.Models != nil || len(f.Runs) != 2 || len(models) != 1+len(doc.Alpha) {
			t.Errorf("got %+v", f)
		}
		failed := 0
		for _, g := range val.Gates {
			if g.Pass == nil || !*g.Pass {
				failed++
			}
		}
		if v := brief.Validation; v.Inputs != nil || v.Runs != nil || v.Figures != nil || len(v.Gates) != failed || failed == 0 || v.Verdict != val.Verdict {
			t.Errorf("got %+v, want %d gates", v, failed)
		}
		if ext.Runs[0].Deployment == nil || doc.Beta.Grid == nil || val.Runs == nil || len(val.Gates) == failed {
			t.Error("the documents themselves have changed")
		}
		if none := new(pipeline.RunResult).Brief(); none.Extract != nil || none.Fit != nil || none.Validation != nil {
			t.Errorf("nothing: got %+v", none)
		}
	})

	t.Run("a refit of coefficients with a doubt", func(t *testing.T) {
		doubted := *set
		doubted.Warnings = append(slices.Clone(set.Warnings), trace.Finding{Code: result.StreamsDisagree, Message: "hardware in run.yaml may be wrong"})
		data, err := folder.SetBytes(&doubted)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), folder.CoefficientsFile)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := pipeline.Refit(context.Background(), file, &doubted, pipeline.RefitOptions{Data: recordings})
		if err != nil || !got.Identical {
			t.Errorf("got %+v, %v, want the same bytes", got, err)
		}
	})

	t.Run("a refit of other inputs", func(t *testing.T) {
		other := *set
		other.Inputs = slices.Clone(set.Inputs)
		k := slices.IndexFunc(other.Inputs, func(in result.Input) bool { return !strings.HasSuffix(in.Name, "run.yaml") })
		other.Inputs[k].SHA256 = strings.Repeat("0", 64)
		file := filepath.Join(dir, folder.CoefficientsFile)
		got, err := pipeline.Refit(context.Background(), file, &other, pipeline.RefitOptions{Data: recordings})
		if err != nil || got.Identical || got.Equal || got.Refit != nil || got.Command != set.Command || got.RecordedOn != set.Platform || got.File.Name != folder.CoefficientsFile || len(got.Differences) != 2 ||
			!strings.Contains(got.Differences[0], other.Inputs[k].Name+" (") || !strings.Contains(got.Differences[0], "is missing or changed") || !strings.Contains(got.Differences[1], "is not recorded") {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, err := pipeline.Refit(context.Background(), file, set, pipeline.RefitOptions{Data: "../testdata/traces/demo"}); trace.CodeOf(err) != export.NotReproducible || !strings.Contains(err.Error(), "no run below") {
			t.Errorf("other recordings: got %v", err)
		}
		other.Command = "fit --no-such-flag"
		if _, err := pipeline.Refit(context.Background(), file, &other, pipeline.RefitOptions{}); trace.CodeOf(err) != export.NotReproducible || trace.HintOf(err) == "" {
			t.Errorf("another command: got %v", err)
		}
		other.Command = "fit --bootstraps 3"
		if _, err := pipeline.Refit(context.Background(), file, &other, pipeline.RefitOptions{}); trace.CodeOf(err) != export.NotReproducible || !strings.Contains(err.Error(), `command "fit --bootstraps 3": `) {
			t.Errorf("an option out of range: got %v", err)
		}
		if _, err := pipeline.Refit(context.Background(), filepath.Join(dir, "none"), set, pipeline.RefitOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no file: got %v", err)
		}
		t.Setenv("TMPDIR", filepath.Join(dir, "none"))
		if got, err := pipeline.Refit(context.Background(), file, set, pipeline.RefitOptions{Data: recordings}); got != nil || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no folder for temporary files: got %+v, %v", got, err)
		}
	})
}

// TestFitOfLevelsOfATable: a table of load levels becomes the one run of a folder, with the figures of its rows.
func TestFitOfLevelsOfATable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "levels.csv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms\n"
	write(head + "400,11,1,30,12\n400,11,2,31,13\n")
	o := pipeline.DefaultFitOptions()
	o.Out, o.Prior, o.Budget = t.TempDir(), "roofline", "1ns"
	dep := testkit.Llama8B()
	doc, err := pipeline.FitPoints(context.Background(), []string{name}, dep, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Runs) != 1 || doc.Runs[0].ID != "levels" || len(doc.Inputs) != 1 || doc.Inputs[0].Name != "levels.csv" || len(doc.Requests.Levels) != 2 || !strings.Contains(doc.Command, "--prior roofline") {
		t.Errorf("got %+v of %+v by %q", doc.Runs, doc.Inputs, doc.Command)
	}
	got, err := pipeline.ReadTables(o.Out, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &got.Runs[0]
	if r.ID != "levels" || r.Tables[table.Points] != 2 || r.Records.Read != 2 || r.Records.Kept != 2 || got.Totals.Records.Kept != 2 || got.Totals.Tables[table.Points] != 2 || r.Engine.Model != dep.Model.ID ||
		r.Engine.Hardware != dep.Hardware.Name || r.Engine.TP != dep.TP || r.Engine.VLLMVersion != dep.Engine.VLLMVersion || len(r.TableFiles) != 1 {
		t.Errorf("got %+v", r)
	}
	run, err := table.Read(table.RunDir(o.Out, "levels"))
	if err != nil || len(run.Points) != 2 || run.Points[1].TTFTMs.Or(0) != 31 || run.Points[1].TPOTMs != 13 {
		t.Errorf("got %+v, %v", run, err)
	}
	o.Force = true
	write(head)
	if _, err := pipeline.FitPoints(context.Background(), []string{name}, dep, o); err == nil || !strings.Contains(err.Error(), "got no row, want measured points") {
		t.Errorf("no level: got %v", err)
	}
	write(head + "400,11,1,30,-1\n")
	var at *trace.SyntaxError
	if _, err := pipeline.FitPoints(context.Background(), []string{name}, dep, o); !errors.As(err, &at) || at.File != name {
		t.Errorf("a time below 0: got %v, want the path of its file", err)
	}
	if _, err := pipeline.FitPoints(context.Background(), []string{"none.csv"}, dep, o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	o.Lag = new(int)
	if _, err := pipeline.FitPoints(context.Background(), []string{name}, dep, o); !errors.As(err, new(*option.Misuse)) || !strings.Contains(err.Error(), "lag: goes with") {
		t.Errorf("an option of steps: got %v", err)
	}
}
