package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/sim"
)

// inspectClients inspects a recorded load without its chunk file, changed by edit.
func inspectClients(t *testing.T, rate float64, n int, edit func(dir string)) result.InspectRun {
	t.Helper()
	parent := t.TempDir()
	dir, dep := chunkRun(t, parent, "r")
	recordChunks(t, dir, dep, testkit.PlantedOn(dep), rate, n, 0)
	if err := os.Remove(filepath.Join(dir, "trace.itl.csv")); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(dir)
	}
	doc, err := Inspect(context.Background(), []string{parent}, DefaultInspectOptions())
	if err != nil {
		t.Fatal(err)
	}
	return doc.Runs[0]
}

// TestLearnable: what requests teach is said before any fit: a quiet load shows what a
// step costs and not what a delay does, an overload is called one.
func TestLearnable(t *testing.T) {
	r := inspectClients(t, 2, 200, nil)
	if r.Unfit || r.Tier != tierRequests || r.Saturated || r.NoiseFloor == nil || len(r.Learnable) != 9 {
		t.Fatalf("got unfit %v (%s), tier %s, %d directions, floor %v", r.Unfit, r.Reason, r.Tier, len(r.Learnable), r.NoiseFloor)
	}
	for i, shown := range []bool{true, true, true, true, false, true, false, false, false} {
		if d := r.Learnable[i]; d.Shown != shown || (d.Adds == "") != shown {
			t.Errorf("%s: shown %v, want %v (%s; %s)", d.Direction, d.Shown, shown, d.Got, d.Adds)
		}
	}
	if r := inspectClients(t, 60, 600, nil); !r.Saturated || r.Learnable[5].Shown {
		t.Errorf("an overload: saturated %v, overhead shown %v (%s): %+v", r.Saturated, r.Learnable[5].Shown, r.Learnable[5].Got, r.Saturation)
	}
	points := inspectClients(t, 2, 2, func(dir string) {
		for _, name := range []string{"trace.csv", "trace.yaml"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		const levels = "input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms\n500,100,1,20,10\n500,100,16,40,12\n3000,100,4,90,11\n"
		repo.Write(t, levels, dir, "levels.csv")
	})
	if points.Unfit || points.Tier != tierPoints || points.Points != 3 || !points.Learnable[0].Shown || !points.Learnable[1].Shown ||
		points.Learnable[5].Shown {
		t.Errorf("levels: got %+v", points)
	}
}

// TestGainIsNotChance: a set that is off by 20 % gains nothing, neither does the prior itself; what is right where the prior is off by
// 20 % says nothing.
func TestGainIsNotChance(t *testing.T) {
	d := testkit.Llama8B()
	right := learn.Roofline(d).Set
	off := *right
	off.Beta = slices.Clone(right.Beta)
	for j := range off.Beta {
		off.Beta[j].Value *= 1.2
	}
	l := &learn.Load{Name: "load", Deployment: d}
	for i := range int64(50) {
		l.Requests = append(l.Requests, sim.Request{ArrivalUs: i * 500_000, PromptTokens: 100 + 37*(i%11), OutputTokens: 20 + i%7})
	}
	var err error
	if l.Seen, err = l.Predict(right); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		learned, prior *coeff.Set
		want           string
	}{"worse": {&off, right, "by 0.0 % with the prior"}, "alike": {&off, &off, "between +0.0 and +0.0"}, "better": {right, &off, ""}} {
		g, err := gainOf([]*learn.Load{l}, c.learned, c.prior)
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(g.finding())
		if (said == "[]") != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: got %s (%+v), want %q", name, said, g, c.want)
		}
	}
}
