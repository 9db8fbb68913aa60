package repo

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// init makes the garbage collector of a test binary run less often, and of the processes that tests start: what tests
// allocate is garbage soon, and collecting it was a tenth of what they cost. Benchmarks and evaluations measure what
// commands take, so they keep the settings of package par. GOGC takes precedence.
func init() {
	isBenchmark := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.bench=") })
	if isBenchmark || Eval() || os.Getenv("GOGC") != "" {
		return
	}
	os.Setenv("GOGC", "400") // package par reads it, in this process and in others
	debug.SetGCPercent(400)
}
