package arch

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// words are terms of docs/terms.md, each with other words for the same thing, which no page, message or
// comment uses. Case does not matter.
var words = []struct {
	term   string
	others []string
}{
	{"ttft", []string{"time-to-first-token", "first-token time", "first-token latency"}},
	{"tpot", []string{"time between tokens", "inter-token time"}},
	{"itl", []string{"token-to-token latency", "intertoken"}},
	{"e2e", []string{"total latency", "full latency"}},
	{"percentile", []string{"percentile rank", "95-percentile"}},
	{"throughput", []string{"token rate"}},
	{"goodput", []string{"slo attainment", "sla attainment"}},
	{"targets", []string{"latency goal", "sla target"}},
	{"kv_cache", []string{"kv-cache block", "kv-cache event", "kv-cache usage", "key-value cache", "k/v cache"}},
	{"kv_block", []string{"kv page", "cache page"}},
	{"step", []string{"iteration time", "step latency", "forward time"}},
	{"batch", []string{"batch of work"}},
	{"chunk", []string{"prompt piece", "prefill slice"}},
	{"lambda", []string{"regularization", "regularisation", "ridge parameter"}},
	{"prior", []string{"prior belief", "starting guess"}},
	{"ci95", []string{"error bar", "confidence interval", "confidence band"}},
	{"hold_out", []string{"hold-out set", "the validation set", "a validation set", "evaluation set"}},
	{"cross_validated", []string{"cross validat"}},
	{"configuration", []string{"server setup"}},
	{"deployment", []string{"installation of a model"}},
	{"replica", []string{"server copy"}},
	{"calibration", []string{"recalibration", "tuning run"}},
	{"uncalibrated", []string{"un-calibrated"}},
	{"verdict", []string{"final judgement", "final judgment"}},
	{"gate", []string{"acceptance criteri", "quality check"}},
	{"threshold", []string{"cut-off value", "acceptance limit"}},
	{"bias", []string{"systematic error"}},
	{"mape", []string{"average percentage error", "mean relative absolute error"}},
	{"floor", []string{"irreducible error", "error floor"}},
	{"skill", []string{"skill score"}},
	{"max_num_seqs", []string{"maximum batch size", "batch-size limit"}},
	{"tensor_parallel_size", []string{"tp degree", "parallelism degree", "at tensor parallelism"}},
	{"queueing_delay", []string{"queuing", "queue wait", "waiting time", "wait time"}},
	{"overhead", []string{"front-end latency", "api latency"}},
	{"egress", []string{"response delay", "return delay"}},
	{"preemptions", []string{"pre-empt"}},
	{"saturated", []string{"overutilised", "over-utilised"}},
	{"cached_share", []string{"hit ratio", "hit percentage"}},
	{"stated_error", []string{"claimed error", "error margin"}},
	{"replay", []string{"re-simulat", "resimulat"}},
	{"drafts", []string{"draft proposal"}},
	{"roofline", []string{"roof-line", "roof line"}},
	{"accuracy", []string{"unvalidated", "unverified prediction"}},
	{"prefill", []string{"prompt processing", "prefilling phase"}},
}

// codeSpans are the parts of a page that quote programs and addresses.
var codeSpans = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|\\]\\([^)]*\\)|<a id=[^>]*>")

// TestOneWordForEachThing: pages, messages and comments use the words that docs/terms.md defines, and no
// others for the same things.
func TestOneWordForEachThing(t *testing.T) {
	root := repo.Root(t)
	defined := string(repo.Read(t, root, "docs", "terms.md"))
	for _, w := range words {
		if strings.Count(defined, "\n| `"+w.term+"` |") != 1 {
			t.Errorf("docs/terms.md: %s is not defined once", w.term)
		}
	}
	if len(words) < 40 {
		t.Errorf("got %d terms, want 40 and more", len(words))
	}
	check := func(at func() string, text string) {
		text = strings.ToLower(text)
		for _, w := range words {
			for _, other := range w.others {
				if strings.Contains(text, other) {
					t.Errorf("%s: %q, want the word %s of docs/terms.md", at(), other, w.term)
				}
			}
		}
	}
	for _, rel := range repoFiles(t, root) {
		isTestdata := strings.Contains(rel, "testdata")
		switch {
		case (strings.HasSuffix(rel, ".yaml") || strings.HasSuffix(rel, ".html")) && !isTestdata && !strings.HasPrefix(rel, "docs/"):
			check(func() string { return rel }, strings.Join(strings.Fields(string(repo.Read(t, root, rel))), " "))
		case strings.HasSuffix(rel, ".md") && rel != "CHANGELOG.md" && !isTestdata:
			check(func() string { return rel }, codeSpans.ReplaceAllString(string(repo.Read(t, root, rel)), ""))
		case strings.HasSuffix(rel, ".go") && !strings.HasSuffix(rel, "_test.go"):
			f := parsed(t, filepath.Join(root, rel))
			place := func(n ast.Node) func() string {
				return func() string { return rel + ":" + strconv.Itoa(positions.Position(n.Pos()).Line) }
			}
			for _, group := range f.Comments {
				check(place(group), strings.Join(strings.Fields(group.Text()), " "))
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
					check(place(lit), lit.Value)
				}
				return true
			})
		}
	}
}
