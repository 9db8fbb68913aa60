package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// hostile is a scope that a recording could bring.
const hostile = "a|b<img src=x>@team [x](y) `z`\n# h\x1b"

func judgedForCI() *result.Validation {
	v := &result.Validation{For: coeff.PurposeReplay, Verdict: coeff.VerdictFail, Configs: []result.ConfigErrors{{Scope: hostile}}}
	ks, steps, waits := gate("ks_itl", hostile, "<", 0.3, 0.15), gate("beta_mape", "all", "<", 0.05, 0.15),
		gate("admission_window_mape", "all", "<", 0.9, 0.25)
	ks.Purposes, steps.Purposes, waits.Purposes = []string{"replay"}, []string{"steps", "replay"}, []string{"waits"}
	open := gate("ks_e2e", "all", "<", 0, 0.15)
	open.Pass, open.Value, open.Note, open.Purposes = nil, nil, "insufficient data: 3 requests", []string{"replay"}
	v.Gates = []result.Gate{ks, steps, waits, open}
	return v
}

// A name from a recording ends no cell, starts no tag and calls nobody.
func TestMarkdownIsSafe(t *testing.T) {
	got := SummaryMarkdown(Input{Validation: judgedForCI()})
	for _, want := range []string{"## blis-train: FAIL", "**1 gate failed**", "#gate-ks-itl"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "<img") || strings.Contains(got, "@team") || strings.Contains(got, "\n# h") || strings.Contains(got, "\x1b") {
		t.Errorf("hostile text came through:\n%s", got)
	}
	for _, l := range strings.Split(got, "\n") {
		cells := strings.Count(strings.ReplaceAll(l, `\|`, ""), "|")
		if strings.HasPrefix(l, "|") && cells != 5 {
			t.Errorf("%d bars in the table's line %q, want 5", cells, l)
		}
	}
}

// What exits with 3 is a failure, and nothing else is: gates of other purposes and
// gates without data are skipped.
func TestJUnit(t *testing.T) {
	text, err := JUnit(judgedForCI(), true)
	if err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(got.Suites) != 2 {
		t.Fatalf("got %d suites, want 2", len(got.Suites))
	}
	if skipped := got.Suites[0].Skipped + got.Suites[1].Skipped; got.Tests != 4 || got.Failures != 1 || skipped != 2 {
		t.Errorf("got %d tests, %d failures, %d skipped; want 4, 1, 2", got.Tests, got.Failures, skipped)
	}
	if f := got.Suites[0].Cases[0].Failure; f == nil || !strings.Contains(f.Message, "ks_itl is 0.300, must be < 0.15") {
		t.Errorf("failure: got %+v", f)
	}
	strict, err := JUnit(judgedForCI(), false)
	if err != nil || !strings.Contains(string(strict), `failures="2"`) {
		t.Errorf("what could not be judged is a failure too: got %s, %v", strict, err)
	}
	if s := got.Suites[1].Cases[1].Skipped; s == nil || !strings.Contains(s.Message, "decides nothing for replay") {
		t.Errorf("a gate of another purpose: got %+v", s)
	}
}

// TestJUnitForm: no element, attribute or child that junit-10.xsd of Jenkins' xunit plugin
// does not know, none missing that it requires.
func TestJUnitForm(t *testing.T) {
	type form struct{ required, optional, children []string }
	words := form{optional: []string{"type", "message"}}
	forms := map[string]form{
		"":           {children: []string{"testsuites"}},
		"testsuites": {optional: []string{"name", "time", "tests", "failures", "errors"}, children: []string{"testsuite"}},
		"testsuite": {required: []string{"name", "tests", "failures", "errors"}, optional: []string{"skipped", "time", "timestamp", "hostname",
			"id", "package"}, children: []string{"testcase"}},
		"testcase": {required: []string{"name"}, optional: []string{"classname", "time"}, children: []string{"failure", "skipped"}},
		"failure":  words, "skipped": words,
	}
	text, err := JUnit(judgedForCI(), true)
	if err != nil {
		t.Fatal(err)
	}
	path, seen := []string{""}, map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			name, parent := e.Name.Local, path[len(path)-1]
			if !slices.Contains(forms[parent].children, name) {
				t.Errorf("<%s> in <%s>", name, parent)
			}
			var has []string
			for _, a := range e.Attr {
				has = append(has, a.Name.Local)
				if !slices.Contains(slices.Concat(forms[name].required, forms[name].optional), a.Name.Local) {
					t.Errorf("<%s> has %s", name, a.Name.Local)
				}
			}
			for _, want := range forms[name].required {
				if !slices.Contains(has, want) {
					t.Errorf("<%s> has no %s", name, want)
				}
			}
			path = append(path, name)
			seen[name]++
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
	if seen["testcase"] != 4 || seen["failure"] != 1 || seen["skipped"] != 2 {
		t.Errorf("elements: got %v", seen)
	}
}
