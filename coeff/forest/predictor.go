package forest

// This file reads the boosted trees of predictor.json and evaluates them.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// schemaVersion is the version of predictor.json that Load reads.
const schemaVersion = "1"

// rangeFactor is how far outside the training range a value may lie before a
// prediction is flagged.
const rangeFactor = 1.5

// Target is one predicted latency in predictor.json. Its forests predict the natural logarithm of
// milliseconds.
type Target struct {
	Name    string   `json:"name"` // ttft_ms, tpot_ms or e2e_ms
	Unit    string   `json:"unit"`
	Columns []Column `json:"columns"`
	Trees   *Forest  `json:"trees"`
	// Idle predicts rows without waiting requests (num_request_waiting = 0), Queued the others. Both are
	// null when either had too few training rows.
	Idle      *Forest        `json:"trees_idle"`
	Queued    *Forest        `json:"trees_queued"`
	Quantiles []LevelForest  `json:"quantiles"`
	Residual  *Forest        `json:"residual"` // of log(latency / physics estimate); null without physics
	Factors   []LevelFactors `json:"conformal"`
}

// Column is a column of a target's rows, in the order of Predict's argument.
type Column struct {
	Name       string  `json:"name"`
	Unit       string  `json:"unit"`
	Definition string  `json:"definition"`
	IsCategory bool    `json:"is_category"` // never split on
	Min        float64 `json:"min"`         // of the training rows, ignoring NaN
	Max        float64 `json:"max"`
}

// LevelForest is the forest of one quantile.
type LevelForest struct {
	Level  float64 `json:"level"`
	Forest Forest  `json:"forest"`
}

// LevelFactors turn a model's prediction into a conformally calibrated quantile. The factor of a row
// is at index 2*(requests are waiting) + (at least half of the prompt is cached).
type LevelFactors struct {
	Model   string     `json:"model"`
	Level   float64    `json:"level"`
	Factors [4]float64 `json:"factors"`
}

// Predictor is a loaded predictor.json. It is safe for concurrent use.
type Predictor struct{ targets map[string]*Evaluated }

// Evaluated is one target, ready to predict.
type Evaluated struct {
	Target
	trees, idle, queued, residual *Evaluator    // nil where the file has none
	quantiles                     []*Evaluator  // by place in Target.Quantiles
	factor90                      *LevelFactors // of the model trees; nil where the file has none
	waiting, prefix               int           // places of num_request_waiting and prefix_cache_score among the columns, -1 without
}

// Load returns the predictor in a predictor.json. Unknown keys are ignored.
func Load(r io.Reader) (*Predictor, error) {
	var doc struct {
		SchemaVersion string  `json:"schema_version"`
		Targets       targets `json:"targets"`
	}
	if err := json.NewDecoder(r).Decode(&doc); err != nil {
		return nil, fmt.Errorf("forest: predictor: %w", err)
	}
	if doc.SchemaVersion != schemaVersion {
		return nil, fmt.Errorf("forest: predictor: schema_version: got %q, want %q", doc.SchemaVersion, schemaVersion)
	}
	p := &Predictor{targets: map[string]*Evaluated{}}
	for _, t := range doc.Targets {
		e, err := t.evaluated()
		if err != nil {
			return nil, fmt.Errorf("forest: predictor: %s: %w", t.Name, err)
		}
		p.targets[t.Name] = e
	}
	if len(p.targets) == 0 {
		return nil, fmt.Errorf("forest: predictor: got no targets, want ttft_ms or tpot_ms")
	}
	return p, nil
}

// targets is the list of targets in a file. It is decoded one by one up to the first error, because
// for a list of structs encoding/json makes every element before it returns an error.
type targets []Target

func (list *targets) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if first, err := dec.Token(); err != nil || first != json.Delim('[') {
		return fmt.Errorf("targets: got no list")
	}
	for dec.More() {
		var t Target
		if err := dec.Decode(&t); err != nil {
			return err
		}
		if t.Name == "" {
			return fmt.Errorf("targets: got a target without a name")
		}
		*list = append(*list, t)
	}
	return nil
}

// Target returns the target of that name, nil when the file has none.
func (p *Predictor) Target(name string) *Evaluated { return p.targets[name] }

