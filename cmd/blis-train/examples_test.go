package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"
)

var updateExamples = flag.Bool("update-examples", false, "rewrite docs/examples")

const examplesDir = "../../docs/examples"

// exampleSets are the fits in docs/examples: the data they are made of and the
// exports of each, as the page's commands say.
var exampleSets = []struct {
	dir, data string
	exports   []exampleExport
}{
	{"composed", "composed", []exampleExport{
		{export.FormatNative, folder.CoefficientsFile, false}, {export.FormatBLIS, "defaults.yaml", true},
		{autoscale.QueueWVA4P, "variantautoscaling.yaml", true}, {autoscale.InfernoModels, "model-data.json", true},
	}},
	{"real", "real_vllm_cpu", []exampleExport{{export.FormatNative, folder.CoefficientsFile, false}}},
}

type exampleExport struct {
	format export.Format
	name   string
	force  bool
}

// The committed examples load: native files strictly and back into
// the same bytes, sidecars strictly and against their schema.
func TestExamplesLoad(t *testing.T) {
	schema := compileSchema(t, "export-provenance")
	for _, set := range exampleSets {
		path := filepath.Join(examplesDir, set.dir, folder.CoefficientsFile)
		data := repo.Read(t, path)
		s, err := coeff.Load(bytes.NewReader(data), path, features.CheckSet)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := folder.SetBytes(s); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s: saving what was loaded gives other bytes (%v)", path, err)
		}
		for _, e := range set.exports {
			if e.format == export.FormatNative {
				continue
			}
			checkSidecar(t, schema, filepath.Join(examplesDir, set.dir, e.name), e.format)
		}
	}
}

func checkSidecar(t *testing.T, schema *jsonschema.Schema, path string, format export.Format) {
	t.Helper()
	if st, err := os.Stat(path); err != nil || st.Size() == 0 {
		t.Fatalf("%s: %v", path, err)
	}
	data := repo.Read(t, path+export.SidecarSuffix)
	var side export.Sidecar
	if err := result.Read(data, &side); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if side.Format != string(format) || len(side.Values) == 0 || len(side.FitInputs) == 0 {
		t.Errorf("%s: format %q, %d values, %d inputs", path, side.Format, len(side.Values), len(side.FitInputs))
	}
	if err := schema.Validate(jsonValue(t, data)); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// Every line of a ledger follows its schema, and the schemas refuse
// what is not theirs.
func TestLedgerAndSidecarSchemas(t *testing.T) {
	ledger := compileSchema(t, "ledger")
	sidecar := compileSchema(t, "export-provenance")
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	fit := artifactFit()
	if err := (&console{}).appendLedger(path, "fit", fit.Header, fit, nil, ""); err != nil {
		t.Fatal(err)
	}
	line := repo.Read(t, path)
	if err := ledger.Validate(jsonValue(t, line)); err != nil {
		t.Error(err)
	}
	if err := ledger.Validate(jsonValue(t, bytes.Replace(line, []byte(`"stage":"fit"`), []byte(`"stage":"cook"`), 1))); err == nil {
		t.Error("the ledger schema accepts an unknown stage")
	}
	if err := sidecar.Validate(jsonValue(t, line)); err == nil {
		t.Error("the sidecar schema accepts a ledger line")
	}
}

func jsonValue(t *testing.T, data []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func compileSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "schema", name+".schema.json")
	data := repo.Read(t, path)
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(path, jsonValue(t, data)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEvalExamples runs the page's commands on the shared data and compares
// every example byte for byte.
func TestEvalExamples(t *testing.T) {
	repo.NeedEval(t)
	for _, set := range exampleSets {
		data := filepath.Join("..", "..", "..", "shared", "data", set.data)
		if _, err := os.Stat(data); err != nil {
			t.Skipf("no data: %v", err)
		}
		out := filepath.Join(t.TempDir(), "out")
		if rc, _, stderr := call("run", data, "-o", out, "--quiet"); rc != exitOK && rc != exitGate {
			t.Fatalf("run %s: exit %d: %s", set.data, rc, stderr)
		}
		for _, e := range set.exports {
			path := filepath.Join(t.TempDir(), e.name)
			args := []string{"export", "--format", string(e.format), filepath.Join(out, folder.FitFile), "-o", path, "--quiet", "--ignore-verdict"}
			if e.force {
				args = append(args, "--force", "poor_projection,unlearned_value")
			}
			if rc, _, stderr := call(args...); rc != exitOK {
				t.Fatalf("%v: exit %d: %s", args, rc, stderr)
			}
			compareExample(t, filepath.Dir(path), filepath.Join(examplesDir, set.dir))
		}
	}
}

func compareExample(t *testing.T, made, committed string) {
	t.Helper()
	files, err := os.ReadDir(made)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got := repo.Read(t, made, f.Name())
		target := filepath.Join(committed, f.Name())
		if *updateExamples {
			repo.Write(t, got, target)
		}
		want, err := os.ReadFile(target)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: differs from what its command writes (%v)", target, err)
		}
	}
}

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
		text := repo.Read(t, f)
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

