package report

// This file writes the gates of a validation as a JUnit report, for CI servers.

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

// The elements of a JUnit report as CI servers read it: junit-10.xsd of Jenkins' xunit plugin, which
// is Ant's without the host, the properties and the output of each suite. Errors is always 0: a gate
// passes, fails or is skipped.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string      `xml:"classname,attr"`
		Name    string      `xml:"name,attr"`
		Failure *junitWords `xml:"failure"`
		Skipped *junitWords `xml:"skipped"`
	}
	junitWords struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit returns the gates of a validation as a JUnit report: a suite for each scope (configuration
// or run), a case for each gate. Gates that do not change the exit status are skipped cases with a
// message: those that failed for another purpose than the decisive one, those without a result that
// are not required and, with allowInsufficient, all without a result.
func JUnit(v *result.Validation, allowInsufficient bool) ([]byte, error) {
	out := junitSuites{Name: "blis-train gates for " + v.For}
	at := map[string]int{} // index of a scope's suite
	for _, g := range v.Gates {
		i, known := at[g.Scope]
		if !known {
			i = len(out.Suites)
			at[g.Scope] = i
			out.Suites = append(out.Suites, junitSuite{Name: printable(g.Scope)})
		}
		s := &out.Suites[i]
		c := junitCaseOf(v, &g, allowInsufficient)
		s.Tests++
		out.Tests++
		if c.Failure != nil {
			s.Failures++
			out.Failures++
		}
		if c.Skipped != nil {
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	text, err := xml.MarshalIndent(out, "", "  ")
	return append([]byte(xml.Header), append(text, '\n')...), err
}

// junitCaseOf returns the case of one gate.
func junitCaseOf(v *result.Validation, g *result.Gate, allowInsufficient bool) junitCase {
	c := junitCase{Class: "blis-train." + strings.Join(g.Purposes, "+"), Name: g.Name}
	comparison := fmt.Sprintf("%s is %s, must be %s %s", g.Name, GateFigure(g), g.Op, GateThreshold(*g))
	switch {
	case g.Pass == nil && g.Required && isDecisive(v, g) && !allowInsufficient:
		c.Failure = &junitWords{Message: printable(g.Note), Text: gate.Named(g.Name).Failing() + "\n" + result.GateClause(g.Name)}
	case g.Pass == nil:
		c.Skipped = &junitWords{Message: printable(g.Note)}
	case *g.Pass:
	case !isDecisive(v, g):
		c.Skipped = &junitWords{Message: "failed, but decides nothing for " + v.For + ": " + comparison}
	default:
		c.Failure = &junitWords{Message: comparison, Text: gate.Named(g.Name).Failing() + "\n" + result.GateClause(g.Name)}
	}
	return c
}
