package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// mutation is a coefficient file that was changed after it was written.
type mutation struct {
	name string
	text string
}

// sectionStart matches a key of the file or of physics_coefficients.
var sectionStart = regexp.MustCompile(`^ {0,2}[a-z_]+:`)

// coefficientMutations returns changes of a coefficient file as accidents and people make them: swept are a line
// removed, the file cut before each section, and a value changed with its digest or with a new one; single are changes
// of the digest, the origin and of one value or name.
func coefficientMutations(text string) (swept, single []mutation) {
	sweep := func(name string, mutated string) { swept = append(swept, mutation{name, mutated}) }
	add := func(name string, mutated string) { single = append(single, mutation{name, mutated}) }
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	digestLine := lines[len(lines)-1]
	bound := func(body string) string { return body + fmt.Sprintf("digest: \"%x\"\n", sha256.Sum256([]byte(body))) }
	without := func(i int) string { return strings.Join(lines[:i], "") + strings.Join(lines[i+1:], "") }
	body := strings.Join(lines[:len(lines)-1], "")

	step := max(1, len(lines)/mutatedLines)
	for i := 0; i < len(lines)-1; i += step {
		sweep(fmt.Sprintf("line %d removed: %s", i+1, strings.TrimSpace(lines[i])), without(i))
	}
	for i := 1; i < len(lines); i++ {
		if sectionStart.MatchString(lines[i]) {
			sweep(fmt.Sprintf("cut before line %d: %s", i+1, strings.TrimSpace(lines[i])), strings.Join(lines[:i], ""))
		}
	}
	values := 0
	for i := range lines {
		key, number, _ := strings.Cut(lines[i], "value: ")
		if strings.TrimSpace(key) != "" || number == "" {
			continue
		}
		if values++; values > 4 {
			break
		}
		changed := strings.Join(lines[:i], "") + key + "value: 3" + number + strings.Join(lines[i+1:len(lines)-1], "")
		sweep(fmt.Sprintf("line %d changed", i+1), changed+digestLine)
		sweep(fmt.Sprintf("line %d changed, with a new digest", i+1), bound(changed))
		sweep(fmt.Sprintf("line %d changed, without the digest", i+1), changed)
		sweep(fmt.Sprintf("line %d changed, origin: hand", i+1), "origin: hand\n"+changed)
	}
	noPlatform := regexp.MustCompile(`(?m)^platform: .*\n`).ReplaceAllString(body, "")
	add("as written", text)
	add("line ends of Windows", strings.ReplaceAll(text, "\n", "\r\n"))
	add("the digest removed", body)
	add("the digest empty", body+"digest: \"\"\n")
	add("the digest null", body+"digest: null\n")
	add("the digest changed", body+strings.Replace(digestLine, `"`, `"0`, 1))
	add("the digest twice", text+digestLine)
	add("the digest of other quotes", body+strings.ReplaceAll(digestLine, `"`, `'`))
	add("a remark after the digest", text+"# mine\n")
	add("no line end", strings.TrimSuffix(text, "\n"))
	add("without platform and digest, as older versions wrote", noPlatform)
	add("without platform, with a new digest", bound(noPlatform))
	add("origin: hand", "origin: hand\n"+body)
	add("origin: hand, with the digest", "origin: hand\n"+text)
	add("origin: hand, with a new digest", bound("origin: hand\n"+body))
	add("origin: mine", bound("origin: mine\n"+body))
	add("origin empty", "origin: \"\"\n"+body)
	add("origin null", "origin: null\n"+body)
	add("an unknown key", bound("note: mine\n"+body))
	add("a value that is no number", bound(strings.Replace(body, "value: ", "value: x", 1)))
	add("a value that is not finite", bound(strings.Replace(body, "value: ", "value: .inf # ", 1)))
	add("another schema", bound(strings.Replace(body, `schema_version: "1"`, `schema_version: "2"`, 1)))
	add("another spec", bound(strings.Replace(body, `spec_version: "1.2"`, `spec_version: "9.9"`, 1)))
	add("another unit", bound(strings.Replace(body, "unit: us/s", "unit: s", 1)))
	add("another term", bound(strings.Replace(body, "name: prefill_attention", "name: attention", 1)))
	add("empty", "")
	return swept, single
}

