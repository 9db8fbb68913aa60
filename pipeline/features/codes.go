package features

import "github.com/blis-train/blis-train/trace"

// Codes of rejected inputs (spec#input-checks, spec#finite) and versions (spec#spec-version).
const (
	UnknownSpecVersion trace.Code = "unknown_spec_version"
	BadInput           trace.Code = "bad_input"
	FeatureOutOfRange  trace.Code = "feature_out_of_range"
	WrongFeatureSet    trace.Code = "wrong_feature_set"
	noSuchTarget       trace.Code = "no_such_target"
	extrapolated       trace.Code = "extrapolation"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: UnknownSpecVersion, Kind: "error", Meaning: "A spec version other than 1.0, 1.1, 1.2 and experimental, or an amendment " +
		"nobody knows, was asked for.",
		Action: "Use --spec 1.1, or a newer blis-train that knows the version."},
	{Code: BadInput, Kind: "drop", Meaning: "The inputs of a feature are NaN, infinite, negative or contradictory (tokens against " +
		"scheduled tokens, requests against tokens, sampled sequences against requests), or give a feature that is not finite.",
		Action: "Look at the named field in the extracted tables, and for lost events around the step; the row is not used."},
	{Code: FeatureOutOfRange, Kind: "drop", Meaning: "A feature exceeded the upper bound of its slot, so the stored value is clipped.",
		Action: "Check the inputs of the named slot; training leaves such rows out, prediction warns once per slot."},
	{Code: WrongFeatureSet, Kind: "error", Meaning: "A fit or a coefficient file was made with other features than this build has under " +
		"the same version, Gram files with other features, recipe or grid than each other, or a vector has another length than the " +
		"version has terms.",
		Action: "Use the blis-train that made it, or fit again: the message names the terms that differ."},
	{Code: noSuchTarget, Kind: "error", Meaning: "The coefficient set has no model of the delay asked for, or one that contains a wait, " +
		"which a replay produces itself and would count twice.",
		Action: "Fit that target, name one that the message lists, or give a constant with --overhead-us."},
	{Code: extrapolated, Kind: "warning", Meaning: "A prediction uses a feature above 1.5 times its largest value in training, or a term " +
		"that the training data did not teach (coefficient 0, or the prior alone).",
		Action: "Do not trust the prediction there; add training data of that regime, for example prefill-heavy steps."},
}
