package coeff

import "github.com/blis-train/blis-train/trace"

// Codes of coefficient files and predictions.
const (
	BadCoefficientFile    trace.Code = "bad_coefficient_file"
	UnknownSchemaVersion  trace.Code = "unknown_schema_version"
	UnknownFileKey        trace.Code = "unknown_coefficient_key"
	WrongLength           trace.Code = "wrong_coefficient_count"
	WrongName             trace.Code = "wrong_coefficient_name"
	WrongUnit             trace.Code = "wrong_coefficient_unit"
	NotFinite             trace.Code = "not_finite"
	NoSuchTarget          trace.Code = "no_such_target"
	WaitAsDelay           trace.Code = "wait_as_delay"
	Extrapolation         trace.Code = "extrapolation"
	TermNotLearned        trace.Code = "not_learned"
	OutsideModel          trace.Code = "outside_trained_model"
	OutsideHardware       trace.Code = "outside_trained_hardware"
	OutsideTP             trace.Code = "outside_trained_tp"
	ImpossibleCoefficient trace.Code = "impossible_coefficient"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: BadCoefficientFile, Kind: "error", Meaning: "The coefficient file is not YAML of the documented shape.",
		Action: "Fix the named line, or write the file again with `blis-train export --format native`."},
	{Code: UnknownSchemaVersion, Kind: "error", Meaning: "The coefficient file was written in a schema that this version does not know.",
		Action: "Use the blis-train that wrote it, or refit."},
	{Code: UnknownFileKey, Kind: "error", Meaning: "The coefficient file holds a key that is not part of the format.",
		Action: "Remove it: a misspelt key would otherwise be ignored in silence."},
	{Code: WrongLength, Kind: "error", Meaning: "A model has another number of coefficients than its spec version has slots.",
		Action: "Write the file again; coefficients are never matched by position alone."},
	{Code: WrongName, Kind: "error", Meaning: "A coefficient's name differs from the name of its slot.",
		Action: "Restore the order of the spec version; names decide what a number means."},
	{Code: WrongUnit, Kind: "error", Meaning: "A coefficient's unit differs from the unit of its slot.",
		Action: "Convert the value: time-like slots are us/s, all others us."},
	{Code: NotFinite, Kind: "error", Meaning: "A coefficient or a prediction is NaN or infinite.",
		Action: "Find the step of the pipeline that produced it; such a file is never usable."},
	{Code: NoSuchTarget, Kind: "error", Meaning: "The coefficient set has no model of the alpha target asked for.",
		Action: "Fit that target, or name one that the message lists."},
	{Code: WaitAsDelay, Kind: "error", Meaning: "A target that contains a wait was to be added as a delay in a replay, which would count " +
		"the wait twice.", Action: "Use the overhead or egress target, or give a constant with --overhead-us."},
	{Code: Extrapolation, Kind: "warning", Meaning: "A feature exceeds 1.5 times its largest value in training.",
		Action: "Do not trust the prediction there; add training data of that regime."},
	{Code: TermNotLearned, Kind: "warning", Meaning: "A prediction uses a time-like term that the training data did not teach (coefficient " +
		"0 or prior only).", Action: "Add data that contain the regime, for example prefill-heavy steps."},
	{Code: OutsideModel, Kind: "warning", Meaning: "The deployment's model is not one the coefficients were trained on.",
		Action: "Trust the leave-one-configuration-out error, not the hold-out error."},
	{Code: OutsideHardware, Kind: "warning", Meaning: "The deployment's hardware is not one the coefficients were trained on.",
		Action: "Trust the leave-one-configuration-out error, not the hold-out error."},
	{Code: ImpossibleCoefficient, Kind: "finding", Meaning: "A step-time coefficient of the relative recipe is negative, which its fit " +
		"cannot give.", Action: "Restore the file, or refit; a hand-edited value can make steps shorter than nothing."},
	{Code: OutsideTP, Kind: "warning", Meaning: "The deployment's tensor-parallel size is not one the coefficients were trained on.",
		Action: "Trust the leave-one-configuration-out error, not the hold-out error."},
}