// tutorialPictures are figures of reports of the tutorial: what is judged again to draw
// them, and which it is.
var tutorialPictures = map[string]struct{ judge, figure string }{
	"tutorial-library.svg": {"validate unseen -o judged-library --coefficients library.yaml", "ecdf"},
	"tutorial-drift.svg":   {"validate out-logs", "drift"},
	"tutorial-replay.svg":  {"validate out", "ecdf"},
}

// largestPicture is what a picture may take in the repository, in bytes.
const largestPicture = 300_000

// landmark is what of an output may not change unnoticed: verdicts, uses and statuses.
var landmark = regexp.MustCompile(`(?m)^(?:\[exit \d+\]|(?:error: )?verdict for \w+: \w+|.*: (?:not )?usable for .*)`)

// quotedErrors are the expected errors that the text explains.
var quotedErrors = regexp.MustCompile(`\*expected error\*: ([0-9.]+ %) of a step time.*; ([0-9.]+ %) of TTFT for the median`)

// slowOfTutorial are commands that take a second and that no later block needs. Their blocks are walked by TestEvalTutorial.
var slowOfTutorial = []string{
	"blis-train run testdata/traces/demo -o out-alone",
	"blis-train validate --coefficients library.yaml unseen -o judged-library",
	"blis-train run testdata/traces/planted -o out-planted",
	"blis-train run testdata/traces/stock -o out-logs",
}

// isSlow reports whether a text has one of the commands.
func isSlow(text string, commands []string) bool {
	return slices.ContainsFunc(commands, func(c string) bool { return strings.Contains(text, c) })
}

// TestTutorial runs the commands of docs/tutorial.md one after the other; verdicts, uses
// and statuses must be those it shows. -update, with BLIS_TRAIN_EVAL, rewrites output and pictures.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the tutorial was not walked")
	}
	walkTutorial(t)
}

// TestEvalTutorial compares every line that the commands print.
func TestEvalTutorial(t *testing.T) {
	repo.NeedEval(t)
	walkTutorial(t)
}

