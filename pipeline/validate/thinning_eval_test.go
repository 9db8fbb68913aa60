package validate_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/reconstruct/logged"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// stream is one stream of a recording, and how a share of it is lost. thin reports whether there is any.
type stream struct {
	name string
	thin func(r *trace.Run, share float64, seed uint64) bool
	save func(dir string, r *trace.Run) error
}

// someOf calls lose for a share of the requests.
func someOf(requests []trace.Request, share float64, seed uint64, lose func(*trace.Request)) {
	rng := rand.New(rand.NewPCG(seed, 11))
	for i := range requests {
		if rng.Float64() < share {
			lose(&requests[i])
		}
	}
}

// streams are the seven of a recording.
func streams() []stream {
	saveRequests := func(dir string, r *trace.Run) error {
		// in the order of the table: by arrival, then pick-up, unknown ones last
		orLast := func(at trace.Opt[int64]) int64 { return at.Or(math.MaxInt64) }
		slices.SortStableFunc(r.Requests, func(a, b trace.Request) int {
			return cmp.Or(cmp.Compare(orLast(a.ArrivedNs), orLast(b.ArrivedNs)), cmp.Compare(orLast(a.QueuedNs), orLast(b.QueuedNs)))
		})
		return table.Write(dir, table.Requests, table.Parquet, r.Requests)
	}
	return []stream{
		{"journeys", func(r *trace.Run, share float64, seed uint64) bool {
			// a lost core span leaves the API span alone
			someOf(r.Requests, share, seed, loseCore)
			return slices.ContainsFunc(r.Requests, func(q trace.Request) bool { return q.CoreID.OK })
		}, saveRequests},
		{"API spans", func(r *trace.Run, share float64, seed uint64) bool {
			if len(r.Requests) > 0 && r.Requests[0].Source == trace.SourceStock {
				r.Requests = thinned(r.Requests, share, seed)
				return true
			}
			had := slices.ContainsFunc(r.Requests, func(q trace.Request) bool { return q.APIID.OK && q.CoreID.OK })
			someOf(r.Requests, share, seed, loseAPI)
			return had
		}, saveRequests},
		{"steps", func(r *trace.Run, share float64, seed uint64) bool {
			had := len(r.Steps) > 0
			r.Steps = thinned(r.Steps, share, seed)
			return had
		}, func(dir string, r *trace.Run) error { return table.Write(dir, table.Steps, table.Parquet, r.Steps) }},
		{"snapshots", func(r *trace.Run, share float64, seed uint64) bool {
			had := len(r.Snapshots) > 0
			r.Snapshots = thinned(r.Snapshots, share, seed)
			return had
		}, func(dir string, r *trace.Run) error {
			return table.Write(dir, table.Snapshots, table.Parquet, r.Snapshots)
		}},
		{"KV events", func(r *trace.Run, share float64, seed uint64) bool {
			had := len(r.KVEvents) > 0
			r.KVEvents = thinned(r.KVEvents, share, seed)
			return had
		}, func(dir string, r *trace.Run) error {
			return table.Write(dir, table.KVEvents, table.Parquet, r.KVEvents)
		}},
		{"clients", func(r *trace.Run, share float64, seed uint64) bool {
			had := len(r.Observed) > 0
			r.Observed = thinned(r.Observed, share, seed)
			return had
		}, func(dir string, r *trace.Run) error {
			return table.Write(dir, table.ObservedRequests, table.Parquet, r.Observed)
		}},
		{"passes", func(r *trace.Run, share float64, seed uint64) bool {
			had := len(r.Iterations) > 0
			r.Iterations = thinned(r.Iterations, share, seed)
			return had
		}, func(dir string, r *trace.Run) error {
			return table.Write(dir, table.Iterations, table.Parquet, r.Iterations)
		}},
	}
}

// verdictsOf fits and validates an extracted folder of one run as `run` does: the verdict by purpose over
// everything. A folder that cannot be fitted has none.
func verdictsOf(t *testing.T, out string) map[string]string {
	t.Helper()
	o := pipeline.DefaultFitOptions()
	o.Out = out
	if _, err := pipeline.Fit(context.Background(), out, o); err != nil {
		t.Logf("%s: %v", filepath.Base(out), err)
		return nil
	}
	v, _, err := pipeline.Validate(context.Background(), out, pipeline.DefaultValidateOptions())
	if err != nil {
		t.Logf("%s: %v", out, err)
		return nil
	}
	verdicts := map[string]string{}
	for _, purpose := range coeff.Purposes {
		verdicts[purpose] = v.VerdictFor(purpose, coeff.ScopeAll).Verdict
	}
	return verdicts
}

