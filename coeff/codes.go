package coeff

import "github.com/blis-train/blis-train/trace"

// Codes of coefficient files and predictions.
const (
	BadFile               trace.Code = "bad_coefficient_file"
	OutsideTraining       trace.Code = "outside_training"
	ImpossibleCoefficient trace.Code = "impossible_coefficient"
	NotInLibrary          trace.Code = "not_in_library"
	fileChanged           trace.Code = "coefficients_changed"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: BadFile, Kind: "error", Meaning: "The coefficient file is not what its format says: no YAML, a key or a schema that this " +
		"version does not know, a term of another name, unit or number than its slot, a value that is not finite.",
		Action: "Fix the named line, or write the file again with `blis-train export --format native`."},
	{Code: OutsideTraining, Kind: "warning", Meaning: "The deployment is outside what the coefficients were trained on: model, hardware, " +
		"tensor-parallel size, vLLM minor version, a switch or precision that no training configuration had, batches that push a feature " +
		"beyond 1.5 times its training maximum, or a term that was not learned.",
		Action: "Trust the leave-one-configuration-out error; validate on a run of the deployment, or add such runs and refit."},
	{Code: fileChanged, Kind: "warning", Meaning: "The coefficient file is not as it was written: the digest in its last line is another. " +
		"Its values are used as they stand.", Action: "Nothing when you edited it on purpose (remove the line then); else export it again."},
	{Code: ImpossibleCoefficient, Kind: "finding", Meaning: "A step-time coefficient of the relative recipe is negative, which its fit " +
		"cannot give.", Action: "Restore the file, or refit; a hand-edited value can make steps shorter than nothing."},
	{Code: NotInLibrary, Kind: "error", Meaning: "The library has no coefficients for the deployment's GPU and weights.",
		Action: "Give a coefficient file with --coefficients; `blis-train library show` lists what there is."},
}
