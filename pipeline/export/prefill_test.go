package export

import (
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden holds a file of a format against the one that is kept.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		repo.Write(t, got, path)
	}
	if want := string(repo.Read(t, path)); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// perToken is a step of a constant and so many us a token.
type perToken struct{ base, token float64 }

func (p perToken) StepUs(batch []trace.Chunk) (float64, error) {
	us := p.base
	for _, c := range batch {
		us += p.token * float64(c.New)
	}
	return us, nil
}

// TestPrefillRateFormats: V_P, the threshold and the slope by hand, in the files of the autoscaler and of the router.
func TestPrefillRateFormats(t *testing.T) {
	src := exampleSource()
	src.Fit.Configs = src.Fit.Configs[:1]
	d := &src.Fit.Configs[0].Deployment
	d.Engine.MaxNumBatchedTokens, d.Engine.MaxModelLen = 8192, trace.Some[int64](32768)
	src.Step = func(deploy.Deployment) (StepTimer, error) { return perToken{4000, 50}, nil }
	src.OverheadUs = func(_ deploy.Deployment, prompt int64) (float64, error) { return 1000 + 2*float64(prompt), nil }
	r, err := prefillRateOf(&src, &src.Fit.Configs[0])
	if err != nil {
		t.Fatal(err)
	}
	want := 8192.0 / (5000 + 52*8192) * 1e6
	if math.Abs(r.PerS-want) > 1e-6 || math.Abs(r.SlopeUs-52) > 1e-9 || r.Chunk != 8192 || r.CI95 != nil {
		t.Errorf("got %+v, want %g tokens/s and 52 us/token", r, want)
	}
	write := func(f Format, opt Options, words ...string) (string, error) {
		w := writerOf(f)
		var err error
		if opt.Settings, err = ParseSettings(f, w.Settings, words); err != nil {
			t.Fatal(err)
		}
		out, err := Export(src, w, opt)
		if err != nil {
			return "", err
		}
		return string(out.Files[0].Data), nil
	}
	opt := Options{PromptTokens: 2000, OutputTokens: 100}
	got, err := write(FormatKEDA, opt, "ttft-ms=2000", "statistic=p90", "cached-tokens=500", "namespace=llm", "name=pool")
	if err != nil {
		t.Fatal(err)
	}
	threshold := 0.7 * (2 - 1500/want)
	for _, line := range []string{`query: sum(llm_d_epp_inflight_tokens{namespace="llm"}) / 19008`,
		`query: sum(vllm:kv_cache_usage_perc{namespace="llm"})`,
		`threshold: "` + fmt.Sprintf("%.4g", threshold) + `"`, `threshold: "0.8"`, "kind: ScaledObject", "name: pool"} {
		if !strings.Contains(got, line) {
			t.Errorf("%s: no line %s in\n%s", FormatKEDA, line, got)
		}
	}
	golden(t, "testdata/scaledobject.yaml", got)
	for _, c := range []struct {
		words []string
		want  string
	}{
		{nil, "no TTFT target"},
		{[]string{"ttft-ms=50"}, "alone takes"},
		{[]string{"ttft-ms=2000", "path=pd"}, "transfer"},
	} {
		if _, err := write(FormatKEDA, opt, c.words...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.words, err, c.want)
		}
	}
	if got, err = write(FormatEPP, opt, "p2p=true"); err != nil {
		t.Fatal(err)
	}
	if strings.Count(got, "ttftSource: prefillThroughput\n      peakPrefillThroughput: 19008") != 2 || !strings.Contains(got,
		"prefillMicrosecondsPerToken: 52\n") {
		t.Errorf("%s", got)
	}
	golden(t, "testdata/epp.yaml", got)
	if got, err = write(FormatEPP, opt, "ttft-source=latencyPredictor"); err != nil || strings.Contains(got, "peakPrefill") ||
		strings.Contains(got, "p2p") {
		t.Errorf("%v\n%s", err, got)
	}
}
