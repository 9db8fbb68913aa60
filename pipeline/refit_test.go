package pipeline

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result/folder"
)

const (
	recordedFile = `platform: linux/amd64/v1
beta:
  - name: bias
    value: 100
    covariance: [4, 1e-12]
lambda: 0.3
digest: "aa"
`
	hereFile = "linux/arm64/v8.0"
)

// TestRefitComparison: one platform has to repeat the bytes, two have to agree in numbers.
func TestRefitComparison(t *testing.T) {
	for _, c := range []struct {
		name        string
		on          string // platform that made the recorded file
		from, to    string // what the refit writes instead
		equal       bool
		deviation   float64
		differences int // at least
	}{
		{"same bytes", hereFile, "", "", true, 0, 0},
		{"same platform, last digit", hereFile, "value: 100", "value: 100.00000000000001", false, 1.4e-16, 1},
		{"another platform, last digit", "linux/amd64/v1", "value: 100", "value: 100.00000001", true, 1e-10, 0},
		{"another platform, too far", "linux/amd64/v1", "value: 100", "value: 100.000001", false, 1e-8, 2},
		{"another platform, covariance", "linux/amd64/v1", "[4,", "[4.00001,", true, 2.5e-6, 0},
		{"another platform, covariance too far", "linux/amd64/v1", "[4,", "[4.001,", false, 2.5e-4, 2},
		{"another platform, another sign", "linux/amd64/v1", "value: 100", "value: -100", false, 2, 2},
		{"another platform, another name", "linux/amd64/v1", "bias", "slope", false, math.Inf(1), 2},
		{"another platform, one line more", "linux/amd64/v1", "lambda: 0.3", "lambda: 0.3\ngamma: 1", false, math.Inf(1), 2},
		{"unrecorded platform, last digit", "", "value: 100", "value: 100.00000001", true, 1e-10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			again := []byte(recordedFile)
			if c.from != "" {
				again = []byte(replaceOnce(t, recordedFile, c.from, c.to))
			}
			r := &RefitResult{Platform: hereFile, RecordedOn: c.on, File: folder.InputOf("coefficients.yaml", []byte(recordedFile))}
			if err := r.compare([]byte(recordedFile), again); err != nil {
				t.Fatal(err)
			}
			if r.Equal != c.equal || r.Identical != slices.Equal(again, []byte(recordedFile)) {
				t.Errorf("got identical %t, equal %t, want equal %t", r.Identical, r.Equal, c.equal)
			}
			if len(r.Differences) < c.differences || c.differences == 0 && len(r.Differences) > 0 {
				t.Errorf("got differences %q, want at least %d", r.Differences, c.differences)
			}
			switch {
			case math.IsInf(c.deviation, 1):
				if r.LargestDeviation != nil {
					t.Errorf("got a deviation of %g where more than numbers differs", *r.LargestDeviation)
				}
			case r.LargestDeviation == nil || math.Abs(*r.LargestDeviation-c.deviation) > 0.05*c.deviation:
				t.Errorf("got a deviation of %v, want %g", r.LargestDeviation, c.deviation)
			}
		})
	}
}

func replaceOnce(t *testing.T, text, from, to string) string {
	t.Helper()
	if strings.Count(text, from) != 1 {
		t.Fatalf("%q is not once in the file", from)
	}
	return strings.Replace(text, from, to, 1)
}
