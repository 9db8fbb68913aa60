package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// hostileNames are put in place of names in run.yaml and in options. Each would begin a document, a key, a tag, a
// script or a template where it were pasted.
var hostileNames = map[string]string{
	`name: "smoke"`:                 `name: "smo\nke\n---\nkind: Pod\n{{.X}} \"'\u001b[31m\u2028#"`,
	`name: "H100-SXM-80GB"`:         `name: "H\n---\napiVersion: v1\nkind: Pod {{.}} '\" # </script><b> \u001b\u0085"`,
	`id: "meta-llama/Llama-3.1-8B"`: `id: "meta/L\n---\nkind: Evil\n- {x: y} | > & * \"</td><img src=x>"`,
	`source: "smoke"`:               `source: "smoke\n\nkind: Pod"`,
}

const hostileOption = "a\n---\nkind: Pod {{.}} \"'\x1b # : {x: y}"

// TestNamesStayNames: names of recordings and options with line ends, quotes, braces, escapes and templates do not
// become configuration. Every file is parsed back: it has as many documents as the file of a harmless recording,
// and the same keys.
func TestNamesStayNames(t *testing.T) {
	harmless := filesOfNames(t, nil, "pool")
	hostile := filesOfNames(t, hostileNames, hostileOption)
	for name, want := range harmless {
		got, written := hostile[name]
		if !written {
			t.Errorf("%s: not written with hostile names", name)
			continue
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s: got the keys\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// filesOfNames runs the smoke recording under other names, exports it in every format and returns the keys of each
// file that was written.
func filesOfNames(t *testing.T, names map[string]string, option string) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	traces := filepath.Join(dir, "traces")
	if err := os.CopyFS(traces, os.DirFS(filepath.Join("..", "..", "testdata", "traces", "smoke"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(traces, "run.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range names {
		changed := strings.Replace(string(text), from, to, 1)
		if changed == string(text) {
			t.Fatalf("run.yaml has no %s", from)
		}
		text = []byte(changed)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	do := func(args ...string) {
		var stderr strings.Builder
		if code := run(append([]string{"blis-train"}, args...), strings.NewReader(""), io.Discard, &stderr); code != exitOK && code != exitGate {
			t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
		}
	}
	do("run", traces, "-o", out, "--prior", "zero", "--junit", filepath.Join(dir, "junit.xml"), "-q")
	const force = "unlearned_value,impossible_value,poor_projection,lengths_beyond_training,bad_entry"
	for format, options := range map[string][]string{
		"native": nil, "blis-defaults": nil, "blis-registry-host": nil, "wva-4p": nil, "inferno-models": nil, "llmd-epp": nil,
		"keda-token-aware": {"ttft-ms=20000", "name=" + option, "prometheus=" + option, "namespace=" + option},
	} {
		args := []string{"export", filepath.Join(out, "fit.json"), "--format", format, "-o", filepath.Join(dir, format+".yaml"), "-q"}
		if format != "native" {
			args = append(args, "--force", force)
		}
		for _, o := range options {
			args = append(args, "--option", o)
		}
		do(args...)
	}
	keys := map[string][]string{}
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
			if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@.") != "" || strings.Contains(key, "smoke") {
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
