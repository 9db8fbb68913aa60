package coeff

import "github.com/blis-train/blis-train/trace"

// Codes of coefficient files and predictions.
const (
	badCoefficientFile    trace.Code = "bad_coefficient_file"
	unknownSchemaVersion  trace.Code = "unknown_schema_version"
	unknownFileKey        trace.Code = "unknown_coefficient_key"
	wrongLength           trace.Code = "wrong_coefficient_count"
	wrongName             trace.Code = "wrong_coefficient_name"
	wrongUnit             trace.Code = "wrong_coefficient_unit"
	notFinite             trace.Code = "not_finite"
	noSuchTarget          trace.Code = "no_such_target"
	waitCounted           trace.Code = "wait_as_delay"
	extrapolated          trace.Code = "extrapolation"
	termNotLearned        trace.Code = "not_learned"
	OutsideModel          trace.Code = "outside_trained_model"
	OutsideHardware       trace.Code = "outside_trained_hardware"
	OutsideTP             trace.Code = "outside_trained_tp"
	ImpossibleCoefficient trace.Code = "impossible_coefficient"
	fileChanged           trace.Code = "coefficients_changed"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: badCoefficientFile, Kind: "error", Meaning: "The coefficient file is not YAML of the documented shape.",
		Action: "Fix the named line, or write the file again with `blis-train export --format native`."},
	{Code: unknownSchemaVersion, Kind: "error", Meaning: "The coefficient file was written in a schema that this version does not know.",
		Action: "Use the blis-train that wrote it, or refit."},
	{Code: unknownFileKey, Kind: "error", Meaning: "The coefficient file holds a key that is not part of the format.",
		Action: "Remove it: a misspelt key would otherwise be ignored in silence."},
	{Code: wrongLength, Kind: "error", Meaning: "A model has another number of coefficients than its spec version has slots.",
		Action: "Write the file again; coefficients are never matched by position alone."},
	{Code: wrongName, Kind: "error", Meaning: "A coefficient's name differs from the name of its slot.",
		Action: "Restore the order of the spec version; names decide what a number means."},
	{Code: wrongUnit, Kind: "error", Meaning: "A coefficient's unit differs from the unit of its slot.",
		Action: "Convert the value: time-like slots are us/s, all others us."},
	{Code: notFinite, Kind: "error", Meaning: "A coefficient or a prediction is NaN or infinite.",
		Action: "Find the step of the pipeline that produced it; such a file is never usable."},
	{Code: noSuchTarget, Kind: "error", Meaning: "The coefficient set has no model of the alpha target asked for.",
		Action: "Fit that target, or name one that the message lists."},
	{Code: waitCounted, Kind: "error", Meaning: "A target that contains a wait was to be added as a delay in a replay, which would count " +
		"the wait twice.", Action: "Use the overhead or egress target, or give a constant with --overhead-us."},
	{Code: extrapolated, Kind: "warning", Meaning: "A feature exceeds 1.5 times its largest value in training.",
		Action: "Do not trust the prediction there; add training data of that regime."},
	{Code: termNotLearned, Kind: "warning", Meaning: "A prediction uses a time-like term that the training data did not teach (coefficient " +
		"0 or prior only).", Action: "Add data that contain the regime, for example prefill-heavy steps."},
	{Code: OutsideModel, Kind: "warning", Meaning: "The deployment's model is not one the coefficients were trained on.",
		Action: "Trust the leave-one-configuration-out error, not the hold-out error."},
	{Code: OutsideHardware, Kind: "warning", Meaning: "The deployment's hardware is not one the coefficients were trained on.",
		Action: "Trust the leave-one-configuration-out error, not the hold-out error."},
	{Code: fileChanged, Kind: "warning", Meaning: "The coefficient file is not as it was written: the digest in its last line is another. " +
		"Its values are used as they stand.", Action: "Nothing when you edited it on purpose (remove the line then); else export it again."},
	{Code: ImpossibleCoefficient, Kind: "finding", Meaning: "A step-time coefficient of the relative recipe is negative, which its fit " +
		"cannot give.", Action: "Restore the file, or refit; a hand-edited value can make steps shorter than nothing."},
	{Code: OutsideTP, Kind: "warning", Meaning: "The deployment's tensor-parallel size is not one the coefficients were trained on.",
		Action: "Trust the leave-one-configuration-out error, not the hold-out error."},
}
