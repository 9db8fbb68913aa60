// Package coeff holds the noun Set: named coefficients with unit, spec version, provenance and
// uncertainty (spec#artifact), with a strict [Load], an exact [Set.Save] and the one predictor that
// teacher-forced validation and the simulator both use.
//
// A coefficient means what its name says. Position alone never decides: on
// load, lengths, names, order and units are compared with the slots of the
// file's spec version, and every way to be wrong has a code of its own. A
// delay that contains a wait cannot be marked as one to replay, because a
// simulator that produces the wait would count it twice.
//
// A [Predictor] is a Set bound to one model. It is the place where a
// prediction is clipped and counted (a step lasts at least 1 us, a delay is
// never negative) and where a user learns, once per slot, that a feature lies
// beyond 1.5 times its training maximum, that a term was never learned, or that
// a feature was bounded.
//
// The file format is docs/coefficients.md, its JSON schema
// docs/schema/coefficients.schema.json; the example of [Load] is a simulator's
// inner loop.
package coeff

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// SchemaVersion is the version of the file Save writes.
const SchemaVersion = "1"

// Targets with a name of their own (spec#cadence, spec#duration, spec#delay-targets).
const (
	Cadence   = "cadence"
	Duration  = "duration"
	Overhead  = "overhead"
	Admission = "admission"
	Egress    = "egress"
	Queue     = "queue"
)

// Set is one coefficient file: two linear models over the features of one spec
// version, and everything needed to judge, check and reproduce them. The order of fields is that of the file's keys.
type Set struct {
	SchemaVersion string  `yaml:"-"`
	ToolVersion   string  `yaml:"-"`
	Platform      string  `yaml:"-"` // of the build that fitted it, as result.Platform names it; "" in older files
	Command       string  `yaml:"-"` // the fit and the options that can change it
	Inputs        []Input `yaml:"-"`

	SpecVersion Version       `yaml:"spec_version"`
	FeatureSet  FeatureSet    `yaml:"feature_set,omitempty"` // zero in files older than it
	Recipe      string        `yaml:"recipe"`                // relative | frozen
	Refit       bool          `yaml:"refit,omitempty"`       // fitted on all rows after the choice was made
	TrainedOn   TrainedOn     `yaml:"trained_on"`
	BetaTarget  string        `yaml:"beta_target"`       // cadence | duration
	Beta        []Coefficient `yaml:"beta_coefficients"` // one per slot, in slot order
	// DeploymentFactors multiply the step time on the configurations of the fit
	// (named by deploy.Deployment.Config) and on other configurations of their
	// deployments (named by Label); elsewhere HardwareFactors do, by device. Without
	// any the factor is 1. PromptFactors, named like DeploymentFactors, multiply the
	// terms of prompt work (features.Feature.Prompt) on top. All are above 0.
	DeploymentFactors map[string]float64      `yaml:"deployment_factors,omitempty"`
	PromptFactors     map[string]float64      `yaml:"prompt_factors,omitempty"`
	HardwareFactors   map[string]float64      `yaml:"hardware_factors,omitempty"`
	Alpha             alphaModels             `yaml:"alpha"`              // sorted by target
	Covariance        [][]float64             `yaml:"covariance"`         // of Beta, in its order; empty when not estimated
	Residuals         map[string][][2]float64 `yaml:"residual_quantiles"` // target/prediction on the hold-out as [probability, ratio], by regime
	Gamma             float64                 `yaml:"gamma"`              // of the preemption average (spec#preemption-average)
	// GammaIdentified says that the rows told Gamma from its candidates; false: the default is kept; nil: not known.
	GammaIdentified *bool             `yaml:"gamma_identified,omitempty"`
	PipelineLag     map[string]RunLag `yaml:"pipeline_lag"` // by run
	Gates           []Gate            `yaml:"gates"`
	Purposes        []PurposeVerdict  `yaml:"purposes,omitempty"`      // what the set was judged to be good for; none: not validated
	ValidatedFor    string            `yaml:"validated_for,omitempty"` // the purpose that decided; "": not validated
	// Identifiability says in words what the data could not tell apart.
	Identifiability []string        `yaml:"identifiability"`
	Certificate     *Certificate    `yaml:"certificate"`
	Warnings        []trace.Finding `yaml:"warnings"`
	Configs         []Config        `yaml:"configs"`
	Library         *Library        `yaml:"library,omitempty"` // of the library; nil: fitted to traces
	Changed         string          `yaml:"-"`                 // name of the file it was read from, when that is not as it was written
}

