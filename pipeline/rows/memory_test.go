package rows

import (
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// TestCleanOwn: outliers are dropped as Clean drops them, in the memory of the columns.
func TestCleanOwn(t *testing.T) {
	copied := yTable("A", Decode, 10, 70, 11, 71, 12)
	own := yTable("A", Decode, 10, 70, 11, 71, 12)
	before := &own.Y[0]
	if want, got := Clean([]*Table{copied}, Relative), CleanOwn(own, Relative); !reflect.DeepEqual(got, want) {
		t.Errorf("findings: got %v, want %v", got, want)
	}
	if !reflect.DeepEqual(own, copied) {
		t.Errorf("got %+v, want %+v", own, copied)
	}
	if own.Kept != 3 || before != &own.Y[0] {
		t.Errorf("%d rows, want 3 in the same memory", own.Kept)
	}
}

// TestExpected: all rows, or one in stride and a sixty-fourth more.
func TestExpected(t *testing.T) {
	for _, c := range []struct{ n, stride, want int }{{1000, 0, 1000}, {1000, 1, 1000}, {1280, 2, 650}, {10, 3, 3}, {0, 3, 0}} {
		if got := Expected(c.n, c.stride); got != c.want {
			t.Errorf("%d rows, one in %d: got %d, want %d", c.n, c.stride, got, c.want)
		}
	}
}

// TestForgotten: step times are the same without requests and members, and what asks for members is an error.
func TestForgotten(t *testing.T) {
	y, _ := play(3, true, true)
	d := toyDeployment(y)
	space, err := features.New(features.V11, d)
	if err != nil {
		t.Fatal(err)
	}
	s := mustRebuild(t, thin(y, firstOnly(y.run.Snapshots)), d, features.V11)
	want, err := s.Beta(space, Options{})
	if err != nil || want.Kept == 0 {
		t.Fatalf("got %d rows (%v), want some", want.Kept, err)
	}
	s.ForgetRequests()
	s.ForgetBatches()
	got, err := s.Beta(space, Options{})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("rows without requests: got %+v (%v), want %+v", got, err, want)
	}
	if err := s.Each(func(*Step, []trace.Member) {}); err != errForgotten {
		t.Errorf("each: got %v", err)
	}
	if _, err := s.Members(s.First); err != errForgotten {
		t.Errorf("members: got %v", err)
	}
}
