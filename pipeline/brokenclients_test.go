package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/trace"
)

// spoiledRun extracts a run of a client whose files a change has spoiled.
func spoiledRun(t *testing.T, rate float64, n int, spoil func(t *testing.T, dir string)) (*result.Extract, string, error) {
	t.Helper()
	parent := t.TempDir()
	dir, dep := chunkRun(t, parent, "r")
	truth, err := fit.LibraryFor(dep)
	if err != nil {
		t.Fatal(err)
	}
	recordChunks(t, dir, dep, truth, rate, n, 0)
	if err := os.Remove(filepath.Join(dir, "trace.itl.csv")); err != nil {
		t.Fatal(err)
	}
	spoil(t, dir)
	eo := DefaultExtractOptions()
	eo.Out, eo.MaxBadFrac = t.TempDir(), 1
	ext, err := Extract(context.Background(), []string{parent}, eo)
	return ext, eo.Out, err
}

// TestTooFewKVBlocks: half the KV blocks that the server had fail the gates of the
// replay, and the diagnosis names the requests that waited for them; all of them pass;
// and of a client that held requests back the replay decides nothing.
func TestTooFewKVBlocks(t *testing.T) {
	for blocks, verdict := range map[int]string{40_000: coeff.VerdictPass, 400: coeff.VerdictFail} {
		ext, out, err := spoiledRun(t, 12, 400, func(t *testing.T, dir string) {
			edited(t, filepath.Join(dir, "run.yaml"), func(s string) string {
				return strings.Replace(s, "kv_blocks_total_gpu: 40000", fmt.Sprintf("kv_blocks_total_gpu: %d", blocks), 1)
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		said := slices.ContainsFunc(ext.Runs[0].Warnings, func(f trace.Finding) bool { return f.Code == "run_contradicted" })
		if said != (verdict == coeff.VerdictFail) {
			t.Errorf("%d blocks: contradicted %v: %v", blocks, said, ext.Runs[0].Warnings)
		}
		fit, err := Fit(context.Background(), out, DefaultFitOptions())
		if err != nil {
			t.Fatal(err)
		}
		judged := func(ext *result.Extract) *result.Validation {
			v, err := ValidateTables(context.Background(), out, ext, fit, validate.DefaultOptions(), result.Header{})
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		v := judged(ext)
		if v.Verdict != verdict || v.For != coeff.PurposeReplay {
			t.Errorf("%d blocks: verdict %s for %s, want %s: %v", blocks, v.Verdict, v.For, verdict, v.Missing)
		}
		if verdict == coeff.VerdictPass {
			ext.Runs[0].Warnings = append(ext.Runs[0].Warnings, trace.Findingf(forms.CodeCapped, "at most 8 in flight"))
			if v := judged(ext); v.Verdict != coeff.VerdictInsufficient {
				t.Errorf("capped client: verdict %s, want that it decides nothing", v.Verdict)
			}
			continue
		}
		if len(v.Diagnoses) != 1 || v.Diagnoses[0].Regime != "requests that waited for KV blocks" {
			t.Errorf("%d blocks: got %+v", blocks, v.Diagnoses)
		}
	}
}

func edited(t *testing.T, path string, change func(text string) string) {
	t.Helper()
	b := repo.Read(t, path)
	repo.Write(t, change(string(b)), path)
}

// TestBrokenClientFiles: what is broken about a client's files has a finding or a
// counted drop of its own.
func TestBrokenClientFiles(t *testing.T) {
	edit := func(name string, change func(text string) string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { edited(t, filepath.Join(dir, name), change) }
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		code  string
	}{
		"nothing":       {func(*testing.T, string) {}, ""},
		"truncated CSV": {edit("trace.csv", func(s string) string { return s[:len(s)-60] }), "unreadable"},
		"ms as us": {func(t *testing.T, dir string) {
			edit("trace.csv", func(s string) string { return strings.ReplaceAll(s, "000000", "") })(t, dir)
			edit("trace.yaml", func(s string) string { return strings.Replace(s, "time_unit: us", "time_unit: ms", 1) })(t, dir)
		}, `time_unit: got "ms", want microseconds`},
		"truncated JSON": {func(t *testing.T, dir string) {
			const cut = `{"load_summary":{"requested_rate":2},"successes":{"count":10,"lat`
			repo.Write(t, cut, dir, "stage_0_lifecycle_metrics.json")
		}, "unknown_client_file"},
		"warm-up missing": {edit("trace.yaml", func(s string) string {
			return strings.Replace(s, "warm_up_requests: 0", "warm_up_requests: 200", 1)
		}), "of the warm-up are not in the file"},
	} {
		ext, _, err := spoiledRun(t, 4, 30, c.spoil)
		var text string
		if err != nil {
			text = err.Error()
		}
		if ext != nil {
			for _, f := range ext.Runs[0].Warnings {
				text += " " + string(f.Code) + ": " + f.Message
			}
			for code := range ext.Runs[0].Records.Dropped {
				text += " " + code
			}
		}
		if !strings.Contains(text, c.code) || c.code == "" && (strings.Contains(text, "unreadable") || strings.Contains(text, "implausible")) {
			t.Errorf("%s: got %q, want %q", name, text, c.code)
		}
	}
}

// TestRefusedFormSaysWhatRemains: where BLIS's terms cannot be written, the error says
// that the fit is.
func TestRefusedFormSaysWhatRemains(t *testing.T) {
	_, out, err := spoiledRun(t, 4, 40, func(*testing.T, string) {})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultFitOptions()
	if _, err := Fit(context.Background(), out, o); err != nil {
		t.Fatal(err)
	}
	edited(t, filepath.Join(out, "fit.json"), func(s string) string { return strings.ReplaceAll(s, `"replay": true`, `"replay": false`) })
	o.Form, o.Out = FormTrained, out
	if err := o.writeForm(context.Background()); trace.CodeOf(err) == "" || !strings.Contains(trace.HintOf(err), "the fit itself is written") {
		t.Errorf("got %v, want a refusal whose hint says that the fit is written", err)
	}
}
