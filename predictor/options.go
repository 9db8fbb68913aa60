package predictor

import "fmt"

// loss is what the trees minimise.
type loss string

const (
	squared loss = "squared" // sum w(y - f)^2: f is a mean
	Pinball loss = "pinball" // sum w*max(q(y - f), (q-1)(y - f)): f is the quantile q
)

// Options say how trees are grown.
type treesOptions struct {
	Loss     loss
	Quantile float64 // q of Pinball, in (0, 1)

	Trees    int     // >= 0
	Depth    int     // splits on the way to a leaf, 1 to 12
	Rate     float64 // share of each tree that is added, in (0, 1]
	RowFrac  float64 // rows drawn for each tree, in (0, 1]
	ColFrac  float64 // columns drawn for each tree, in (0, 1]; at least one is
	Lambda   float64 // squared penalty on a leaf, in rows of mean weight, >= 0
	Alpha    float64 // absolute penalty on a leaf, in gradients of mean weight, >= 0
	Gamma    float64 // least gain of a split, as a share of the root's loss in that tree, in [0, 1)
	MinChild float64 // least weight of a leaf, in rows of mean weight, >= 0
	Monotone []int8  // per column: +1 never falls, -1 never rises, 0 free; nil: all free

	Seed    uint64
	Workers int // goroutines, 0: all processors; the result does not depend on it
}

// DefaultOptions are 200 trees of depth 6 for a mean, with the settings that
// llm-d's latency predictor ships for XGBoost (llm-d-latency-predictor 04e44cd,
// training/training_server.py), except Gamma: theirs, 0.2, is in units of the
// loss, which change with the target's unit.
func treesDefaultOptions() treesOptions {
	return treesOptions{Loss: squared, Quantile: 0.5, Trees: 200, Depth: 6, Rate: 0.05, RowFrac: 0.8, ColFrac: 0.8,
		Lambda: 0.1, Alpha: 0.01, MinChild: 5, Seed: 1, Workers: 1}
}

// Check names the first option out of bounds, for a matrix of some columns.
func (o *treesOptions) Check(columns int) error {
	share := func(v float64) bool { return v > 0 && v <= 1 }
	switch {
	case o.Loss != squared && o.Loss != Pinball:
		return fmt.Errorf("forest: loss: got %q, want %s or %s", o.Loss, squared, Pinball)
	case o.Loss == Pinball && !(o.Quantile > 0 && o.Quantile < 1):
		return fmt.Errorf("forest: quantile: got %g, want in (0, 1)", o.Quantile)
	case o.Trees < 0:
		return fmt.Errorf("forest: trees: got %d, want >= 0", o.Trees)
	case o.Depth < 1 || o.Depth > 12:
		return fmt.Errorf("forest: depth: got %d, want 1 to 12", o.Depth)
	case !share(o.Rate) || !share(o.RowFrac) || !share(o.ColFrac):
		return fmt.Errorf("forest: rate, rows and columns: got %g, %g and %g, want each in (0, 1]", o.Rate, o.RowFrac, o.ColFrac)
	case !(o.Lambda >= 0) || !(o.Alpha >= 0) || !(o.MinChild >= 0):
		return fmt.Errorf("forest: lambda, alpha and least weight: got %g, %g and %g, want each >= 0", o.Lambda, o.Alpha, o.MinChild)
	case !(o.Gamma >= 0 && o.Gamma < 1):
		return fmt.Errorf("forest: gamma: got %g, want in [0, 1)", o.Gamma)
	case o.Monotone != nil && len(o.Monotone) != columns:
		return fmt.Errorf("forest: monotone: got %d constraints, want %d", len(o.Monotone), columns)
	case o.Workers < 0:
		return fmt.Errorf("forest: workers: got %d, want >= 0", o.Workers)
	}
	for c, m := range o.Monotone {
		if m < -1 || m > 1 {
			return fmt.Errorf("forest: monotone: column %d: got %d, want -1, 0 or 1", c, m)
		}
	}
	return nil
}
