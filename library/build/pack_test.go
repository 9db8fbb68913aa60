package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestEmbeddedRowsAreTheirSources: every row of every eighth published table is in the embedded file, within 0.6 %, and nothing else is.
func TestEmbeddedRowsAreTheirSources(t *testing.T) { embeddedRowsAreTheirSources(t, 8, 200_000) }

// TestEvalEmbeddedRowsAreTheirSources: the same of every table.
func TestEvalEmbeddedRowsAreTheirSources(t *testing.T) {
	repo.NeedEval(t)
	embeddedRowsAreTheirSources(t, 1, 2_000_000)
}

func embeddedRowsAreTheirSources(t *testing.T, every, fewestRows int) {
	t.Helper()
	dirs := []string{repo.Shared(t, "data", "kernels"), repo.Shared(t, "data", "kernels_more")}
	total := 0
	tables := 0
	for _, g := range library.GPUs() {
		for _, of := range g.Tables {
			tables++
			if tables%every != 0 {
				continue
			}
			i := slices.IndexFunc(dirs, func(dir string) bool {
				_, err := os.Stat(filepath.Join(dir, of.Path))
				return err == nil
			})
			if i < 0 {
				t.Errorf("%s: got no source", of.Path)
				continue
			}
			table, err := g.Table(of.Name)
			if err != nil {
				t.Fatal(err)
			}
			total += compareRows(t, table, filepath.Join(dirs[i], of.Path))
		}
	}
	if total < fewestRows {
		t.Errorf("compared %d rows, want at least %d", total, fewestRows)
	}
}

