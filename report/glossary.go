package report

// This file explains the terms of the page.

// purposeNouns name the purposes of coefficients.
var purposeNouns = map[string]string{
	"steps":    "step times",
	"replay":   "replay in a simulator",
	"waits":    "queueing delays for admission control",
	"transfer": "other configurations",
	"all":      "every purpose",
}

// glossaryEntries explain the terms of the page.
var glossaryEntries = []struct{ word, meaning string }{
	{
		word: "step",
		meaning: "one engine iteration; its time is the cadence, the distance between the starts of " +
			"two steps",
	},
	{
		word: "regime",
		meaning: "the work in a step: decode (one token for each of its requests), prefill (prompt " +
			"chunks only), or mixed",
	},
	{
		word:    "TTFT",
		meaning: "time to first token: FIRST_TOKEN − ARRIVED",
	},
	{
		word: "ITL",
		meaning: "inter-token latency, one value per request: (FINISHED − FIRST_TOKEN) / (output " +
			"tokens − 1)",
	},
	{
		word:    "E2E",
		meaning: "end to end: DEPARTED − ARRIVED",
	},
	{
		word:    "overhead",
		meaning: "the time before a request reaches the engine's input queue; a replay adds it",
	},
	{
		word: "admission",
		meaning: "SCHEDULED − ARRIVED: the whole queueing delay; an estimate for admission control, " +
			"never added in a replay",
	},
	{
		word:    "egress",
		meaning: "DEPARTED − FINISHED",
	},
	{
		word:    "MAPE, WAPE",
		meaning: "mean of |error|/measured; sum of |error| over sum of measured",
	},
	{
		word: "floor, skill",
		meaning: "MAPE of the nearest measured neighbours, which is the noise; skill is 1 at the floor " +
			"and 0 at the best constant",
	},
	{
		word: "KS D",
		meaning: "two-sample Kolmogorov-Smirnov statistic: the largest vertical gap between two " +
			"empirical distributions, 0 to 1",
	},
	{
		word: "lag",
		meaning: "how many steps lie between a schedule call and the interval that its execution " +
			"fills; 1 with asynchronous scheduling",
	},
	{
		word: "identified",
		meaning: "within: the data of one configuration determine the term; between-configs: only the " +
			"comparison of configurations does; prior-only: no data do",
	},
}

// glossarySection returns the section with the explanations of terms.
func glossarySection() Section {
	t := wordsLayout.blank()
	for _, w := range glossaryEntries {
		t.Put(Name(w.word), Plain(w.meaning))
	}
	return Section{ID: "glossary", Nav: "Words", Title: "Words used here", Blocks: Tables(t)}
}
