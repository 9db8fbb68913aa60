package extract

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// formatsEnv moves the folder of collector formats.
const formatsEnv = "BLIS_TRAIN_COLLECTOR_FORMATS"

// formatsDir is the folder of collector formats, or a skip.
func formatsDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(formatsEnv); dir != "" {
		return dir
	}
	return repo.Shared(t, "data", "collector_formats")
}

// maxCoreIDs is how many request ids expected.json lists at most.
const maxCoreIDs = 40

// content is what expected.json states about a dump.
type content struct {
	Spans       map[string]int64  `json:"spans_per_scope"`
	Events      map[string]int64  `json:"events_per_scope_and_name"`
	Dropped     *int64            `json:"dropped_events"`
	StepIDs     []int64           `json:"batch_summary_step_ids"`
	Prefill     *int64            `json:"sum_batch_prefill_tokens"`
	TsStart     json.Number       `json:"sum_step_ts_start_ns"`
	Journey     json.Number       `json:"sum_journey_ts_monotonic_ns"`
	Usage       *float64          `json:"sum_kv_usage_gpu_ratio"`
	CoreIDs     []string          `json:"core_request_ids"`
	Models      map[string]int64  `json:"api_models"`
	EdgeInts    map[string]string `json:"edge_ints"`
	EdgeDoubles map[string]any    `json:"edge_doubles"`
	EdgeStrings map[string]string `json:"edge_strings"`
	AbortErrors map[string]int64  `json:"abort_errors"`
}

// dumpDir is a run of dumps without a description.
func dumpDir(files ...string) RunDir {
	return RunDir{ID: "dump", Dir: filepath.Dir(files[0]), Folder: ".", Deployment: &deploy.Deployment{Name: "dump"}, Files: files}
}

// dumpRun extracts files as one run; err is the error of Run.
func dumpRun(t testing.TB, files []string, change func(*Options)) (*result.Extract, []*trace.Run, error) {
	t.Helper()
	var in []string
	in = append(in, files...)
	o := DefaultOptions()
	o.Out = t.TempDir()
	o.MaxBadFrac = 1
	o.Workers = 2
	if change != nil {
		change(&o)
	}
	runs := []RunDir{dumpDir(in...)}
	doc, err := Run(context.Background(), runs, o)
	if doc == nil {
		return nil, nil, err
	}
	tables, rerr := readAll(o.Out)
	if rerr != nil {
		t.Fatal(rerr)
	}
	return doc, tables, err
}

// spanCounts are the counts of spans and events by scope as extract.json has them.
func spanCounts(doc *result.Extract) (spans, events map[string]int64) {
	spans = map[string]int64{}
	events = map[string]int64{}
	for _, r := range doc.Runs {
		for _, s := range r.Scopes {
			if s.Event == "" {
				spans[s.Scope] += s.Count
			} else {
				events[s.Scope+" "+s.Event] += s.Count
			}
		}
	}
	return spans, events
}

// checkTables compares the exact values that expected.json states with the tables.
func checkTables(t *testing.T, want content, runs ...*trace.Run) {
	t.Helper()
	got := content{}
	var prefill, tsStart, journey int64
	var usage float64
	var dropped int64
	got.Models = map[string]int64{}
	for _, run := range runs {
		for _, s := range run.Steps {
			got.StepIDs = append(got.StepIDs, s.ID)
			prefill += int64(s.PrefillTokens)
			tsStart += s.TsStartNs
			usage += s.KVUsage
		}
		for _, e := range run.Events {
			journey += e.TsNs.V
		}
		seen := map[string]bool{}
		for _, r := range run.Requests {
			dropped += r.DroppedEvents
			if r.CoreID.OK {
				got.CoreIDs = append(got.CoreIDs, r.CoreID.V)
			}
			if r.APISpanID.OK && !seen[r.APISpanID.V] && r.Model.OK {
				seen[r.APISpanID.V] = true
				got.Models[r.Model.V]++
			}
		}
	}
	if want.StepIDs != nil {
		sort.Slice(got.StepIDs, func(i, j int) bool { return got.StepIDs[i] < got.StepIDs[j] })
		sort.Slice(want.StepIDs, func(i, j int) bool { return want.StepIDs[i] < want.StepIDs[j] })
		// Long lists are cut in expected.json.
		diff(t, "batch_summary_step_ids", want.StepIDs, got.StepIDs[:min(len(want.StepIDs), len(got.StepIDs))])
	}
	if want.CoreIDs != nil {
		sort.Strings(got.CoreIDs)
		sort.Strings(want.CoreIDs)
		if len(want.CoreIDs) == maxCoreIDs {
			got.CoreIDs = common(want.CoreIDs, got.CoreIDs)
		}
		diff(t, "core_request_ids", want.CoreIDs, got.CoreIDs)
	}
	if want.Prefill != nil {
		diff(t, "sum_batch_prefill_tokens", *want.Prefill, prefill)
	}
	if want.TsStart != "" {
		diff(t, "sum_step_ts_start_ns", want.TsStart.String(), fmt.Sprint(tsStart))
	}
	if want.Journey != "" {
		diff(t, "sum_journey_ts_monotonic_ns", want.Journey.String(), fmt.Sprint(journey))
	}
	if want.Usage != nil && math.Abs(*want.Usage-usage) > 1e-9 {
		t.Errorf("sum_kv_usage_gpu_ratio: got %v, want %v", usage, *want.Usage)
	}
	if want.Models != nil {
		diff(t, "api_models", want.Models, got.Models)
	}
}