// Library is what coefficients of one deployment that nobody has traced say about themselves: the terms fitted to the published kernel
// times of its operators and their corrections.
type Library struct {
	Version string `yaml:"version"`          // of the corrections: the day of their newest input
	Family  string `yaml:"family,omitempty"` // what is judged together
	Judged  string `yaml:"judged,omitempty"` // how far predictions of the family were off where it was left out, in words
	// Representation is by how much the terms miss the sums of kernels: the median relative error of decode, mixed and prefill batches.
	Representation []float64 `yaml:"representation_error,flow,omitempty"`
}

// Input is one file a result was made from, named relative to the given RUNDIR
// or PARENT, never by an absolute path.
type Input struct {
	Name   string `json:"name" yaml:"name"` // relative, slashes
	Bytes  int64  `json:"bytes" yaml:"bytes"`
	SHA256 string `json:"sha256" yaml:"sha256"`
}

// TrainedOn says where the coefficients hold.
type TrainedOn struct {
	Models       oneOrMany[string]  `yaml:"model"`
	Hardware     oneOrMany[string]  `yaml:"hardware"`
	TPs          oneOrMany[int64]   `yaml:"tp"`
	VLLMVersions oneOrMany[string]  `yaml:"vllm_version"`
	Date         string             `yaml:"training_date"` // UTC date of the latest wall-clock stamp in the inputs; "" unknown
	Samples      int64              `yaml:"n_samples"`     // beta rows the coefficients were fitted on
	Lambda       float64            `yaml:"lambda"`
	Gamma        float64            `yaml:"gamma"`
	HoldOutRMSE  map[string]float64 `yaml:"hold_out_rmse"` // in us, by target; a target without a hold-out is absent
}

// How well the data determine a coefficient (spec#identified).
const (
	Within         = "within"          // varies inside a configuration
	BetweenConfigs = "between-configs" // varies between configurations only
	PriorOnly      = "prior-only"      // the penalty alone decides it
)

// Coefficient is one term of a linear model, in fit.json and in the artifact.
type Coefficient struct {
	Name  string  `json:"name" yaml:"name"`
	Value float64 `json:"value" yaml:"value"` // us per second for time-like features, else us
	Unit  string  `json:"unit" yaml:"unit"`   // "us/s" or "us"
	// CI95 is 95 % for the true coefficient and always holds Value; nil when not estimated. It is that of the
	// posterior with a prior, else EstimateCI95, widened to Value where the penalty moved that outside (spec#value-interval).
	CI95 *[2]float64 `json:"ci95" yaml:"ci95"`
	// CI95Given is GivenPrior where CI95 is that of the posterior: 95 % provided that the prior holds; else "".
	CI95Given string `json:"ci95_given,omitempty" yaml:"ci95_given,omitempty"`
	// FoldSpread is the smallest and largest value over the folds; nil unknown (spec#fold-spread).
	FoldSpread *[2]float64 `json:"fold_spread" yaml:"fold_spread,omitempty"`
	// Estimate is least squares without penalty, EstimateCI95 its own interval; nil with a prior and where CI95 is.
	Estimate     *float64    `json:"estimate" yaml:"estimate,omitempty"`
	EstimateCI95 *[2]float64 `json:"estimate_ci95" yaml:"estimate_ci95,omitempty"`
	Identified   string      `json:"identified" yaml:"identified"` // within | between-configs | prior-only; "" unknown (1.0's flat form)
	Range        *[2]float64 `json:"range" yaml:"range"`           // training minimum and maximum of the feature, per step; nil unknown
	// Evidence says what a coefficient with a prior rests on: kernels, kernels+silicon or silicon in
	// the library, the share that the data of a fit have in it ("data 0.93"); "" without a prior.
	Evidence string `json:"evidence,omitempty" yaml:"evidence,omitempty"`
}

// GivenPrior marks an interval that holds the truth as often as it says only where the prior does.
const GivenPrior = "prior"

// AlphaModel predicts one delay of a request.
type AlphaModel struct {
	Target string `yaml:"-"`
	// Replay is true only for delays a simulator must add itself: overhead and
	// egress. The other targets contain a wait that a simulator produces.
	Replay       bool          `yaml:"replay"`
	Lambda       float64       `yaml:"lambda"`
	Coefficients []Coefficient `yaml:"coefficients"`
	Covariance   [][]float64   `yaml:"covariance"`
	// Deployments are values, one per slot, that take the place of the coefficients' on the deployments of
	// the fit (deploy.Deployment.Label).
	Deployments map[string][]float64 `yaml:"deployments,omitempty"`
}

