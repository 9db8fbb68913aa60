package library

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// curved is a step of a mixture of experts: the experts that the tokens touch, quadratic attention of prompts, and lines.
type curved struct{}

func (curved) StepUs(batch []trace.Chunk) (float64, error) {
	us, tokens := 4000.0, 0.0
	for _, c := range batch {
		tokens += float64(c.New)
		us += 20 + 0.02*float64(c.Computed) + 40*float64(c.New) + 1e-4*float64(c.New)*(float64(c.Computed)+float64(c.New)/2)
	}
	return us + 6000*(1-math.Pow(1-8.0/128, tokens)), nil
}

// TestForwardPasses: the pair is read as written, says that it is a model's, and gives the step by straight lines between its rows
// within 1 % on 20 points off its grid, one set of them with experts spread over ranks.
func TestForwardPasses(t *testing.T) {
	for _, spread := range []bool{false, true} {
		d := testkit.Small(200_000)
		d.Hardware, _ = deploy.Datasheet("H100")
		d.TP, d.DP, d.Model.NumExperts, d.Model.TopK, d.Engine.ExpertParallel = 4, 1, 128, 8, spread
		d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens, d.Engine.VLLMVersion = 256, 8192, "0.24.0"
		src := export.Source{Fit: &result.Fit{Configs: []result.FitConfig{{Key: "k", Label: d.Label(), Deployment: *d}}},
			Step: func(deploy.Deployment) (export.StepTimer, error) { return curved{}, nil }}
		w := Writers()[0]
		opt := export.Options{}
		var err error
		if opt.Settings, err = export.ParseSettings(w.Format, w.Settings, nil); err != nil {
			t.Fatal(err)
		}
		out, err := export.Export(src, w, opt)
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Files[0].Suffix; got != "/data/h100_sxm/vllm/0.24.0/fpm_forward_perf.parquet" {
			t.Errorf("got %s", got)
		}
		path := filepath.Join(t.TempDir(), "fpm.parquet")
		repo.Write(t, out.Files[0].Data, path)
		rows, err := table.ReadFile[fpmRow](path)
		if err != nil {
			t.Fatal(err)
		}
		var meta fpmMetadata
		if err := json.Unmarshal(out.Files[1].Data, &meta); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(out.Files[0].Data)
		if meta.SHA256 != hex.EncodeToString(sum[:]) || meta.Rows != len(rows) || meta.Version != 6 || len(out.Files[0].Data) > 1<<20 {
			t.Errorf("metadata %+v of %d rows, %d bytes", meta, len(rows), len(out.Files[0].Data))
		}
		at := map[[3]int64]float64{}
		var batches, kv []int64
		for _, r := range rows {
			if ep := r.MoEEP == 4 && r.MoETP == 1; !strings.HasPrefix(r.CellID, "blis-train-model:") || ep != spread {
				t.Fatalf("row %+v", r)
			}
			if r.Kind == "decode" {
				at[[3]int64{r.Batch, 0, r.KVTokens}] = r.LatencyMs
				batches, kv = append(batches, r.Batch), append(kv, r.KVTokens)
			} else {
				at[[3]int64{r.Batch, r.PrefillToken, r.KVTokens}] = r.LatencyMs
			}
		}
		slices.Sort(batches)
		slices.Sort(kv)
		batches, kv = slices.Compact(batches), slices.Compact(kv)
		between := func(grid []int64, v int64) (lo, hi int64, share float64) {
			i, found := slices.BinarySearch(grid, v)
			if found {
				return v, v, 0
			}
			return grid[i-1], grid[i], float64(v-grid[i-1]) / float64(grid[i]-grid[i-1])
		}
		rng := rand.New(rand.NewPCG(7, 7))
		for range 20 {
			n, context := 3+rng.Int64N(250), 2000+rng.Int64N(150_000)
			tokens := int64(0)
			grid := []int64{0}
			if rng.IntN(2) == 0 {
				n, context, tokens, grid = 1, 0, 50+rng.Int64N(8000), fpmGrid(8192)
			}
			a, b, x := between(batches, n)
			e, f, y := between(append([]int64{0}, kv...), context)
			g, h, z := between(grid, tokens)
			got := 0.0
			for i, n := range []int64{a, b} {
				for j, c := range []int64{e, f} {
					for k, p := range []int64{g, h} {
						ms, ok := at[[3]int64{n, p, c}]
						if !ok {
							t.Fatalf("no row of %d requests, %d and %d tokens", n, p, c)
						}
						got += ms * []float64{1 - x, x}[i] * []float64{1 - y, y}[j] * []float64{1 - z, z}[k]
					}
				}
			}
			us, _ := curved{}.StepUs(balanced(n, tokens, context))
			if math.Abs(got*1e3/us-1) > 0.01 {
				t.Errorf("%d requests, %d prompt and %d context tokens: got %.1f us between rows, the step is %.1f", n, tokens, context, 1e3*got, us)
			}
		}
	}
}
