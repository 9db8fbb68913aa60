package clients

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// sglangResult is a line of SGLang's bench_serving, with the figures of single requests.
const sglangResult = `{"backend": "sglang", "dataset_name": "random", "request_rate": Infinity, "max_concurrency": 2, "duration": 1.5, ` +
	`"completed": 2, "total_input_tokens": 30, "total_output_tokens": 6, "total_output_tokens_retokenized": 7, "request_throughput": 1.33, ` +
	`"mean_e2e_latency_ms": 150.0, "mean_ttft_ms": 100.0, "median_ttft_ms": 100.0, "mean_tpot_ms": 25.0, "accept_length": NaN`

const sglangDetails = `, "input_lens": [10, 20], "output_lens": [3, 3], "ttfts": [0.1, 0.1], "itls": [[0.02, 0.03], [0.03, 0.02]], ` +
	`"generated_texts": ["NaN \"", "-Infinity"], "errors": ["", ""]}`

// TestAppendedResults: every result that was appended to a file is read, as a load or a level of
// its own, with the numbers that Python writes and JSON does not have; a cut one is a drop.
func TestAppendedResults(t *testing.T) {
	whole := sglangResult + sglangDetails
	c := readFiles(t, map[string]string{"run.jsonl": whole + "\n" + whole + "\n" + whole})
	if len(c.Requests) != 6 || c.Acc.Read != 6 || c.Requests[0].ID != "run-0" || c.Requests[5].ID != "run.3-1" || c.Requests[5].Line != 3 {
		t.Fatalf("got %d rows of %d: %+v", len(c.Requests), c.Acc.Read, c.Requests)
	}
	if r := c.Requests[3]; r.PromptTokens.V != 20 || r.TTFTUs.V != 1e5 || len(r.ChunkGapsUs) != 2 {
		t.Errorf("got %+v", r)
	}
	c = readFiles(t, map[string]string{"run.jsonl": whole + "\n" + whole[:len(whole)-60]})
	if len(c.Requests) != 2 || c.Acc.Dropped["file_cut"] != 1 {
		t.Errorf("got %d rows, dropped %v, want 2 and the cut result", len(c.Requests), c.Acc.Dropped)
	}
	c = readFiles(t, map[string]string{"run.jsonl": sglangResult + "}\n" + strings.Replace(sglangResult, "1.33", "1.34", 1) + "}\n"})
	if len(c.Points) != 2 || c.Points[1].Line != 2 || c.Points[0].E2EMs.V != 150 || c.Points[1].Clients.V != 2 || c.Points[1].TPOTMs != 25 {
		t.Errorf("got %+v, want two levels", c.Points)
	}
}

// TestPythonNumbers: what is no JSON becomes null outside texts, however the bytes arrive.
func TestPythonNumbers(t *testing.T) {
	const text = `{"a":NaN,"b":[-Infinity,Infinity,-1,-2.5e-3,null],"c":"NaN -Infinity \" Infinity","N":"\\"}`
	want := `{"a":null,"b":[null,null,-1,-2.5e-3,null],"c":"NaN -Infinity \" Infinity","N":"\\"}`
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text))} {
		got, err := io.ReadAll(&pythonJSON{r: bufio.NewReader(r)})
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
}

