package predict

// This file turns a question, the arguments of vllm serve and some settings, into a deployment, and
// sweeps axes of it.

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Question describes a server that is not running yet, and a load on it.
type Question struct {
	Model        string       // built-in name, or path of a config.json; "": the model that Serve names
	Hardware     string       // device
	Serve        string       // arguments of vllm serve
	Set          []string     // settings of run.yaml, "key.path=value"; they override Serve
	GPU          *library.GPU // kernel tables to use instead of the embedded ones; nil: those
	InputTokens  int64
	OutputTokens int64
	Concurrency  int     // clients of a closed loop; 0: RateRPS
	RateRPS      float64 // Poisson arrivals
	SLO          Targets // the highest load that meets them is searched for; without limits: no search
	Start        bool    // simulate the first requests of an idle server too
}

// DefaultQuestion returns a question with the lengths of requests that are taken where none are stated.
func DefaultQuestion() Question { return Question{InputTokens: 1000, OutputTokens: 200} }

// VersionSetting is the path in run.yaml of the release of vLLM.
const VersionSetting = "vllm.version"

// AssumedVersion is the release of vLLM where the question names none: the one for which most
// tables were measured.
const AssumedVersion = "0.24.0"

// ServerFlags are the flags of predict and size that set a value of run.yaml, by its path. In size, --tp and --ep may
// have several values and make candidates instead.
var ServerFlags = []struct{ Flag, Path string }{
	{"tp", "tensor_parallel_size"},
	{"dp", "data_parallel_size"},
	{"ep", expertParallel},
	{"vllm-version", VersionSetting},
}

// expertParallel is the path in run.yaml of --enable-expert-parallel.
const expertParallel = "vllm.enable_expert_parallel"

// FlagOfSetting returns the flag that sets the value of run.yaml at a path; "" if none does.
func FlagOfSetting(path string) string {
	for _, s := range ServerFlags {
		if s.Path == path {
			return s.Flag
		}
	}
	return ""
}

// Deployment returns the deployment of the question. Settings that the question does not state have
// vLLM's defaults. The findings are warnings about assumptions.
func (q *Question) Deployment() (*deploy.Deployment, []trace.Finding, error) {
	draft := deploy.NewDraft()
	if q.Serve != "" {
		var err error
		if draft, err = deploy.FromCommandLine(q.CommandLine(), os.ReadFile); err != nil {
			return nil, nil, err
		}
		for _, f := range draft.Findings(nil) {
			// A trace may come from a server with flags that this tool does not know. In a
			// question such a flag is a mistake.
			if flag, unknown := strings.CutSuffix(f.Message, "; it is left out"); unknown {
				return nil, nil, trace.Errorf(f.Code, "--vllm: %s", flag).WithHint("correct it, or leave it out")
			}
		}
	}
	named, _ := draft.Get("model.id").(string)
	name := cmp.Or(q.Model, named)
	// What is stated in the arguments of vllm serve and as a setting must be the same.
	for _, set := range append([]string{"model.id=" + name}, q.Set...) {
		path, value, _ := strings.Cut(set, "=")
		if given := draft.Get(path); given != nil && fmt.Sprint(given) != value {
			hint := "say it once"
			if flag := FlagOfSetting(path); flag != "" {
				hint += ", in --vllm or as --" + flag
			}
			return nil, nil, trace.Errorf(vllm.BadKnobs, "%s: got %v in --vllm and %s beside it", path, given, value).WithHint(hint)
		}
	}
	if err := setModel(draft, name); err != nil {
		return nil, nil, err
	}
	draft.Set("name", model.Name(name))
	draft.Set("hardware.name", q.Hardware)
	if draft.Get(VersionSetting) == nil {
		draft.Set(VersionSetting, AssumedVersion)
	}
	draft.FillDefaults()
	d, err := deploy.LoadSettings(append(draft.Settings(), q.Set...)...)
	findings := draft.Findings(nil)
	if err == nil {
		if others := model.Alternatives(name); len(others) > 0 {
			findings = append(findings, trace.Findingf(model.SameLayers, "%s is taken as %s; it is also the beginning of %s, with the same layers",
				name, d.Model.ID, strings.Join(others, ", ")))
		}
		if base := model.SameShapeAs(d.Model.ID); base != "" {
			findings = append(findings, trace.Findingf(model.SameLayers, "%s has the layers of %s, whose configuration is taken", d.Model.ID, base))
		}
	}
	return d, findings, err
}

// CommandLine returns Serve as a command line: arguments alone become one; a whole one (vllm serve, python -m
// ...api_server, docker run) stays.
func (q *Question) CommandLine() string {
	line := strings.TrimPrefix(strings.TrimSpace(q.Serve), "serve ")
	if strings.Contains(line, "serve ") || strings.Contains(line, "api_server") || strings.Contains(line, " run ") {
		return line
	}
	return "vllm serve " + line
}

