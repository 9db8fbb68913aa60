package report

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
)

// smallChanges has one change of each kind.
func smallChanges() *result.Changes {
	return &result.Changes{Against: "before/validation.json", Same: 41, Notes: []string{"the coefficients are of another spec"}, Rows: []result.Change{
		{Kind: result.ChangeVerdict, Name: "replay", Scope: "all", Was: "pass", Is: "fail"},
		{Kind: result.ChangeVerdict, Name: "steps", Scope: "all", Was: "fail", Is: "pass"},
		{Kind: result.ChangeVerdict, Name: "waits", Scope: "all", Was: "fail", Is: "insufficient"},
		{Kind: result.ChangeGate, Name: "beta_mape", Scope: "run", Old: ptr(0.08), New: ptr(0.1), Was: "pass", Is: "pass"},
		{Kind: result.ChangeGate, Name: "beta_mape", Scope: "all", Old: ptr(0.08), New: ptr(0.13), Was: "pass", Is: "fail"},
		{Kind: result.ChangeTerm, Name: "bias", Unit: "us", Old: ptr(2000.0), New: ptr(1500.0), P: ptr(0.03)},
		{Kind: result.ChangeTerm, Name: "kv_cache_read", Unit: "us/s", Old: ptr(0.0), New: ptr(1.5e6)},
	}}
}

// fromLevels is a fit from requests and load levels with a value of its own in each place.
func fromLevels() *result.RequestLevel {
	return &result.RequestLevel{Prior: "library", Objective: 0.031, NoiseFloor: 0.0042, SpanErrorFrac: ptr(0.05), TTFTErrorFrac: ptr(0.11), Evaluations: 321,
		SimulatedSteps: 65_432,
		Loads:          []result.RequestLoad{{Name: "a", Tier: "requests", Requests: 120}, {Name: "b", Tier: "points", Requests: 7}},
		Passes:         []result.RequestPass{{Name: "start", Objective: 0.9, Damping: 1}, {Name: "gauss-newton", Objective: 0.031, Damping: 0.25}},
		Directions: []result.LearnedDirection{{Terms: []string{"beta/bias", "beta/kv_cache_read"}, LearnedFrac: 0.97, Learned: true},
			{Terms: []string{"overhead/bias"}, LearnedFrac: 0.12, Needs: "requests that find an idle server"}},
		Scatter:     &result.RequestScatter{StepFrac: 0.021, DriftFrac: 0.013, TTFTFrac: 0.17, OutsideUs: 1900, Recordings: 8},
		CachedShare: &result.CachedShare{Share: 0.2, Low: 0.1, High: 0.31, Requests: 55},
		Levels: []result.LevelHoldout{
			{Run: "r", Name: "c1", TTFTMs: ptr(50.0), PredictedTTFTMs: ptr(45.0), TPOTMs: 8, PredictedTPOTMs: ptr(8.8)},
			{Run: "r", Name: "c8", TTFTMs: ptr(90.0), TPOTMs: 12, PredictedTPOTMs: ptr(11.5)},
			{Run: "r", Name: "c64", TPOTMs: 40},
		}}
}

// TestReportDocuments compares every cell of every table, every sentence and every coordinate of the figures.
func TestReportDocuments(t *testing.T) {
	in := made(small, plainRun)
	in.Changes = smallChanges()
	testkit.Document(t, "sections", withoutGlossary(in), "Help", "Key")
	requests := made(small, plainRun)
	requests.Fit.Requests = fromLevels()
	requests.Extract, requests.Validation, requests.Inspect = nil, nil, nil
	testkit.Document(t, "sections_requests", withoutGlossary(requests), "Help", "Key")
	for _, c := range []struct {
		name string
		in   Input
	}{{"fit", Input{Fit: in.Fit}}, {"validation", Input{Validation: in.Validation}}} {
		for _, s := range Sections(c.in) {
			if s.ID == "fit" && (s.Missing != "" || len(s.Blocks) == 0) {
				t.Errorf("with a %s alone: the accuracy is missing: %s", c.name, s.Missing)
			}
		}
	}
	in.Fit.Requests = fromLevels()
	drawn := map[string][]string{}
	write := func(name string, data []byte) error {
		tags := svgTag.FindAllString(string(data), -1)
		for k, tag := range tags {
			if k%7 == 0 {
				drawn[name] = append(drawn[name], tag)
			}
		}
		drawn[name] = append(drawn[name], sumOf(tags))
		return nil
	}
	if err := Figures(write, in); err != nil {
		t.Fatal(err)
	}
	testkit.Document(t, "figures", drawn)
	texts := map[string]string{}
	for _, section := range withoutGlossary(in) {
		for _, block := range section.Blocks {
			if table := block.Table; table != nil && table.ID != "" {
				texts[table.ID+" in 60 columns"] = table.Terminal(60)
				texts[table.ID+" in 120 columns"] = table.Terminal(120)
			}
		}
	}
	testkit.Document(t, "terminal", texts)
}

// withoutGlossary returns the sections of a page but the list of words, which has no figures.
func withoutGlossary(in Input) []Section {
	return slices.DeleteFunc(Sections(in), func(s Section) bool { return s.ID == "glossary" })
}

// sumOf returns the number of elements of a figure, and the sum of their numbers, each multiplied by a factor of its
// place: every coordinate counts, and few lines of the document are needed for all of them.
func sumOf(tags []string) string {
	sum, n := 0.0, 0
	for _, tag := range tags {
		for _, number := range svgNumber.FindAllString(tag, -1) {
			v, _ := strconv.ParseFloat(number, 64)
			n++
			sum += v * float64(n%97+1)
		}
	}
	return fmt.Sprintf("%d elements, %d numbers, sum %.1f", len(tags), n, sum)
}

var svgNumber = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)?`)

// svgTag matches an element of a figure with its coordinates.
var svgTag = regexp.MustCompile(`<[a-z][^>]*>[^<]*`)
