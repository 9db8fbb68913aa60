package predictor

// loss is what the trees minimise.
type loss string

const (
	squared     loss = "squared" // sum w(y - f)^2: f is a mean
	pinballLoss loss = "pinball" // sum w*max(q(y - f), (q-1)(y - f)): f is the quantile q
)

// treesOptions say how trees are grown.
type treesOptions struct {
	Loss     loss
	Quantile float64 // q of pinballLoss, in (0, 1)

	Trees    int     // >= 0
	Depth    int     // splits on the way to a leaf, 1 to 12
	Rate     float64 // share of each tree that is added, in (0, 1]
	RowFrac  float64 // rows drawn for each tree, in (0, 1]
	ColFrac  float64 // columns drawn for each tree, in (0, 1]; at least one is
	Lambda   float64 // squared penalty on a leaf, in rows of mean weight, >= 0
	Alpha    float64 // absolute penalty on a leaf, in gradients of mean weight, >= 0
	MinChild float64 // least weight of a leaf, in rows of mean weight, >= 0

	Seed uint64
}

// treesDefaultOptions are 200 trees of depth 6 for a mean, with the settings that
// llm-d's latency predictor ships for XGBoost (llm-d-latency-predictor 04e44cd,
// training/training_server.py), but for its gamma of 0.2: that is in units of the
// loss, which change with the target's unit.
func treesDefaultOptions() treesOptions {
	return treesOptions{Loss: squared, Quantile: 0.5, Trees: 200, Depth: 6, Rate: 0.05, RowFrac: 0.8, ColFrac: 0.8,
		Lambda: 0.1, Alpha: 0.01, MinChild: 5, Seed: 1}
}
