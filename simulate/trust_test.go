package simulate

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/library"
)

// TestSubstitutedOperatorsAreNamed: operators of one note are listed together, each once, and are part of the sentence.
func TestSubstitutedOperatorsAreNamed(t *testing.T) {
	var operators []library.Operator
	add := func(name, note string, reached library.Reached) {
		op := library.Operator{Name: name}
		op.Reached = reached
		op.Note = note
		operators = append(operators, op)
	}
	add("gemm", "int8 for fp8", library.Substituted)
	add("gemm", "int8 for fp8", library.Substituted)
	add("head", "int8 for fp8", library.Substituted)
	add("moe", "H200 for H100", library.Substituted)
	add("norm", "measured", library.Measured)
	got := Trust{Sentence: "not validated"}
	got.nameSubstituted(operators)
	if want := "gemm, head (int8 for fp8); moe (H200 for H100)"; strings.Join(got.Substituted, "; ") != want ||
		got.Sentence != "not validated; other rows stand for gemm, head (int8 for fp8), moe (H200 for H100)" {
		t.Errorf("got %q, %q, want %q", got.Substituted, got.Sentence, want)
	}
}
