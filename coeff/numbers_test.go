package coeff_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	. "github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// TestFaultsHaveTheirPlace: what a damaged file is told: the message, and the line and column of the value that
// its path names; 0:0 where the fault has no place.
func TestFaultsHaveTheirPlace(t *testing.T) {
	text := save(t, sample())
	for name, c := range map[string]struct {
		old, with string // with replaces the first old
		at        string // the place is where this text begins in the damaged file; "": it has none
		want      string
	}{
		"value NaN":         {"value: 250000", "value: .nan", ".nan", "got .nan, want a finite number"},
		"value -infinite":   {"value: 250000", "value: -.inf", "-.inf", "got -.inf, want a finite number"},
		"value +infinite":   {"value: 250000", "value: .inf", ".inf", "got .inf, want a finite number"},
		"no value":          {"      value: 250000\n", "", "", `coefficient "prefill_attention" in line `},
		"value null":        {"value: 250000", "value: null", "", "got no value, want a number"},
		"gamma":             {"\n  gamma: 0.3\n", "\n  gamma: 1.75\n", "1.75", "gamma: got 1.75, want 0 to 1"},
		"schema version":    {`schema_version: "1"`, `schema_version: "9"`, `"9"`, `schema_version: got "9", want "1"`},
		"origin":            {"command: ", "origin: me\ncommand: ", "me\n", `origin: got "me", want hand or no such key`},
		"nothing":           {text, "", "", "want a coefficient set"},
		"nothing but blank": {text, " \n# a\n#\n\n", "", "want a coefficient set"},
		"a deployment":      {"num_hidden_layers: 2", "num_hidden_layers: -2", "", `configs: deployment of "`},
		"flat form of 1.1":  {"  beta_coefficients:", "  alpha_coefficients: [1]\n  beta_coefficients:", "[1]", "alpha_coefficients: got the flat form with spec_version 1.1, want alpha.<target>.coefficients"},
	} {
		damaged := strings.Replace(text, c.old, c.with, 1)
		if damaged == text {
			t.Errorf("%s: the sample has no %q", name, c.old)
			continue
		}
		_, err := Load(strings.NewReader(damaged), "c.yaml", features.CheckSet)
		var at *trace.SyntaxError
		if !errors.As(err, &at) || at.File != "c.yaml" || at.Code != BadFile || !strings.Contains(at.Msg, c.want) {
			t.Errorf("%s: got %v, want %q in c.yaml", name, err, c.want)
			continue
		}
		if c.at == "" {
			continue
		}
		before := damaged[:strings.Index(damaged, c.at)]
		line, col := int64(1+strings.Count(before, "\n")), int64(len(before)-strings.LastIndex(before, "\n"))
		if at.Line != line || at.Col != col {
			t.Errorf("%s: got %d:%d, want %d:%d (%v)", name, at.Line, at.Col, line, col, err)
		}
	}
}

// TestListsStandOnOneLine: a list of one property is its bare value, a longer one a list on one line.
func TestListsStandOnOneLine(t *testing.T) {
	text := save(t, sample())
	for _, want := range []string{"    model: m\n", "    tp: [1, 2]\n", "    vllm_version: 0.15.1\n", "runs: [r1, r2]\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the file has no %q", want)
		}
	}
	s := sample()
	s.TrainedOn.Models = []string{"m", "k"}
	if text, _ := saved(t, s); !strings.Contains(text, "    model: [m, k]\n") {
		t.Errorf("two models: want [m, k] on one line:\n%s", text)
	}
}

// TestBodyIsWithoutTheDigest: the text before the line of the digest, and all of it where there is none.
func TestBodyIsWithoutTheDigest(t *testing.T) {
	text := []byte(save(t, sample()))
	body, bound := Body(text)
	if !bound || !bytes.HasPrefix(text, body) || !bytes.HasPrefix(text[len(body):], []byte("digest: ")) {
		t.Errorf("got %v and %d of %d bytes, want all but the line of the digest", bound, len(body), len(text))
	}
	if again, bound := Body(body); bound || !bytes.Equal(again, body) {
		t.Errorf("without a digest: got %v and %d of %d bytes, want all", bound, len(again), len(body))
	}
}

// TestOutsideNamesEachProperty: one warning for each property that was not trained; a property whose training is
// not stated has none.
func TestOutsideNamesEachProperty(t *testing.T) {
	for name, c := range map[string]struct {
		trained TrainedOn
		want    []string
	}{
		"nothing stated": {TrainedOn{}, nil},
		"model":          {TrainedOn{Models: []string{"a", "b"}}, []string{`model: got "m", trained on ["a" "b"]`}},
		"hardware":       {TrainedOn{Hardware: []string{"a"}}, []string{`hardware: got "H100-SXM-80GB", trained on ["a"]`}},
		"tp":             {TrainedOn{TPs: []int64{2, 4}}, []string{"tensor_parallel_size: got 1, trained on [2 4]"}},
		"vLLM":           {TrainedOn{VLLMVersions: []string{"0.14.2", "0.1"}}, []string{`vllm version: got "0.15.1", trained on ["0.14.2" "0.1"]`}},
		"a patch":        {TrainedOn{VLLMVersions: []string{"v0.15.9"}}, nil},
		"all": {TrainedOn{Models: []string{"a"}, Hardware: []string{"a"}, TPs: []int64{2}, VLLMVersions: []string{"0.16.1"}}, []string{
			`model: got "m", trained on ["a"]`, `hardware: got "H100-SXM-80GB", trained on ["a"]`,
			"tensor_parallel_size: got 1, trained on [2]", `vllm version: got "0.15.1", trained on ["0.16.1"]`}},
	} {
		s := Set{TrainedOn: c.trained}
		var got []string
		for _, f := range s.Outside(testDeployment()) {
			if f.Code != OutsideTraining {
				t.Errorf("%s: got code %s", name, f.Code)
			}
			got = append(got, f.Message)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestCheckWidths: each width that features read has to be above 0, unless the configuration has sums over layers.
func TestCheckWidths(t *testing.T) {
	for name, of := range map[string]func(s *Set) *float64{
		"bytes_per_weight":     func(s *Set) *float64 { return &s.Configs[0].Deployment.Model.BytesPerWeight },
		"bytes_per_kv":         func(s *Set) *float64 { return &s.Configs[0].Deployment.Model.BytesPerKV },
		"bytes_per_activation": func(s *Set) *float64 { return &s.Configs[0].Deployment.Model.BytesPerActivation },
		"bytes_per_lm_head":    func(s *Set) *float64 { return &s.Configs[0].Deployment.Model.BytesPerLMHead },
	} {
		for value, fails := range map[float64]bool{0.001: false, 0: true, -1: true, math.NaN(): true} {
			s := sample()
			*of(s) = value
			err := s.Check()
			if got := err != nil && strings.Contains(err.Error(), "model "+name+": got "); got != fails {
				t.Errorf("%s %g: got %v", name, value, err)
			}
			if fails {
				s.Configs[0].Layers = s.Configs[0].Deployment.LayerSums()
				if err := s.Check(); err != nil && strings.Contains(err.Error(), "model "+name) {
					t.Errorf("%s %g with sums: got %v", name, value, err)
				}
			}
		}
	}
}
