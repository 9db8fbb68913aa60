package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result/folder"
)

// evidence is what each format says of where its numbers come from: the files it writes, by suffix, and the
// fields of its sidecar that are known; the others are null.
var evidence = []struct {
	format, from string
	files, known []string
}{
	{"native", "fit", []string{""}, nil}, // its own fields: the artifact's schema
	{"blis-defaults", "fit", []string{"", ".hardware.json", ".codellama-34b-instruct-hf-a100-sxm-80gb-tp2.yaml",
		".llama-3.1-8b-b200-sxm-180gb-tp1.yaml", export.SidecarSuffix, ".qwen2.5-14b-h100-sxm-80gb-tp2.yaml"}, ofFit},
	{"blis-registry-host", "fit", beside, ofFit},
	{"wva-4p", "fit", beside, ofFit},
	{"keda-token-aware", "library-target", beside, ofLibrary},
	{"llmd-epp", "library", beside, ofLibrary},
	{"inferno-models", "fit", beside, ofFit},
	{"blis-defaults", "library", []string{"", ".hardware.json", export.SidecarSuffix}, ofLibrary},
	{"inferno-models", "forced", beside, ofLibrary},
	{"vllm-sim", "forced", beside, ofLibrary},
	{"wva-4p", "wva-4p", beside, ofQueue},
	{"inferno-models", "inferno-3p", beside, ofQueue},
	{"tuner-config", "inferno-3p", beside, ofQueue},
	{"tuner-calibrate", "inferno-3p", beside, ofQueue},
	{"wva-slo", "targets", beside, ofQueue},
}

var (
	beside    = []string{"", export.SidecarSuffix}
	ofFit     = []string{"purpose", "spec_version", "feature_set_hash"}
	ofLibrary = []string{"spec_version", "feature_set_hash", "library_version"}
	ofQueue   = []string{"spec_version"} // the queueing model
)

// TestExportsSayTheirEvidence: every format says verdict, purpose, region, feature-set hash and library version, those
// that it has; exported twice it is the same bytes, which is tried of those that take milliseconds: not of a fit's.
func TestExportsSayTheirEvidence(t *testing.T) {
	testEvidence(t, func(source string) bool { return source != "fit" })
}

// TestEvalExportsSayTheirEvidence exports every format twice.
func TestEvalExportsSayTheirEvidence(t *testing.T) {
	repo.NeedEval(t)
	testEvidence(t, func(string) bool { return true })
}

// testEvidence exports every format, those of some sources twice.
func testEvidence(t *testing.T, exportsTwice func(source string) bool) {
	t.Helper()
	schema := compileSchema(t, "export-provenance")
	dir := t.TempDir()
	queue := filepath.Join(dir, folder.QueueFile)
	repo.Write(t, bundledQueue(t), queue)
	missed := filepath.Join(dir, "wva-4p", folder.QueueFile)
	fit := sweepFit(t, "wva-4p")
	if fit.status != exitGate {
		t.Fatalf("queue fit --flavour wva-4p: exit %d, want %d", fit.status, exitGate) // it misses the shapes held out
	}
	repo.Write(t, fit.files[folder.QueueFile], missed)
	inDemoWorld(t, "testdata")
	traces := filepath.Join("testdata", "traces", "demo")
	do := func(args ...string) {
		t.Helper()
		var stderr strings.Builder
		if code := run(append([]string{"blis-train"}, append(args, "-q")...), strings.NewReader(""), io.Discard, &stderr); code != exitOK {
			t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
		}
	}
	if status := runWords(t, demoCommand, io.Discard); status != exitOK {
		t.Fatalf("%v: exit %d", demoCommand, status)
	}
	sources := map[string][]string{"fit": {filepath.Join("out", "fit.json"), "--force", "poor_projection"},
		"library": {"--deployment", filepath.Join(traces, "b200-llama-3.1-8b-tp1", "run.yaml")}}
	sources["forced"] = append(slices.Clone(sources["library"]), "--force", "poor_projection") // the line is 10 % off
	sources["library-target"] = append(slices.Clone(sources["library"]), "--option", "ttft-ms=2000", "--option", "rate-rps=20")
	sources["inferno-3p"] = []string{queue}
	sources["wva-4p"] = []string{missed, "--ignore-verdict"}
	sources["targets"] = append(slices.Clone(sources["inferno-3p"]), "--option", "ttft-ms=500", "--option", "itl-ms=40", "--option",
		"namespace=llm")
	for _, e := range evidence {
		name := e.format + " of " + e.from
		times := make([]map[string][]byte, 1)
		if exportsTwice(e.from) {
			times = make([]map[string][]byte, 2)
		}
		for i := range times {
			to := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"), string(rune('a'+i)))
			if err := os.MkdirAll(to, 0o755); err != nil {
				t.Fatal(err)
			}
			do(append([]string{"export", "--format", e.format, "-o", filepath.Join(to, "F")}, sources[e.from]...)...)
			times[i] = map[string][]byte{}
			entries, err := os.ReadDir(to)
			if err != nil {
				t.Fatal(err)
			}
			var suffixes []string
			for _, f := range entries {
				suffix := strings.TrimPrefix(f.Name(), "F")
				suffixes = append(suffixes, suffix)
				if times[i][suffix], err = os.ReadFile(filepath.Join(to, f.Name())); err != nil {
					t.Fatal(err)
				}
			}
			if slices.Sort(e.files); !slices.Equal(suffixes, e.files) {
				t.Errorf("%s: files %q, want %q", name, suffixes, e.files)
			}
		}
		for suffix, data := range times[0] {
			if !bytes.Equal(data, times[len(times)-1][suffix]) {
				t.Errorf("%s: %q differs between two exports", name, suffix)
			}
		}
		if data, ok := times[0][export.SidecarSuffix]; ok {
			if err := schema.Validate(jsonValue(t, data)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			saysEvidence(t, name, data, e.known)
		}
	}
}

// saysEvidence holds a sidecar's fields against those that its format knows.
func saysEvidence(t *testing.T, name string, data []byte, known []string) {
	t.Helper()
	var side map[string]any
	if err := json.Unmarshal(data, &side); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"purpose", "spec_version", "feature_set_hash", "library_version"} {
		v, ok := side[field]
		if !ok || (v != nil) != slices.Contains(known, field) {
			t.Errorf("%s: %s is %v, want known ones %q", name, field, v, known)
		}
	}
	want := "not validated"
	switch {
	case name == "wva-4p of wva-4p":
		want = "fail"
	case slices.Contains(known, "purpose") || slices.Equal(known, ofQueue):
		want = "pass"
	}
	if side["verdict"] != want {
		t.Errorf("%s: verdict %v, want %s", name, side["verdict"], want)
	}
	configs, _ := side["configs"].([]any)
	for _, c := range configs {
		c := c.(map[string]any)
		for _, field := range []string{"label", "seats", "prompt_tokens", "output_tokens"} {
			if c[field] == nil {
				t.Errorf("%s: %v: no %s: the file says no region", name, c["label"], field)
			}
		}
	}
	if len(configs) == 0 {
		t.Errorf("%s: no configuration", name)
	}
}
