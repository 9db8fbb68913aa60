package features

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// released are the lists of the released versions: how many slots, and a hash of everything that
// is said of each. Never edit an entry: a coefficient file that names its version would mean
// something else in this build. A new term goes to the experimental lists; a new version gets lists
// and an entry of its own.
var released = map[Version][2]string{
	V10: {"16", "6a6f16e9697a3d23a1a819a3cb9775e87d436f96fdddd20c741722a704bfc4c1"},
	V11: {"16", "193f3737e5092f3659ef2c3cf0906c356dff407d92da0b26aa30a53d508287a0"},
	V12: {"20", "5262e96918944fdf22f2776a055e02531c58c63730cb5c25eac8c0a528db396b"},
}

func TestReleasedListsNeverChange(t *testing.T) {
	for v, want := range released {
		beta, alpha := describe(BetaFeatures(v)), describe(AlphaFeatures(v))
		got := [2]string{fmt.Sprint(len(BetaFeatures(v))), fmt.Sprintf("%x", sha256.Sum256([]byte(beta+"\n"+alpha)))}
		if got != want {
			t.Errorf("version %s is released and its features changed: got %q, want %q; put the term into the list experimental\n%s\n%s",
				v, got, want, beta, alpha)
		}
	}
	if len(Versions()) != len(released)+1 {
		t.Errorf("got versions %v, want one entry in released for each but %s", Versions(), Experimental)
	}
}

// describe is every slot with all its data, one a line; what its function computes is the formula,
// by another test.
func describe(fs []Feature) string {
	lines := make([]string, len(fs))
	for i := range fs {
		f := &fs[i]
		lines[i] = fmt.Sprintf("%d %s %s %g %g %t %t %g %s", f.Slot, f.Name, f.Kind, f.Penalty, f.PenaltyOne, f.Free, f.Prompt,
			f.Bound, f.Formula)
	}
	return strings.Join(lines, "\n")
}

// No version shares its list with another: an append to one must not show in a second.
func TestListsAreTheirOwn(t *testing.T) {
	seen := map[uintptr]Version{}
	for _, v := range Versions() {
		for _, fs := range [][]Feature{BetaFeatures(v), AlphaFeatures(v)} {
			at := reflect.ValueOf(fs).Pointer()
			if other, ok := seen[at]; ok {
				t.Errorf("versions %s and %s share a list", other, v)
			}
			seen[at] = v
		}
	}
}
