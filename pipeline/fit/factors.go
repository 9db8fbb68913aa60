package fit

// This file finds the factors by which the step times of single deployments, configurations and
// devices differ from the common coefficients (docs/decisions/0009, spec#factors).

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// ApplyDeploymentFactors finds the factors that every deployment and configuration of the fit needs
// on top of the common coefficients (docs/decisions/0009), appends them to out and predicts the rows
// of s again with them. label is the deployment of each configuration.
func ApplyDeploymentFactors(s *Solved, label []string, out *result.Model) {
	if s.Frozen != nil { // the recipe of earlier coefficients, which had no factors
		return
	}
	byRun := totalsByRun(s)
	logs := runFactorLogs(byRun)
	// The two factors of a run are sums, which a slow spell of the machine moves. Several runs are averaged
	// by medians; a single one needs a median over its own time.
	if len(s.Pool.Runs) == 1 {
		level := math.Log(typicalLevel(s))
		logs[0] = [2]float64{level, level}
	}
	poolFactors(s, label, byRun, logs, out)
}

// runFactorLogs returns, for each run, the logarithms of its factors of [0] all terms except prompt
// work and [1] prompt work, which make the sums of predictions equal the measured ones.
func runFactorLogs(byRun []runTotals) [][2]float64 {
	logs := make([][2]float64, len(byRun))
	for r := range byRun {
		logs[r] = byRun[r].logs()
	}
	return logs
}

// poolFactors pools the log factors of the runs, [0] of all terms except prompt work and [1] of prompt
// work, and applies the result. Runs of one deployment differ, because a machine is not always equally
// fast. The runs' factors are therefore pooled twice, around 1 by deployment and around their
// deployment by configuration, and shrunk by how much runs of one deployment differ from each other.
func poolFactors(s *Solved, label []string, byRun []runTotals, ofRuns [][2]float64, out *result.Model) {
	deployments := newGroups(byRun, func(t *runTotals) string { return label[t.config] })
	configs := newGroups(byRun, func(t *runTotals) string { return s.Pool.Configs[t.config] })
	ofDeployment := make([][2]float64, len(deployments.names))
	ofConfig := make([][2]float64, len(configs.names))
	for k := range 2 {
		logs := make([]float64, len(byRun))
		for r := range byRun {
			if byRun[r].rows > 0 {
				logs[r] = ofRuns[r][k]
			}
		}
		variance := deployments.variance(logs)
		center := deployments.pool(logs, variance)
		for r, g := range deployments.of {
			if g >= 0 {
				logs[r] -= center[g]
			}
		}
		for g, v := range center {
			ofDeployment[g][k] = v
		}
		for g, v := range configs.pool(logs, variance) {
			ofConfig[g][k] = v + center[deployments.of[configs.members[g][0]]]
		}
	}
	for g, name := range deployments.names {
		out.DeploymentFactors = append(out.DeploymentFactors, factorEntry(name, "", ofDeployment[g], byRun, deployments.members[g]))
	}
	for g, name := range configs.names {
		deployment := deployments.names[deployments.of[configs.members[g][0]]]
		out.DeploymentFactors = append(out.DeploymentFactors, factorEntry(deployment, name, ofConfig[g], byRun, configs.members[g]))
	}
	stat.SortStable(out.DeploymentFactors, func(a, b result.DeploymentFactor) int { return strings.Compare(a.Name(), b.Name()) })
	s.ScaleBy(out.DeploymentFactors)
}

// factorEntry returns the entry of a deployment or, if config is not empty, of one configuration of
// it. logs are the log factors of [0] all terms except prompt work and [1] prompt work.
func factorEntry(deployment, config string, logs [2]float64, byRun []runTotals, members []int) result.DeploymentFactor {
	d := result.DeploymentFactor{
		Deployment: deployment,
		Config:     config,
		Factor:     math.Exp(logs[0]),
		Prompt:     math.Exp(logs[1] - logs[0]), // on top of Factor
		Runs:       len(members),
	}
	for _, r := range members {
		d.Rows += byRun[r].rows
	}
	return d
}

// groups are runs by name, in order of first appearance. Runs without training rows are
// in no group.
type groups struct {
	names   []string
	members [][]int // positions of runs, by group
	of      []int   // group of each run, -1: none
}

// newGroups groups the runs by what name returns for them.
func newGroups(byRun []runTotals, name func(*runTotals) string) groups {
	var g groups
	for r := range byRun {
		k := -1
		if byRun[r].rows > 0 {
			n := name(&byRun[r])
			if k = slices.Index(g.names, n); k < 0 {
				k = len(g.names)
				g.names = append(g.names, n)
				g.members = append(g.members, nil)
			}
			g.members[k] = append(g.members[k], r)
		}
		g.of = append(g.of, k)
	}
	return g
}

// values returns those of the values v, one for each run, that belong to group k.
func (g *groups) values(v []float64, k int) []float64 {
	out := make([]float64, len(g.members[k]))
	for i, r := range g.members[k] {
		out[i] = v[r]
	}
	return out
}