// mutatedLines is about how many single lines are removed.
const mutatedLines = 30

// answerTo returns how the program reads a coefficient file: refused with a code, or accepted with the codes of its
// warnings.
func answerTo(path string) string {
	set, _, err := folder.LoadCoefficients(path, false)
	if err != nil {
		return "refused " + string(trace.CodeOf(err))
	}
	answer := "accepted"
	for _, w := range set.FileWarnings() {
		answer += " " + string(w.Code)
	}
	return answer
}

// pythonReads prints how the Python package reads the files whose names it is given on stdin.
const pythonReads = `
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
import blis_train_coefficients as b
answers = []
for path in json.load(sys.stdin):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            b.load(path)
            codes = ["document_changed" if "was changed" in str(w.message) else "hand_made" for w in caught]
            answers.append(" ".join(["accepted"] + codes))
        except b.CoefficientError as e:
            answers.append("refused " + e.code)
        except Exception as e:
            answers.append("raised " + repr(e))
json.dump(answers, sys.stdout)
`

// inDemo makes a folder with the demo and its results the current one.
func inDemo(t *testing.T) {
	t.Helper()
	inDemoWorld(t, "testdata")
	if status := runWords(t, demoCommand, io.Discard); status != 0 {
		t.Fatalf("the demo ends with %d", status)
	}
}

// readingCommands are commands that read a coefficient file, which stands for FILE.
var readingCommands = []string{
	"check FILE",
	"simulate --coefficients FILE --deployment testdata/traces/demo/b200-llama-3.1-8b-tp1 --input-len 100 --output-len 2 --num-prompts 2 -o sim",
	"diff FILE FILE",
	"export --coefficients FILE --deployment testdata/traces/demo/b200-llama-3.1-8b-tp1 --format native --ignore-verdict -o native.yaml",
	"features out --run b200-llama-3.1-8b-tp1 --step 100 --coefficients FILE",
}

// TestMutatedCoefficients: the program and the Python package give the same answer to a changed coefficient file, and
// five commands give that of the reader that they share. It tries every single change and a fifth of those that are swept.
func TestMutatedCoefficients(t *testing.T) {
	testMutatedCoefficients(t, 5)
}

// TestEvalMutatedCoefficients tries all.
func TestEvalMutatedCoefficients(t *testing.T) {
	repo.NeedEval(t)
	testMutatedCoefficients(t, 1)
}

// testMutatedCoefficients tries every single change and every n-th of those that are swept.
func testMutatedCoefficients(t *testing.T, n int) {
	packages := filepath.Join(repo.Root(t), "python")
	inDemo(t)
	swept, single := coefficientMutations(string(repo.Read(t, "out", folder.CoefficientsFile)))
	if len(swept)+len(single) < 100 {
		t.Errorf("got %d mutations, want 100", len(swept)+len(single))
	}
	var mutations []mutation
	for i := 0; i < len(swept); i += n {
		mutations = append(mutations, swept[i])
	}
	mutations = append(mutations, single...)
	var paths, want []string
	answers := map[string]int{}
	for i, m := range mutations {
		path := fmt.Sprintf("%d.yaml", i)
		repo.Write(t, m.text, path)
		paths = append(paths, path)
		want = append(want, answerTo(path))
		answers[want[i]]++
	}
	t.Log(answers)
	for i := 0; i < len(mutations); i += len(mutations) / 10 {
		for _, command := range readingCommands {
			checkAnswer(t, mutations[i], strings.ReplaceAll(command, "FILE", paths[i]), paths[i])
		}
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on PATH: the Python package was not compared")
	}
	asked, err := json.Marshal(paths)
	must(t, err)
	cmd := exec.Command(python, "-B", "-c", pythonReads, packages)
	cmd.Stdin = bytes.NewReader(asked)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	var got []string
	must(t, json.Unmarshal(out, &got))
	for i, m := range mutations {
		if got[i] != want[i] {
			_, _, err := folder.LoadCoefficients(paths[i], false)
			t.Errorf("%s: Python %s, the program %s (%v)", m.name, got[i], want[i], err)
		}
	}
}

