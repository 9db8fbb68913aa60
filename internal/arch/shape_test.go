package arch

import (
	"go/ast"
	"go/format"
	"go/scanner"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/blis-train/blis-train/internal/repo"
)

// Sizes of what people write. Generated files and the insides of raw strings are
// exempt.
const (
	maxLine     = 140 // characters; a tab is one
	maxFunction = 80  // lines of a function outside tests
	longAllowed = 8   // functions beyond, in the whole tree
)

// TestShape is gofmt, and the sizes: no line is too long, and hardly a function.
func TestShape(t *testing.T) {
	root := repo.Root(t)
	var long []string
	for _, rel := range repoFiles(t, root) {
		if filepath.Ext(rel) != ".go" {
			continue
		}
		src := []byte(readFile(t, filepath.Join(root, rel)))
		if formatted, err := format.Source(src); err != nil || string(formatted) != string(src) {
			t.Errorf("%s: not as gofmt writes it (%v)", rel, err)
			continue
		}
		f := parsed(t, filepath.Join(root, rel))
		if ast.IsGenerated(f) {
			continue
		}
		if !strings.HasSuffix(rel, "_test.go") {
			long = append(long, longFunctions(positions, f)...)
		}
		for _, line := range longLines(src) {
			t.Errorf("%s:%d: more than %d characters", rel, line, maxLine)
		}
	}
	if len(long) > longAllowed {
		t.Errorf("functions over %d lines: got %d, want at most %d:\n%s", maxFunction, len(long), longAllowed, strings.Join(long, "\n"))
	}
}

// longFunctions are those whose text spans more than maxFunction lines.
func longFunctions(fset *token.FileSet, f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		from, to := fset.Position(fn.Pos()), fset.Position(fn.End())
		if to.Line-from.Line+1 > maxFunction {
			out = append(out, from.String()+" "+fn.Name.Name)
		}
	}
	return out
}

// longLines are the numbers of lines over maxLine, raw strings not counted.
func longLines(src []byte) []int {
	raw := rawWidths(src)
	var out []int
	for i, line := range strings.Split(string(src), "\n") {
		if utf8.RuneCountInString(line)-raw[i+1] > maxLine {
			out = append(out, i+1)
		}
	}
	return out
}

// rawWidths are the characters inside raw strings, by line.
func rawWidths(src []byte) map[int]int {
	out := map[int]int{}
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return out
		}
		if tok == token.STRING && strings.HasPrefix(lit, "`") {
			for i, part := range strings.Split(lit, "\n") {
				out[file.Line(pos)+i] += utf8.RuneCountInString(part)
			}
		}
	}
}

func TestLongLines(t *testing.T) {
	at := strings.Repeat("a", maxLine)
	src := "package p\n// " + at + "\nvar x = `" + at + at + "`\n//" + at[:maxLine-2] + "\nvar y = `\n" + at + "a\n` + \"" + at + "\"\n"
	if got := longLines([]byte(src)); !slices.Equal(got, []int{2, 7}) {
		t.Errorf("got lines %v, want 2 and 7", got)
	}
}
