package features

import "github.com/blis-train/blis-train/trace"

// Codes of rejected inputs (spec#input-checks, spec#finite) and versions (spec#spec-version).
const (
	UnknownSpecVersion trace.Code = "unknown_spec_version"
	BadInput           trace.Code = "bad_input"
	FeatureOutOfRange  trace.Code = "feature_out_of_range"
	WrongFeatureSet    trace.Code = "wrong_feature_set"
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
		"the same version, or a vector has another length than the version has terms.",
		Action: "Use the blis-train that made it, or fit again: the message names the terms that differ."},
}
