package gate

// This file judges a gate whose value is an estimate with an interval, such as a mean error, and computes
// how many more values would decide it.

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/blis-train/blis-train/result"
)

// Judging estimates (spec#sampling-error), by what planted servers showed (spec#planted).
const (
	// FewestValues is how many rows or requests decide at least.
	FewestValues = 20
	// worstPassing is how many thresholds away the far end of a passing estimate's interval may be.
	worstPassing = 2
	// surelyDecides is the chance to decide that a stated number of requests or rows gives.
	surelyDecides = 0.85
	// mostToAskFor is the largest number that is stated.
	mostToAskFor = 20_000
	// chanceMargin is how far what chance reaches is brought below the threshold by the number that is stated:
	// it is itself a figure of few replays.
	chanceMargin = 1.25
)

// NotWithinReach ends the note of a gate that no recording of reasonable length would decide.
const NotWithinReach = "not within reach"

// judgeEstimate sets the result of a gate from the interval of a signed value whose size is
// compared. The gate fails if the whole interval is at or over the threshold. It passes if the
// value is under the threshold and the interval under worstPassing times it. Otherwise, and for too
// few values, it has no result.
func judgeEstimate(out *result.Gate, in reading) {
	size := *in.value
	if in.interval == nil {
		out.Pass = nil
		out.Note = fmt.Sprintf(noteFewValues, in.size, FewestValues)
		return
	}
	lo, hi := in.interval[0], in.interval[1]
	farthest := math.Max(math.Abs(lo), math.Abs(hi))
	nearest := 0.0 // the end of the interval that is nearer to 0; 0 if the interval contains it
	if lo > 0 || hi < 0 {
		nearest = math.Min(math.Abs(lo), math.Abs(hi))
	}
	isOver := nearest >= out.Threshold
	isUnder := size < out.Threshold && farthest < worstPassing*out.Threshold
	if isOver || isUnder {
		*out.Pass = isUnder
		return
	}
	out.Pass = nil
	needed := estimateSize(in.size, size, (hi-lo)/2, out.Threshold)
	want := fmt.Sprintf("%.3g", 100*out.Threshold)
	out.Note = fmt.Sprintf(noteWideInterval, percentBeside(lo, want), percentBeside(hi, want), want, in.size, wouldDecide(needed, in.noun()))
}

// percentBeside returns a fraction in percent with its sign, with enough digits to differ from a
// threshold that it is not equal to.
func percentBeside(v float64, threshold string) string {
	limit, _ := strconv.ParseFloat(threshold, 64)
	for digits := 1; ; digits++ {
		text := strconv.FormatFloat(100*v, 'f', digits, 64)
		printed, _ := strconv.ParseFloat(text, 64)
		if math.Abs(printed) != limit || digits == 4 {
			if v >= 0 {
				text = "+" + text
			}
			return text
		}
	}
}

// noun returns the word for the values.
func (in *reading) noun() string {
	if in.rows {
		return "rows"
	}
	return "requests"
}

// estimateSize returns how many values decide with probability surelyDecides, where the given number of
// them gave an estimate of this size and an interval of so much (half) either way. The interval shrinks
// with the square root of the number, and the new estimate is somewhere around the old one, by the errors
// of both. It is infinite if even mostToAskFor values do not decide.
func estimateSize(given int, size, half, threshold float64) float64 {
	const z = 1.96 // half a 95 % interval over the standard error
	oldError := half / z
	for needed := float64(given) * 1.1; needed <= mostToAskFor; needed *= 1.1 {
		newError := oldError * math.Sqrt(float64(given)/needed)
		estimate := distuv.Normal{Mu: size, Sigma: math.Hypot(oldError, newError)}
		// The new value passes between -under and under, and fails beyond over either way; between them it
		// has no result.
		under := math.Min(threshold, worstPassing*threshold-z*newError)
		over := threshold + z*newError
		decides := 1 - estimate.CDF(over) + estimate.CDF(-over)
		if under > 0 {
			decides += estimate.CDF(under) - estimate.CDF(-under)
		}
		if decides >= surelyDecides {
			return needed
		}
	}
	return math.Inf(1)
}

// wouldDecide returns the part of a gate's note that states how many values of a kind (noun) would
// be needed for a result, if it is not above mostToAskFor.
func wouldDecide(needed float64, noun string) string {
	if needed > mostToAskFor {
		return fmt.Sprintf("more than %d %s would be needed, which is "+NotWithinReach, mostToAskFor, noun)
	}
	return fmt.Sprintf("about %.0f would decide", math.Ceil(needed))
}
