package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result"
)

var update = flag.Bool("update", false, "rewrite golden files")

func plainRun(i int) string { return fmt.Sprintf("run-%02d_async_open", i) }

func render(t testing.TB, in Input) string {
	t.Helper()
	var b bytes.Buffer
	if err := Render(&b, in); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var skeletonParts = regexp.MustCompile(`<section id="[^"]*"|<h[123][^>]*>[^<]+|<table id="[^"]*"|<button type="button">[^<]+|<figure id="[^"]*"|<div class="panel">|<tbody>|<tr|</table>|<p class="missing">[^<]*`)

// skeleton reduces a page to its structure: sections, headings, tables with
// their columns and number of rows, figures with their number of panels.
func skeleton(page string) string {
	var b strings.Builder
	rows, panels := -1, 0
	flush := func() {
		if panels > 0 {
			fmt.Fprintf(&b, "    panels %d\n", panels)
			panels = 0
		}
	}
	for _, part := range skeletonParts.FindAllString(page, -1) {
		switch {
		case part == "<tbody>":
			rows = 0
		case part == "<tr":
			if rows >= 0 {
				rows++
			}
		case part == "</table>":
			fmt.Fprintf(&b, "    rows %d\n", rows)
			rows = -1
		case strings.HasPrefix(part, `<div class="panel">`):
			panels++
		case strings.HasPrefix(part, "<button"):
			fmt.Fprintf(&b, "    column %s\n", strings.TrimSpace(part[strings.Index(part, ">")+1:]))
		case strings.HasPrefix(part, "<section"):
			flush()
			fmt.Fprintf(&b, "\n%s\n", part[1:])
		default:
			flush()
			fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(part[1:]))
		}
	}
	flush()
	return b.String()
}

// TestStructureGolden pins sections, tables, columns and figures of the page.
func TestStructureGolden(t *testing.T) {
	got := skeleton(render(t, made(small, plainRun)))
	const file = "testdata/structure.golden"
	if *update {
		repo.Write(t, got, file)
	}
	want := repo.Read(t, file)
	if got != string(want) {
		t.Errorf("the page's structure changed (go test ./report -run TestStructureGolden -update, and read the diff):\n%s",
			firstDifference(string(want), got))
	}
}

func firstDifference(want, got string) string {
	w := strings.Split(want, "\n")
	g := strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d: want %q, got %q", i+1, w[i], strings.Join(g[min(i, len(g)):min(i+1, len(g))], ""))
		}
	}
	return fmt.Sprintf("line %d: got %q after the end", len(w), g[len(w)])
}

// TestVerdictFirst: the verdict and the failed gates stand before everything else.
func TestVerdictFirst(t *testing.T) {
	page := render(t, made(small, plainRun))
	order := []string{`class="badge">FAIL`, `id="verdict"`, `id="gates"`, `id="data"`, `id="audit"`, `id="coefficients"`, `id="fit"`, `id="replay"`, `id="provenance"`}
	at := -1
	for _, s := range order {
		i := strings.Index(page, s)
		if i <= at {
			t.Errorf("%s stands at %d, want after %d", s, i, at)
		}
		at = i
	}
	gates := page[strings.Index(page, `id="gates"`):strings.Index(page, `id="data"`)]
	if !strings.Contains(gates, `<a href="`+result.Book+`#gate-beta-mape">beta_<wbr>mape</a>`) {
		t.Error("a gate's name does not lead to its clause")
	}
	if next := strings.Index(page, "What to do next"); next < 0 || next > strings.Index(page, `id="verdict"`) {
		t.Error("what to do next is not in the head of the page")
	}
	if fail, pass := strings.LastIndex(gates, ">FAIL<"), strings.Index(gates, ">pass<"); fail > pass {
		t.Errorf("a failed gate stands after a passed one (%d > %d)", fail, pass)
	}
}

// TestVerdicts: each verdict of a validation has its own words.
func TestVerdicts(t *testing.T) {
	for verdict, want := range map[string]string{
		coeff.VerdictPass: "PASS", coeff.VerdictFail: "FAIL", coeff.VerdictInsufficient: "INSUFFICIENT DATA",
	} {
		in := Input{Validation: &result.Validation{Verdict: verdict, Missing: []string{"ks_ttft needs 164 requests"}}}
		if page := render(t, in); !strings.Contains(page, `class="badge">`+want+"<") {
			t.Errorf("verdict %q is not shown as %s", verdict, want)
		}
	}
	if page := render(t, Input{}); !strings.Contains(page, "NOT VALIDATED") {
		t.Error("a report without validation does not say so")
	}
}

