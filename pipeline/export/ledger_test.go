package export

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/google/go-cmp/cmp"
)

func entry(n int) Entry {
	return Entry{SchemaVersion: result.SchemaVersion, Time: fmt.Sprintf("2026-02-17T00:00:%02dZ", n), Stage: "fit", ToolVersion: "0.1.0",
		Command:  "fit --seed 1",
		Inputs:   []result.Input{{Name: "a", Bytes: 1, SHA256: strings.Repeat("f", 64)}},
		Artifact: &result.Input{Name: "coefficients.yaml", Bytes: 9, SHA256: "cd"},
		Headline: NewHeadline(testkit.ExampleFit(), nil)}
}

// Safe when two jobs append at once.
func TestLedgerConcurrentAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	const jobs, each = 8, 25
	var wg sync.WaitGroup
	for j := range jobs {
		wg.Go(func() {
			for i := range each {
				e := entry(i)
				e.Command = strings.Repeat("x", 5000) + fmt.Sprint(j) // longer than a pipe's atomic write
				if err := Append(path, e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	data := repo.Read(t, path)
	got, bad := Read(bytes.NewReader(data), path)
	if len(got) != jobs*each || len(bad) != 0 {
		t.Errorf("%d entries, %d bad lines, want %d and 0", len(got), len(bad), jobs*each)
	}
}

func TestLedgerRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	want := entry(3)
	if err := Append(path, want); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	got, bad := Read(bytes.NewReader(data), path)
	if len(bad) != 0 || len(got) != 1 {
		t.Fatalf("%d entries, bad %v", len(got), bad)
	}
	if d := cmp.Diff(want, got[0]); d != "" {
		t.Error(d)
	}
}

// A line cut by a crash costs that line only, and is named with its place.
func TestLedgerTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	if err := Append(path, entry(1)); err != nil {
		t.Fatal(err)
	}
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString(`{"schema_version":"1","ti`)
	f.Close()
	if err := Append(path, entry(2)); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	got, bad := Read(bytes.NewReader(data), "l")
	if len(got) != 2 || len(bad) != 1 || trace.CodeOf(bad[0]) != BadLedger || !strings.HasPrefix(bad[0].Error(), "l:2: ") {
		t.Errorf("%d entries, bad %v", len(got), bad)
	}
}

func TestHeadline(t *testing.T) {
	val := &result.Validation{Verdict: "pass", Gates: []result.Gate{{Gate: coeff.Gate{Name: "ks_ttft", Value: testkit.Ptr(0.1)}},
		{Gate: coeff.Gate{Name: "ks_ttft", Value: testkit.Ptr(0.12)}}, {Gate: coeff.Gate{Name: "ks_itl"}}}}
	h := NewHeadline(testkit.ExampleFit(), val)
	if *h.KSTTFT != 0.12 || h.KSITL != nil || *h.BetaMAPE != 0.05 || *h.OverheadInside != 0.97 || h.Rows != 100 || h.Configs != 2 ||
		h.Verdict != "pass" {
		t.Errorf("%+v", h)
	}
}