// Interval is what the data themselves say of the coefficient: the estimate's interval,
// or with a prior that of the value; nil when not estimated.
func (c *Coefficient) Interval() *[2]float64 {
	if c.EstimateCI95 != nil {
		return c.EstimateCI95
	}
	return c.CI95
}

// RunLag is how many steps the cadence of one run lags behind its batches.
type RunLag struct {
	Lag      int  `json:"lag" yaml:"lag"`
	Measured bool `json:"measured" yaml:"measured"`
}

// Purposes coefficients are used for (spec#purposes).
const (
	PurposeSteps    = "steps"    // the time of single steps
	PurposeReplay   = "replay"   // a simulator: steps, delays, distributions of TTFT, ITL and E2E
	PurposeWaits    = "waits"    // the closed form of the wait for scheduling
	PurposeTransfer = "transfer" // a configuration the fit never saw
	PurposeAll      = "all"
)

// Purposes lists them in the order they are printed.
var Purposes = []string{PurposeSteps, PurposeReplay, PurposeWaits, PurposeTransfer}

// ScopeAll is the scope of what is judged over everything.
const ScopeAll = "all"

// Verdicts.
const (
	VerdictPass          = "pass"
	VerdictInsufficient  = "insufficient"
	VerdictFail          = "fail"
	VerdictNotApplicable = "not applicable"
)

// PurposeVerdict says whether the coefficients serve a purpose.
type PurposeVerdict struct {
	Purpose string `json:"purpose" yaml:"purpose"` // steps | replay | waits | transfer
	Scope   string `json:"scope" yaml:"scope"`     // a configuration, a test run or "all"
	Verdict string `json:"verdict" yaml:"verdict"` // pass | fail | insufficient | not applicable
}

// VerdictFor is the verdict on a purpose over everything, the worst of all purposes
// for "all"; "" when the set was not validated.
func (s *Set) VerdictFor(purpose string) string {
	out := ""
	for _, p := range s.Purposes {
		if p.Scope == ScopeAll && (purpose == PurposeAll || p.Purpose == purpose) {
			out = WorseVerdict(out, p.Verdict)
		}
	}
	return out
}

// Accept says which verdicts are taken beside a pass (spec#exit-status).
type Accept struct {
	Asked        bool // the purpose was named: that nothing can be judged is not taken
	Insufficient bool // --allow-insufficient
	Any          bool // --ignore-verdict
}

// Takes reports whether a verdict is taken; that nobody validated always is.
func (a Accept) Takes(verdict string) bool {
	switch verdict {
	case VerdictFail:
		return a.Any
	case VerdictInsufficient:
		return a.Any || a.Insufficient
	case VerdictNotApplicable:
		return a.Any || !a.Asked
	}
	return true
}

// WorseVerdict of two; none and not applicable are better than any.
func WorseVerdict(a, b string) string {
	order := []string{"", VerdictNotApplicable, VerdictPass, VerdictInsufficient, VerdictFail}
	if slices.Index(order, a) >= slices.Index(order, b) {
		return a
	}
	return b
}

// Gate is one acceptance rule and what it said (spec#gates).
type Gate struct {
	Name      string   `json:"name" yaml:"name"`
	Scope     string   `json:"scope" yaml:"scope"` // a run, a configuration or "all"
	Value     *float64 `json:"value" yaml:"value"`
	Op        string   `json:"op" yaml:"op"` // < | <= | > | >=
	Threshold float64  `json:"threshold" yaml:"threshold"`
	Pass      *bool    `json:"pass" yaml:"pass"` // nil: insufficient data or not applicable, see note
	Note      string   `json:"note,omitempty" yaml:"note,omitempty"`
}

// Judgement is a verdict with the gates behind it: pass, fail, or insufficient where nothing judges.
type Judgement struct {
	Verdict string `json:"verdict"`
	Gates   []Gate `json:"gates"`
}

// AtMost is a gate of a value at most the limit; without a value there is not enough to judge, as none says.
func (v *Judgement) AtMost(name, scope string, value *float64, limit float64, none string) {
	g := Gate{Name: name, Scope: scope, Value: value, Op: "<=", Threshold: limit}
	if value == nil {
		g.Note, v.Verdict = none, WorseVerdict(v.Verdict, VerdictInsufficient)
	} else if g.Pass = new(*value <= limit); !*g.Pass {
		v.Verdict = WorseVerdict(v.Verdict, VerdictFail)
	}
	v.Gates = append(v.Gates, g)
}