// common are the elements of got that want has too.
func common(want, got []string) []string {
	var out []string
	for _, g := range got {
		if slices.Contains(want, g) {
			out = append(out, g)
		}
	}
	return out
}

// different is cmp.Diff, which takes longer than the extraction of what is mostly equal.
func different(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := different(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func readContent(t *testing.T, path string) (total content, perService map[string]content) {
	t.Helper()
	b := repo.Read(t, path)
	var doc struct {
		Total      content            `json:"total"`
		PerService map[string]content `json:"per_service"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Total, doc.PerService
}

// dumpFiles lists the dumps of a variant, unpacking a tar when there is one.
func dumpFiles(t *testing.T, dir string) []string {
	t.Helper()
	if p := filepath.Join(dir, "files.tar.zst"); exists(p) {
		return untar(t, p)
	}
	var out []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "README.md", "expected.json", "expected_second_run.json", "verified.json", "collector.yaml":
		default:
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

func untar(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := t.TempDir()
	var out []string
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		p := filepath.Join(dir, filepath.Base(h.Name))
		w, err := os.Create(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, tr); err != nil {
			t.Fatal(err)
		}
		w.Close()
		out = append(out, p)
	}
}

// TestCollectorFormats reads every form the collector's file exporter writes, and every
// damaged or hostile derivative.
func TestCollectorFormats(t *testing.T) {
	dir := formatsDir(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "corrupted" {
			continue
		}
		cases++
		t.Run(e.Name(), func(t *testing.T) { testVariant(t, filepath.Join(dir, e.Name())) })
	}
	n := testCorrupted(t, filepath.Join(dir, "corrupted"))
	fmt.Printf("golden: %d cases of collector formats, %d of damaged input\n", cases, n)
	if cases == 0 || n == 0 {
		t.Errorf("got %d formats and %d damaged files in %s, want some of each", cases, n, dir)
	}
}

func testVariant(t *testing.T, dir string) {
	name := filepath.Base(dir)
	want, perService := readContent(t, filepath.Join(dir, "expected.json"))
	if strings.HasSuffix(name, "_killed") {
		want, _ = readContent(t, filepath.Join(dir, "verified.json"))
	}
	files := dumpFiles(t, dir)
	_, second := os.Stat(filepath.Join(dir, "expected_second_run.json"))
	several := second == nil || perService != nil
	if several {
		_, _, err := dumpRun(t, files, nil)
		if trace.CodeOf(err) != source.CodeSeveralEngines {
			t.Errorf("overlapping engines: got %v, want %s", err, source.CodeSeveralEngines)
		}
	}
	doc, runs, err := dumpRun(t, files, func(o *Options) { o.SplitEngines = true })
	if err != nil {
		t.Fatal(err)
	}
	spans, events := spanCounts(doc)
	switch {
	case perService != nil:
		all := content{Spans: map[string]int64{}, Events: map[string]int64{}}
		var names []string
		for service, c := range perService {
			names = append(names, service)
			merge(all.Spans, c.Spans)
			merge(all.Events, c.Events)
		}
		sort.Strings(names)
		diff(t, "spans", all.Spans, spans)
		diff(t, "events", all.Events, events)
		if len(runs) != len(names) {
			t.Fatalf("got %d engine runs, want %d", len(runs), len(names))
		}
		for i, service := range names { // files are read in name order: by-<service>.json
			checkTables(t, perService[service], runs[i])
		}
	case second == nil:
		wantB, _ := readContent(t, filepath.Join(dir, "expected_second_run.json"))
		all := content{Spans: map[string]int64{}, Events: map[string]int64{}}
		for _, c := range []content{want, wantB} {
			merge(all.Spans, c.Spans)
			merge(all.Events, c.Events)
		}
		diff(t, "spans", all.Spans, spans)
		diff(t, "events", all.Events, events)
		if len(runs) != 2 {
			t.Fatalf("got %d engine runs, want 2", len(runs))
		}
		checkTables(t, want, runs[0])
		checkTables(t, wantB, runs[1])
	default:
		diff(t, "spans", want.Spans, spans)
		diff(t, "events", want.Events, events)
		if len(runs) != 1 {
			t.Fatalf("got %d engine runs, want 1", len(runs))
		}
		checkTables(t, want, runs[0])
	}
	if want.Dropped != nil && perService == nil && second != nil {
		diff(t, "dropped_events", *want.Dropped, doc.Totals.Losses.DroppedSpanEvents)
	}
	testEdge(t, files, want)
}

func merge(dst, src map[string]int64) {
	for k, n := range src {
		dst[k] += n
	}
}
