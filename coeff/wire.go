package coeff

import (
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

// wireSet is the file's shape (spec#artifact): the order of fields is the order of keys; maps are
// written with sorted keys.
type wireSet struct {
	SchemaVersion string      `yaml:"schema_version"`
	ToolVersion   string      `yaml:"tool_version"`
	Platform      string      `yaml:"platform,omitempty"`
	Command       string      `yaml:"command"`
	Inputs        []Input     `yaml:"inputs"`
	Physics       wirePhysics `yaml:"physics_coefficients"`
	Digest        string      `yaml:"digest,omitempty"` // the last line, see digest.go
}

type wirePhysics struct {
	SpecVersion Version              `yaml:"spec_version"`
	FeatureSet  *FeatureSet          `yaml:"feature_set,omitempty"`
	Recipe      string               `yaml:"recipe"`
	Refit       bool                 `yaml:"refit,omitempty"`
	TrainedOn   wireTrainedOn        `yaml:"trained_on"`
	BetaTarget  string               `yaml:"beta_target"`
	Beta        []wireTerm           `yaml:"beta_coefficients"`
	Deployments map[string]float64   `yaml:"deployment_factors,omitempty"`
	Prompts     map[string]float64   `yaml:"prompt_factors,omitempty"`
	Devices     map[string]float64   `yaml:"hardware_factors,omitempty"`
	FlatAlpha   []wireTerm           `yaml:"alpha_coefficients,omitempty"` // 1.0's flat form, read only
	Alpha       map[string]wireAlpha `yaml:"alpha"`
	Covariance  []flow[float64]      `yaml:"covariance"`
	Residuals   map[string][]pair    `yaml:"residual_quantiles"`
	Gamma       float64              `yaml:"gamma"`
	PipelineLag map[string]RunLag    `yaml:"pipeline_lag"`
	Gates       []Gate               `yaml:"gates"`
	Purposes    []PurposeVerdict     `yaml:"purposes,omitempty"`
	For         string               `yaml:"validated_for,omitempty"`
	Ident       []string             `yaml:"identifiability"`
	Certificate *Certificate         `yaml:"certificate"`
	Warnings    []trace.Finding      `yaml:"warnings"`
	Configs     []wireConfig         `yaml:"configs"`
	Library     *Library             `yaml:"library,omitempty"`
}

type wireTrainedOn struct {
	Model        oneOrMany[string]  `yaml:"model"`
	Hardware     oneOrMany[string]  `yaml:"hardware"`
	TP           oneOrMany[int64]   `yaml:"tp"`
	VLLMVersion  oneOrMany[string]  `yaml:"vllm_version"`
	TrainingDate *string            `yaml:"training_date"`
	Samples      int64              `yaml:"n_samples"`
	Lambda       float64            `yaml:"lambda"`
	Gamma        float64            `yaml:"gamma"`
	HoldOutRMSE  map[string]float64 `yaml:"hold_out_rmse"`
}

type wireAlpha struct {
	Replay       bool            `yaml:"replay"`
	Lambda       float64         `yaml:"lambda"`
	Coefficients []wireTerm      `yaml:"coefficients"`
	Covariance   []flow[float64] `yaml:"covariance"`
	// Deployments are values in the order of Coefficients.
	Deployments map[string]flow[float64] `yaml:"deployments,omitempty"`
	Gamma       float64                  `yaml:"gamma,omitempty"`
}

// wireTerm is one coefficient; the flat form is its bare value.
type wireTerm struct {
	wireTermFields
	flat bool
}

type wireTermFields struct {
	Name       string  `yaml:"name"`
	Value      float64 `yaml:"value"`
	Unit       string  `yaml:"unit"`
	CI95       *pair   `yaml:"ci95"`
	Identified *string `yaml:"identified"`
	Range      *pair   `yaml:"range"`
	// The estimate without penalty with its interval; absent with a prior.
	Estimate     *float64 `yaml:"estimate,omitempty"`
	EstimateCI95 *pair    `yaml:"estimate_ci95,omitempty"`
	Evidence     string   `yaml:"evidence,omitempty"`
}

func (t wireTerm) MarshalYAML() (any, error) { return t.wireTermFields, nil }

func (t *wireTerm) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		t.flat = true
		return n.Decode(&t.Value)
	}
	if err := knownKeys(n, "name", "value", "unit", "ci95", "identified", "range", "estimate", "estimate_ci95", "evidence"); err != nil {
		return err
	}
	return n.Decode(&t.wireTermFields)
}

// pair is two numbers on one line.
type pair [2]float64

func (p pair) MarshalYAML() (any, error) { return flow[float64](p[:]).MarshalYAML() }

// flow is a list on one line.
type flow[T any] []T

func (l flow[T]) MarshalYAML() (any, error) {
	var n yaml.Node
	if err := n.Encode([]T(l)); err != nil {
		return nil, err
	}
	n.Style = yaml.FlowStyle
	return &n, nil
}

// oneOrMany is a bare value when there is one, else a list on one line.
type oneOrMany[T any] []T

func (l oneOrMany[T]) MarshalYAML() (any, error) {
	if len(l) == 1 {
		return l[0], nil
	}
	return flow[T](l).MarshalYAML()
}

func (l *oneOrMany[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode((*[]T)(l))
	}
	if n.Tag == "!!null" {
		return nil
	}
	var one T
	if err := n.Decode(&one); err != nil {
		return err
	}
	*l = oneOrMany[T]{one}
	return nil
}