// Failed says what failed or could not be judged.
func (v *Judgement) Failed() (why []string) {
	for _, g := range v.Gates {
		switch {
		case g.Value == nil:
			why = append(why, fmt.Sprintf("%s: %s: %s", g.Scope, g.Name, g.Note))
		case !*g.Pass:
			why = append(why, fmt.Sprintf("%s: %s: got %.4g, want at most %g", g.Scope, g.Name, *g.Value, g.Threshold))
		}
	}
	return why
}

// Certificate is the solver's proof of optimality (spec#certificate).
type Certificate struct {
	MinZeroGradient   *float64 `json:"min_zero_gradient" yaml:"min_zero_gradient"` // nil: no term is at its bound
	MaxActiveGradient float64  `json:"max_active_gradient" yaml:"max_active_gradient"`
	OK                bool     `json:"ok" yaml:"ok"`
}

// Config is one configuration of the training data (spec#configuration).
type Config struct {
	Key        string
	Runs       []string
	Samples    int64
	Deployment deploy.Deployment // without run-specific parts: name, phases, tracing, workload, files
	Layers     *deploy.Sums      // with spec 1.3: what its features read of the layers; nil before
}

// ConfigOf keeps what a configuration needs of one of its deployments.
func ConfigOf(d *deploy.Deployment, runs []string, samples int64) Config {
	return Config{Key: d.Config(), Runs: runs, Samples: samples, Deployment: d.Served()}
}

// AlphaModel returns the model of a target, nil when the set has none.
func (s *Set) AlphaModel(target string) *AlphaModel {
	if i := slices.IndexFunc(s.Alpha, func(a AlphaModel) bool { return a.Target == target }); i >= 0 {
		return &s.Alpha[i]
	}
	return nil
}

// Replayable reports whether a target may be added as a delay in a replay: overhead and egress. The
// others contain a wait that the simulator produces itself and would count twice
// (spec#waits-are-no-delays).
func Replayable(target string) bool { return target == Overhead || target == Egress }

// Values returns the coefficients' values in order.
func Values(cs []Coefficient) []float64 {
	return stat.Map(cs, func(c Coefficient) float64 { return c.Value })
}

// Version names the specification that coefficients belong to (spec#spec-version), with a way to fit behind a plus
// sign: "1.1", "1.1+principal-components". Which versions there are is the features' matter.
type Version string

// flatVersion is the one version whose files may hold bare lists of values.
const flatVersion Version = "1.0"

// Base is the version that lists the features.
func (v Version) Base() Version {
	base, _, _ := strings.Cut(string(v), "+")
	return Version(base)
}

// InComponents reports a version that fits step times in principal components (spec#principal-components).
func (v Version) InComponents() bool { return v != v.Base() }

// FeatureSet identifies the features behind coefficients beyond their version's name. It is written into
// every fit and artifact and compared when they are read.
type FeatureSet struct {
	Hash  string   `json:"hash" yaml:"hash"`        // of both lists, 16 hex digits; "" in files older than it
	Beta  []string `json:"beta" yaml:"beta,flow"`   // a digest of each step term, by slot
	Alpha []string `json:"alpha" yaml:"alpha,flow"` // of each delay term
}

// MinStepUs is the shortest step that is predicted (spec#prediction-use), us.
const MinStepUs = 1

// AlphaTargets lists the set's alpha targets, sorted; empty, never nil, without any: nil would ask a fit for its own.
func (s *Set) AlphaTargets() []string {
	return append([]string{}, stat.Map(s.Alpha, func(a AlphaModel) string { return a.Target })...)
}

// Predict returns one step's time in us without bookkeeping, at least 1. x has
// one value per beta slot.
func (s *Set) Predict(x []float64) float64 {
	sum := 0.0
	for i := range s.Beta {
		sum += s.Beta[i].Value * x[i]
	}
	return max(MinStepUs, sum)
}

// maxFile is far above any coefficient file: one of a thousand runs has 3 MiB.
const maxFile = 64 << 20

// document is the file (spec#artifact): what made the set, the set, and the digest of both.
type document struct {
	SchemaVersion string  `yaml:"schema_version"`
	ToolVersion   string  `yaml:"tool_version"`
	Platform      string  `yaml:"platform,omitempty"`
	Command       string  `yaml:"command"`
	Inputs        []Input `yaml:"inputs"`
	Physics       physics `yaml:"physics_coefficients"`
	Digest        string  `yaml:"digest,omitempty"` // the last line
}

// physics is a set, and what only spec 1.0's flat form has.
type physics struct {
	Set       `yaml:",inline"`
	FlatAlpha []Coefficient `yaml:"alpha_coefficients,omitempty"` // read only
}

