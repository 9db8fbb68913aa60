package clients

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// guideLLMEnv names a checkout of llm-inferno/model-trainer (Apache-2.0), whose
// experiments hold GuideLLM's own files.
const guideLLMEnv = "BLIS_TRAIN_GUIDELLM"

func readFile(t *testing.T, path string) *LevelFile {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := ReadLevels(r, filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for _, n := range f.Dropped {
		dropped += n
	}
	if f.Read != len(f.Levels)+dropped {
		t.Errorf("%s: %d read, %d kept, %v dropped", path, f.Read, len(f.Levels), f.Dropped)
	}
	return f
}

// TestPublishedSweeps reads the 32 files of two published sweeps. The CSV files of
// the second do not agree with their headers; the HTML reports of the same runs have
// the right values.
func TestPublishedSweeps(t *testing.T) {
	root := os.Getenv(guideLLMEnv)
	if root == "" {
		t.Skipf("%s is not set: no checkout of llm-inferno/model-trainer to read", guideLLMEnv)
	}
	one, _ := filepath.Glob(filepath.Join(root, "experiments/exp1/data/*.json"))
	two, _ := filepath.Glob(filepath.Join(root, "experiments/exp2/raw/*/benchmarks.csv"))
	if len(one) != 16 || len(two) != 16 {
		t.Fatalf("%s: got %d and %d files, want 16 of each", root, len(one), len(two))
	}
	var first, second []Level
	for _, path := range one {
		first = append(first, readFile(t, path).Levels...)
	}
	sameAsCommitted(t, "llama-3.1-8b.csv", first)
	repaired := 0
	for _, path := range two {
		f := readFile(t, path)
		second = append(second, f.Levels...)
		want := reportOf(t, filepath.Join(filepath.Dir(path), "benchmarks.html"))
		if len(f.Levels) != len(want) {
			t.Errorf("%s: got %d points, %v dropped, want %d: %v", path, len(f.Levels), f.Dropped, len(want), f.Findings)
			continue
		}
		for i, p := range f.Levels {
			if p.Realigned {
				repaired++
			}
			w := want[i]
			for _, x := range []struct {
				name      string
				got, want float64
			}{{"rate", p.RateRPS, w.RPS}, {"ttft", p.TTFTMeanMs, w.TTFT.Mean}, {"ttft median", p.TTFTMedianMs, w.TTFT.Median},
				{"itl", p.ITLMs, w.ITL.Mean}} {
				if math.Abs(x.got/x.want-1) > 1e-9 {
					t.Errorf("%s: benchmark %d, %s: got %g, want %g", path, i+1, x.name, x.got, x.want)
				}
			}
		}
	}
	sameAsCommitted(t, "qwen2.5-14b.csv", second)
	t.Logf("second sweep: %d points of %d files, %d put right, all equal to the HTML reports", len(second), len(two), repaired)
}

// sameAsCommitted compares points with a table of testdata/sweeps.
func sameAsCommitted(t *testing.T, name string, points []Level) {
	t.Helper()
	table := readFile(t, filepath.Join("../../../testdata/sweeps", name)).Levels
	if len(points) != 160 || len(table) != 160 {
		t.Fatalf("%s: got %d points and %d rows, want 160", name, len(points), len(table))
	}
	for i := range table {
		a, b := &points[i], &table[i]
		got := []float64{float64(a.Requests), a.RateRPS, a.Concurrency, a.PromptTokens, a.PromptSD, a.OutputTokens, a.OutputSD, a.TTFTMeanMs,
			a.TTFTMedianMs, a.ITLMs}
		want := []float64{float64(b.Requests), b.RateRPS, b.Concurrency, b.PromptTokens, b.PromptSD, b.OutputTokens, b.OutputSD, b.TTFTMeanMs,
			b.TTFTMedianMs, b.ITLMs}
		for k := range got {
			if math.Abs(got[k]-want[k]) > 1e-6*math.Abs(want[k]) {
				t.Errorf("%s: row %d, number %d: the source has %g, the table %g", name, i+1, k+1, got[k], want[k])
			}
		}
	}
}

type htmlBenchmark struct {
	ITL  struct{ Mean float64 }         `json:"itl"`
	TTFT struct{ Mean, Median float64 } `json:"ttft"`
	RPS  float64                        `json:"requestsPerSecond"`
}

// reportOf takes the benchmarks out of GuideLLM's HTML report.
func reportOf(t *testing.T, path string) []htmlBenchmark {
	t.Helper()
	data := repo.Read(t, path)
	at := regexp.MustCompile(`window\.benchmarks\s*=\s*`).FindIndex(data)
	if at == nil {
		t.Fatalf("%s: no benchmarks", path)
	}
	var out []htmlBenchmark
	if err := json.NewDecoder(strings.NewReader(string(data[at[1]:]))).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// flatJSON is GuideLLM v0.3's CSV as JSON objects, with the ownColumns that are read.
const flatJSON = `[
 {"Name": "synchronous", "Successful Requests": 54, "Successful Requests per second mean": 0.15, "Successful Request concurrency mean": 1,
  "Successful Prompt token count mean": 960, "Successful Prompt token count std dev": 272, "Successful Output token count mean": 974,
	"Successful Output token count std dev": 299,
  "Successful Time to first token ms mean": 35.7, "Successful Time to first token ms median": 36.3,
	"Successful Inter token latency ms mean": 6.76},
 {"Name": "constant@2.00", "Successful Requests": 0, "Successful Requests per second mean": 0}]`

// report03 is a report of v0.3, report06 of v0.6, with the keys that are read.
const report03 = `{"benchmarks": [{"args": {"strategy": {"type_": "constant", "rate": 2.5}}, "metrics": {
 "requests_per_second": {"successful": {"mean": 2.4, "median": 2.3, "std_dev": 0.1}}, "request_concurrency": {"successful": {"mean": 0.87}},
 "prompt_token_count": {"successful": {"mean": 100, "std_dev": 5}}, "output_token_count": {"successful": {"mean": 50, "std_dev": 2}},
 "time_to_first_token_ms": {"successful": {"mean": 20, "median": 18}}, "inter_token_latency_ms": {"successful": {"mean": 7}}},
 "request_totals": {"successful": 144}}]}`

const report06 = `{"benchmarks": [{"config": {"strategy": {"type_": "poisson", "rate": 4}}, "metrics": {"request_totals": {"successful": 9},
 "requests_per_second": {"successful": {"mean": 3.9}}, "prompt_token_count": {"successful": {"mean": 10}},
	"output_token_count": {"successful": {"mean": 5}},
 "time_to_first_token_ms": {"successful": {"mean": 20, "median": 18}}, "inter_token_latency_ms": {"successful": {"mean": 7}}}}]}`

func TestForms(t *testing.T) {
	table := strings.Join(ownColumns, ",") + "\ns1,constant,100,2.4,0.87,100,5,50,2,20,18,7\n"
	for _, c := range []struct {
		name, text, strategy string
		points               int
		rate                 float64
	}{
		{"flat.json", flatJSON, "synchronous", 1, 0.15}, {"v03.json", report03, "constant@2.5", 1, 2.4},
		{"v06.json", report06, "poisson@4", 1, 3.9}, {"points.csv", table, "constant", 1, 2.4},
	} {
		f, err := ReadLevels(strings.NewReader(c.text), c.name)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(f.Levels) != c.points || f.Levels[0].Strategy != c.strategy || f.Levels[0].RateRPS != c.rate || f.Levels[0].TTFTMedianMs == 0 {
			t.Errorf("%s: got %+v", c.name, f)
		}
	}
	f, _ := ReadLevels(strings.NewReader(flatJSON), "flat.json")
	if f.Read != 2 || f.Dropped[codeIncomplete] != 1 || len(f.Findings) != 1 {
		t.Errorf("an empty benchmark: got %+v, want it dropped and counted", f)
	}
}

// crookedCSV makes a three-row CSV as GuideLLM before v0.7.0 did: the header of a
// first benchmark without failures over a row with incomplete and errored requests.
func crookedCSV(lie bool) string {
	group := func(name, unit string) [][3]string {
		var out [][3]string
		for _, s := range []string{"Mean", "Median", "Std Dev", "Percentiles"} {
			out = append(out, [3]string{name, "Successful " + unit, s})
		}
		return out
	}
	ownColumns := [][3]string{{"Benchmark", "Strategy", ""}, {"Timings", "Duration", "Sec"}, {"Request Counts", "Successful", ""},
		{"Request Counts", "Incomplete", ""}, {"Request Counts", "Errored", ""}, {"Request Counts", "Total", ""}}
	for _, g := range [][2]string{{"Request Latency", "Sec"}, {"Streaming Iterations", "Count"}, {"Time to First Token", "ms"},
		{"Time per Output Token", "ms"}, {"Inter Token Latency", "ms"},
		{"Server Throughput", "Requests/Sec"}, {"Server Throughput", "Concurrency"}, {"Token Metrics", "Input Tokens"},
		{"Token Metrics", "Output Tokens"}, {"Token Metrics", "Total Tokens"}} {
		ownColumns = append(ownColumns, group(g[0], g[1])...)
	}
	var b strings.Builder
	for line := range 3 {
		for k, c := range ownColumns {
			if k > 0 {
				b.WriteByte(',')
			}
			b.WriteString(c[line])
		}
		b.WriteByte('\n')
	}
	stat := func(mean string) string { return mean + "," + mean + ",1,\"[0, 1]\"" }
	// latency 0.52 s = TTFT 30 ms + 49 x 10 ms; 120 requests in 60 s
	first := []string{"constant", "60", "120", "0", "0", "120", stat("0.52"), stat("50"), stat("30"), stat("9.8"), stat("10"), stat("2"),
		stat("1.04"), stat("80"), stat("50"), stat("130")}
	itl := "10"
	if lie {
		itl = "15"
	}
	second := []string{"constant", "60", "120", "3", "1", "124", stat("0.52"), stat("50"), stat("48"), stat("30"), stat("29"), stat("10.4"),
		stat("12"), stat(itl), stat("12.5"),
		stat("2"), stat("0.05"), stat("1.04"), stat("0.03"), stat("80"), stat("81"), stat("82"), stat("50"), stat("20"), stat("130"), stat("101"),
		stat("82")}
	b.WriteString(strings.Join(first, ",") + "\n" + strings.Join(second, ",") + "\n")
	return b.String()
}

func TestRealign(t *testing.T) {
	f, err := ReadLevels(strings.NewReader(crookedCSV(false)), "b.csv")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Levels) != 2 || f.Levels[0].Realigned || !f.Levels[1].Realigned || len(f.Findings) != 1 || f.Findings[0].Code != CodeClientFile {
		t.Fatalf("got %+v", f)
	}
	a, b := f.Levels[0], f.Levels[1]
	b.Realigned = false
	if a != b {
		t.Errorf("got %+v, want %+v", b, a)
	}
	f, err = ReadLevels(strings.NewReader(crookedCSV(true)), "b.csv")
	if err != nil || len(f.Levels) != 1 || f.Dropped[codeIncomplete] != 1 {
		t.Errorf("latencies that do not agree: got %+v, %v, want the row dropped", f, err)
	}
}

func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "empty file",
		"[1, 2":                    "b:1",
		"{\"benchmarks\": []}":     "no benchmark",
		"a,b\n1,2\n":               "got columns",
		"{\n\"benchmarks\": [3]\n": "b",
		"rate_rps,\"x\n":           "b:",
	} {
		_, err := ReadLevels(strings.NewReader(text), "b")
		var syntax *trace.SyntaxError
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q (%T)", text, err, want, syntax)
		}
	}
}

// FuzzRead: no panic, and every benchmark is kept or dropped.
func FuzzRead(f *testing.F) {
	for _, s := range []string{flatJSON, report03, report06, crookedCSV(false), crookedCSV(true), strings.Join(ownColumns, ",") + "\n1,2,3\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ReadLevels(strings.NewReader(string(data)), "f")
		if err != nil {
			return
		}
		dropped := 0
		for _, n := range got.Dropped {
			dropped += n
		}
		if got.Read != len(got.Levels)+dropped {
			t.Errorf("%d read, %d kept, %v dropped", got.Read, len(got.Levels), got.Dropped)
		}
	})
}