// variance returns the variance of the values around the median of their group. It is estimated
// from the mean distance rather than the mean square, so that one recording made while the machine
// was slow counts less. It is 0 if no group has two runs.
func (g *groups) variance(v []float64) float64 {
	var away float64 // sum of the distances from the medians
	n, freedom := 0, 0
	for k := range g.names {
		own := g.values(v, k)
		if len(own) < 2 {
			continue
		}
		centre := stat.Median(own)
		for _, x := range own {
			away += math.Abs(x - centre)
		}
		n += len(own)
		freedom += len(own) - 1
	}
	if freedom == 0 {
		return 0
	}
	mean := away / float64(n)
	return math.Pi / 2 * mean * mean * float64(n) / float64(freedom) // pi/2: variance over squared mean distance of a normal distribution
}

// pool returns the median of every group, shrunk towards 0 as random effects are: the variance of the
// median of n runs, spread/n, is compared with the variance between the medians beyond that. With a
// spread of 0, or one group, medians are not shrunk. Medians are used so that one recording made while
// the machine was slow does not decide.
func (g *groups) pool(v []float64, spread float64) []float64 {
	out := make([]float64, len(g.names))
	var betweenVariance float64 // mean square of the medians about 0, less what the scatter of runs adds to it
	for k := range g.names {
		out[k] = stat.Median(g.values(v, k))
		betweenVariance += (out[k]*out[k] - spread/float64(len(g.members[k]))) / float64(len(g.names))
	}
	if spread == 0 || len(g.names) == 1 {
		return out
	}
	betweenVariance = math.Max(0, betweenVariance)
	for k := range out {
		out[k] *= betweenVariance / (betweenVariance + spread/float64(len(g.members[k])))
	}
	return out
}

// leastShare is the smallest factor of prompt work, relative to the factor of the rest, that one
// run can give. A smaller one means that too few of its steps contain prompts.
const leastShare = 0.2

// runTotals are the measured and predicted times of one run's training rows, us:
// [0] of decode steps, [1] of steps with prompts.
type runTotals struct {
	config int32
	rows   int
	y      [2]float64 // measured
	rest   [2]float64 // predicted by terms that are not prompt work
	prompt [2]float64 // predicted by terms that are
}

// totalsByRun returns the sums over the training rows of every run, in order of run labels. The sums
// of saturated runs are zero.
func totalsByRun(s *Solved) []runTotals {
	out := make([]runTotals, len(s.Pool.Runs))
	saturated := make([]bool, len(s.Pool.Runs))
	for r := range saturated {
		saturated[r] = s.Pool.saturated(int32(r))
	}
	for i, r := range s.Train.Run {
		if saturated[r] {
			continue
		}
		t := &out[r]
		k := 0 // decode steps
		if s.Train.Regime[i] != int32(rows.Decode) {
			k = 1 // steps with prompts
		}
		rest, prompt := splitPrompt(s, s.Train.Row(i))
		t.config = s.Train.Config[i]
		t.rows++
		t.y[k] += s.Train.Y[i]
		t.rest[k] += rest
		t.prompt[k] += prompt
	}
	return out
}

// Blocks of time of typicalLevel. A shared machine keeps its speed for some 10 to 30 s, until other
// work on it begins or ends.
const (
	levelBlockNs = 20 * 1e9
	leastBlocks  = 3 // fewer have no useful median
)

// typicalLevel returns the factor of a run that is fitted alone. The fit has balanced its terms itself,
// so that one factor suffices: the median over blocks of 20 s of measured/predicted sums, weighted by the
// predicted time (spec#factors). Within a block, and so within a request, sums are right, and slow spells
// do not raise the predictions of all other time, as they would in a sum over the run.
func typicalLevel(s *Solved) float64 {
	var measured, predicted []float64 // us, by block
	var measuredUs, predictedUs float64
	last := int64(-1)
	for i, ns := range s.Train.Time { // in time order
		block := (ns - s.Train.Time[0]) / levelBlockNs
		if block != last {
			measured = append(measured, 0)
			predicted = append(predicted, 0)
			last = block
		}
		pred := ridge.Dot(s.Train.Row(i), s.Fit.Beta)
		k := len(measured) - 1
		measured[k] += s.Train.Y[i]
		predicted[k] += pred
		measuredUs += s.Train.Y[i]
		predictedUs += pred
	}
	if !(predictedUs > 0) {
		return 1
	}
	var ratios, weights []float64
	for k, pred := range predicted {
		if pred > 0 {
			ratios = append(ratios, measured[k]/pred)
			weights = append(weights, pred)
		}
	}
	if len(ratios) < leastBlocks {
		return measuredUs / predictedUs
	}
	return stat.WeightedMedian(ratios, weights)
}

// splitPrompt divides the prediction of a row into that of the terms of prompt work and that of the
// others, us.
func splitPrompt(s *Solved, x []float64) (rest, prompt float64) {
	for j, v := range x {
		if s.Terms[j].Prompt {
			prompt += v * s.Fit.Beta[j]
		} else {
			rest += v * s.Fit.Beta[j]
		}
	}
	return rest, prompt
}