// Load reads a coefficient file strictly: unknown keys, wrong lengths, names, units and versions
// and numbers that are not finite are errors at their line (spec#artifact-load). file is the name in
// messages; terms compares the terms with their features: features.CheckSet, nil for no comparison. The flat form of
// spec 1.0, alpha_coefficients and beta_coefficients as bare lists, is accepted too; its alpha is the
// queue target.
func Load(r io.Reader, file string, terms func(*Set) error) (*Set, error) {
	text, err := files.ReadBounded(r, file, maxFile)
	if err != nil {
		return nil, err
	}
	var doc document
	if err = files.DecodeYAML(text, file, &doc); err == nil && len(bytes.TrimSpace(text)) == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, yamlError(file, text, err)
	}
	s := &doc.Physics.Set
	s.SchemaVersion = doc.SchemaVersion
	s.ToolVersion = doc.ToolVersion
	s.Platform = doc.Platform
	s.Command = doc.Command
	s.Inputs = doc.Inputs
	err = s.addFlat(doc.Physics.FlatAlpha)
	if err == nil && terms != nil {
		err = terms(s)
	}
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return nil, placed(file, text, err)
	}
	if doc.Digest != "" && !intact(text) {
		s.Changed = filepath.Base(file)
		if found := s.FileWarnings(); !slices.Contains(s.Warnings, found[0]) {
			s.Warnings = append(found, s.Warnings...)
		}
	}
	return s, nil
}

// addFlat takes the flat alpha of a spec 1.0 file as its queue target.
func (s *Set) addFlat(alpha []Coefficient) error {
	if alpha == nil {
		return nil
	}
	if s.SpecVersion != flatVersion {
		return trace.Errorf(BadFile, "alpha_coefficients: got the flat form with spec_version %s, want alpha.<target>.coefficients",
			s.SpecVersion)
	}
	s.SchemaVersion = cmp.Or(s.SchemaVersion, SchemaVersion) // the frozen text has no schema of ours
	s.Alpha = []AlphaModel{{Target: Queue, Lambda: s.TrainedOn.Lambda, Coefficients: alpha}}
	s.BetaTarget = cmp.Or(s.BetaTarget, Duration)
	return nil
}

// Save checks the set and writes it as YAML. Floats are written shortest
// round-trip, maps with sorted keys: the same set gives the same bytes, and
// reading them back gives the same set.
func (s *Set) Save(w io.Writer) error {
	if err := s.Check(); err != nil {
		return err
	}
	var doc yaml.Node
	if err := doc.Encode(&document{s.SchemaVersion, s.ToolVersion, s.Platform, s.Command, s.Inputs, physics{Set: *s}, ""}); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	layOut(&doc)
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	if _, err := w.Write(withDigest(files.Readable(text.Bytes()))); err != nil {
		return fmt.Errorf("write coefficients: %w", err)
	}
	return nil
}

// DigestKey is the key of the last line of a coefficient file.
const DigestKey = "digest"

// digestKey begins the last line of a coefficient file: the SHA-256 of the lines
// before it. A file without the line is of an older version or written by hand.
const digestKey = DigestKey + ": "

// withDigest is the text with its digest line.
func withDigest(text []byte) []byte {
	return fmt.Appendf(bytes.Clone(text), "%s\"%x\"\n", digestKey, sha256.Sum256(text))
}

// Body is a coefficient file up to its digest, and whether it has one.
func Body(text []byte) (body []byte, bound bool) {
	if at := bytes.LastIndex(text, []byte("\n"+digestKey)); at >= 0 {
		return text[:at+1], true
	}
	return text, false
}

// intact reports whether the last line is the digest of those before it, however
// lines end.
func intact(text []byte) bool {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	body, bound := Body(text)
	return bound && bytes.Equal(withDigest(body), text)
}

// FileWarnings are what a user of the set must hear of its file: that it was changed after
// it was written. They stand among the set's warnings too.
func (s *Set) FileWarnings() []trace.Finding {
	if s.Changed == "" {
		return nil
	}
	return []trace.Finding{trace.Findingf(DocumentChanged, "%s was changed after it was written; its values are used as they stand",
		s.Changed)}
}

// yamlError gives an error of reading the document its place and code.
func yamlError(file string, text []byte, err error) error {
	if _, ok := errors.AsType[*trace.Error](err); ok {
		return placed(file, text, err)
	}
	e, ok := errors.AsType[*trace.SyntaxError](err)
	if !ok {
		e, _ = trace.YAMLError(file, err)
	}
	if strings.HasPrefix(e.Msg, "unknown key ") {
		e.Msg += ", want one of docs/coefficients.md"
	}
	if e.Code = BadFile; errors.Is(err, io.EOF) {
		e.Msg += ", want a coefficient set"
	}
	e.File = file
	return e
}