// compareRows compares a table with its source, row by row.
func compareRows(t *testing.T, table *library.Table, path string) int {
	t.Helper()
	c, err := readColumns(path, repo.Read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	var us []float64
	for _, time := range times {
		if v := c.nums[time.column]; v != nil && strings.HasSuffix(table.Name, time.suffix) {
			us = make([]float64, len(v))
			for i := range v {
				us[i] = v[i] * time.us
			}
		}
	}
	seen := 0
	rows := 0
	width := len(table.Columns) - 1
	for i := range table.Series {
		rows += len(table.Series[i].X)
	}
	for i, want := range us {
		var key []int64
		for j := range table.Columns {
			if texts := c.texts[table.Columns[j].Name]; texts != nil {
				key = append(key, table.Columns[j].Word(texts[i]))
			} else {
				key = append(key, c.ints[table.Columns[j].Name][i])
			}
		}
		at, ok := slices.BinarySearchFunc(table.Series, key[:width], func(s library.Series, k []int64) int { return slices.Compare(s.Key, k) })
		if !ok {
			t.Fatalf("%s: row %d is not in the file", path, i+1)
		}
		s := &table.Series[at]
		for j, x := range s.X {
			if got := library.Us(s.Q[j]); x == key[width] && math.Abs(got-want) <= 0.006*want {
				seen++
				break
			}
		}
	}
	if seen != len(us) || rows != len(us) {
		t.Errorf("%s, table %s: %d of %d rows within 0.6 %%, %d rows in the file", path, table.Name, seen, len(us), rows)
	}
	return seen
}

// TestPackedFileIsRead: a folder of tables becomes a file that is read back; what is damaged is said.
func TestPackedFileIsRead(t *testing.T) {
	gpus, err := Pack(context.Background(), []string{filepath.Join("testdata", "systems")}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := gpus[0].Write(&b); err != nil {
		t.Fatal(err)
	}
	g, err := library.Read(b.Bytes(), "mine")
	if err != nil || g.Hardware != "H100-SXM-80GB" || len(g.Tables) != len(gpus[0].Tables) {
		t.Fatalf("got %v, %v", g, err)
	}
	for _, of := range g.Tables {
		table, err := g.Table(of.Name)
		if err != nil {
			t.Fatal(err)
		}
		compareRows(t, table, filepath.Join("testdata", "systems", of.Path))
	}
	for _, cut := range []int{0, 5, 40, b.Len() - 3} {
		if _, err := library.Read(b.Bytes()[:cut], "mine"); trace.CodeOf(err) != library.BadTable {
			t.Errorf("%d bytes: got %v", cut, err)
		}
	}
	spoiled := bytes.Clone(b.Bytes())
	for i := b.Len() - 60; i < b.Len(); i++ {
		spoiled[i] ^= 0x5a
	}
	if g, err := library.Read(spoiled, "mine"); err == nil {
		if _, err = g.Table(g.Tables[len(g.Tables)-1].Name); trace.CodeOf(err) != library.BadTable {
			t.Errorf("a spoiled table: got %v", err)
		}
	}
	if _, err := Pack(context.Background(), []string{"testdata"}, 1); trace.CodeOf(err) != library.NoTables {
		t.Errorf("a folder without datasheets: got %v", err)
	}
}

// TestCopiesCountOnce: rows of one deployment and load with equal values are one measurement; those labelled with DP attention are
// tensor parallel with whole experts.
func TestCopiesCountOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "points.csv")
	text := "id,model,system,weights,engine_version,tp,attention_dp,moe_ep,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms,measured\n" +
		"a,o/m,h100_sxm,bfloat16,0.12.0,4,1,4,1024,128,8,100,10,\nb,o/m,h100_sxm,bfloat16,0.12.0,4,4,16,1024,128,8,100.05,10.001,\n" +
		"c,o/m,h100_sxm,bfloat16,0.12.0,4,1,4,1024,128,8,120,10,\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, _, err := readPoints(path, nil)
	if err != nil || len(got) != 2 || got[0].ep != 4 || got[1].id != "c" {
		t.Errorf("got %d points, %v", len(got), err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(text, ",10,\nb", ",-1,\nb", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err = readPoints(path, nil); err == nil || !strings.Contains(err.Error(), `points.csv:2:1: measured points: tpot_ms: got "-1"`) {
		t.Errorf("got %v", err)
	}
}

// terms is the step of a coefficient set.
type terms struct {
	space *features.Space
	set   *coeff.Set
}

func (s terms) StepUs(batch []trace.Chunk) (float64, error) {
	in := s.space.Sum(batch)
	x := make([]float64, len(s.set.Beta))
	_, err := s.space.Beta(&in, x)
	return s.set.Predict(x), err
}

// forwarded is a model on a GPU whose library set is written.
type forwarded struct {
	model, gpu    string
	tp            int64
	gemm, experts string
	spread        bool // whole experts per GPU
}

// forwardedModels have latent, sparse and windowed attention and experts.
var forwardedModels = []forwarded{{"deepseek-ai/DeepSeek-V3.2", "H200", 8, "fp8_block", "fp8_block", true},
	{"openai/gpt-oss-120b", "H100", 2, "bfloat16", "w4a16_mxfp4", false}, {"moonshotai/Kimi-K2.5", "H200", 8, "bfloat16", "int4_wo", true},
	{"MiniMaxAI/MiniMax-M2.5", "H200", 4, "fp8_block", "fp8_block", false}}

// export writes the pair of the library's set.
func (of *forwarded) export(t *testing.T) (*deploy.Deployment, terms, *export.Output) {
	t.Helper()
	run := filepath.Join(t.TempDir(), "run.yaml")
	repo.Write(t, fmt.Sprintf("model: {id: %s}\nhardware: {name: %s}\ntensor_parallel_size: %d\nvllm: {version: \"0.24.0\", max_num_seqs: "+
		"256, max_num_batched_tokens: 8192, max_model_len: 16384, enable_expert_parallel: %v}", of.model, of.gpu, of.tp, of.spread), run)
	d, err := deploy.LoadRunFile(run)
	if err != nil {
		t.Fatal(err)
	}
	set, err := fit.LibraryFor(d)
	if err != nil {
		t.Fatal(err)
	}
	space, err := features.New(set.SpecVersion, d)
	if err != nil {
		t.Fatal(err)
	}
	step := terms{space, features.On(set, d)}
	src := export.Source{Fit: &result.Fit{Configs: []result.FitConfig{{Key: "k", Label: d.Label(), Deployment: *d}}},
		Step: func(deploy.Deployment) (export.StepTimer, error) { return step, nil }}
	w, opt := Writers()[0], export.Options{}
	if opt.Settings, err = export.ParseSettings(w.Format, w.Settings, nil); err != nil {
		t.Fatal(err)
	}
	out, err := export.Export(src, w, opt)
	if err != nil {
		t.Fatal(err)
	}
	return d, step, out
}

// TestForwardPasses: the pair of a library set is read as written, names the number formats as its reader does, says that it is a model's,
// and gives the step by straight lines between its rows within 1 % on 40 points off its grid.
func TestForwardPasses(t *testing.T) { checkForwardPasses(t, forwardedModels[:2]) }

// TestEvalForwardPasses: the same of other models.
func TestEvalForwardPasses(t *testing.T) {
	repo.NeedEval(t)
	checkForwardPasses(t, forwardedModels[2:])
}

func checkForwardPasses(t *testing.T, models []forwarded) {
	t.Helper()
	for _, of := range models {
		d, step, out := of.export(t)
		if got := out.Files[0].Suffix; got != "/data/"+strings.ToLower(of.gpu)+"_sxm/vllm/0.24.0/fpm_forward_perf.parquet" {
			t.Errorf("got %s", got)
		}
		path := filepath.Join(t.TempDir(), "fpm.parquet")
		repo.Write(t, out.Files[0].Data, path)
		c, err := table.OpenFile[fpmRow](path)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := c.All()
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
		lengths := []int64{0}
		contexts := []int64{}
		for _, r := range rows {
			if ep := r.MoEEP == of.tp && r.MoETP == 1; !strings.HasPrefix(r.CellID, "blis-train-model:") || ep != of.spread || r.GEMM != of.gemm ||
				r.MoE != of.experts {
				t.Fatalf("row %+v", r)
			}
			at[[3]int64{r.Batch, r.PrefillToken, r.KVTokens}] = r.LatencyMs
			if r.Batch == 1 && r.KVTokens == 0 {
				lengths = append(lengths, r.PrefillToken)
			}
			if r.Batch == 7 && r.Kind == "decode" {
				contexts = append(contexts, r.KVTokens)
			}
		}
		if len(at) != len(rows) {
			t.Errorf("%d rows have %d places: the reader refuses the table", len(rows), len(at))
		}
		between := func(grid []int64, v int64) (lo, hi int64, share float64) {
			i, _ := slices.BinarySearch(grid, v)
			return grid[i-1], grid[i], float64(v-grid[i-1]) / float64(grid[i]-grid[i-1])
		}
		// Decodes have a row for every batch and go by a line over context; prompts go by a line over tokens.
		rng := rand.New(rand.NewPCG(7, 7))
		grid := append(fpmGrid(64, 16384), 0)
		worst := 0.0
		for k := range 40 {
			n := 1 + rng.Int64N(256)
			tokens := int64(0)
			context := 2000 + rng.Int64N(contexts[len(contexts)-1]-2000)
			lo, hi, share := between(contexts, context)
			from := [3]int64{n, 0, lo}
			to := [3]int64{n, 0, hi}
			if k%2 == 0 {
				n = 1 + rng.Int64N(8)
				tokens = 50 + rng.Int64N(8000)
				context = grid[rng.IntN(20)]
				lo, hi, share = between(lengths, tokens)
				from = [3]int64{n, lo, context}
				to = [3]int64{n, hi, context}
			}
			if at[from] == 0 || at[to] == 0 {
				t.Fatalf("no row of %v or %v", from, to)
			}
			got := at[from]*(1-share) + at[to]*share
			us, _ := step.StepUs(balancedBatch(n, tokens, context))
			worst = max(worst, math.Abs(got*1e3/us-1))
			if math.Abs(got*1e3/us-1) > 0.01 {
				t.Errorf("%s: %d requests, %d prompt and %d context tokens: got %.1f us between rows, the step is %.1f", of.model, n, tokens,
					context, 1e3*got, us)
			}
		}
		t.Logf("%s: within %.2f %%, %d rows, %d bytes", d.Label(), 100*worst, len(rows), len(out.Files[0].Data))
	}
}

// TestEvalAIConfigurator asks AIConfigurator itself (aiconfigurator 0.12.0 of the Python on PATH): every point within 1 % of the step, but
// prompts behind a context of models with latent attention, for which it has no roofline between rows.
func TestEvalAIConfigurator(t *testing.T) {
	repo.NeedEval(t)
	if err := exec.Command("python3", "-c", "import aiconfigurator").Run(); err != nil {
		t.Skip("no aiconfigurator in python3: pip install aiconfigurator==0.12.0")
	}
	for _, of := range forwardedModels {
		d, step, out := of.export(t)
		root := t.TempDir()
		for _, f := range out.Files[:2] {
			repo.Write(t, f.Data, root, f.Suffix)
		}
		blocks, _, err := d.KVBlocks()
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(11, 7))
		points := ""
		want := []float64{}
		for k := range 30 {
			n := int64(1)
			tokens := 50 + rng.Int64N(8000)
			context := int64(0)
			switch {
			case k%3 == 0:
				n, tokens = 3+rng.Int64N(250), 0
				context = min(200+rng.Int64N(7000), blocks*d.Engine.BlockSize/n-2)
			case k%3 == 1 && d.Model.Layers().Layers[0].Mixer.Kind != model.MLA:
				n, context = 1+rng.Int64N(60), rng.Int64N(4000)
				tokens = 30 + rng.Int64N(8192/n-40)
			}
			us, err := step.StepUs(balancedBatch(n, n*tokens, n*context))
			if err != nil {
				t.Fatal(err)
			}
			points += fmt.Sprintf("%d %d %d\n", n, tokens, context)
			want = append(want, us)
		}
		system := strings.ToLower(of.gpu) + "_sxm"
		cmd := exec.Command("python3", filepath.Join("testdata", "aic.py"), root, of.model, system, fmt.Sprint(of.tp), fmt.Sprint(of.spread))
		cmd.Stdin = strings.NewReader(points)
		cmd.Stderr = os.Stderr
		answer, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		asked, worst := strings.Split(points, "\n"), 0.0
		for i, word := range strings.Fields(string(answer)) {
			ms, err := strconv.ParseFloat(word, 64)
			worst = max(worst, math.Abs(1e3*ms/want[i]-1))
			if err != nil || !(math.Abs(1e3*ms/want[i]-1) <= 0.01) {
				t.Errorf("%s: requests, tokens and context of each %s: got %s ms, the step is %.3f", of.model, asked[i], word, want[i]/1e3)
			}
		}
		fmt.Printf("%s: %d points, within %.2f %%\n", d.Label(), len(want), 100*worst)
	}
}
