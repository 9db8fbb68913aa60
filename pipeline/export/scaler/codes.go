package scaler

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	readerGone    trace.Code = "reader_without_file"
	otherFlavour  trace.Code = "flavour_of_another_reader"
	nothingToSay  trace.Code = "no_parameters_to_export"
	noTargets     trace.Code = "no_targets"
	tunerDefaults trace.Code = "tuner_defaults"
	sameEntry     trace.Code = "same_entry"
	badVersion    trace.Code = "bad_reader_version"
	notLoaded     trace.Code = "start_value_only"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: readerGone, Kind: "error", Meaning: "The version of the autoscaler does not read this file.",
		Action: "The message says why and what that version reads instead."},
	{Code: otherFlavour, Kind: "error", Meaning: "The parameters are of a queueing model that the file's reader does not use.",
		Action: "Fit again with the flavour the message names; docs/queueing.md says which consumer uses which."},
	{Code: nothingToSay, Kind: "error", Meaning: "No server of queue.json has what the file needs.",
		Action: "Read the servers' reasons in queue.json."},
	{Code: noTargets, Kind: "error", Meaning: "The file states latency targets and none were given.",
		Action: "Give both --ttft-ms and --itl-ms, or a queue.json that queue size wrote with both."},
	{Code: tunerDefaults, Kind: "warning", Meaning: "A tuner's noise or drift was not measured, so its own default stands in the file.",
		Action: "Export the queue.json of queue track over enough windows."},
	{Code: sameEntry, Kind: "error", Meaning: "Two servers of queue.json would be one entry for the reader, which keeps the last.",
		Action: "Choose one with --config ID."},
	{Code: badVersion, Kind: "error", Meaning: "The version of the consumer is no release number.", Action: "Write it as v0.4.2."},
	{Code: notLoaded, Kind: "warning", Meaning: "No release reads this file by itself.",
		Action: "Use it as a start value, or as a patch of a custom resource's status."},
}
