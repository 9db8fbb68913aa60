// Command blis-train turns trace dumps of a running vLLM into versioned
// latency coefficients. Flags in, exit code out: 0 done, 1 failed, 2 usage,
// 3 ran fine but a gate failed, 130 interrupted. stdout is data, stderr is talk.
package main

import "os"

//go:generate go test -run TestPagesAreGenerated . -update
//go:generate go test -run TestCodesPageIsCurrent . -update-codes

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