// placed turns a coded error whose message starts with the path of a key into
// one with the line of that key.
func placed(file string, text []byte, err error) error {
	coded, ok := errors.AsType[*trace.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", file, err)
	}
	line, col := place(text, coded.Msg)
	return &trace.SyntaxError{File: file, Line: line, Col: col, Code: coded.Code, Msg: coded.Msg, Hint: coded.Hint}
}

// place finds the key path that the message starts with, below
// physics_coefficients or at the top; 0, 0 when there is none.
func place(text []byte, msg string) (line, col int64) {
	root, err := files.ParseYAML(text, "")
	if root == nil || err != nil {
		return 0, 0
	}
	path, _, _ := strings.Cut(msg, ": ")
	path, _, _ = strings.Cut(path, " ")
	keys := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	for _, start := range []*yaml.Node{child(root, "physics_coefficients"), root} {
		n := start
		for _, key := range keys {
			next := child(n, key)
			if next == nil {
				break
			}
			n = next
		}
		if n != nil && n != start {
			return int64(n.Line), int64(n.Column)
		}
	}
	return 0, 0
}

// child returns the value under a key, or the item at a decimal index.
func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil {
		return nil
	}
	if n.Kind == yaml.SequenceNode {
		var i int
		if c, _ := fmt.Sscanf(key, "%d", &i); c == 1 && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
		return nil
	}
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// Where the file's form is not that of the structs.

// layOut writes lists of numbers on one line, an empty text that stands for an unknown one as null, and
// 1e-07 as 1.0e-07: readers of YAML 1.1 take a float without a point for a string (https://yaml.org/type/float.html).
func layOut(n *yaml.Node) {
	isNumber := func(n *yaml.Node) bool { return n.Tag == "!!float" || n.Tag == "!!int" }
	switch {
	case n.Tag == "!!float" && !strings.Contains(n.Value, "."):
		n.Value = strings.Replace(n.Value, "e", ".0e", 1)
	case n.Kind == yaml.SequenceNode && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !isNumber(c) }):
		n.Style = yaml.FlowStyle
	}
	for i, c := range n.Content {
		isUnknown := n.Kind == yaml.MappingNode && i%2 == 1 && c.Kind == yaml.ScalarNode && c.Value == "" &&
			slices.Contains([]string{"identified", "training_date"}, n.Content[i-1].Value)
		if isUnknown {
			*c = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
		layOut(c)
	}
}

// MarshalYAML writes a coefficient in the file's order, which has the estimate behind what is said of the value.
func (c Coefficient) MarshalYAML() (any, error) {
	type plain Coefficient
	var n yaml.Node
	if err := n.Encode(plain(c)); err != nil {
		return nil, err
	}
	var value, estimate, evidence []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		to := &value
		switch n.Content[i].Value {
		case "estimate", "estimate_ci95":
			to = &estimate
		case "evidence":
			to = &evidence
		}
		*to = append(*to, n.Content[i:i+2]...)
	}
	n.Content = slices.Concat(value, estimate, evidence)
	return &n, nil
}

// UnmarshalYAML reads a coefficient; that of the flat form is its bare value.
func (c *Coefficient) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&c.Value)
	}
	type plain Coefficient
	return files.DecodeYAMLNode(n, (*plain)(c))
}

// oneOrMany is a bare value when there is one, else a list on one line.
type oneOrMany[T any] []T

// MarshalYAML writes it.
func (l oneOrMany[T]) MarshalYAML() (any, error) {
	if len(l) == 1 {
		return l[0], nil
	}
	var n yaml.Node
	err := n.Encode([]T(l))
	n.Style = yaml.FlowStyle
	return &n, err
}

// UnmarshalYAML reads either form; null is none.
func (l *oneOrMany[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode((*[]T)(l))
	}
	if n.Tag == "!!null" {
		return nil
	}
	*l = make([]T, 1)
	return n.Decode(&(*l)[0])
}

// alphaModels stand in the file by target.
type alphaModels []AlphaModel

// MarshalYAML writes them.
func (l alphaModels) MarshalYAML() (any, error) {
	byTarget := stat.Keyed(l, func(m AlphaModel) (string, AlphaModel) { return m.Target, m })
	return byTarget, nil
}