// factors returns the run's measured times relative to the predicted ones: `all` applies to every
// term, `more` to prompt work on top of it. They solve two equations: the predicted times of the
// decode steps, and those of the steps with prompts, each add up to the measured ones,
//
//	all*rest[k] + all*more*prompt[k] = y[k]   for k = 0 and 1.
//
// If the run does not determine both, `more` is 1 and `all` makes the total right.
func (t *runTotals) factors() (all, more float64) {
	// Cramer's rule for the unknowns all and all*more.
	if det := t.rest[0]*t.prompt[1] - t.rest[1]*t.prompt[0]; det > 0 {
		all = (t.y[0]*t.prompt[1] - t.y[1]*t.prompt[0]) / det
		allMore := (t.rest[0]*t.y[1] - t.rest[1]*t.y[0]) / det
		if all > 0 && allMore > leastShare*all {
			return all, allMore / all
		}
	}
	if pred := t.rest[0] + t.rest[1] + t.prompt[0] + t.prompt[1]; pred > 0 {
		return (t.y[0] + t.y[1]) / pred, 1
	}
	return 1, 1
}

// logs returns the logarithms of the factors of every term that is not prompt work,
// and of those that are.
func (t *runTotals) logs() [2]float64 {
	all, more := t.factors()
	return [2]float64{math.Log(all), math.Log(all * more)}
}

// factorPrior is how many configurations at factor 1 are added to those of every device,
// so that a device with one configuration keeps half of its log factor.
const factorPrior = 1

// deviceFactors returns the factor that each device needs on top of the common coefficients: the mean
// over its configurations of the median log ratio measured/predicted, shrunk towards 0 and
// exponentiated (partial pooling). hw is the device of each configuration. Configuration label
// `without` is excluded; -1 excludes none. With a single device the result is nil, because its factor
// is part of the coefficients.
func deviceFactors(d *ridge.Data, pred []float64, hw []string, without int32) []result.HardwareFactor {
	logs := make([][]float64, len(hw)) // by configuration
	for i, c := range d.Config {
		if c != without && d.Y[i] > 0 && pred[i] > 0 {
			logs[c] = append(logs[c], math.Log(d.Y[i]/pred[i]))
		}
	}
	var out []result.HardwareFactor
	for c, v := range logs {
		if len(v) == 0 {
			continue
		}
		k := slices.IndexFunc(out, func(h result.HardwareFactor) bool { return h.Hardware == hw[c] })
		if k < 0 {
			k = len(out)
			out = append(out, result.HardwareFactor{Hardware: hw[c]})
		}
		out[k].Factor += stat.Median(v) // a sum of logarithms until the last loop
		out[k].Configs++
	}
	if len(out) < 2 {
		return nil
	}
	for k := range out {
		out[k].Factor = math.Exp(out[k].Factor / float64(out[k].Configs+factorPrior))
	}
	stat.SortStable(out, func(a, b result.HardwareFactor) int { return strings.Compare(a.Hardware, b.Hardware) })
	return out
}

// factorOfDevice returns the factor of a device, 1 if the list does not have the device.
func factorOfDevice(factors []result.HardwareFactor, hardware string) float64 {
	for _, h := range factors {
		if h.Hardware == hardware {
			return h.Factor
		}
	}
	return 1
}

// Scaled returns the predictions multiplied by a factor.
func Scaled(pred []float64, factor float64) []float64 {
	out := make([]float64, len(pred))
	for i, v := range pred {
		out[i] = v * factor
	}
	return out
}

// hardwareName returns the name of the deployment's device.
func hardwareName(d *deploy.Deployment) string { return d.Hardware.Name }

// ScaleBy multiplies the coefficients of every configuration by its factors, and predicts all rows
// again with them.
func (s *Solved) ScaleBy(factors []result.DeploymentFactor) {
	s.on = make([][]float64, len(s.Pool.Configs))
	for c, key := range s.Pool.Configs {
		s.on[c] = make([]float64, len(s.Terms))
		own := result.DeploymentFactor{Factor: 1, Prompt: 1} // of a configuration without training rows
		if k := slices.IndexFunc(factors, func(f result.DeploymentFactor) bool { return f.Config == key }); k >= 0 {
			own = factors[k]
		}
		for j, t := range s.Terms {
			factor := own.Factor
			if t.Prompt {
				factor *= own.Prompt
			}
			s.on[c][j] = s.Fit.Beta[j] * factor
		}
	}
	for i := range s.Pred {
		s.Pred[i] = ridge.Dot(s.Data.Row(i), s.betaIn(s.Data.Config[i]))
	}
}

// betaIn returns the coefficients of configuration c, with its factors.
func (s *Solved) betaIn(c int32) []float64 {
	if s.on == nil {
		return s.Fit.Beta
	}
	return s.on[c]
}