func walkTutorial(t *testing.T) {
	t.Helper()
	root := repo.Root(t)
	path := filepath.Join(root, "docs/tutorial.md")
	text := repo.Read(t, path)
	inDemoWorld(t, "testdata", "coeff")
	for _, file := range regexp.MustCompile("(?s)```yaml (\\S+)\n(.*?)```\n").FindAllStringSubmatch(string(text), -1) {
		repo.Write(t, file[2], file[1])
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```\n(?:\n```text\n.*?```\n)?")
	got := blocks.ReplaceAllStringFunc(string(text), func(block string) string {
		script := blocks.FindStringSubmatch(block)[1]
		if isSlow(script, slowOfTutorial) && !repo.Eval() {
			return block
		}
		said := walked(t, script)
		if said == "" {
			return "```sh\n" + script + "```\n"
		}
		return "```sh\n" + script + "```\n\n```text\n" + said + "```\n"
	})
	want := strings.Join(landmark.FindAllString(string(text), -1), "\n")
	have := strings.Join(landmark.FindAllString(got, -1), "\n")
	if repo.Eval() {
		want, have = string(text), got
	}
	if want != have && !*updateScripts {
		t.Errorf("docs/tutorial.md does not show what its commands print (-update rewrites it): %s", firstDifference(want, have))
	}
	if m := quotedErrors.FindStringSubmatch(got); m == nil || !strings.Contains(got, "expected error: steps "+m[1]+", TTFT "+m[2]) {
		t.Errorf("docs/tutorial.md explains errors %q that no command of it prints", m)
	}
	for name, p := range tutorialPictures {
		checkPicture(t, filepath.Join(root, "docs/img", name), p.judge, p.figure)
	}
	if *updateScripts {
		repo.Write(t, got, path)
	}
}

// walked runs the commands of one block and is what they print, a bad status at the end.
func walked(t *testing.T, script string) string {
	t.Helper()
	var out bytes.Buffer
	for _, line := range strings.Split(strings.TrimSpace(strings.ReplaceAll(script, "\\\n", " ")), "\n") {
		if status := runWords(t, shellWords(line), &out); status != 0 {
			fmt.Fprintf(&out, "[exit %d]\n", status)
		}
	}
	return progressLine.ReplaceAllString(out.String(), "")
}

// progressLine matches the lines of stages that take more than two seconds, as they do on a busy machine.
var progressLine = regexp.MustCompile(`(?m)^[a-z ]+: +\d+ % .* left\n`)

// shellWords splits a line at spaces outside double quotes.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

func firstDifference(want, got string) string {
	w := strings.Split(want, "\n")
	g := strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d: got %q, want %q", i+1, strings.Join(g[min(i, len(g)):min(i+1, len(g))], ""), w[i])
		}
	}
	return "more lines"
}

// checkPicture opens a picture of the tutorial; -update draws it anew.
func checkPicture(t *testing.T, path, judge, figure string) {
	t.Helper()
	if *updateScripts {
		words := append([]string{"blis-train"}, strings.Fields(judge+" --quiet --figures figures")...)
		if status := run(words, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}); status != 0 && status != exitGate {
			t.Errorf("%s: exit %d", judge, status)
		}
		drawn := repo.Read(t, "figures", figure+".svg")
		repo.Write(t, drawn, path)
	}
	text := repo.Read(t, path)
	if !bytes.HasPrefix(text, []byte("<svg ")) || !bytes.HasSuffix(text, []byte("</svg>\n")) || len(text) > largestPicture {
		t.Errorf("%s: %d bytes, want one whole SVG of at most %d", filepath.Base(path), len(text), largestPicture)
	}
}

// slowOfReadme are commands of the README that take seconds. TestEvalReadme runs them.
var slowOfReadme = []string{"./blis-train size "}

// TestReadme: the README's commands run and print the lines that it shows. Those that start a server, and the real
// runs, which have tests of their own, are only looked up.
func TestReadme(t *testing.T) {
	walkReadme(t)
}

// TestEvalReadme runs the slow commands too.
func TestEvalReadme(t *testing.T) {
	repo.NeedEval(t)
	walkReadme(t)
}

func walkReadme(t *testing.T) {
	t.Helper()
	root := repo.Root(t)
	text := repo.Read(t, root, "README.md")
	inDemoWorld(t, "testdata")
	app := newApp("", strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	seen := 0
	printed := ""
	var shown []string  // lines of output that the README shows
	beforeSlow := false // the last commands were slow ones, which did not run
	for _, block := range pageBlock.FindAllStringSubmatch(string(text), -1) {
		lines := strings.Split(strings.TrimSpace(block[3]), "\n")
		if block[1] == "" && !beforeSlow {
			shown = append(shown, lines...)
		}
		if block[1] != "sh" {
			continue
		}
		beforeSlow = isSlow(block[3], slowOfReadme) && !repo.Eval()
		for _, line := range lines {
			line, comment, _ := strings.Cut(line, " #")
			if !strings.HasPrefix(line, "./blis-train ") {
				continue
			}
			checkCall(t, app, "README.md", shellWords(line))
			if seen++; strings.Contains(line, "run1") || strings.Contains(line, "traces/real") || isSlow(line, slowOfReadme) && !repo.Eval() {
				continue
			}
			want := ""
			if strings.Contains(comment, "exit 3") {
				want = "[exit 3]"
			}
			said := walked(t, strings.TrimPrefix(line, "./"))
			if strings.Contains(said, "[exit") != (want != "") {
				t.Errorf("%s: %s", line, said)
			}
			printed += said
		}
	}
	if seen < 8 {
		t.Errorf("got %d commands, want 8 or more", seen)
	}
	for _, line := range shown {
		if line != "..." && !strings.Contains(printed, strings.TrimSpace(line)) {
			t.Errorf("README.md shows a line that no command prints: %s", line)
		}
	}
}

// pageBlock is a fenced block of a page: its language, a file's name behind it, and its text.
var pageBlock = regexp.MustCompile("(?ms)^```([a-z]*)(?: ([a-z.]+))?\n(.*?)^```$")

// TestPages runs the commands of every ```sh block of docs, each page's in a folder of its own, with the files that stand
// in ```yaml NAME blocks; a line ends with the status that stands behind it as "exit N", else 0. Commands of other blocks,
// and those inside sentences, need the reader's own data: their names and flags are looked up. The tutorial has a test of
// its own.
func TestPages(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the pages' commands were not run")
	}
	walkPages(t)
}

// slowPage trains predictors, which takes seconds: TestPages looks its commands up, and TestEvalPages runs them too.
const slowPage = "predictor.md"

func TestEvalPages(t *testing.T) {
	repo.NeedEval(t)
	walkPages(t)
}

func walkPages(t *testing.T) {
	t.Helper()
	root := repo.Root(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	must(t, err)
	texts := map[string]string{}
	given := map[string]string{}
	for _, page := range pages {
		texts[filepath.Base(page)] = string(repo.Read(t, page))
		for _, block := range pageBlock.FindAllStringSubmatch(texts[filepath.Base(page)], -1) {
			if block[2] != "" {
				given[block[2]] = block[3]
			}
		}
	}
	app := newApp("", strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	ran := 0
	slow := 0
	seen := 0
	inline := regexp.MustCompile("`(blis-train [a-z][^`]*)`")
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			inDemoWorld(t, "testdata")
			for file, text := range given {
				repo.Write(t, text, file)
			}
			for _, block := range pageBlock.FindAllStringSubmatch(text, -1) {
				for _, line := range strings.Split(strings.ReplaceAll(block[3], "\\\n", " "), "\n") {
					line, comment, _ := strings.Cut(strings.TrimPrefix(line, "./"), " #")
					if block[1] == "text" || !strings.HasPrefix(line, "blis-train ") {
						continue
					}
					seen++
					checkCall(t, app, name, shellWords(line))
					if block[1] != "sh" || name == "tutorial.md" {
						continue
					}
					if name == slowPage && !repo.Eval() {
						slow++
						continue
					}
					ran++
					want := regexp.MustCompile(`exit [0-9]+`).FindString(comment)
					if said := walked(t, line); strings.Contains(said, "[exit") != (want != "") || !strings.Contains(said, want) {
						t.Errorf("%s: %s", line, said)
					}
				}
			}
			for _, m := range inline.FindAllStringSubmatch(pageBlock.ReplaceAllString(text, ""), -1) {
				seen++
				checkCall(t, app, name, shellWords(m[1]))
			}
		})
	}
	if ran+slow < 17 || seen < 60 {
		t.Errorf("%d commands were run, %d are for TestEvalPages and %d were looked up, want 17 together and 60 or more", ran, slow, seen)
	}
}