// TestEvalThinning loses 5, 10, 30 and 70 % of each stream at random, ten times each. No draw turns a purpose
// that failed, or had too little data, into a pass. A draw whose loss an identity counts against all such
// purposes needs no fit: the gate of the identity leaves no pass (TestLossIsInsufficient).
func TestEvalThinning(t *testing.T) {
	repo.NeedEval(t)
	root := filepath.Join(repo.Root(t), "testdata", "traces")
	data := repo.Shared(t, "data")
	seeds := uint64(10)
	if s := os.Getenv("BLIS_TRAIN_EVAL_SEEDS"); s != "" {
		fmt.Sscan(s, &seeds)
	}
	for _, in := range []string{
		filepath.Join(root, "smoke"),
		filepath.Join(root, "demo", "b200-llama-3.1-8b-tp1"),
		filepath.Join(root, "real", "gqa-low"),
		filepath.Join(root, "stock"),
		filepath.Join(data, "composed", "h100-llama-3.1-8b-tp1"),
		filepath.Join(data, "real_stock_otlp", "jan20-codellama-train-1"),
	} {
		if only := os.Getenv("BLIS_TRAIN_EVAL_ONLY"); only != "" && !strings.Contains(in, only) {
			continue
		}
		thinRecording(t, in, seeds)
	}
}

// thinRecording thins the streams of one recording.
func thinRecording(t *testing.T, in string, seeds uint64) {
	t.Helper()
	runs, err := extract.Discover([]string{in})
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	ext, err := extract.Run(context.Background(), runs, o)
	if err != nil {
		t.Fatal(err)
	}
	ext.Runs[0].Warnings = slices.DeleteFunc(ext.Runs[0].Warnings, func(f trace.Finding) bool { return f.Code == "capped_client" })
	r := &ext.Runs[0]
	if err := folder.WriteDocument(filepath.Join(o.Out, folder.ExtractFile), ext); err != nil {
		t.Fatal(err)
	}
	base := verdictsOf(t, o.Out)
	var weak []string // purposes that do not pass
	for _, purpose := range coeff.Purposes {
		if v := base[purpose]; v == coeff.VerdictFail || v == coeff.VerdictInsufficient {
			weak = append(weak, purpose)
		}
	}
	read := func() *trace.Run {
		run, err := table.ReadLean(table.RunDir(o.Out, r.ID))
		if err != nil {
			t.Fatal(err)
		}
		if err := run.EachSnapshot(func(s *trace.Snapshot) {
			c := *s
			c.CoreID = strings.Clone(c.CoreID)
			run.Snapshots = append(run.Snapshots, c)
		}); err != nil {
			t.Fatal(err)
		}
		run.Stored = nil
		return run
	}
	for _, s := range streams() {
		draws, counted, fitted, refused := 0, 0, 0, 0
		for _, share := range []float64{0.05, 0.1, 0.3, 0.7} {
			for seed := range seeds {
				run := read()
				if !s.thin(run, share, seed) {
					continue
				}
				draws++
				thin := *run
				dep := *r.Deployment
				err := logged.Fill(run, &dep)
				var got result.InspectRun
				if err == nil {
					got, err = validate.Inspect(run, &dep, validate.Inspection{Extract: r})
				}
				if err == nil && allHarmed(&got, weak) {
					counted++
					continue
				}
				fitted++
				out := filepath.Join(t.TempDir(), "out")
				if err := os.CopyFS(out, os.DirFS(o.Out)); err != nil {
					t.Fatal(err)
				}
				if err := s.save(table.RunDir(out, r.ID), &thin); err != nil {
					t.Fatal(err)
				}
				if err := countRows(ext, &thin, out); err != nil {
					t.Fatal(err)
				}
				now := verdictsOf(t, out)
				if now == nil {
					refused++
				}
				for _, purpose := range weak {
					if now[purpose] == coeff.VerdictPass {
						t.Errorf("%s: %.0f %% of the %s lost, seed %d: %s was %s and passes", r.ID, 100*share, s.name, seed, purpose, base[purpose])
					}
				}
				os.RemoveAll(out)
			}
		}
		if draws > 0 {
			t.Logf("%s (%v): %s: %d draws, the loss counted against %v in %d, fitted and validated %d, of which %d could not be fitted", r.ID,
				base, s.name, draws, weak, counted, fitted, refused)
		}
	}
}

// countRows writes extract.json of a folder of one thinned run.
func countRows(ext *result.Extract, run *trace.Run, out string) error {
	doc := *ext
	doc.Runs = slices.Clone(ext.Runs)
	r := &doc.Runs[0]
	r.TableFiles = nil
	r.Tables = maps.Clone(r.Tables)
	for name, n := range map[string]int{
		table.Requests:         len(run.Requests),
		table.Steps:            len(run.Steps),
		table.Snapshots:        len(run.Snapshots),
		table.KVEvents:         len(run.KVEvents),
		table.ObservedRequests: len(run.Observed),
		table.Iterations:       len(run.Iterations),
	} {
		if _, known := r.Tables[name]; known {
			r.Tables[name] = int64(n)
		}
	}
	return folder.WriteDocument(filepath.Join(out, folder.ExtractFile), &doc)
}

// allHarmed reports whether violated identities leave none of the purposes a pass.
func allHarmed(r *result.InspectRun, purposes []string) bool {
	for _, use := range r.Usable {
		if slices.Contains(purposes, use.Purpose) && use.Status == result.UseAllowed {
			return false
		}
	}
	return true
}
