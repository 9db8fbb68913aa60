package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Reasons that an expert has for a verdict.
const (
	quietServer  = "a quiet H100, whose client states what the prompts share: to be trusted"
	overloaded   = "the queue grows to the end of the recording: not to be judged"
	quietSteps   = "steps of a quiet GPU alone: good step times, nothing to replay"
	sharedCores  = "a CPU on two shared cores, whose speed changes by tens of percent: no coefficients hold"
	slowedCores  = "the same, least disturbed: the steps are good, the replay is off by the drift"
	ownRecording = "composed from kernels, with one truth: to be trusted, where there are enough requests"
)

// refused is the verdict of a recording that cannot be fitted.
const refused = "refused"

// verdictTable is what run answers about every public recording, alone, and why an expert agrees. A recording of a
// composed run is that of its clients alone.
var verdictTable = []struct {
	set, run string
	verdicts []string // that do not contradict the expert
	expert   string
}{
	{"real_stock_otlp", "*", []string{coeff.VerdictPass}, quietServer},
	{"real_requests_llmservingsim", "*", []string{refused}, overloaded},
	{"real_step_summaries", "*", []string{coeff.VerdictPass}, quietSteps},
	{"real_vllm_cpu", "gqa-overflow", []string{refused}, overloaded},
	{"real_vllm_cpu", "gqa-preempt", []string{refused}, overloaded},
	{"real_vllm_cpu", "gqa-saturate", []string{refused}, overloaded},
	{"real_vllm_cpu", "*", []string{coeff.VerdictFail, coeff.VerdictInsufficient}, sharedCores},
	{"real_vllm_stock", "*", []string{coeff.VerdictFail, coeff.VerdictInsufficient}, sharedCores},
	{"real_vllm_stock2", "*", []string{coeff.VerdictFail, coeff.VerdictInsufficient, refused}, sharedCores},
	{"composed", "*", []string{coeff.VerdictPass, coeff.VerdictInsufficient, refused}, ownRecording},
}

// TestEvalVerdictTable prints what run answers about every public recording, the gates that decide, and what an expert
// would say; no verdict contradicts the expert.
func TestEvalVerdictTable(t *testing.T) {
	repo.NeedEval(t)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "recording\tverdict\tfor\trequests judged\tdeciding gates\texpert")
	seen := map[string]bool{}
	for _, row := range verdictTable {
		folders, err := filepath.Glob(filepath.Join(repo.Shared(t, "data", row.set), row.run, "run.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range folders {
			dir := filepath.Dir(name)
			label := row.set + "/" + filepath.Base(dir)
			if seen[label] {
				continue
			}
			seen[label] = true
			if row.set == "composed" {
				dir = clientsOf(t, dir)
			}
			o := DefaultRunOptions()
			o.Extract.Out = filepath.Join(t.TempDir(), "out")
			o.Fit.Bootstraps = 50
			got, err := Run(context.Background(), []string{dir}, o)
			verdict, purpose, judged, gates := refused, "", 0, ""
			if err != nil {
				gates = err.Error()
			} else {
				verdict, purpose = got.Validation.Verdict, got.Validation.For
				judged, gates = judgedRequests(got.Validation), decidingGates(got.Validation)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.140s\t%s\n", label, verdict, purpose, judged, gates, row.expert)
			if !slices.Contains(row.verdicts, verdict) {
				t.Errorf("%s: got %s (%s), want %s: %s", label, verdict, gates, strings.Join(row.verdicts, " or "), row.expert)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("got %d recordings, want those of the shared data", len(seen))
	}
}

func judgedRequests(v *result.Validation) int {
	n := 0
	for i := range v.Runs {
		if v.Runs[i].Judged() {
			n += v.Runs[i].Requests
		}
	}
	return n
}

// decidingGates are those that failed or lack data, or that passed where all did.
func decidingGates(v *result.Validation) string {
	var names []string
	for _, g := range v.Gates {
		failed := g.Pass != nil && !*g.Pass
		missing := g.Pass == nil && g.Required
		decides := slices.Contains(g.Purposes, v.For) && (failed || missing || v.Pass && g.Pass != nil && v.For != coeff.PurposeSteps &&
			strings.HasPrefix(g.Name, "paired"))
		if decides && g.Value != nil {
			names = append(names, fmt.Sprintf("%s %.3g", g.Name, *g.Value))
		} else if decides && !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	return strings.Join(names, ", ")
}

// clientsOf is a recording of the clients of a run with traces, as TraceV2 in a folder of its own.
func clientsOf(t *testing.T, dir string) string {
	t.Helper()
	ext, out := extractedFrom(t, dir)
	run, err := table.ReadLean(table.RunDir(out, ext.Runs[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	requests, _ := validate.Requests(run)
	res := &sim.Result{}
	base := int64(0)
	for i := range requests {
		o := &requests[i]
		if o.Excluded != "" || !o.TTFTMs.OK || !o.E2EMs.OK || o.Output < 1 || o.E2EMs.V < o.TTFTMs.V {
			continue
		}
		if base == 0 {
			base = o.ArrivalNs
		}
		at := (o.ArrivalNs - base) / 1000
		res.Requests = append(res.Requests, sim.RequestResult{ArrivalUs: at, PromptTokens: o.Prompt, OutputTokens: o.Output,
			FirstTokenUs: trace.Some(at + int64(1e3*o.TTFTMs.V)), FinishedUs: trace.Some(at + int64(1e3*o.E2EMs.V)),
			DepartedUs: trace.Some(at + int64(1e3*o.E2EMs.V)), Outcome: sim.OutcomeFinished})
	}
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	yaml := string(text)
	for _, key := range []string{"phases:", "files:"} { // of the traces' clock
		if i := strings.Index(yaml, "\n"+key); i >= 0 {
			yaml = yaml[:i+1]
		}
	}
	repo.Write(t, yaml, to, "run.yaml")
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	repo.Write(t, config, to, "config.json")
	writeTraceV2(t, to, res)
	return to
}
