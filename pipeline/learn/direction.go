package learn

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Direction is one independent combination of terms, as far as the prior was from
// certain of it.
type Direction struct {
	Terms   []string // the largest first, target/term
	Shares  []float64
	Learned float64 // 1 - posterior variance over prior variance

	vector []float64 // one standard error along it
}

// IsLearned says that the requests, not the prior, decide a direction.
func (d *Direction) IsLearned() bool { return d.Learned >= learnedShare }

const learnedShare = 0.9

// directions are the eigenvectors of the information the requests add, in units of
// the prior: most learned first.
func (l *learner) directions(values, post []float64) []Direction {
	n := len(l.m.free)
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, append([]float64(nil), l.m.precision...))) {
		return nil
	}
	var lower mat.TriDense
	chol.LTo(&lower)
	// The prior's precision is LL', so that of L'theta is 1: its posterior covariance
	// is L' post L, with the variances left of the prior's 1 as eigenvalues.
	var half, rest mat.Dense
	half.Mul(lower.T(), mat.NewDense(n, n, append([]float64(nil), post...)))
	rest.Mul(&half, &lower)
	sym := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			sym.SetSym(i, j, (rest.At(i, j)+rest.At(j, i))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(sym, true) {
		return nil
	}
	var vectors, terms mat.Dense
	eigen.VectorsTo(&vectors)
	if err := terms.Solve(lower.T(), &vectors); err != nil {
		return nil
	}
	left := eigen.Values(nil)
	out := make([]Direction, n)
	for k := range n {
		out[k] = l.direction(&terms, k)
		out[k].Learned = math.Min(1, math.Max(0, 1-left[k]))
		out[k].vector = make([]float64, n)
		for j := range n {
			out[k].vector[j] = math.Sqrt(math.Max(0, left[k])) * terms.At(j, k)
		}
	}
	return out
}

// namedShare of a direction is what its named terms make of it at least.
const namedShare = 0.8

// direction names the terms that make up most of a unit move along it.
func (l *learner) direction(vectors *mat.Dense, k int) Direction {
	n := len(l.m.free)
	type part struct {
		name  string
		share float64
	}
	parts, total := make([]part, n), 0.0
	for j := range n {
		v := vectors.At(j, k) / l.m.sd[j]
		parts[j] = part{l.m.names[j], v * v}
		total += float64(v * v)
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.share, a.share) })
	var d Direction
	sum := 0.0
	for _, p := range parts {
		if sum >= namedShare*total {
			break
		}
		d.Terms, d.Shares = append(d.Terms, p.name), append(d.Shares, p.share/total)
		sum += p.share
	}
	return d
}

// needs says what would show a term (spec#request-directions).
var needs = map[string]string{
	"step/prefill_linear_compute": quietPrompts,
	"step/prefill_attention":      "prompts of more than 4,000 tokens, some of them into a quiet server",
	"step/decode_weight_load":     otherModels,
	"step/fixed_step_overhead":    otherModels,
	"step/bias":                   otherModels,
	"step/weight_load_hidden":     otherModels,
	"step/activation_traffic":     otherModels,
	"step/decode_attention":       longContexts,
	"step/kv_cache_read":          longContexts,
	"step/batch_utilization":      "a concurrency that varies threefold, 1 to 4 included",
	"step/prefill_decode_mix":     "long prompts while many others decode",
	"step/chunked_prefill_mixed":  "long prompts while many others decode",
	"step/tp_communication":       otherGPUs,
	"step/collective_time":        otherGPUs,
	"overhead/base_bias":          "164 requests or more into a quiet server",
	"overhead/admission_compute":  quietPrompts,
	"egress/base_bias":            "the end of the response beside its last token",
}

const (
	quietPrompts = "prompts whose lengths vary fourfold, into a quiet server"
	longContexts = "contexts that vary threefold at one concurrency"
	otherModels  = "another depth or precision of the model: one configuration cannot tell it from the rest of a step's constant"
	otherGPUs    = "another number of GPUs: one configuration cannot tell it from the rest of a step"
)

// Needs is the measurement that would show a direction; "" of a learned one.
func (d *Direction) Needs() string {
	if d.IsLearned() {
		return ""
	}
	return needs[d.Terms[0]]
}