// TestDiagnosisLinks: a diagnosis links to a figure that is on the page, the
// validation's own or, without one, that of the fit.
func TestDiagnosisLinks(t *testing.T) {
	for _, own := range []bool{true, false} {
		in := made(small, plainRun)
		if !own {
			in.Validation.Figures = nil
		}
		page := render(t, in)
		links := regexp.MustCompile(`shown in <a href="#([^"]+)"`).FindAllStringSubmatch(page, -1)
		if len(links) != len(in.Validation.Diagnoses) {
			t.Errorf("own figures %v: %d links, want %d", own, len(links), len(in.Validation.Diagnoses))
		}
		for _, l := range links {
			if !strings.Contains(page, `id="`+l[1]+`"`) {
				t.Errorf("own figures %v: nothing on the page is called %s", own, l[1])
			}
		}
	}
}

// TestMissingParts: any document may be missing, and the page says which
// command makes it.
func TestMissingParts(t *testing.T) {
	full := made(small, plainRun)
	for mask := range 16 {
		var in Input
		for bit, set := range []func(){
			func() { in.Extract = full.Extract }, func() { in.Fit = full.Fit },
			func() { in.Validation = full.Validation }, func() { in.Inspect = full.Inspect },
		} {
			if mask&(1<<bit) != 0 {
				set()
			}
		}
		page := render(t, in)
		if in.Validation == nil && !strings.Contains(page, "blis-train validate") {
			t.Errorf("mask %04b: no word about the missing validation", mask)
		}
		if in.Fit == nil && !strings.Contains(page, "blis-train fit") {
			t.Errorf("mask %04b: no word about the missing fit", mask)
		}
		if in.Inspect == nil && !strings.Contains(page, "blis-train inspect") {
			t.Errorf("mask %04b: no word about the missing inspection", mask)
		}
	}
}

// TestEmptyDocuments: documents without runs, gates or figures render.
func TestEmptyDocuments(t *testing.T) {
	page := render(t, Input{Extract: &result.Extract{}, Fit: &result.Fit{}, Validation: &result.Validation{}, Inspect: &result.Inspect{}})
	if strings.Contains(page, "<figure") {
		t.Error("a figure without data was drawn")
	}
}

// poison sets every string reachable from v, map keys included.
func poison(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			poison(v.Elem(), s)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			poison(v.Field(i), s)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			poison(v.Index(i), s)
		}
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String && v.Len() > 0 {
			value := v.MapIndex(v.MapKeys()[0])
			v.SetMapIndex(reflect.ValueOf(s).Convert(v.Type().Key()), value)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(s)
		}
	}
}

func poisoned(s string) Input {
	in := made(small, func(int) string { return s })
	poison(reflect.ValueOf(&in), s)
	return in
}

// TestEscaping: no string of a recording becomes markup, on the page or in an
// exported figure.
func TestEscaping(t *testing.T) {
	for _, in := range []Input{made(small, func(int) string { return evil }), poisoned(evil)} {
		page := render(t, in)
		if n := strings.Count(page, "<script"); n != 1 {
			t.Errorf("%d script elements, want the page's own", n)
		}
		if strings.Contains(page, "<img") {
			t.Error("an img element got through")
		}
		if !strings.Contains(page, "&lt;script&gt;alert(1)") {
			t.Error("the hostile run name is not shown at all")
		}
		checkFigures(t, in)
	}
}

// TestHostileText: control characters, bidirectional overrides, broken UTF-8
// and very long strings neither break the page nor the figures.
func TestHostileText(t *testing.T) {
	for name, s := range map[string]string{
		"control": "a\x00b\x1b[31mc", "bidi": "run\u202egnp.exe", "utf8": "run\xff\xfe", "long": strings.Repeat("x", 1<<20), "empty": "",
	} {
		in := poisoned(s)
		page := render(t, in)
		if strings.ContainsAny(page, "\x00\x1b\u202e") {
			t.Errorf("%s: a forbidden character is on the page", name)
		}
		if len(page) > 5<<20 {
			t.Errorf("%s: page of %d bytes", name, len(page))
		}
		checkFigures(t, in)
	}
}

// checkFigures parses every exported figure.
func checkFigures(t *testing.T, in Input) {
	t.Helper()
	n := 0
	for _, f := range newFigures(in).all() {
		n++
		dec := xml.NewDecoder(bytes.NewReader(svg(f.Sheet(), f.Title)))
		for {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s.svg: %v", f.ID, err)
			}
			if el, ok := tok.(xml.StartElement); ok {
				switch el.Name.Local {
				case "svg", "title", "rect", "path", "circle", "text":
				default:
					t.Fatalf("%s.svg: element %q", f.ID, el.Name.Local)
				}
			}
		}
	}
	if n == 0 {
		t.Fatal("no figure was made")
	}
}

