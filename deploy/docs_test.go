package deploy

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite generated parts of docs")

const runYAMLDoc = "../docs/run-yaml.md"

// The generated parts of docs/run-yaml.md are current; -update rewrites them.
func TestRunYAMLDocIsGenerated(t *testing.T) {
	text, err := os.ReadFile(runYAMLDoc)
	if err != nil {
		t.Fatal(err)
	}
	want := replaceBetween(t, string(text), "hardware", hardwareTable())
	want = replaceBetween(t, want, "flags", flagTable())
	if *update {
		if err := os.WriteFile(runYAMLDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is out of date; rerun with -update", runYAMLDoc)
	}
}

// replaceBetween puts body between the markers of the part.
func replaceBetween(t *testing.T, text, part, body string) string {
	t.Helper()
	open, end := "<!-- "+part+": generated, see deploy/docs_test.go -->\n", "<!-- end of "+part+" -->\n"
	before, rest, ok1 := strings.Cut(text, open)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no markers for %s", runYAMLDoc, part)
	}
	return before + open + body + end + after
}

func hardwareTable() string {
	var b strings.Builder
	b.WriteString("| name | TFlopsPeak | TFlopsFP8 | BwPeakTBs | memory_gb | pcie_bandwidth_gb_s | interconnect_bandwidth_gb_s | " +
		"interconnect_latency_us |\n|---|---|---|---|---|---|---|---|\n")
	for _, h := range Datasheets() {
		fmt.Fprintf(&b, "| %s | %g | %g | %g | %g | %g | %g | %g |\n", h.Name, h.TFlopsPeak, h.TFlopsFP8, h.BwPeakTBs, h.MemoryGB,
			h.PCIeBandwidthGBs, h.InterconnectBandwidthGBs, h.InterconnectLatencyUs)
	}
	return b.String()
}

func flagTable() string {
	var items []string
	for _, f := range serveFlags {
		item := "`" + f.name + "`"
		switch {
		case f.since != always && f.until != always:
			item += fmt.Sprintf(" (%s to %s)", minor(f.since), minor(f.until))
		case f.since != always:
			item += fmt.Sprintf(" (from %s)", minor(f.since))
		case f.until != always:
			item += fmt.Sprintf(" (to %s)", minor(f.until))
		}
		items = append(items, item)
	}
	return strings.Join(items, ",\n") + ".\n"
}

func minor(v [2]int) string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

func TestServeFlagsAreSortedAndDistinctFromOurs(t *testing.T) {
	if !slices.IsSortedFunc(serveFlags, func(a, b serveFlag) int { return strings.Compare(a.name, b.name) }) {
		t.Error("serveFlags is not sorted by name")
	}
	for i, f := range serveFlags {
		if i > 0 && serveFlags[i-1].name == f.name {
			t.Errorf("%s stands twice", f.name)
		}
		if target, own := ownFlags[f.name]; own && !strings.HasPrefix(target, "tracing.") && f.name != "model" {
			t.Errorf("%s has a field of its own and is provenance too", f.name)
		}
	}
	if !isServeFlag("enforce_eager", "0.15.1") || isServeFlag("num_scheduler_steps", "0.15.1") ||
		!isServeFlag("num_scheduler_steps", "0.9.2") ||
		isServeFlag("enable_mfu_metrics", "0.9.2") || !isServeFlag("enable_mfu_metrics", "unknown") {
		t.Error("versions of flags are not respected")
	}
}

// Every key the loader knows stands in the page.
func TestRunYAMLDocNamesEveryKey(t *testing.T) {
	text, err := os.ReadFile(runYAMLDoc)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sections {
		for _, key := range s.keys {
			if !strings.Contains(string(text), key) {
				t.Errorf("%s.%s is not in %s", s.name, key, runYAMLDoc)
			}
		}
	}
}
