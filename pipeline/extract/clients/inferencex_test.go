package clients

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const inferenceX = `{"hw": "b200", "conc": 16, "model": "m", "framework": "vllm", "precision": "fp8",
 "isl": 1024, "osl": 256, "tp": 4, "ep": 4,
 "dp_attention": "false", "disagg": false, "spec_decoding": "none", "tput_per_gpu": 900.5, "output_tput_per_gpu": 180.1,
 "mean_ttft": 0.25, "median_ttft": 0.2, "p99_ttft": 0.9, "mean_tpot": 0.012, "mean_intvty": 83.3, "mean_itl": 0.012, "mean_e2el": 3.31}`

// TestInferenceX: a level has the figures of its aggregate, in ms, one or in a list; attention in
// data parallel makes its devices ranks; drafts and several engines in a row are dropped by name.
func TestInferenceX(t *testing.T) {
	one := func(text string) *LevelFile {
		t.Helper()
		if !IsClientFile([]byte(text)) {
			t.Errorf("not known by its beginning: %.60s", text)
		}
		f, err := ReadLevels(strings.NewReader(text), "agg.json")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	want := Level{Sweep: "agg.json", Strategy: "concurrent@16", Clients: 16, PromptTokens: 1024, OutputTokens: 256, TTFTMeanMs: 250,
		TTFTMedianMs: 200, ITLMs: 12, E2EMs: 3310, TP: 4, EP: 4}
	for i, text := range []string{inferenceX, "[" + inferenceX + "]"} {
		want.Line = int64(i) // place in a list
		if f := one(text); len(f.Levels) != 1 || f.Levels[0] != want {
			t.Errorf("got %+v, want %+v", f.Levels, want)
		}
	}
	want.TP = 1
	want.DP = 4
	want.Line = 0
	for _, yes := range []string{`"true"`, `true`, `"True"`} {
		if f := one(strings.Replace(inferenceX, `"false"`, yes, 1)); len(f.Levels) != 1 || f.Levels[0] != want {
			t.Errorf("got %+v, want %+v", f.Levels, want)
		}
	}
	for from, to := range map[string]string{`"disagg": false`: `"disagg": true`, `"none"`: `"mtp"`, `"disagg"`: `"mtp": "on", "disagg"`} {
		f := one("[" + inferenceX + "," + strings.Replace(inferenceX, from, to, 1) + "]")
		if len(f.Levels) != 1 || f.Read != 2 || f.Dropped[codeIncomplete] != 1 ||
			!strings.Contains(fmt.Sprint(f.Findings), "want a level that one engine served without drafts") {
			t.Errorf("%s: got %+v of %d, dropped %v", to, f.Levels, f.Read, f.Dropped)
		}
	}
}

// TestBrokenInferenceX: of sixty variants with something missing, changed or cut, each is an
// error, a counted drop, or a level with figures in their ranges.
func TestBrokenInferenceX(t *testing.T) {
	rng, faults := rand.New(rand.NewPCG(39, 14)), 0
	needed := []string{`"conc": 16`, `"isl": 1024`, `"osl": 256`, `"mean_tpot": 0.012`}
	for k := range 60 {
		text := inferenceX
		at := 1 + rng.IntN(len(inferenceX)-2)
		switch key, _, _ := strings.Cut(needed[k/6%4], ":"); k % 6 {
		case 0:
			text = text[:at]
		case 1:
			text = strings.Replace(text, needed[k/6%4], key+": -1", 1)
		case 2:
			text = strings.Replace(text, needed[k/6%4], key+`: "none"`, 1)
		case 3:
			text = strings.Replace(text, needed[k/6%4], key+": 1e300", 1)
		case 4:
			text = strings.Replace(text, needed[k/6%4], `"x`+key[1:]+": 1", 1)
		case 5:
			text = text[:at] + []string{"{", "]", "\x00", ",", `"`}[k/6%5] + text[at:]
		}
		f, err := ReadLevels(strings.NewReader(text), "agg.json")
		switch {
		case err != nil:
			if faults++; !strings.Contains(err.Error(), "agg.json") {
				t.Errorf("%d: %v names no file", k, err)
			}
		case f.Read != len(f.Levels)+f.Dropped[codeIncomplete]:
			t.Errorf("%d: read %d, kept %d, dropped %v", k, f.Read, len(f.Levels), f.Dropped)
		case len(f.Levels) == 0:
			faults++
		case k%6 < 5 && k%6 > 0:
			t.Errorf("%d: kept %+v of %s", k, f.Levels, text)
		}
	}
	if faults < 50 {
		t.Errorf("%d of 60 broken files are faults, want at least 50", faults)
	}
}
