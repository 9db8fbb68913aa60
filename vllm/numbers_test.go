package vllm

import (
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestValuesThatServeRefuses: values of flags just inside and just outside what vLLM takes.
func TestValuesThatServeRefuses(t *testing.T) {
	for key, c := range map[string]struct{ taken, refused []any }{
		"num_scheduler_steps": {[]any{int64(1), int64(2)}, []any{int64(0), "one"}},
		"stream_interval":     {[]any{int64(1)}, []any{int64(0)}},
		"max_lora_rank":       {[]any{int64(1), int64(8), int64(16), int64(32), int64(64), int64(128), int64(256), int64(320), int64(512)}, []any{int64(2), int64(9), int64(33), int64(257), int64(513)}},
		"compilation_config":  {[]any{int64(0), int64(3), map[string]any{"level": int64(0)}, map[string]any{"level": int64(3)}}, []any{int64(-1), int64(4), map[string]any{"level": int64(-1)}, map[string]any{"level": int64(4)}}},
		"max_logprobs":        {[]any{int64(-1)}, []any{int64(-2)}},
	} {
		for _, v := range c.taken {
			if why := RefusedValue(key, v); why != "" {
				t.Errorf("%s %v: got %q", key, v, why)
			}
		}
		for _, v := range c.refused {
			if why := RefusedValue(key, v); why == "" {
				t.Errorf("%s %v is taken", key, v)
			}
		}
	}
}

// TestTiersOfDecodes: the largest decode batch of each number of query tokens.
func TestTiersOfDecodes(t *testing.T) {
	if got := with("0.30.0", nil).decodeTiers(1); !maps.Equal(got, map[int64]int64{1: 8}) {
		t.Errorf("no drafts: got %v", got)
	}
	if got := with("0.30.0", speculating(`{"method":"ngram","num_speculative_tokens":3}`)).decodeTiers(4); !maps.Equal(got, map[int64]int64{4: 8}) {
		t.Errorf("drafts: got %v", got)
	}
	// 3 drafts up to 4 sequences, 1 from 5 on.
	e := with("0.30.0", speculating(`{"method":"eagle","num_speculative_tokens":3,"num_speculative_tokens_per_batch_size":[[1,4,3],[5,8,1]]}`))
	if got := e.decodeTiers(4); !maps.Equal(got, map[int64]int64{4: 4, 2: 8}) {
		t.Errorf("by batch size: got %v", got)
	}
}

// TestGraphsByLevel: compilation levels with which steps run in CUDA graphs.
func TestGraphsByLevel(t *testing.T) {
	for level, want := range map[int64]bool{0: false, 2: false, 3: true, 4: true} {
		if got := with("0.11.0", Values{"compilation_config": level}).CapturesGraphs(); got != want {
			t.Errorf("level %d: got %t", level, got)
		}
	}
}

// TestValuesOfRules: flags of rules at the edges of what vLLM takes, and rules of releases that are not known.
func TestValuesOfRules(t *testing.T) {
	for _, c := range []struct {
		flag  string
		value any
		ok    bool
	}{
		{"watermark", 0.0, true}, {"watermark", 0.99, true}, {"watermark", 1.0, false}, {"watermark", -0.1, false}, {"watermark", "some", false},
		{"prefill_schedule_interval", int64(1), true}, {"prefill_schedule_interval", int64(0), false}, {"prefill_schedule_interval", 1.5, false},
		{"prefill_schedule_interval", int64(1<<30 - 1), true}, {"prefill_schedule_interval", int64(1 << 30), false}, {"prefill_schedule_interval", math.Inf(1), false},
		{"scheduler_reserve_full_isl", true, true}, {"scheduler_reserve_full_isl", "yes", false},
	} {
		_, err := with("0.33.0", Values{c.flag: c.value}).Rules()
		if (err == nil) != c.ok || err != nil && (trace.CodeOf(err) != BadKnobs || !strings.Contains(err.Error(), c.flag+": got ")) {
			t.Errorf("%s %v: got %v", c.flag, c.value, err)
		}
	}
	newest, err := with("", nil).Rules()
	if err != nil {
		t.Fatal(err)
	}
	known, err := with(NewestFlags().String(), nil).Rules()
	if err != nil || newest != known {
		t.Errorf("a release that is not known: got %+v, want the newest's %+v", newest, known)
	}
	var r Rules
	for i := range rules {
		if value, differs := rules[i].isSet(&r); differs || value == nil {
			t.Errorf("%s: got %v, %t of nothing", rules[i].name, value, differs)
		}
		switch field := rules[i].value(&r).(type) {
		case *bool:
			*field = true
		case *float64:
			*field = 0.5
		case *int64:
			*field = 1
		}
		if value, differs := rules[i].isSet(&r); !differs || value == false || value == 0.0 || value == int64(0) {
			t.Errorf("%s: got %v, %t where it is set", rules[i].name, value, differs)
		}
	}
}

// TestSpeculationThatIsNoObject: what is no JSON object is refused, and how long the drafts that are accepted may be.
func TestSpeculationThatIsNoObject(t *testing.T) {
	for text, want := range map[string]string{
		`[1]`: "speculative_config: ", `{`: "speculative_config: ",
		`{"method":"ngram","num_speculative_tokens":3,"methodd":"x"}`:                               `got the key "methodd"`,
		`{"method":"ngram","num_speculative_tokens":3,"qqqqqqqqqqqqqqqqqqqq":"x"}`:                  `got the key "qqqqqqqqqqqqqqqqqqqq"`,
		`{"method":"ngram","num_speculative_tokens":3,"synthetic_acceptance_length":0.9}`:           "synthetic_acceptance_length: got 0.9, want 1 to 4 tokens",
		`{"method":"ngram","num_speculative_tokens":3,"synthetic_acceptance_length":4.1}`:           "synthetic_acceptance_length: got 4.1",
		`{"method":"ngram","num_speculative_tokens":3,"synthetic_acceptance_length":1}`:             "",
		`{"method":"ngram","num_speculative_tokens":3,"synthetic_acceptance_rates":[1, 1]}`:         "synthetic_acceptance_rates: got [1 1], want 3 rates",
		`{"method":"ngram","num_speculative_tokens":0}`:                                             "num_speculative_tokens: got 0",
		`{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":2,"prompt_lookup_min":2}`: "",
		`{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":2,"prompt_lookup_min":3}`: "prompt_lookup_min: got 3, want at most prompt_lookup_max 2",
	} {
		s, err := with("0.24.0", speculating(text)).Speculation()
		if want == "" {
			if err != nil || s == nil {
				t.Errorf("%s: got %v", text, err)
			}
			continue
		}
		if s != nil || trace.CodeOf(err) != BadKnobs || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want %q", text, s, err, want)
		}
	}
	if s, err := with("0.24.0", Values{"speculative_config": math.NaN()}).Speculation(); s != nil || trace.CodeOf(err) != BadKnobs {
		t.Errorf("no JSON: got %+v, %v", s, err)
	}
}

// TestNestedPython: a log's values are read to a depth of 100.
func TestNestedPython(t *testing.T) {
	for depth, want := range map[int]bool{1: true, 100: true, 101: false, 5000: false} {
		if _, ok := ParsePython(strings.Repeat("[", depth) + strings.Repeat("]", depth)); ok != want {
			t.Errorf("depth %d: got %t", depth, ok)
		}
	}
}

// TestReachedByWords: a limit that certain values of a flag reach.
func TestReachedByWords(t *testing.T) {
	for i := range limits {
		l := &limits[i]
		for _, word := range l.Words {
			get := func(key string) any {
				if key == l.Key {
					return word
				}
				return nil
			}
			if got := l.reached(get); got != l.Key+`: got "`+word+`", want another` {
				t.Errorf("%s %s: got %q", l.Key, word, got)
			}
		}
		if l.Most != nil {
			value := *l.Most
			get := func(string) any { return value }
			if got := l.reached(get); got != "" {
				t.Errorf("%s at its limit: got %q", l.Key, got)
			}
			value++
			if got := l.reached(get); !strings.HasPrefix(got, l.Key+": got ") {
				t.Errorf("%s above its limit: got %q", l.Key, got)
			}
		}
	}
}
