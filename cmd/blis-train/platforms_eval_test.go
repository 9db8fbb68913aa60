package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result/folder"
)

// emulators run a program of arm64 on another architecture.
var emulators = []string{"qemu-aarch64-static", "qemu-aarch64"}

// How far numbers of two platforms may be apart, relative. Diagnostics of directions that the
// data do not determine divide by what is nearly zero, so rounding shows in them first.
const (
	platformTolerance = 1e-9
	singularTolerance = 1e-5
)

// singularFigures are the keys of such diagnostics.
var singularFigures = []string{"vif", "covariance", "condition", "null_space", "eigenvalues", "prior_share"}

// platformFigures are keys whose values name the build, digest bytes that hold numbers, or are rounding
// errors themselves (the gradients at the solution).
var platformFigures = []string{
	"platform", "document_digest", "sha256", "bytes", "build", "mbps", "wall_s",
	"fold_fingerprints", "fingerprint", "certificate",
}

// platformZero is the absolute deviation that counts as none: figures such as a bias of 1e-16 are rounding
// errors of zero.
const platformZero = 1e-12

// messageNumber is a number in a sentence; the sentences of two platforms are compared without them,
// because the figures behind them are compared as numbers.
var messageNumber = regexp.MustCompile(`[0-9][0-9.e+-]*`)

// TestEvalSameNumbers runs the demo and both examples of docs/examples with programs for amd64,
// for amd64 with the instructions of GOAMD64=v3, and for arm64 where an emulator is installed.
// One program writes the same bytes with one worker and with all; two programs write the same
// numbers to platformTolerance, and the same text.
func TestEvalSameNumbers(t *testing.T) {
	repo.NeedEval(t)
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("needs linux/amd64 for the native programs, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	dir := t.TempDir()
	programs := []platformProgram{
		{"amd64", []string{buildFor(t, dir, "GOAMD64=v1")}},
		{"amd64 v3", []string{buildFor(t, dir, "GOAMD64=v3")}},
	}
	emulator := emulatorOfARM()
	if emulator != "" {
		programs = append(programs, platformProgram{"arm64", []string{emulator, buildFor(t, dir, "GOARCH=arm64")}})
	} else {
		t.Logf("no emulator of arm64 (%s) in PATH: arm64 is not compared", strings.Join(emulators, ", "))
	}
	shared := filepath.Join("..", "..", "..", "shared", "data")
	for _, data := range []string{
		filepath.Join("..", "..", "testdata", "traces", "demo"),
		filepath.Join(shared, exampleSets[1].data),
		filepath.Join(shared, exampleSets[0].data),
	} {
		t.Run(filepath.Base(data), func(t *testing.T) { comparePlatforms(t, programs, data) })
	}
}

func emulatorOfARM() string {
	for _, name := range emulators {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// platformProgram is how this program is started as built for one platform.
type platformProgram struct {
	name    string
	command []string
}

// runOn runs all four stages on the data and returns the output folder.
func (p platformProgram) runOn(t *testing.T, data string, workers int) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	args := append(slices.Clone(p.command[1:]), "run", data, "-o", out, "--quiet", fmt.Sprintf("--workers=%d", workers))
	cmd := exec.Command(p.command[0], args...)
	if text, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != exitGate {
		t.Fatalf("%s: %v: %s", p.name, err, text)
	}
	return out
}

// comparePlatforms runs the data with every program and compares the documents with the first's.
func comparePlatforms(t *testing.T, programs []platformProgram, data string) {
	if _, err := os.Stat(data); err != nil {
		t.Skipf("skipped: %v", err)
	}
	first := programs[0].runOn(t, data, 1)
	again := programs[0].runOn(t, data, 0)
	for _, name := range []string{folder.ExtractFile, folder.FitFile, folder.CoefficientsFile, folder.ValidationFile, folder.ReportFile} {
		if !bytes.Equal(repo.Read(t, first, name), repo.Read(t, again, name)) {
			t.Errorf("%s: one worker and all workers write different bytes", name)
		}
	}
	for _, p := range programs[1:] {
		out := p.runOn(t, data, 0)
		for _, name := range []string{folder.ExtractFile, folder.FitFile, folder.ValidationFile} {
			c := comparison{}
			c.values("", decoded(t, first, name), decoded(t, out, name))
			t.Logf("%-9s %-16s %6d numbers, largest deviation %.1e (%s), %.1e in singular directions",
				p.name, name, c.numbers, c.largest, c.at, c.singular)
			if c.largest > platformTolerance || c.singular > singularTolerance {
				t.Errorf("%s on %s: numbers deviate from %s by more than %g (singular directions %g)",
					name, p.name, programs[0].name, platformTolerance, singularTolerance)
			}
			for _, d := range c.differences {
				t.Errorf("%s on %s: %s", name, p.name, d)
			}
		}
	}
}

func decoded(t *testing.T, dir, name string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(repo.Read(t, dir, name), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// comparison collects how two JSON documents differ.
type comparison struct {
	numbers     int
	largest     float64 // relative deviation outside singularFigures
	at          string  // path of the largest
	singular    float64 // the same inside them
	differences []string
}

func (c *comparison) differ(path string, a, b any) {
	if len(c.differences) < 10 {
		c.differences = append(c.differences, fmt.Sprintf("%s: got %v, want %v", path, b, a))
	}
}

// values compares two decoded JSON values at a path.
func (c *comparison) values(path string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			c.differ(path, a, b)
			return
		}
		for key, value := range x {
			if !slices.Contains(platformFigures, key) {
				c.values(path+"."+key, value, y[key])
			}
		}
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			c.differ(path, a, b)
			return
		}
		for i := range x {
			c.values(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])
		}
	case float64:
		y, ok := b.(float64)
		if !ok {
			c.differ(path, a, b)
			return
		}
		c.floats(path, x, y)
	case string:
		y, ok := b.(string)
		if !ok || messageNumber.ReplaceAllString(x, "0") != messageNumber.ReplaceAllString(y, "0") {
			c.differ(path, a, b)
		}
	default:
		if a != b {
			c.differ(path, a, b)
		}
	}
}

func (c *comparison) floats(path string, x, y float64) {
	c.numbers++
	if math.Abs(x-y) <= platformZero {
		return
	}
	deviation := math.Abs(x-y) / math.Max(math.Abs(x), math.Abs(y))
	for _, key := range singularFigures {
		if strings.Contains(path, "."+key) {
			c.singular = math.Max(c.singular, deviation)
			return
		}
	}
	if deviation > c.largest {
		c.largest = deviation
		c.at = path
	}
}

// buildFor builds this program with one more variable of the environment.
func buildFor(t *testing.T, dir, variable string) string {
	t.Helper()
	out := filepath.Join(dir, variable)
	cmd := exec.Command("go", "build", "-trimpath", "-o", out, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", variable)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s go build: %v: %s", variable, err, text)
	}
	return out
}
