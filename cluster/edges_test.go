package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/trace"
)

// TestPresets states every experiment that has a name, and the load of each.
func TestPresets(t *testing.T) {
	want := []preset{
		{Name: "seed", Load: "seed", Rate: 2000, Seconds: 1, Transient: true},
		{Name: "sustained", Load: "seed", Rate: 2000, Seconds: 40, WarmupS: 10},
		{Name: "sweep", Load: "seed", Rho: 1.1, Seconds: 40, WarmupS: 10, Loads: []float64{0.9, 1.1, 1.5, 2.1}},
		{Name: "groups", Load: "groups", Rho: 1.5, Seconds: 40, WarmupS: 10},
		{Name: "newcomer", Load: "newcomer", Rho: 1.5, Seconds: 40, WarmupS: 10},
		{Name: "bursty", Load: "bursty", Rho: 1.1, Seconds: 40, WarmupS: 10},
		{Name: "mooncake", Load: "mooncake", Rho: 1.5, Seconds: 40, WarmupS: 10},
		{Name: "workload", Load: "workload", Seconds: 40, WarmupS: 10},
	}
	if len(presets) != len(want) {
		t.Errorf("got %d presets, want %d", len(presets), len(want))
	}
	for i, p := range presets {
		if !reflect.DeepEqual(p, want[i]) {
			t.Errorf("got %+v, want %+v", p, want[i])
		}
		if l, ok := loads[p.Load]; !ok || l.Name != p.Load {
			t.Errorf("%s: got load %+v", p.Name, l)
		}
	}
	// The published prompts have 640 to 896 tokens, and 256 + 512 in the mean.
	if got, want := loads["seed"], (load{Name: "seed", Groups: 1, Prefix: [2]int64{512, 512}, Own: [2]int64{128, 384}, Output: [2]int64{64, 192}, CV: 1}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	grouped := load{Name: "groups", Groups: 32, Prefix: [2]int64{256, 4096}, Own: [2]int64{64, 448}, Unique: 0.25, UniqueLen: [2]int64{512, 4096}, Output: [2]int64{64, 192}, CV: 1}
	newcomer, bursty := grouped, grouped
	newcomer.Name, newcomer.Newcomer = "newcomer", true
	bursty.Name, bursty.CV = "bursty", 2
	for _, want := range []load{grouped, newcomer, bursty} {
		if got := loads[want.Name]; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestErrorsOfASpec: without a cluster file an error is of the flags, and a misuse of them; with one it is of the file.
func TestErrorsOfASpec(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	for _, c := range []struct {
		text      string // "": no file
		instances int
		want      string
		isMisuse  bool
	}{
		{"", 0, "", false},
		{"", 1, "", false},
		{"", -1, "instances: got -1, want >= 1", true},
		{"instances: 2\n", 0, "", false},
		{"instances: 2\n", 3, "", false},
		{"instances: 2\n", -1, "instances: got -1, want >= 1", false},
		{"instances: 2\nscrape: odd\n", 0, "scrape: got ", false},
		{"instances: [\n", 0, path, false},
	} {
		o := &Options{Instances: c.instances}
		if c.text != "" {
			o.File = path
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := &simulation{o: o}
		inputs, err := s.readSpec()
		misuse := (*option.Misuse)(nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || errors.As(err, &misuse) != c.isMisuse {
			t.Errorf("%q, %d: got %v, a misuse %v, want %q", c.text, c.instances, err, misuse != nil, c.want)
		}
		if c.want != "" && !c.isMisuse && trace.CodeOf(err) == "" {
			t.Errorf("%q: got no code of %v", c.text, err)
		}
		if err != nil {
			continue
		}
		count := max(1, c.instances)
		if c.text != "" && c.instances == 0 {
			count = 2
		}
		if got := s.spec.Instances.Count(); got != count || (len(inputs) == 1) != (c.text != "") {
			t.Errorf("%q, %d: got %d instances, %v", c.text, c.instances, got, inputs)
		}
	}
	o := &Options{File: filepath.Join(t.TempDir(), "none.yaml")}
	if _, err := (&simulation{o: o}).readSpec(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: got %v", err)
	}
}