// TestHowWrong: the figures of docs/how-wrong.md are those of the examples; -update
// rewrites them.
func TestHowWrong(t *testing.T) {
	root := repo.Root(t)
	composed, configs := judgedErrors(t, filepath.Join(root, "docs/examples/composed"))
	noisy, real := judgedErrors(t, filepath.Join(root, "docs/examples/real"))
	metrics := []string{"beta_mape", "paired_err_ttft", "paired_err_itl", "paired_err_e2e"}
	rows := []string{
		fmt.Sprintf("| traces of the configuration, a machine without noise | %d composed GPU configurations |%s", configs,
			cellsOf(composed, metrics...)),
		fmt.Sprintf("| traces of the configuration, a shared machine that drifts | %d configurations of real runs on two noisy cores |%s", real,
			cellsOf(noisy, metrics...)),
		fmt.Sprintf("| traces of other configurations only | the same %d, each left out in turn |%s | | |", configs,
			cellsOf(composed, "beta_mape_loco")),
	}
	path := filepath.Join(root, "docs/how-wrong.md")
	text := repo.Read(t, path)
	head, rest, ok := strings.Cut(string(text), "docs/examples -->\n")
	_, tail, ended := strings.Cut(rest, "<!-- end -->")
	if !ok || !ended {
		t.Fatal("the marks around the measured rows are gone")
	}
	want := head + "docs/examples -->\n" + strings.Join(rows, "\n") + "\n<!-- end -->" + tail
	if want == string(text) {
		return
	}
	if !*updateScripts {
		t.Fatalf("docs/how-wrong.md: got other figures than the examples have, want\n%s\n(-update rewrites them)", strings.Join(rows, "\n"))
	}
	repo.Write(t, want, path)
}

// judgedErrors are the sizes of the values of every gate of an example, decided or not, and of
// how many configurations.
func judgedErrors(t *testing.T, example string) (map[string][]float64, int) {
	t.Helper()
	set, _, err := folder.LoadCoefficients(filepath.Join(example, folder.CoefficientsFile), false)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]float64{}
	for _, g := range set.Gates {
		if g.Value != nil {
			out[g.Name] = append(out[g.Name], math.Abs(*g.Value))
		}
	}
	return out, len(out["beta_mape"])
}

// cellsOf are "median / worst" of gates as cells of a table.
func cellsOf(values map[string][]float64, names ...string) string {
	var b strings.Builder
	for _, n := range names {
		v := values[n]
		fmt.Fprintf(&b, " %.0f %% / %.0f %% |", 100*stat.Median(v), 100*slices.Max(v))
	}
	return b.String()
}
