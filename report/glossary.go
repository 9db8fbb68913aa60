package report

import "slices"

// This file explains the terms of the page.

// purposeNouns name the purposes of coefficients, for sentences such as "For step times: ...".
var purposeNouns = map[string]string{
	"steps":    "step times",
	"replay":   "replay in a simulator",
	"waits":    "queueing delays for admission control",
	"transfer": "other configurations",
	"all":      "every purpose",
}

// glossarySection returns the section with the explanations of terms.
func glossarySection() Section {
	t := wordsLayout.blank()
	for _, w := range termsOfReport {
		at := slices.IndexFunc(Terms, func(t Term) bool { return t.Name == w.term })
		t.Put(Name(w.word), Plain(Terms[at].Meaning))
	}
	return Section{ID: "glossary", Nav: "Words", Title: "Words used here", Blocks: Tables(t)}
}
