package export

// Trend is one figure over the entries that have it.
type Trend struct {
	Figure string  `json:"figure"`
	N      int     `json:"n"`
	First  float64 `json:"first"`
	Last   float64 `json:"last"`
	Best   float64 `json:"best"`
	// Slope is the least-squares change per entry.
	Slope  float64   `json:"slope_per_entry"`
	Values []float64 `json:"-"` // oldest first
}

// figures are the headline figures a trend is drawn of; lower is better unless said.
var figures = []struct {
	name   string
	higher bool
	of     func(headline) *float64
}{
	{"beta_mape", false, func(h headline) *float64 { return h.BetaMAPE }},
	{"beta_skill", true, func(h headline) *float64 { return h.BetaSkill }},
	{"loco_median", false, func(h headline) *float64 { return h.LocoMedian }},
	{"overhead_inside", true, func(h headline) *float64 { return h.OverheadInside }},
	{"ks_ttft", false, func(h headline) *float64 { return h.KSTTFT }},
	{"ks_itl", false, func(h headline) *float64 { return h.KSITL }},
	{"ks_e2e", false, func(h headline) *float64 { return h.KSE2E }},
}

// Trends are those of every headline figure that some entry has.
func Trends(entries []Entry) []Trend {
	out := []Trend{}
	for _, fig := range figures {
		var v []float64
		for _, e := range entries {
			if x := fig.of(e.Headline); x != nil {
				v = append(v, *x)
			}
		}
		if len(v) == 0 {
			continue
		}
		t := Trend{Figure: fig.name, N: len(v), First: v[0], Last: v[len(v)-1], Best: v[0], Slope: slope(v), Values: v}
		for _, x := range v {
			if fig.higher == (x > t.Best) && x != t.Best {
				t.Best = x
			}
		}
		out = append(out, t)
	}
	return out
}

// slope is the least-squares slope of v over its index; 0 for one value.
func slope(v []float64) float64 {
	n := float64(len(v))
	if n < 2 {
		return 0
	}
	var sx, sy, sxx, sxy float64
	for i, y := range v {
		x := float64(i)
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+float64(x*x), sxy+float64(x*y)
	}
	return (float64(n*sxy) - float64(sx*sy)) / (float64(n*sxx) - float64(sx*sx))
}
