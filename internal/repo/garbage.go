package repo

import (
	"os"
	"runtime/debug"
	"strconv"
)

// testPercent is the garbage that a test binary and the programs that it starts may leave, in percent of the live
// memory. Tests have little memory live and run many short commands, so that the percentage of a program would cost
// them a tenth of their time.
const testPercent = 400

// init sets GOGC, which takes precedence over the settings of internal/par. Evaluations measure memory and time, and
// collect as the program does.
func init() {
	if Eval() || os.Getenv("GOGC") != "" {
		return
	}
	if err := os.Setenv("GOGC", strconv.Itoa(testPercent)); err == nil {
		debug.SetGCPercent(testPercent)
	}
}
