package export

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
)

func TestValidationIsSaid(t *testing.T) {
	src := exampleSource()
	no := false
	src.Validation = &result.Validation{Verdict: coeff.VerdictFail, Gates: []result.Gate{
		{Gate: coeff.Gate{Name: "ks_itl", Scope: "run-a", Pass: &no}}}}
	out := mustExport(t, src, FormatBLIS, Options{})
	if out.Warnings[0].Code != notValidated || !strings.Contains(out.Warnings[0].Message, "ks_itl (run-a)") {
		t.Errorf("got %v", out.Warnings[0])
	}
}

// The command for BLIS is pasted into a shell: a name stays one word.
func TestBLISCommandQuotesNames(t *testing.T) {
	d := testkit.ExampleFit().Configs[0].Deployment
	d.Model.ID, d.Hardware.Name = "a; touch x", "$(id)"
	if got := defaultsCommand(d, ""); !strings.Contains(got, "--model 'a; touch x' ") || !strings.Contains(got, "--hardware '$(id)' ") {
		t.Errorf("got %s", got)
	}
}
