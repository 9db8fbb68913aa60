package predict

// This file reads service level objectives such as ttft.p95=1s.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/internal/option"
)

// Metrics that a target may limit. TPOT is the mean gap of a request (what vllm bench serve, GuideLLM and
// AIConfigurator report per request), ITL every gap between two tokens.
const (
	TTFT = "ttft"
	TPOT = "tpot"
	ITL  = "itl"
	E2E  = "e2e"
)

// Metrics are all metrics, in the order of tables.
var Metrics = []string{TTFT, TPOT, ITL, E2E}

// Target is a limit on one latency.
type Target struct {
	Metric string `json:"metric"` // ttft, tpot, itl or e2e
	// Quantile is the statistic that the limit bounds: 0.95 for the 95th percentile, always in (0, 1); 0 for the mean.
	Quantile float64 `json:"quantile"`
	LimitMs  float64 `json:"limit_ms"`
}

// Figure returns the statistic as a user writes it: mean, p50, p95, p99.9.
func (t Target) Figure() string {
	if t.Quantile == 0 {
		return "mean"
	}
	return "p" + strconv.FormatFloat(100*t.Quantile, 'g', 6, 64)
}

// String returns the target as a user writes it.
func (t Target) String() string { return fmt.Sprintf("%s.%s=%gms", t.Metric, t.Figure(), t.LimitMs) }

// Targets are what a deployment has to meet: every limit, or with Goodput the limits by a share of requests.
type Targets struct {
	Limits []Target `json:"limits"`
	// Goodput is the least share of requests that meet all limits themselves; 0: the limits are of statistics.
	Goodput float64 `json:"goodput,omitempty"`
}

// defaultQuantile is the percentile of a limit without a figure.
const defaultQuantile = 0.9

// ParseTargets returns the targets in a text such as "ttft.p95=1s,tpot.mean=40ms". A limit without
// a figure is one of the 90th percentile. With "goodput=95%" every limit is that of a single
// request, and this share of requests has to meet all limits.
func ParseTargets(text string) (Targets, error) {
	var out Targets
	figured := "" // the first limit with a figure
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, value, _ := strings.Cut(strings.ToLower(word), "=")
		if name == "goodput" {
			share, err := parseShare(value)
			if err != nil {
				return out, option.Misusef("--slo: goodput: got %q, want a share of requests, as in goodput=95%%", value)
			}
			out.Goodput = share
			continue
		}
		metric, figure, hasFigure := strings.Cut(name, ".")
		quantile, known := parseFigure(figure)
		limit, err := time.ParseDuration(value)
		if err != nil || limit <= 0 || !known || !slices.Contains(Metrics, metric) {
			return out, &option.Misuse{
				Msg: fmt.Sprintf("--slo: got %q, want ttft, tpot, itl or e2e, a statistic (mean, p50, p95 ...) and a time, "+
					"as in ttft.p95=1s", word),
				Hint: targetHint(name, value),
			}
		}
		if hasFigure {
			figured = cmp.Or(figured, word)
		}
		out.Limits = append(out.Limits, Target{Metric: metric, Quantile: quantile, LimitMs: float64(limit) / 1e6})
	}
	switch {
	case len(out.Limits) == 0:
		return out, option.Misusef("--slo: got no limit, want at least one, as in ttft.p95=1s,tpot.mean=40ms")
	case out.Goodput > 0 && figured != "":
		return out, option.Misusef("--slo: got %q with goodput, want limits of a request, without a statistic, as in ttft=1s,goodput=95%%", figured)
	case out.Goodput > 0 && slices.ContainsFunc(out.Limits, func(t Target) bool { return t.Metric == ITL }):
		return out, option.Misusef("--slo: got itl with goodput, want tpot: a request has many gaps and one mean")
	}
	return out, nil
}

// targetHint returns the hint for a target that cannot be read: with a unit if the time has none,
// else an example of the form.
func targetHint(name, value string) string {
	metric, figure, _ := strings.Cut(name, ".")
	_, knownFigure := parseFigure(figure)
	number, err := strconv.ParseFloat(value, 64)
	if err == nil && number > 0 && knownFigure && slices.Contains(Metrics, metric) {
		return fmt.Sprintf("give the unit: %s=%sms, or %s=%ss", name, value, name, value)
	}
	return "write METRIC.STATISTIC=TIME with commas between: ttft.p95=1s,tpot.mean=40ms"
}

// parseFigure returns the quantile of a percentile; 0 for mean. "" is the default figure.
func parseFigure(figure string) (quantile float64, ok bool) {
	switch figure {
	case "":
		return defaultQuantile, true
	case "mean":
		return 0, true
	}
	digits, isPercentile := strings.CutPrefix(figure, "p")
	percent, err := strconv.ParseFloat(digits, 64)
	return percent / 100, isPercentile && err == nil && percent >= 1 && percent <= 99.9
}

// parseShare returns the share in a text 95%, 95 or 0.95.
func parseShare(text string) (float64, error) {
	digits, isPercent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if isPercent || v > 1 {
		v /= 100
	}
	if err == nil && !(v > 0 && v <= 1) {
		err = strconv.ErrRange
	}
	return v, err
}

// Tightened returns the targets with limits that are lower by the errors: a server whose predicted times meet them meets
// t itself even where its true times are larger by these errors.
func (t Targets) Tightened(e Errors) Targets {
	out := Targets{Goodput: t.Goodput, Limits: slices.Clone(t.Limits)}
	for i := range out.Limits {
		l := &out.Limits[i]
		l.LimitMs /= 1 + e.Of(l.Metric)
	}
	return out
}

// Errors are stated errors of latencies, relative to their values (0.1 is 10 %). TPOT is also that of ITL: both are
// times of decode steps.
type Errors struct{ TTFT, TPOT, E2E float64 }

// EqualErrors returns one error of all latencies.
func EqualErrors(e float64) Errors { return Errors{TTFT: e, TPOT: e, E2E: e} }

// Of returns the error of a metric.
func (e Errors) Of(metric string) float64 {
	switch metric {
	case TTFT:
		return e.TTFT
	case E2E:
		return e.E2E
	default: // TPOT and ITL
		return e.TPOT
	}
}
