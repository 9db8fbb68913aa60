package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestAutomationExamples: the YAML of docs/examples/automation parses, its command lines
// are ones this program takes, volumes that are mounted exist, and what runs our image
// is not root.
func TestAutomationExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repo.Root(t), "docs/examples/automation/*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("got %d example files (%v), want 3 and more", len(files), err)
	}
	app := newApp("", strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name, calls := filepath.Base(f), 0
		for _, part := range strings.Split(string(text), "\n---\n") { // each alone, as kubectl reads them: no anchor reaches further
			var doc any
			if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			walkYAML(doc, func(m map[string]any) {
				calls += checkRun(t, app, name, m) + checkContainer(t, app, name, m)
				checkVolumes(t, name, m)
			})
		}
		if calls == 0 {
			t.Errorf("%s calls blis-train nowhere", name)
		}
	}
}

// walkYAML visits every mapping.
func walkYAML(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, x := range v {
			walkYAML(x, visit)
		}
	case []any:
		for _, x := range v {
			walkYAML(x, visit)
		}
	}
}

// checkRun judges the shell lines of a workflow's step.
func checkRun(t *testing.T, app *cli.App, name string, m map[string]any) (calls int) {
	script, _ := m["run"].(string)
	for _, line := range strings.Split(strings.ReplaceAll(script, "\\\n", " "), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "blis-train" {
			calls++
			if i := slices.Index(words, ">>"); i >= 0 {
				words = words[:i]
			}
			checkCall(t, app, name, words)
		}
	}
	return calls
}

// checkContainer judges a container of our image.
func checkContainer(t *testing.T, app *cli.App, name string, m map[string]any) int {
	image, _ := m["image"].(string)
	if !strings.Contains(image, "/blis-train:") {
		return 0
	}
	words := []string{"blis-train"}
	for _, a := range m["args"].([]any) {
		words = append(words, a.(string))
	}
	checkCall(t, app, name, words)
	if s, _ := m["securityContext"].(map[string]any); s["allowPrivilegeEscalation"] != false {
		t.Errorf("%s: the container may become root", name)
	}
	return 1
}

// checkCall looks every flag of a command line up.
func checkCall(t *testing.T, app *cli.App, name string, words []string) {
	cmd, _ := commandOf(app, words)
	if cmd == nil {
		t.Errorf("%s: %q names no command", name, words)
		return
	}
	known := flagNames(cmd.Flags)
	for _, w := range words[2:] {
		flag, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if strings.HasPrefix(w, "-") && !slices.Contains(known, flag) {
			t.Errorf("%s: %s has no flag %s", name, cmd.Name, w)
		}
	}
}

// checkVolumes compares the mounts of a pod's containers with its volumes.
func checkVolumes(t *testing.T, name string, pod map[string]any) {
	containers, ok := pod["containers"].([]any)
	if !ok {
		return
	}
	have := map[any]bool{}
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		have[v.(map[string]any)["name"]] = true
	}
	more, _ := pod["initContainers"].([]any)
	for _, c := range slices.Concat(containers, more) {
		mounts, _ := c.(map[string]any)["volumeMounts"].([]any)
		for _, m := range mounts {
			if v := m.(map[string]any)["name"]; !have[v] {
				t.Errorf("%s: %v is mounted and is no volume of the pod", name, v)
			}
		}
	}
}
