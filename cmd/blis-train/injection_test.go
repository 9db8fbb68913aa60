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
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
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

// namedExport is an export with options that are free text, OPTION. Options that are names of Kubernetes refuse any other
// text (export.ParseSettings).
type namedExport struct {
	format  string
	from    string // the folder of the queue.json or predictor.json that it is of; "" of fit.json
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
	{format: "keda-token-aware", options: []string{"ttft-ms=20000", "name=xpool", "prometheus=OPTION", "namespace=xpool"}},
	{format: "aic-fpm", options: []string{"backend-version=OPTION"}},
	{format: "inferno-models", from: "inferno-3p", rich: true, options: []string{"physical=true", "key=perfParms"}},
	{format: "tuner-config", from: "inferno-3p", rich: true, options: []string{"physical=true"}},
	{format: "tuner-calibrate", from: "inferno-3p sweep", rich: true},
	{format: "tuner-config", from: "inferno-3p sweep", rich: true},
	{format: "wva-4p", from: "wva-4p sweep", rich: true, options: []string{"name=OPTION", "slo-class-name=OPTION", "slo-class-key=OPTION", "unit-cost=3"}},
	{format: "wva-slo", from: "wva-4p sweep", rich: true, options: []string{"name=OPTION", "namespace=xpool", "ttft-ms=500", "itl-ms=60"}},
	{format: "predictor-xgboost", from: "predictor", rich: true},
	{format: "llmd-bulk", from: "predictor", rich: true},
}

// sweepFlavours are the queueing models that are fitted to a sweep, whose model and accelerator are flags.
var sweepFlavours = []string{"inferno-3p", "wva-4p"}

// TestNamesStayNames: names of recordings and options with line ends, quotes, braces, escapes and templates do not
// become configuration. Every file is parsed back: it has as many documents as the file of a harmless recording,
// and the same keys.
func TestNamesStayNames(t *testing.T) {
	// Unknown names, so that no document has more for a model that the program knows.
	harmless := filesOfNames(t, smokeNames, slices.Repeat([]string{`"xpool"`}, len(smokeNames.keys)), "xpool")
	if len(harmless) < 20 {
		t.Errorf("got %d files, want 20: %v", len(harmless), slices.Sorted(maps.Keys(harmless)))
	}
	compareNames(t, harmless, filesOfNames(t, smokeNames, hostileNames, hostileOption))
}

