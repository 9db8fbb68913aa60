package features

import "github.com/blis-train/blis-train/trace"

// Codes of rejected inputs (spec#input-checks, spec#finite) and versions (spec#spec-version).
const (
	UnknownSpecVersion    trace.Code = "unknown_spec_version"
	BadInput              trace.Code = "bad_input"
	inconsistentTokens    trace.Code = "inconsistent_tokens"
	inconsistentRequests  trace.Code = "inconsistent_requests"
	inconsistentSampled   trace.Code = "inconsistent_sampled"
	badFeature            trace.Code = "bad_feature"
	FeatureOutOfRange     trace.Code = "feature_out_of_range"
	WrongNumberOfFeatures trace.Code = "wrong_number_of_features"
	WrongFeatureSet       trace.Code = "wrong_feature_set"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: UnknownSpecVersion, Kind: "error", Meaning: "A spec version other than 1.0, 1.1, 1.2 and experimental, or an amendment " +
		"nobody knows, was asked for.",
		Action: "Use --spec 1.1, or a newer blis-train that knows the version."},
	{Code: BadInput, Kind: "drop", Meaning: "A feature input is NaN, infinite or negative, or a ratio lies outside 0..1.",
		Action: "Look at the named field in the extracted tables; the row is not used."},
	{Code: inconsistentTokens, Kind: "drop", Meaning: "Prefill plus decode tokens of a step differ from its scheduled tokens.",
		Action: "The batch of the step is contradictory; look for lost events around it. The row is not used."},
	{Code: inconsistentRequests, Kind: "drop", Meaning: "A step's request counts contradict its token counts (a decode has one token, a " +
		"prefill at least one).", Action: "The batch of the step is contradictory; look for lost events around it. The row is not used."},
	{Code: inconsistentSampled, Kind: "drop", Meaning: "More sequences are sampled than requests are scheduled in the step.",
		Action: "The batch of the step is contradictory; look for lost events around it. The row is not used."},
	{Code: badFeature, Kind: "error", Meaning: "A feature came out NaN or infinite although its inputs passed the checks.",
		Action: "Report it with the output of `blis-train features`: the inputs of the step and its deployment."},
	{Code: FeatureOutOfRange, Kind: "drop", Meaning: "A feature exceeded the upper bound of its slot, so the stored value is clipped.",
		Action: "Check the inputs of the named slot; training leaves such rows out, prediction warns once per slot."},
	{Code: WrongFeatureSet, Kind: "error", Meaning: "A fit or a coefficient file was made with other features than this build has under " +
		"the same version.",
		Action: "Use the blis-train that made it, or fit again: the message names the terms that differ."},
	{Code: WrongNumberOfFeatures, Kind: "error", Meaning: "A feature vector has another length than the version has slots.",
		Action: "Size it with len(BetaFeatures(v)) or len(AlphaFeatures(v))."},
}
