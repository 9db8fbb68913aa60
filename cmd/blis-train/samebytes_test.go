package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/folder"
)

// emulators run a program of arm64 on another architecture.
var emulators = []string{"qemu-aarch64-static", "qemu-aarch64"}

// TestEvalSameBytes runs both examples of docs/examples and the demo on amd64, on amd64
// with the instructions of GOAMD64=v3, and on arm64 under an emulator: every document has
// the same bytes. The arm64 program has no fused multiply-add in a package of ours outside
// the drawings.
func TestEvalSameBytes(t *testing.T) {
	repo.NeedEval(t)
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("needs linux/amd64 for the native programs, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	emulator := ""
	for _, name := range emulators {
		if path, err := exec.LookPath(name); err == nil {
			emulator = path
		}
	}
	dir := t.TempDir()
	arm := buildFor(t, dir, "GOARCH=arm64")
	t.Run("fused", func(t *testing.T) {
		for _, at := range fusedIn(t, arm) {
			t.Errorf("fused multiply-add: %s: round the product with an explicit conversion", at)
		}
	})
	programs := []platformProgram{{"amd64", []string{buildFor(t, dir, "GOAMD64=v1")}},
		{"amd64 v3", []string{buildFor(t, dir, "GOAMD64=v3")}}}
	if emulator != "" {
		programs = append(programs, platformProgram{"arm64", []string{emulator, arm}})
	} else {
		t.Logf("no emulator of arm64 (%s) in PATH: the program of arm64 is read, not run", strings.Join(emulators, ", "))
	}
	shared := filepath.Join("..", "..", "..", "shared", "data")
	for _, data := range []string{filepath.Join("..", "..", "testdata", "traces", "demo"), filepath.Join(shared, exampleSets[1].data),
		filepath.Join(shared, exampleSets[0].data)} {
		t.Run(filepath.Base(data), func(t *testing.T) { sameOnAll(t, programs, data) })
	}
}

// platformProgram is how this program is started as built for one platform.
type platformProgram struct {
	name    string
	command []string
}

// sameOnAll runs the data on every platform and compares the documents with the first's.
func sameOnAll(t *testing.T, programs []platformProgram, data string) {
	if _, err := os.Stat(data); err != nil {
		t.Skipf("skipped: %v", err)
	}
	var first string
	for _, p := range programs {
		out := filepath.Join(t.TempDir(), "out")
		cmd := exec.Command(p.command[0], append(p.command[1:], "run", data, "-o", out, "--quiet")...)
		if text, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != exitGate {
			t.Fatalf("%s: %v: %s", p.name, err, text)
		}
		if first == "" {
			first = out
		}
		for _, name := range []string{folder.ExtractFile, folder.FitFile, folder.CoefficientsFile, folder.ValidationFile, folder.ReportFile} {
			want, got := fileBytes(t, first, name), fileBytes(t, out, name)
			t.Logf("%-9s %-18s %x", p.name, name, sha256.Sum256(got))
			if !bytes.Equal(want, got) {
				t.Errorf("%s on %s differs from %s: %s", name, p.name, programs[0].name, firstDifference(string(want), string(got)))
			}
		}
	}
}

func fileBytes(t *testing.T, dir, name string) []byte {
	t.Helper()
	b := repo.Read(t, dir, name)
	return b
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

// fusedIn lists where a program of arm64 multiplies and adds in one instruction: packages of
// ours outside the drawings, file, line and function.
//
// Source: Arm Architecture Reference Manual, "Floating-point data-processing (3 source)":
// FMADD, FMSUB, FNMADD and FNMSUB have 0x1f in their first eight bits.
func fusedIn(t *testing.T, program string) []string {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, lines := f.Section(".text"), f.Section(".gopclntab")
	code, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := lines.Data()
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := gosym.NewTable(nil, gosym.NewLineTable(table, text.Addr))
	if err != nil {
		t.Fatal(err)
	}
	const ours = "github.com/blis-train/blis-train/"
	var out []string
	all := 0
	for at := 0; at+4 <= len(code); at += 4 {
		if binary.LittleEndian.Uint32(code[at:])>>24 != 0x1f {
			continue
		}
		all++
		file, line, in := symbols.PCToLine(text.Addr + uint64(at))
		if rel, found := strings.CutPrefix(file, ours); found && in != nil && !strings.HasPrefix(rel, "pipeline/report/") {
			out = append(out, fmt.Sprintf("%s:%d in %s", rel, line, strings.TrimPrefix(in.Name, ours)))
		}
	}
	if all == 0 {
		t.Fatal("no fused multiply-add even in other modules: the program is not read as it should be")
	}
	t.Logf("%d fused multiply-adds in the program, %d of them ours", all, len(out))
	slices.Sort(out)
	return slices.Compact(out)
}

// largestBinary is what a stripped binary for linux/amd64 may weigh, in bytes.
const largestBinary = 35_000_000

// TestEvalSize builds the binary as a release does (.goreleaser.yaml): without build tags,
// stripped, stamped with its commit.
func TestEvalSize(t *testing.T) {
	repo.NeedEval(t)
	t.Chdir(repo.Root(t))
	name := filepath.Join(t.TempDir(), "blis-train")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.releaseCommit=abc", "-o", name, "./cmd/blis-train")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("stripped linux/amd64: %.2f MB", float64(st.Size())/1e6)
	if st.Size() >= largestBinary {
		t.Errorf("the binary weighs %d bytes, want below %d: see docs/decisions/0021-release.md", st.Size(), int64(largestBinary))
	}
	text, err := exec.Command(name, "--version").Output()
	if err != nil {
		t.Skipf("built, but it does not run on this machine: %v", err)
	}
	if !strings.Contains(string(text), "commit abc") {
		t.Errorf("--version: got %s, want the commit of -ldflags", text)
	}
}
