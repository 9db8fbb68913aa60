package arch

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// What the main module may come to, tests not counted.
const (
	mostPackages = 60
	mostEdges    = 400 // imports between our packages
	longestChain = 16  // packages that import each other in a row
	mostCode     = 96_000
)

// TestHouse counts the main module: packages, imports, code lines without blanks and
// comments. It prints what it counted.
func TestHouse(t *testing.T) {
	root := repo.Root(t)
	imports := map[string]map[string]bool{}
	code, comments := 0, 0
	for _, rel := range repoFiles(t, root) {
		dir := path.Dir(rel)
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || strings.HasPrefix(dir, "cmd/blis-train-beam") {
			continue
		}
		if imports[dir] == nil {
			imports[dir] = map[string]bool{}
		}
		for _, spec := range parsed(t, filepath.Join(root, rel)).Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if of, ours := strings.CutPrefix(name, module+"/"); ours {
				imports[dir][of] = true
			}
		}
		c, m := lineKinds([]byte(readFile(t, filepath.Join(root, rel))))
		code, comments = code+c, comments+m
	}
	edges, longest := 0, 0
	depth := map[string]int{}
	for dir := range imports {
		edges += len(imports[dir])
		longest = max(longest, chain(dir, imports, depth))
	}
	t.Logf("%d packages, %d imports, a chain of %d; %d lines of code, %d of comments", len(imports), edges, longest, code, comments)
	for _, l := range []struct {
		what      string
		got, most int
	}{{"packages", len(imports), mostPackages}, {"imports", edges, mostEdges}, {"chain", longest, longestChain}, {"lines of code",
		code, mostCode}} {
		if l.got > l.most {
			t.Errorf("%s: got %d, want at most %d", l.what, l.got, l.most)
		}
	}
}

func chain(dir string, imports map[string]map[string]bool, depth map[string]int) int {
	if depth[dir] == 0 {
		longest := 0
		for of := range imports[dir] {
			longest = max(longest, chain(of, imports, depth))
		}
		depth[dir] = longest + 1
	}
	return depth[dir]
}

// lineKinds counts lines with code and lines with nothing but comments.
func lineKinds(src []byte) (code, comments int) {
	const comment, text = 1, 2
	kinds := make([]int, strings.Count(string(src), "\n")+3)
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		kind := text
		if tok == token.COMMENT {
			kind = comment
		}
		for i := range strings.Count(lit, "\n") + 1 {
			kinds[file.Line(pos)+i] = max(kinds[file.Line(pos)+i], kind)
		}
	}
	for _, k := range kinds {
		switch k {
		case text:
			code++
		case comment:
			comments++
		}
	}
	return code, comments
}

// executed is a function that ran, in what go tool covdata func prints.
var executed = regexp.MustCompile(`(?m)^` + module + `/(\S+)/[^/]+\.go:\d+:\s+(\S+)\s+([0-9.]+)%`)

// TestEvalWalk runs extract and fit of the smoke run with a program that counts, and
// prints the packages of which a function ran: what one span passes from a dump to
// coefficients.yaml. At most 22, and those that CONTRIBUTING.md draws.
func TestEvalWalk(t *testing.T) {
	if !repo.Eval() {
		t.Skip("BLIS_TRAIN_EVAL is not set: the walk of a span was not counted")
	}
	root, dir := repo.Root(t), t.TempDir()
	program, out, counts := filepath.Join(dir, "blis-train"), filepath.Join(dir, "out"), filepath.Join(dir, "counts")
	if err := os.Mkdir(counts, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOCOVERDIR="+counts)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, text)
		}
		return string(text)
	}
	run("go", "build", "-cover", "-coverpkg=./...", "-o", program, "./cmd/blis-train")
	run(program, "extract", "testdata/traces/smoke", "-o", out)
	run(program, "fit", out)
	ran := map[string]int{}
	for _, m := range executed.FindAllStringSubmatch(run("go", "tool", "covdata", "func", "-i="+counts), -1) {
		if m[2] != "init" && m[3] != "0.0" {
			ran[m[1]]++
		}
	}
	var list []string
	for p, n := range ran {
		list = append(list, fmt.Sprintf("%s (%d functions)", p, n))
	}
	slices.Sort(list)
	t.Logf("%d packages:\n%s", len(list), strings.Join(list, "\n"))
	_, drawing, _ := strings.Cut(readFile(t, filepath.Join(root, "CONTRIBUTING.md")), "\nextract:  ")
	drawing, _, _ = strings.Cut(drawing, "```")
	drawn := map[string]bool{}
	for _, word := range regexp.MustCompile(`[a-z][a-z/-]*`).FindAllString(drawing, -1) {
		if _, err := os.Stat(filepath.Join(root, word)); err == nil {
			drawn[word] = true
		}
	}
	for p := range ran {
		if !drawn[p] {
			t.Errorf("CONTRIBUTING.md does not draw %s", p)
		}
	}
	for p := range drawn {
		if ran[p] == 0 {
			t.Errorf("CONTRIBUTING.md draws %s, of which nothing ran", p)
		}
	}
	if len(list) == 0 || len(list) > 22 {
		t.Errorf("got %d packages, want 1 to 22", len(list))
	}
}