// TestFigureExport: each figure comes as an SVG file, and the writer's error stops the
// export.
func TestFigureExport(t *testing.T) {
	in := made(small, plainRun)
	var names []string
	err := Figures(func(name string, _ []byte) error {
		names = append(names, name)
		return nil
	}, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"coverage", "load", "target-audit", "pickup-audit", "lag-audit", "utilisation", "cv-surface",
		"pred-vs-measured", "residuals",
		"contributions", "error-cells", "loco", "bias-blocks", "test-pred-vs-measured", "test-residuals", "test-contributions", "ecdf", "qq",
		"drift"} {
		if !slices.Contains(names, id+".svg") {
			t.Errorf("%s.svg was not written", id)
		}
	}
	full := errors.New("disk full")
	if err := Figures(func(string, []byte) error { return full }, in); !errors.Is(err, full) {
		t.Errorf("got %v, want the writer's error", err)
	}
}

// TestFigureWords: every figure says what to look at and what would be bad,
// and every panel has words for a screen reader.
func TestFigureWords(t *testing.T) {
	for _, f := range newFigures(made(small, plainRun)).all() {
		if !strings.HasSuffix(f.Note, ".") || !regexp.MustCompile(`(?i)bad|look`).MatchString(f.Note) {
			t.Errorf("%s: note %q", f.ID, f.Note)
		}
		for _, p := range f.Panels {
			if p.Desc == "" || len(p.D.Marks) < 4 {
				t.Errorf("%s: a panel without words or marks", f.ID)
			}
		}
	}
}

// TestSameBytes: the same Input gives the same page and the same figures.
func TestSameBytes(t *testing.T) {
	collect := func() string {
		in := made(small, plainRun)
		var b bytes.Buffer
		if err := Render(&b, in); err != nil {
			t.Fatal(err)
		}
		for _, f := range newFigures(in).all() {
			b.Write(svg(f.Sheet(), f.Title))
		}
		return b.String()
	}
	first := collect()
	for range 3 {
		if collect() != first {
			t.Fatal("two renderings of the same input differ")
		}
	}
}

// TestSizeCap: hundreds of runs, thousands of gates, cells and findings stay
// under 5 MB, the failed gates survive the cut, and the page says what it cut.
func TestSizeCap(t *testing.T) {
	html := render(t, made(huge, plainRun))
	t.Logf("report: %d bytes for %d runs, %d gates", len(html), huge.runs, huge.gates)
	if len(html) >= 5<<20 {
		t.Errorf("report of %d bytes, want < 5 MB", len(html))
	}
	gates := html[strings.Index(html, `id="gates"`):strings.Index(html, `id="gates-open"`)]
	if !regexp.MustCompile(fmt.Sprintf(`%d of \d{4} rows shown, failed ones first`, 150)).MatchString(gates) {
		t.Error("the gate table does not say what it left out")
	}
	if strings.Contains(gates, ">pass<") {
		t.Error("a passed gate took the place of a failed one")
	}
	if n := strings.Count(html, "<tr"); n > 40*150 {
		t.Errorf("%d table rows on the html", n)
	}
}

// TestPointCap: figures stay small when curves come unaggregated.
func TestPointCap(t *testing.T) {
	const n = 30_000
	in := made(small, plainRun)
	for i := range n {
		x := float64(i + 1)
		in.Validation.Figures.PredVsMeasured = append(in.Validation.Figures.PredVsMeasured,
			result.Bin2D{Regime: "decode", X: x, Y: x + 1, N: 1 + i%7})
		in.Validation.Figures.Residuals = append(in.Validation.Figures.Residuals,
			result.ResidualBand{Against: "time", Regime: "decode", X: x, P10: -0.1, P90: 0.1, N: 3})
		in.Validation.Figures.Contributions = append(in.Validation.Figures.Contributions,
			result.Contribution{Regime: "decode", Name: "bias", MeanUs: 1})
		in.Fit.Beta.Grid = append(in.Fit.Beta.Grid, result.GridPoint{Lambda: 1 + float64(i%500), GammaEMA: 0.5, Within: ptr(x)})
	}
	for r := range in.Validation.Runs {
		run := &in.Validation.Runs[r]
		for c := range run.Figures.ECDF {
			run.Figures.ECDF[c].Points, _ = madeCurves(rand.New(rand.NewPCG(3, 4)), 50, n)
		}
		for i := range n {
			run.Drift = append(run.Drift, result.DriftPoint{StartS: float64(20 * i), Factor: 1 + 0.2*float64(i%2), Rows: 5})
		}
	}
	page := render(t, in)
	t.Logf("report: %d bytes", len(page))
	if len(page) > 3<<20 {
		t.Errorf("page of %d bytes", len(page))
	}
	if !strings.Contains(page, "penalties and 3 memories; fit.json holds all") {
		t.Error("the page does not say that the grid was cut")
	}
}

// BenchmarkRender is the cost of the largest page.
func BenchmarkRender(b *testing.B) {
	in := made(huge, plainRun)
	b.ReportAllocs()
	for b.Loop() {
		if err := Render(io.Discard, in); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleRender() {
	var page bytes.Buffer
	err := Render(&page, Input{Validation: &result.Validation{Verdict: coeff.VerdictPass, Pass: true}})
	fmt.Println(err, strings.Contains(page.String(), "PASS"))
	// Output: <nil> true
}