// TestEvalNamesStayNames tries texts that begin something in one of the languages of our files, in every name.
func TestEvalNamesStayNames(t *testing.T) {
	repo.NeedEval(t)
	harmless := filesOfNames(t, demoNames, slices.Repeat([]string{`"xpool"`}, len(demoNames.keys)), "xpool")
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
		if strings.Contains(text, "\x00") {
			option = "x" // no argument of a program can have it
		}
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
	"\x1b[31m", "=1+1", "true", "~", "1e3", strings.Repeat("long", 40), strings.Repeat("long", 500), "/../../../x", "\x00", "\ufeff", "\u00ad\u200b",
	"\"} or vector(1) or up{x=\"", "<<: *a", "- |\n  x", "? x", "\v\f", "$(touch x)", "--force", "# Heading\n\n# Another", "\n\n    code\n\n<details>",
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
	for name := range hostile {
		if _, known := harmless[name]; !known {
			t.Errorf("%s: written with hostile names alone", name)
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
		sweep := filepath.Join("..", "..", "testdata", "sweeps", "llama-3.1-8b.csv")
		for _, flavour := range sweepFlavours {
			do("queue", "fit", sweep, "-o", filepath.Join(dir, flavour+" sweep"), "-q", "--flavour", flavour, "--loads", "7", "--queue-ratio", "1",
				"--model", option, "--accelerator", option)
		}
		do("predictor", "fit", out, "-o", filepath.Join(dir, "predictor"), "-q", "--fit", "none", "--shared-prefix-tokens", "16")
	}
	const force = "unlearned_value,impossible_value,poor_projection,lengths_beyond_training,bad_entry"
	keys := map[string][]string{}
	for _, e := range namedExports {
		if e.rich && !lines.rich {
			continue
		}
		input := filepath.Join(out, "fit.json")
		name := strings.TrimLeft(e.from+" "+e.format, " ") + ".yaml"
		switch e.from {
		case "":
			if e.format == "card" {
				name = "card.md"
			}
		case "predictor":
			input = filepath.Join(dir, e.from, "predictor.json")
		default:
			input = filepath.Join(dir, e.from, "queue.json")
		}
		args := []string{"export", input, "--format", e.format, "-o", filepath.Join(dir, name), "-q", "--ignore-verdict"}
		if e.format != "native" && e.from != "predictor" {
			args = append(args, "--force", force)
		}
		for _, o := range e.options {
			if e.format == "aic-fpm" && !files.IsName(option) {
				continue // refused: it is a folder
			}
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
			keys[formatOf(filepath.ToSlash(rel))] = listed
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

var engineFolder = regexp.MustCompile("/vllm/[^/]+/")

// formatOf is the file's name without what the names of a model, a GPU and a release put into it.
func formatOf(rel string) string {
	rel = engineFolder.ReplaceAllString(rel, "/vllm/RELEASE/")
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
			if n == 0 {
				found[fmt.Sprintf("%d documents", bytes.Count(data, []byte("\n---"))+1)] = true
			}
		}
	case ".json":
		var doc any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		addKeys(found, "", doc)
	case ".xml":
		addElements(t, found, path, xml.NewDecoder(bytes.NewReader(data)))
	case ".html":
		scripts := scriptElement.FindAll(data, -1)
		found[fmt.Sprintf("%d scripts", len(scripts))] = true
		dec := xml.NewDecoder(bytes.NewReader(scriptElement.ReplaceAll(data, nil)))
		dec.Strict = false
		dec.AutoClose = xml.HTMLAutoClose
		dec.Entity = xml.HTMLEntity
		addElements(t, found, path, dec)
	case ".md":
		plain := bytes.ReplaceAll(data, []byte(`\]`), nil) // a backslash makes it text
		headings := 0
		for _, line := range strings.Split(string(data), "\n") {
			switch {
			case strings.HasPrefix(line, "|"): // cells of a table, without those that a backslash makes text
				found[fmt.Sprintf("table of %d", strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")-1)] = true
			case strings.HasPrefix(line, "#"):
				headings++
			case strings.HasPrefix(line, "```"), strings.HasPrefix(line, "    "), strings.HasPrefix(line, ">"):
				found["a block that begins "+line[:1]] = true
			}
		}
		found[fmt.Sprintf("%d headings", headings)] = true
		for _, forbidden := range []string{"<img", "<b>", "</script>", "<details", "\x1b", "](javascript"} {
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

var scriptElement = regexp.MustCompile(`(?s)<(script|style)\b.*?</(script|style)>`)

// addElements adds the elements and attributes of a document, and what may not be in its texts.
func addElements(t *testing.T, found map[string]bool, path string, dec *xml.Decoder) {
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			found["<"+e.Name.Local] = true
			for _, a := range e.Attr {
				found["<"+e.Name.Local+" "+a.Name.Local] = true
			}
		case xml.CharData:
			if bytes.ContainsAny(e, "\x1b\x00") {
				found["a control character"] = true
			}
		case xml.Comment, xml.ProcInst, xml.Directive:
			found[fmt.Sprintf("%T", e)] = true
		}
	}
}

// promQLText matches a quoted text of PromQL.
var promQLText = regexp.MustCompile(`"(\\.|[^"\\])*"`)

// addKeys adds the paths of a document's keys. A key that is no plain word is a name.
func addKeys(found map[string]bool, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@.") != "" || strings.Contains(key, "smoke") || key[0] == 'x' {
				key = "NAME"
			}
			if text, ok := value.(string); ok && strings.HasSuffix(path, "/data") { // of a ConfigMap: a document in a document
				var inner any
				if err := yaml.Unmarshal([]byte(text), &inner); err != nil {
					found[path+"/"+key+": "+err.Error()] = true
				}
				value = inner
			}
			if text, ok := value.(string); ok && key == "query" {
				key += " " + promQLText.ReplaceAllString(text, "TEXT")
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