// evaluated returns a target with its forests compiled and the columns that select a forest.
func (t Target) evaluated() (*Evaluated, error) {
	e := &Evaluated{Target: t, waiting: -1, prefix: -1}
	if t.Trees == nil {
		return nil, fmt.Errorf("got no trees")
	}
	for i, c := range t.Columns {
		switch c.Name {
		case "num_request_waiting":
			e.waiting = i
		case "prefix_cache_score":
			e.prefix = i
		}
	}
	var err error
	compile := func(f *Forest) *Evaluator {
		if f == nil || err != nil {
			return nil
		}
		var out *Evaluator
		out, err = f.Compile(len(t.Columns))
		return out
	}
	e.trees = compile(t.Trees)
	e.idle = compile(t.Idle)
	e.queued = compile(t.Queued)
	e.residual = compile(t.Residual)
	for i := range t.Quantiles {
		e.quantiles = append(e.quantiles, compile(&t.Quantiles[i].Forest))
	}
	for i := range t.Factors {
		if f := &t.Factors[i]; f.Model == "trees" && f.Level == 0.9 {
			e.factor90 = f
		}
	}
	return e, err
}

// Predict returns the estimated latency in ms of a row: the target's columns in order, NaN for
// unknown. isOutside is the result of [Evaluated.IsOutside]. Trees do not extrapolate, so under
// more load than in training the prediction is too small.
func (e *Evaluated) Predict(x []float64) (ms float64, isOutside bool) {
	return math.Exp(e.trees.Margin(x)), e.IsOutside(x)
}

// PredictGated returns what Predict does with the idle or the queued forest, depending on whether
// the row has waiting requests. Without those forests it is Predict.
func (e *Evaluated) PredictGated(x []float64) (ms float64, isOutside bool) {
	if e.idle == nil || e.queued == nil || e.waiting < 0 {
		return e.Predict(x)
	}
	f := e.idle
	if x[e.waiting] > 0 {
		f = e.queued
	}
	return math.Exp(f.Margin(x)), e.IsOutside(x)
}

// PredictWith returns what Predict does for a row whose estimate by the physics (a simulation of the
// scheduler with fitted step times) is known, in ms. Without residual trees it is that estimate.
func (e *Evaluated) PredictWith(x []float64, physicsMs float64) (ms float64, isOutside bool) {
	if e.residual == nil {
		return physicsMs, e.IsOutside(x)
	}
	return physicsMs * math.Exp(e.residual.Margin(x)), e.IsOutside(x)
}

// P90 returns the calibrated 0.9-quantile in ms: the prediction times the factor of the row's group.
// ok is false when the file has no factors of that level.
func (e *Evaluated) P90(x []float64) (ms float64, ok bool) {
	if e.factor90 == nil {
		return 0, false
	}
	ms, _ = e.Predict(x)
	return ms * e.factor90.Factors[e.group(x)], true
}

// Quantile returns the uncalibrated estimate in ms of the i-th of Quantiles, whose levels ascend. Each is
// fitted independently, so it returns the largest estimate of the first to the i-th, to prevent
// quantiles from crossing.
func (e *Evaluated) Quantile(i int, x []float64) float64 {
	most := math.Inf(-1)
	for _, q := range e.quantiles[:i+1] {
		most = math.Max(most, q.Margin(x))
	}
	return math.Exp(most)
}

// group returns the index of a row's conformal factor.
func (e *Evaluated) group(x []float64) int {
	g := 0
	if e.waiting >= 0 && x[e.waiting] > 0 {
		g = 2
	}
	if e.prefix >= 0 && x[e.prefix] >= 0.5 {
		g++
	}
	return g
}

// IsOutside reports whether a value is outside its column's training range by more than half of the
// range's width, or for a column that is never negative by more than half of its maximum.
func (e *Evaluated) IsOutside(x []float64) bool {
	for i := range e.Columns {
		c := &e.Columns[i]
		slack := (rangeFactor - 1) * (c.Max - c.Min)
		if c.Min >= 0 {
			slack = (rangeFactor - 1) * c.Max
		}
		if !c.IsCategory && (x[i] < c.Min-slack || x[i] > c.Max+slack) {
			return true
		}
	}
	return false
}
