package ridge

// IdentifiedShare is the v_j under which a term does not vary inside a
// configuration (V-10).
const IdentifiedShare = 1e-6

// WithinVariation is, per configuration (in d.Configs order) and term, the share
// v_j = sum w(x - mean_w)^2/sum w x^2 of a column that varies inside the
// configuration; NaN for an all-zero column. w nil: the rows' factors.
func WithinVariation(d *Data, w []float64) [][]float64 {
	if w == nil {
		w = make([]float64, d.Len())
		for i := range w {
			w[i] = d.factor(i)
		}
	}
	configs := d.Configs()
	out := make([][]float64, len(configs))
	for k, c := range configs {
		out[k] = variation(d, w, c)
	}
	return out
}

func variation(d *Data, w []float64, config int32) []float64 {
	mean, square, spread := make([]float64, d.P), make([]float64, d.P), make([]float64, d.P)
	var total float64
	visit := func(f func(w float64, j int, x float64)) {
		for i, c := range d.Config {
			if c == config {
				for j, x := range d.Row(i) {
					f(w[i], j, x)
				}
			}
		}
	}
	for i, c := range d.Config {
		if c == config {
			total += w[i]
		}
	}
	visit(func(w float64, j int, x float64) { mean[j] += w * x / total; square[j] += w * x * x })
	visit(func(w float64, j int, x float64) { spread[j] += w * (x - mean[j]) * (x - mean[j]) })
	for j := range spread {
		spread[j] /= square[j] // 0/0 is NaN: an all-zero column
	}
	return spread
}

// Identification says where a term's value comes from.
type Identification string

// The tags of V-10. ZeroColumn has no tag in the rows at all: the term is not learned.
const (
	IdentifiedWithin Identification = "within"
	BetweenConfigs   Identification = "between-configs"
	PriorOnly        Identification = "prior-only"
)

// Identify tags each term from its within-configuration shares: within when it
// varies inside at least one configuration, else between-configs, or prior-only
// with one configuration or an all-zero column.
func Identify(shares [][]float64) []Identification {
	out := make([]Identification, len(shares[0]))
	for j := range out {
		out[j] = PriorOnly
		for _, v := range shares {
			if len(shares) > 1 && v[j] == v[j] && out[j] == PriorOnly {
				out[j] = BetweenConfigs
			}
			if v[j] >= IdentifiedShare {
				out[j] = IdentifiedWithin
			}
		}
	}
	return out
}
