package report

func glossary() PageSection {
	return PageSection{ID: "glossary", Nav: "Words", Title: "Words used here",
		Blocks: []Block{{Table: &Table{ID: "words", Caption: "Words",
			Cols: []Column{{Head: "Word"}, {Head: "Meaning"}},
			Rows: []Row{
				term("step", "one engine iteration; its time is the cadence, the distance between the starts of two steps"),
				term("regime", "what a step holds: decode (one token for each of its requests), prefill (prompt chunks only), or mixed"),
				term("TTFT", "time to first token: FIRST_TOKEN − ARRIVED"),
				term("ITL", "inter-token latency, one value per request: (FINISHED − FIRST_TOKEN) / (output tokens − 1)"),
				term("E2E", "end to end: DEPARTED − ARRIVED"),
				term("overhead", "what passes before a request reaches the engine's input queue; a replay adds it"),
				term("admission", "SCHEDULED − ARRIVED: the whole wait; an estimate for admission control, never added in a replay"),
				term("egress", "DEPARTED − FINISHED"),
				term("MAPE, WAPE", "mean of |error|/measured; sum of |error| over sum of measured"),
				term("floor, skill", "MAPE of the nearest measured neighbours, which is the noise; skill is 1 at the floor and 0 at the best constant"),
				term("KS D", "two-sample Kolmogorov-Smirnov statistic: the largest vertical gap between two empirical distributions, 0 to 1"),
				term("lag", "how many steps lie between a schedule call and the interval that its execution fills; 1 with asynchronous scheduling"),
				term("identified", "within: the data of one configuration know the term; between-configs: only the comparison of configurations "+
					"does; prior-only: nothing does"),
			}}}}}
}

func term(word, meaning string) Row {
	return Row{Cells: []Cell{Name(word), Plain(meaning)}}
}
