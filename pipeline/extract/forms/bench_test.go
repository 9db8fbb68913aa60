package forms

import (
	"encoding/json"
	"strings"
	"testing"
)

const benchText = `{"completed": 2, "total_input_tokens": 3, "input_lens": [10, 20], "output_lens": [3, 1], "ttfts": [0.5, 0.25], "itls": [[0.1, 0.2], []],
"start_times": [100.0, 100.5], "errors": ["", "boom"], "max_concurrency": 4}`

// TestBenchLists: lists that do not belong together are refused with their sizes.
func TestBenchLists(t *testing.T) {
	for from, want := range map[string]string{
		"":                 "",
		`[3, 1]`:           "got 1 output_lens for 2 input_lens",
		`[0.5, 0.25]`:      "got 1 ttfts for 2 input_lens",
		`[[0.1, 0.2], []]`: "got 1 itls for 2 input_lens",
		`["", "boom"]`:     "got 1 errors for 2 input_lens",
	} {
		text := benchText
		if from != "" {
			first, _, _ := strings.Cut(from, ", ")
			if strings.HasPrefix(from, "[[") {
				first = "[[0.1]"
			}
			text = strings.Replace(text, from, first+"]", 1)
		}
		var b benchResult
		err := b.read(walker{json.NewDecoder(strings.NewReader(text))})
		if err == nil {
			err = b.check()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", from, err, want)
		}
	}
}

// FuzzBench: no text panics the reader of vllm bench results.
func FuzzBench(f *testing.F) {
	f.Add(benchText)
	f.Fuzz(func(t *testing.T, text string) {
		var b benchResult
		if b.read(walker{json.NewDecoder(strings.NewReader(text))}) != nil || b.check() != nil {
			return
		}
		for i := range b.inputs {
			if r := b.row(i); !r.PromptTokens.OK || !r.Success.OK {
				t.Errorf("got %+v", r)
			}
		}
	})
}
