package testkit

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/vllm"
)

// TestSharedValues: the figures of the shared deployments and coefficients that tests elsewhere count on.
func TestSharedValues(t *testing.T) {
	llama := Llama8B()
	small := Small(25, func(e *vllm.Engine) { e.MaxNumSeqs++ })
	tp := DeploymentOf(4)
	fit := PhysicsFit()
	set := PlantedOn(llama)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"layers of Llama8B", float64(llama.Model.NumLayers), 32},
		{"blocks of Llama8B", float64(llama.Engine.KVBlocksGPU.V), 27678},
		{"blocks of Small", float64(small.Engine.KVBlocksGPU.V), 25},
		{"sequences of Small", float64(small.Engine.MaxNumSeqs), 5},
		{"tokens of Small", float64(small.Engine.MaxNumBatchedTokens), 64},
		{"block size of Small", float64(small.Engine.BlockSize), 4},
		{"tp of DeploymentOf(4)", float64(tp.TP), 4},
		{"value of Ptr", *Ptr(2.5), 2.5},
		{"coefficients of PhysicsFit", float64(len(fit.Beta.Coefficients)), 16},
		{"models of ExampleFit", float64(len(ExampleFit().Models)), 2},
		{"batch_utilization of Planted, in us", Planted().Beta[5].Value, 900},
		{"bias of PlantedOn, in us", set.Beta[15].Value, 3000},
		{"configurations of PlantedOn", float64(len(set.Configs)), 1},
		{"samples of PlantedOn", float64(set.Configs[0].Samples), 1000},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %g, want %g", c.name, c.got, c.want)
		}
	}
	if !small.Engine.KVBlocksGPU.OK || set.Configs[0].Runs[0] != "planted" || set.Configs[0].Deployment.Model.ID != llama.Model.ID {
		t.Errorf("got %+v", set.Configs[0])
	}
}

// TestUsage: the counts of all phases by phase and index.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for phase, text := range map[string]string{
		"warm": "{\"index\": 0, \"cached_tokens\": 16}\n{\"index\": 7, \"cached_tokens\": 0}\n",
		"main": "{\"index\": 0, \"cached_tokens\": 32}",
	} {
		repo.Write(t, enc.EncodeAll([]byte(text), nil), dir, "usage_"+phase+".jsonl.zst")
	}
	want := map[string]int64{"warm-0": 16, "warm-7": 0, "main-0": 32}
	if got := Usage(t, dir); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestScripts: the text above the line is run and compared with the text below it, and rewritten with update.
func TestScripts(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, "step a=1\n---\nSTEP A=1\n", dir, "testdata", "one.txt")
	repo.Write(t, "step b=2\n---\nold\n", dir, "testdata", "two.txt")
	t.Chdir(dir)
	var names []string
	upper := func(t *testing.T, head string) string {
		names = append(names, t.Name())
		return strings.ToUpper(head)
	}
	Scripts(t, true, upper)
	if got := string(repo.Read(t, dir, "testdata", "two.txt")); got != "step b=2\n---\nSTEP B=2\n" {
		t.Errorf("rewritten: got %q", got)
	}
	Scripts(t, false, upper)
	if len(names) != 4 || names[0] != "TestScripts/one" || names[1] != "TestScripts/two" {
		t.Errorf("got %q", names)
	}
	if got := Pairs(t, 0, []string{"a=1", "b=x=y", "c="}); !maps.Equal(got, map[string]string{"a": "1", "b": "x=y", "c": ""}) {
		t.Errorf("got %v", got)
	}
}

// TestDocument: a document is written with -update-documents, and without it compared; keys that are left out are
// not written.
func TestDocument(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	doc := map[string]any{"a": 1.5, "time": "now", "list": []int{1, 2}}
	*updateDocuments = true
	Document(t, "doc", doc, "time")
	*updateDocuments = false
	if got := string(repo.Read(t, filepath.Join("testdata", "doc.json"))); got != "{\n \"a\": 1.5,\n \"list\": [\n  1,\n  2\n ]\n}\n" {
		t.Errorf("got %q", got)
	}
	doc["time"] = "later"
	Document(t, "doc", doc, "time")
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1000000", "1000001", false}, {"1.5", "1.5000014", true}, {"1.5", "1.5000016", false}, {"1", "1.0000005", true},
		{"0.0", "1e-13", true}, {"0.0", "1e-11", false}, {"2.5", "many", false},
	} {
		if got := areNear(json.Number(c.a), json.Number(c.b)); got != c.want {
			t.Errorf("%s and %s: got near %t", c.a, c.b, got)
		}
	}
}
