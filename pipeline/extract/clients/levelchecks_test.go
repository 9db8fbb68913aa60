package clients

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// TestImpossibleLevels: an honest sweep is read whole; one with a unit, a column or a row that cannot be is not
// learned from.
func TestImpossibleLevels(t *testing.T) {
	type row struct{ rate, ttft, itl, e2e float64 }
	honest := func() (rows []row) {
		for i, rate := range []float64{0.5, 1, 2, 3, 4, 5, 6} {
			itl := 8 + 2*float64(i)
			ttft := 40 + 15*float64(i*i)
			rows = append(rows, row{rate, ttft, itl, ttft + 199*itl})
		}
		return rows
	}
	for _, c := range []struct {
		name   string
		spoil  func(rows []row) []row
		kept   int
		reason trace.Code
	}{
		{"honest", func(r []row) []row { return r }, 7, ""},
		{"ITL in us", func(r []row) []row {
			for i := range r {
				r[i].itl *= 1000
			}
			return r
		}, 0, source.CodeBadRecord},
		{"ITL and TTFT in another unit", func(r []row) []row {
			for i := range r {
				r[i].itl /= 1e4
				r[i].ttft /= 1000
			}
			return r
		}, 0, source.CodeBadRecord},
		{"E2E in s", func(r []row) []row {
			for i := range r {
				r[i].e2e /= 1000
			}
			return r
		}, 0, source.CodeBadRecord},
		{"TTFT column turned round", func(r []row) []row {
			for i := range len(r) / 2 {
				j := len(r) - 1 - i
				r[i].ttft, r[j].ttft = r[j].ttft, r[i].ttft
			}
			return r
		}, 0, source.CodeBadRecord},
		{"rows twice", func(r []row) []row { return slices.Concat(r, r) }, 7, source.CodeDuplicate},
		{"a cold first level", func(r []row) []row {
			r[0].ttft *= 20
			r[0].e2e += 19 * 40
			return r
		}, 7, ""},
	} {
		var text strings.Builder
		text.WriteString("input_tokens,output_tokens,rate_rps,ttft_ms,tpot_ms,e2e_ms\n")
		for _, r := range c.spoil(honest()) {
			fmt.Fprintf(&text, "1000,200,%g,%g,%g,%g\n", r.rate, r.ttft, r.itl, r.e2e)
		}
		f, err := ReadLevels(strings.NewReader(text.String()), "levels.csv")
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Levels) != c.kept || c.reason != "" && f.Dropped[c.reason] != f.Read-c.kept {
			t.Errorf("%s: got %d levels, dropped %v, %v, want %d", c.name, len(f.Levels), f.Dropped, f.Findings, c.kept)
		}
	}
	little := Level{RateRPS: 2, Clients: 8, Requests: 400, PromptTokens: 100, OutputTokens: 101, TTFTMeanMs: 100, ITLMs: 39, TTFTMedianMs: 100}
	if why := little.contradiction(); why != "" {
		t.Errorf("8 clients at 2 requests/s of 4 s: %s", why)
	}
	for _, clients := range []int{4, 16} {
		l := little
		l.Clients = clients
		if !strings.Contains(l.contradiction(), "Little") {
			t.Errorf("%d clients at 2 requests/s of 4 s: accepted", clients)
		}
	}
	l := little
	l.Clients, l.Concurrency = 0, 16
	if !strings.Contains(l.contradiction(), "Little") {
		t.Error("16 requests in flight at 2 requests/s of 4 s: accepted")
	}
}