// checkAnswer runs a command that reads the file at path, and compares what it says with the reader's answer.
func checkAnswer(t *testing.T, m mutation, command, path string) {
	t.Helper()
	var stderr bytes.Buffer
	words := append([]string{"blis-train"}, strings.Fields(command)...)
	status := run(words, strings.NewReader(""), io.Discard, &stderr)
	set, _, err := folder.LoadCoefficients(path, false)
	if err != nil {
		if status != 1 || !strings.Contains(stderr.String(), err.Error()) {
			t.Errorf("%s: %s: got %d, %s, want 1 and %v", m.name, words[1], status, stderr.Bytes(), err)
		}
		return
	}
	warnings := set.FileWarnings()
	wantStatus := 0
	if words[1] == "check" && len(warnings) > 0 {
		wantStatus = 3
	}
	if status != wantStatus {
		t.Errorf("%s: %s: got %d, %s, want %d", m.name, words[1], status, stderr.Bytes(), wantStatus)
	}
	for _, w := range warnings {
		if !strings.Contains(stderr.String(), "warning: "+string(w.Code)) {
			t.Errorf("%s: %s: got %s, want the warning %s", m.name, words[1], stderr.Bytes(), w.Code)
		}
	}
	if len(warnings) == 0 && strings.Contains(stderr.String(), "after it was written") {
		t.Errorf("%s: %s: got %s, want no warning of the file", m.name, words[1], stderr.Bytes())
	}
}

// TestDeploymentsOfTheDemosFile: check of the deployments that the file was trained on ends with 0, and one of a model,
// a GPU and a tp that were each seen but never together is named by check and by simulate.
func TestDeploymentsOfTheDemosFile(t *testing.T) {
	inDemo(t)
	const demo = "testdata/traces/demo/"
	runOn := func(command string) (int, string) {
		var both bytes.Buffer
		status := run(append([]string{"blis-train"}, strings.Fields(command)...), strings.NewReader(""), &both, &both)
		return status, both.String()
	}
	for _, name := range []string{"a100-codellama-34b-tp2", "b200-llama-3.1-8b-tp1", "h100-qwen2.5-14b-tp2"} {
		if status, text := runOn("check out/coefficients.yaml --against " + demo + name); status != 0 {
			t.Errorf("%s: got %d, want 0\n%s", name, status, text)
		}
	}
	yaml := string(repo.Read(t, demo, "b200-llama-3.1-8b-tp1", "run.yaml"))
	repo.Write(t, strings.Replace(yaml, "B200-SXM-180GB", "A100-SXM-80GB", 1), "mixed", "run.yaml")
	repo.Write(t, repo.Read(t, demo, "b200-llama-3.1-8b-tp1", "config.json"), "mixed", "config.json")
	const together = "outside_training: model, hardware and tensor_parallel_size together: got llama-3.1-8b A100-SXM-80GB tp1"
	if status, text := runOn("check out/coefficients.yaml --against mixed"); status != 3 || !strings.Contains(text, together) {
		t.Errorf("check: got %d, want 3 and %s\n%s", status, together, text)
	}
	status, text := runOn("simulate --coefficients out/coefficients.yaml --deployment mixed --input-len 100 --output-len 2 --num-prompts 2 -o sim")
	if status != 0 || !strings.Contains(text, together) {
		t.Errorf("simulate: got %d, want 0 and %s\n%s", status, together, text)
	}
}