// TestBrokenResults: of sixty variants of a result with something missing, changed or cut, each is
// a counted drop or an error that names the file, or its figures are in their ranges.
func TestBrokenResults(t *testing.T) {
	rng := rand.New(rand.NewPCG(39, 7))
	faults := 0
	dir := t.TempDir()
	whole := sglangResult + sglangDetails
	lists := []string{`"input_lens": [10, 20]`, `"output_lens": [3, 3]`, `"ttfts": [0.1, 0.1]`, `"itls": [[0.02, 0.03], [0.03, 0.02]]`}
	for k := range 60 {
		text, at := whole, 1+rng.IntN(len(whole)-2)
		switch key, _, _ := strings.Cut(lists[k/6%4], ":"); k % 6 {
		case 0:
			text = text[:200+k*3]
		case 1:
			text = strings.Replace(text, lists[k/6%4], key+": [1]", 1)
		case 2:
			text = strings.Replace(text, lists[k/6%4], key+`: ["x", 1]`, 1)
		case 3:
			text = strings.Replace(text, lists[k/6%4], key+`: [1e300, 1e300]`, 1)
		case 4:
			text = strings.Replace(text, lists[k/6%4], `"x`+key[1:]+": 1", 1)
		case 5:
			text = text[:at] + []string{"{", "]", "\x00", ",", "}"}[k/6%5] + text[at:]
		}
		c := &Reader{Acc: source.NewAccount(nil)}
		repo.Write(t, text, dir, "run.jsonl")
		in := source.Input{Path: filepath.Join(dir, "run.jsonl"), Name: "run.jsonl"}
		err := c.ReadFile(&in, source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}})
		if c.dropRepeatedPoints(); err != nil {
			if faults++; !strings.Contains(fmt.Sprint(err), "run.jsonl") {
				t.Errorf("%d: %v names no file", k, err)
			}
			continue
		}
		dropped := int64(0)
		for _, n := range c.Acc.Dropped {
			dropped += n
		}
		if kept := int64(len(c.Requests) + len(c.Points)); c.Acc.Read != kept+dropped {
			t.Errorf("%d: read %d, kept %d, dropped %d of %s", k, c.Acc.Read, kept, dropped, text)
		}
		faults += min(1, int(dropped))
	}
	if faults < 40 {
		t.Errorf("%d of 60 broken results are faults, want at least 40", faults)
	}
}

const benchText = `{"completed": 2, "total_input_tokens": 3, "input_lens": [10, 20], "output_lens": [3, 1], "ttfts": [0.5, 0.25], "itls": [[0.1, 0.2], []],
"start_times": [100.0, 100.5], "errors": ["", "boom"], "max_concurrency": 4}`

// TestBenchWithoutGaps: a result whose gaps were removed still has TTFT and E2E; without E2E it has nothing to replay.
func TestBenchWithoutGaps(t *testing.T) {
	text := strings.Replace(benchText, `"itls": [[0.1, 0.2], []],`, `"latencies": [0.7, 0.25],`, 1)
	c := readFiles(t, map[string]string{"bench.json": text})
	if len(c.Requests) != 2 {
		t.Fatalf("got %d requests, dropped %v", len(c.Requests), c.Acc.Dropped)
	}
	if r := c.Requests[0]; r.TTFTUs.V != 5e5 || r.E2EUs.V != 7e5 || len(r.ChunkGapsUs) != 0 || r.OutputTokens.V != 3 {
		t.Errorf("got %+v, want a TTFT of 0.5 s, an E2E of 0.7 s and no gaps", r)
	}
}

// TestBenchLists: lists that do not belong together are refused with their sizes.
func TestBenchLists(t *testing.T) {
	for from, want := range map[string]string{
		"":                 "",
		`[3, 1]`:           "got 1 output_lens for 2 input_lens",
		`[0.5, 0.25]`:      "got 1 ttfts for 2 input_lens",
		`[[0.1, 0.2], []]`: "got 1 itls for 2 input_lens",
		`["", "boom"]`:     "got 1 errors for 2 input_lens",
	} {
		text := benchText
		if from != "" {
			first, _, _ := strings.Cut(from, ", ")
			if strings.HasPrefix(from, "[[") {
				first = "[[0.1]"
			}
			text = strings.Replace(text, from, first+"]", 1)
		}
		_, err := readBenchResult(walker{dec: json.NewDecoder(strings.NewReader(text))})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", from, err, want)
		}
	}
}

// FuzzBench: no text panics the reader of vllm bench results.
func FuzzBench(f *testing.F) {
	f.Add(benchText)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := readBenchResult(walker{dec: json.NewDecoder(strings.NewReader(text))})
		if err != nil {
			return
		}
		for i := range b.inputs {
			if r := b.request(i); !r.PromptTokens.OK || !r.Success.OK {
				t.Errorf("got %+v", r)
			}
		}
	})
}