// UnmarshalYAML reads them, sorted by target.
func (l *alphaModels) UnmarshalYAML(n *yaml.Node) error {
	var byTarget map[string]AlphaModel
	if err := files.DecodeYAMLNode(n, &byTarget); err != nil {
		return err
	}
	for _, target := range slices.Sorted(maps.Keys(byTarget)) {
		m := byTarget[target]
		m.Target = target
		*l = append(*l, m)
	}
	return nil
}

// writtenConfig is a configuration as it stands in the file: its deployment under the keys of its JSON form, so that
// names are those of run.yaml and of our other documents.
type writtenConfig struct {
	Key        string   `yaml:"key"`
	Label      string   `yaml:"label"`
	Runs       []string `yaml:"runs,flow"`
	Samples    int64    `yaml:"n_samples"`
	Deployment any      `yaml:"deployment"`
	Layers     any      `yaml:"layer_sums,omitempty"`
}

// MarshalYAML writes a configuration.
func (c Config) MarshalYAML() (any, error) {
	node, err := jsonNode(&c.Deployment)
	if err != nil {
		return nil, fmt.Errorf("deployment of %s: %w", c.Key, err)
	}
	kept := node.Content[:0]
	for i := 0; i+1 < len(node.Content); i += 2 { // three are of one run, not of a configuration
		if !slices.Contains([]string{"name", "tracing", "files"}, node.Content[i].Value) {
			kept = append(kept, node.Content[i], node.Content[i+1])
		}
	}
	node.Content = kept
	w := writtenConfig{c.Key, c.Deployment.Label(), c.Runs, c.Samples, node, nil}
	if c.Layers != nil {
		w.Layers, err = jsonNode(c.Layers)
	}
	return w, err
}

// jsonNode is a value's JSON form as a YAML node.
func jsonNode(v any) (*yaml.Node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return nodeOf(dec)
}