// setModel stores the model in the draft: a built-in one, or a config.json by its path or by that
// of its folder.
func setModel(draft *deploy.Draft, name string) error {
	if id, ok := model.BuiltInID(name); ok {
		draft.Set("model.id", id)
		return nil
	}
	if name == "" {
		return model.NoSuchModel(name)
	}
	info, err := os.Stat(name)
	if err != nil {
		return model.NoSuchModel(name)
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	draft.Set("model.config", path)
	return nil
}

// Sweep returns one question for each combination of the axes in text, such as
// "tp=1,2,4 concurrency=1..256"; a..b doubles from a to b. Axes: model, hardware, tp, ep,
// concurrency, rate, input-len, output-len, each once, and one of concurrency and rate. The last axis varies fastest.
func (q Question) Sweep(text string) ([]Question, error) {
	out := []Question{q}
	isSet := map[string]bool{}
	for _, word := range strings.Fields(text) {
		key, list, _ := strings.Cut(word, "=")
		if isSet[key] {
			return nil, option.Misusef("--sweep: %s: got it twice, want all its values in one axis", key)
		}
		isSet[key] = true
		if isSet["rate"] && isSet["concurrency"] {
			return nil, option.Misusef("--sweep: got rate and concurrency, want one")
		}
		values, err := axisValues(key, list)
		if err != nil {
			return nil, err
		}
		var next []Question
		for _, base := range out {
			for _, v := range values {
				varied := base
				if err := varied.setAxis(key, v); err != nil {
					return nil, err
				}
				if err := varied.CheckLoad(); err != nil {
					return nil, err
				}
				next = append(next, varied)
			}
		}
		out = next
	}
	return out, nil
}

// mostClients is the largest closed loop that is predicted, of one server. The command size takes more, which several
// servers share.
const mostClients = 1 << 14

// CheckLoad returns an error for lengths, clients or a rate out of their range.
func (q *Question) CheckLoad() error {
	if q.InputTokens < 1 || q.OutputTokens < 2 {
		return option.Misusef("--input-len, --output-len: got %d and %d, want at least 1 and 2", q.InputTokens, q.OutputTokens)
	}
	isLoop := q.RateRPS == 0 && q.Concurrency >= 1 && q.Concurrency <= mostClients
	isRate := q.Concurrency == 0 && q.RateRPS > 0 && q.RateRPS < 1e6
	if !isLoop && !isRate {
		return option.Misusef("--concurrency, --rate: got %d and %g, want 1 to %d clients, or a rate above 0 and below 1e6",
			q.Concurrency, q.RateRPS, mostClients)
	}
	return nil
}

// axisValues returns the values of one axis: "1,2,8..64" is 1, 2, 8, 16, 32, 64.
func axisValues(key, list string) ([]string, error) {
	var values []string
	for _, v := range strings.Split(list, ",") {
		from, to, ranged := strings.Cut(v, "..")
		if !ranged {
			values = append(values, v)
			continue
		}
		lo, err1 := strconv.ParseFloat(from, 64)
		hi, err2 := strconv.ParseFloat(to, 64)
		if err1 != nil || err2 != nil || !(lo > 0 && lo <= hi && hi/lo <= 1<<20) {
			return nil, option.Misusef("--sweep: %s: got %q, want two numbers above 0, the second no less, as in 1..256", key, v)
		}
		for ; lo <= hi; lo *= 2 {
			values = append(values, strconv.FormatFloat(lo, 'g', -1, 64))
		}
	}
	return values, nil
}

// setAxis sets one axis of a sweep.
func (q *Question) setAxis(key, value string) error {
	n, err := strconv.ParseFloat(value, 64)
	isValid := err == nil && n >= 1 && n == math.Trunc(n) && n <= 1<<30 // a whole number; some axes differ
	override := func(path string) { q.Set = append(slices.Clone(q.Set), path+"="+value) }
	switch key {
	case "model":
		q.Model = value
		isValid = true
	case "hardware":
		q.Hardware = value
		isValid = true
	case "tp":
		override("tensor_parallel_size")
	case "ep":
		override(expertParallel)
		isValid = value == "true" || value == "false"
	case "concurrency":
		q.Concurrency = int(n)
		q.RateRPS = 0
	case "rate":
		q.RateRPS = n
		q.Concurrency = 0
		isValid = err == nil && n > 0
	case "input-len":
		q.InputTokens = int64(n)
	case "output-len":
		q.OutputTokens = int64(n)
	default:
		return option.Misusef("--sweep: got key %q, want model, hardware, tp, ep, concurrency, rate, input-len or output-len", key)
	}
	if !isValid {
		return option.Misusef("--sweep: %s: got %q, want a whole number of at least 1", key, value)
	}
	return nil
}
