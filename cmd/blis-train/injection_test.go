package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/repo"
)

// namedLines are lines of a recording's run.yaml whose values are names.
type namedLines struct {
	dir  string // below testdata/traces
	keys []string
	rich bool // it teaches what every export needs
}

var (
	smokeNames = namedLines{dir: "smoke", keys: []string{`name: "smoke"`, `name: "H100-SXM-80GB"`, `id: "meta-llama/Llama-3.1-8B"`, `source: "smoke"`}}
	// The name of the GPU is left out, because exports look it up.
	demoNames = namedLines{dir: "demo/b200-llama-3.1-8b-tp1", rich: true, keys: []string{`name: "b200-llama-3.1-8b-tp1"`, `id: "meta-llama/Llama-3.1-8B"`, `source: "azure_conv"`}}
)

// hostileNames are put in place of names in run.yaml, in the order of namedLines. Each would begin a document, a key,
// a tag, a script or a template where it were pasted.
var hostileNames = []string{
	`"smo\nke\n---\nkind: Pod\n{{.X}} \"'\u001b[31m\u2028#"`,
	`"H\n---\napiVersion: v1\nkind: Pod {{.}} '\" # </script><b> \u001b\u0085"`,
	`"meta/L\n---\nkind: Evil\n- {x: y} | > & * \"</td><img src=x>"`,
	`"smoke\n\nkind: Pod"`,
}

const hostileOption = "a\n---\nkind: Pod {{.}} \"'\x1b # : {x: y}"

// namedExport is an export with options that are free text, OPTION.
type namedExport struct {
	format  string
	queue   string // flavour of the queue.json that it is of; "" of fit.json
	rich    bool   // smoke lacks what it needs
	options []string
}

var namedExports = []namedExport{
	{format: "native"},
	{format: "blis-defaults"},
	{format: "blis-registry-host", rich: true},
	{format: "blis-scenario", rich: true, options: []string{"model=llama-3.1-8b-instruct"}},
	{format: "wva-4p", options: []string{"slo-class-name=OPTION", "slo-class-key=OPTION"}},
	{format: "inferno-models"},
	{format: "llmd-epp"},
	{format: "vllm-sim"},
	{format: "card"},
	{format: "keda-token-aware", options: []string{"ttft-ms=20000", "name=OPTION", "prometheus=OPTION", "namespace=OPTION"}},
	{format: "inferno-models", queue: "inferno-3p", rich: true, options: []string{"physical=true"}},
	{format: "tuner-config", queue: "inferno-3p", rich: true, options: []string{"physical=true"}},
}

// TestNamesStayNames: names of recordings and options with line ends, quotes, braces, escapes and templates do not
// become configuration. Every file is parsed back: it has as many documents as the file of a harmless recording,
// and the same keys.
func TestNamesStayNames(t *testing.T) {
	harmless := filesOfNames(t, smokeNames, nil, "pool")
	if len(harmless) < 20 {
		t.Errorf("got %d files, want 20: %v", len(harmless), slices.Sorted(maps.Keys(harmless)))
	}
	compareNames(t, harmless, filesOfNames(t, smokeNames, hostileNames, hostileOption))
}

// TestEvalNamesStayNames tries texts that begin something in one of the languages of our files, in every name.
func TestEvalNamesStayNames(t *testing.T) {
	repo.NeedEval(t)
	// Unknown names, so that no document has more for a model that the program knows.
	harmless := filesOfNames(t, demoNames, slices.Repeat([]string{`"xpool"`}, len(demoNames.keys)), "pool")
	if least := len(namedExports) + 10; len(harmless) < least {
		t.Errorf("got %d files, want %d: %v", len(harmless), least, slices.Sorted(maps.Keys(harmless)))
	}
	compareNames(t, harmless, filesOfNames(t, demoNames, slices.Delete(slices.Clone(hostileNames), 1, 2), hostileOption))
	tried := 0
	for _, text := range hostileTexts {
		quoted, err := json.Marshal("x" + text)
		if err != nil {
			t.Fatal(err)
		}
		names := slices.Repeat([]string{string(quoted)}, len(demoNames.keys))
		option := strings.ReplaceAll("x"+text, ",", "") // a comma separates options
		hostile := filesOfNames(t, demoNames, names, option)
		compareNames(t, harmless, hostile)
		tried += len(hostile)
	}
	t.Logf("%d files with %d texts in their names", tried, len(hostileTexts))
}

// hostileTexts begin something in YAML, JSON, HTML, XML, Markdown, Prometheus, roff, a shell or a template.
var hostileTexts = []string{
	"\n---\nkind: Pod", "\r\n- a: b", ": y", " #c", "\"", "'", "\\", "{{.Values.x}}", "${HOME}$(id)`id`", "</script><b> <img src=x>",
	"]]><x/>", "&amp;<", "|\n| a |", "](javascript:x)", "*a &b !!python/object", "%YAML 2.0", "@`>|-?[]{},", "\n.SH EVIL\n\\fB", "\u2028\u0085\u202e", "\t",
	"\x1b[31m", "=1+1", "true", "~", "1e3", strings.Repeat("long", 40),
}

// compareNames compares the keys of files with those of files with harmless names.
func compareNames(t *testing.T, harmless, hostile map[string][]string) {
	t.Helper()
	for name, want := range harmless {
		got, written := hostile[name]
		if !written {
			t.Errorf("%s: not written with hostile names", name)
			continue
		}
		for _, key := range got {
			if !slices.Contains(want, key) {
				t.Errorf("%s: got the key %s, want one of\n%s", name, key, strings.Join(want, "\n"))
			}
		}
	}
}