// UnmarshalYAML reads a configuration and checks its deployment.
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	var w writtenConfig
	if err := files.DecodeYAMLNode(n, &w); err != nil {
		return err
	}
	c.Key = w.Key
	c.Runs = w.Runs
	c.Samples = w.Samples
	err := fromJSON(w.Deployment, &c.Deployment)
	if err == nil {
		err = c.Deployment.Check()
	}
	if err == nil && w.Layers != nil {
		if err = fromJSON(w.Layers, &c.Layers); err == nil && !reflect.DeepEqual(c.Layers.Work, c.Deployment.LayerSums().Work) {
			err = errors.New("layer_sums: got other sums than its layers come to, want those or none")
		}
	}
	if err != nil {
		return trace.Errorf(BadFile, "configs: deployment of %q: %s", w.Key, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// fromJSON reads a decoded document strictly.
func fromJSON(doc, into any) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// nodeOf turns the next JSON value into a YAML node, key order and number
// spelling kept.
func nodeOf(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if t == '[' {
			n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
		}
		for dec.More() {
			item, err := nodeOf(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		_, err := dec.Token()
		return n, err
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: t.String()}, nil
	}
	n := &yaml.Node{}
	return n, n.Encode(token)
}

// Check applies the rules of loading that need no knowledge of features (spec#artifact-load): known schema,
// lengths, finite numbers, and no wait marked as a delay.
func (s *Set) Check() error {
	if s.SchemaVersion != SchemaVersion {
		return trace.Errorf(BadFile, "schema_version: got %q, want %q", s.SchemaVersion, SchemaVersion).
			WithHint("use the blis-train that wrote the file, or fit again")
	}
	err := cmp.Or(checkTerms("beta_coefficients", s.Beta), checkCovariance("covariance", s.Covariance, len(s.Beta)))
	if err != nil {
		return err
	}
	for _, factors := range []map[string]float64{s.DeploymentFactors, s.PromptFactors, s.HardwareFactors} {
		for _, name := range slices.Sorted(maps.Keys(factors)) {
			if f := factors[name]; !(f > 0) || math.IsInf(f, 0) {
				return trace.Errorf(BadFile, "factor of %s: got %g, want a finite number above 0", name, f)
			}
		}
	}
	for i := range s.Alpha {
		if err := s.Alpha[i].check(); err != nil {
			return err
		}
		if i > 0 && s.Alpha[i].Target <= s.Alpha[i-1].Target {
			return trace.Errorf(BadFile, "alpha: got %q after %q, want sorted targets, each once", s.Alpha[i].Target, s.Alpha[i-1].Target)
		}
	}
	if s.Gamma < 0 || s.Gamma > 1 {
		return trace.Errorf(BadFile, "gamma: got %g, want 0 to 1", s.Gamma)
	}
	return finite("", reflect.ValueOf(s).Elem())
}

func (m *AlphaModel) check() error {
	path := "alpha." + m.Target
	if !slices.Contains([]string{Overhead, Admission, Egress, Queue}, m.Target) {
		return trace.Errorf(BadFile, "%s: got an unknown target, want overhead, admission, egress or queue", path)
	}
	if m.Replay && !Replayable(m.Target) {
		return trace.Errorf(BadFile, "%s.replay: got true for a target that contains a wait, want overhead or egress", path)
	}
	return cmp.Or(checkTerms(path+".coefficients", m.Coefficients), m.checkDeployments(path+".deployments"),
		checkCovariance(path+".covariance", m.Covariance, len(m.Coefficients)))
}

func (m *AlphaModel) checkDeployments(path string) error {
	for _, name := range slices.Sorted(maps.Keys(m.Deployments)) {
		values := m.Deployments[name]
		if len(values) != len(m.Coefficients) {
			return trace.Errorf(BadFile, "%s.%s: got %d values, want %d", path, name, len(values), len(m.Coefficients))
		}
	}
	return nil
}

func checkTerms(path string, cs []Coefficient) error {
	for i := range cs {
		c := &cs[i]
		if !slices.Contains([]string{"", Within, BetweenConfigs, PriorOnly}, c.Identified) {
			return trace.Errorf(BadFile, "%s[%d].identified: got %q for %s, want within, between-configs or prior-only", path, i,
				c.Identified, c.Name)
		}
	}
	return nil
}

func checkCovariance(path string, rows [][]float64, n int) error {
	if len(rows) == 0 {
		return nil
	}
	if len(rows) != n {
		return trace.Errorf(BadFile, "%s: got %d rows, want %d", path, len(rows), n)
	}
	for i, row := range rows {
		if len(row) != n {
			return trace.Errorf(BadFile, "%s[%d]: got %d columns, want %d", path, i, len(row), n)
		}
	}
	return nil
}

// finite says which number of a value is none, by the path of its keys in the file.
func finite(path string, v reflect.Value) error {
	in := func(at string, part reflect.Value) error { return finite(strings.TrimPrefix(path+at, "."), part) }
	var err error
	switch v.Kind() {
	case reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			err = trace.Errorf(BadFile, "%s: got %g, want a finite number", path, f)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			err = finite(path, v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && err == nil; i++ {
			err = in(fmt.Sprintf("[%d]", i), v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for i := 0; i < len(keys) && err == nil; i++ {
			err = in("."+keys[i].String(), v.MapIndex(keys[i]))
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && err == nil; i++ {
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			err = in("."+key, v.Field(i))
		}
	}
	return err
}

// Outside lists what of the deployment the coefficients were not trained on: model, hardware, tp,
// minor version of vLLM. Empty when all of it was.
func (s *Set) Outside(d *deploy.Deployment) []trace.Finding {
	var fs []trace.Finding
	if t := s.TrainedOn.Models; len(t) > 0 && !slices.Contains(t, d.Model.ID) {
		fs = append(fs, trace.Findingf(OutsideTraining, "model: got %q, trained on %q", d.Model.ID, t))
	}
	if t := s.TrainedOn.Hardware; len(t) > 0 && !slices.Contains(t, d.Hardware.Name) {
		fs = append(fs, trace.Findingf(OutsideTraining, "hardware: got %q, trained on %q", d.Hardware.Name, t))
	}
	if t := s.TrainedOn.TPs; len(t) > 0 && !slices.Contains(t, d.TP) {
		fs = append(fs, trace.Findingf(OutsideTraining, "tensor_parallel_size: got %d, trained on %d", d.TP, t))
	}
	minor := func(v string) string { // patch releases do not change the engine
		parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
		return strings.Join(parts[:min(2, len(parts))], ".")
	}
	same := func(v string) bool { return minor(v) == minor(d.Engine.VLLMVersion) }
	if t := s.TrainedOn.VLLMVersions; len(t) > 0 && !slices.ContainsFunc(t, same) {
		fs = append(fs, trace.Findingf(OutsideTraining, "vllm version: got %q, trained on %q", d.Engine.VLLMVersion, t))
	}
	return fs
}

// Codes of coefficient files and predictions.
const (
	BadFile               trace.Code = "bad_coefficient_file"
	OutsideTraining       trace.Code = "outside_training"
	ImpossibleCoefficient trace.Code = "impossible_coefficient"
	DocumentChanged       trace.Code = "document_changed" // or a coefficient file
)
