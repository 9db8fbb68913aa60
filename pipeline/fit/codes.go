package fit

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeOverheadUnknown   trace.Code = "overhead_not_identified"
	codePriorContradicted trace.Code = "prior_contradicted"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: codePriorContradicted, Kind: "finding",
		Meaning: "the measured steps of a configuration lie more than 3 of the prior's standard errors from what the prior says",
		Action:  "check hardware, tensor_parallel_size and dtype in run.yaml; if they are right, fit with --prior zero"},
	{Code: codeOverheadUnknown, Kind: "warning", Meaning: "no overhead interval is informative, so the overhead is not identified",
		Action: "record journeys and steps at rate 1.0 on a server that idles now and then, or give --overhead-us"},
}