// filesOfNames runs a recording under other names, exports it in every format and returns the keys of each
// file that was written.
func filesOfNames(t *testing.T, lines namedLines, names []string, option string) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	traces := filepath.Join(dir, "traces")
	if err := os.CopyFS(traces, os.DirFS(filepath.Join("..", "..", "testdata", "traces", lines.dir))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(traces, "run.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, to := range names {
		from := lines.keys[i]
		key, _, _ := strings.Cut(from, ":")
		changed := strings.Replace(string(text), from, key+": "+to, 1)
		if changed == string(text) {
			t.Fatalf("run.yaml has no %s", from)
		}
		text = []byte(changed)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	do := func(args ...string) string {
		var stdout, stderr strings.Builder
		if code := run(append([]string{"blis-train"}, args...), strings.NewReader(""), &stdout, &stderr); code != exitOK && code != exitGate {
			t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
		}
		return stdout.String()
	}
	summary := do("run", traces, "-o", out, "--prior", "zero", "--bootstraps", "50", "--junit", filepath.Join(dir, "junit.xml"), "-q", "--summary", "markdown")
	if err := os.WriteFile(filepath.Join(dir, "summary.md"), []byte(summary), 0o644); err != nil {
		t.Fatal(err)
	}
	if lines.rich {
		do("queue", "fit", out, "-o", filepath.Join(dir, "inferno-3p"), "-q", "--flavour", "inferno-3p")
	}
	const force = "unlearned_value,impossible_value,poor_projection,lengths_beyond_training,bad_entry"
	keys := map[string][]string{}
	for _, e := range namedExports {
		if e.rich && !lines.rich {
			continue
		}
		input := filepath.Join(out, "fit.json")
		if e.queue != "" {
			input = filepath.Join(dir, e.queue, "queue.json")
		}
		name := e.format + ".yaml"
		switch {
		case e.format == "card":
			name = "card.md"
		case e.queue != "":
			name = "queue-" + name
		}
		args := []string{"export", input, "--format", e.format, "-o", filepath.Join(dir, name), "-q"}
		if e.queue == "" {
			args = append(args, "--ignore-verdict")
		}
		if e.format != "native" {
			args = append(args, "--force", force)
		}
		for _, o := range e.options {
			args = append(args, "--option", strings.ReplaceAll(o, "OPTION", option))
		}
		var stderr strings.Builder
		code := run(append([]string{"blis-train"}, args...), strings.NewReader(""), io.Discard, &stderr)
		switch {
		case code == exitFailed && names != nil && strings.Contains(stderr.String(), "bad_entry"):
			keys[name] = nil // the format has no such model or GPU
		case code != exitOK:
			t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
		}
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.IsDir() && (path == traces || d.Name() == "tables") {
				return filepath.SkipDir
			}
			return err
		}
		if strings.HasPrefix(d.Name(), ".") { // the program's own cache
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if listed := keysOf(t, path); listed != nil {
			keys[formatOf(rel)] = listed
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// formatOf is the file's name without what the names of a model and a GPU put into it.
func formatOf(rel string) string {
	parts := strings.Split(rel, ".")
	if len(parts) > 3 {
		parts = slices.Concat(parts[:2], parts[len(parts)-1:])
	}
	return strings.Join(parts, ".")
}

// keysOf are the keys of a YAML or JSON file or the elements of an XML or HTML one, without repetition; maps whose
// keys are names are counted.
func keysOf(t *testing.T, path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	switch filepath.Ext(path) {
	case ".yaml":
		dec := yaml.NewDecoder(bytes.NewReader(data))
		for n := 0; ; n++ {
			var doc any
			err := dec.Decode(&doc)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", path, err, data)
			}
			addKeys(found, fmt.Sprintf("document %d", n), doc)
		}
	case ".json":
		var doc any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		addKeys(found, "", doc)
	case ".xml":
		dec := xml.NewDecoder(bytes.NewReader(data))
		for {
			token, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if e, ok := token.(xml.StartElement); ok {
				found[e.Name.Local] = true
			}
		}
	case ".html":
		for _, forbidden := range []string{"<b> ", "<img", "</script><b>", "\x1b"} {
			if bytes.Contains(data, []byte(forbidden)) {
				found["holds "+forbidden] = true
			}
		}
		found[fmt.Sprintf("%d scripts", bytes.Count(data, []byte("<script")))] = true
	case ".md":
		plain := bytes.ReplaceAll(data, []byte(`\]`), nil) // a backslash makes it text
		for _, line := range strings.Split(string(data), "\n") {
			switch {
			case strings.HasPrefix(line, "|"): // cells of a table, without those that a backslash makes text
				found[fmt.Sprintf("table of %d", strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")-1)] = true
			case strings.HasPrefix(line, "#"):
				found["heading"] = true
			}
		}
		for _, forbidden := range []string{"<img", "<b>", "</script>", "\x1b", "](javascript"} {
			if bytes.Contains(plain, []byte(forbidden)) {
				found["holds "+forbidden] = true
			}
		}
	default:
		return nil
	}
	var out []string
	for k := range found {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// addKeys adds the paths of a document's keys. A key that is no plain word is a name.
func addKeys(found map[string]bool, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@.") != "" || strings.Contains(key, "smoke") || key[0] == 'x' {
				key = "NAME"
			}
			addKeys(found, path+"/"+key, value)
		}
	case []any:
		for _, value := range v {
			addKeys(found, path+"[]", value)
		}
	default:
		found[path] = true
	}
}
