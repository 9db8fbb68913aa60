package validate

import (
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Codes of a validation and of an inspection.
const (
	nothingToJudge trace.Code = "nothing_to_validate"
	NoReplay       trace.Code = "no_replay"
	ReplayAssumes  trace.Code = "replay_assumption"
	notHeldOut     trace.Code = "not_held_out"
	notTheFit      trace.Code = "not_the_fits_coefficients"
	figuresLeftOut trace.Code = "figures_left_out"
	incomplete     trace.Code = "incomplete_recording"
	clockJump      trace.Code = "clock_jump"
	stopStringEnds trace.Code = "stop_string_ends"
	EngineLog      trace.Code = "engine_log"

	// StreamsDisagree is the finding of a violated identity between the streams of a run.
	StreamsDisagree = result.StreamsDisagree

	// SharingContradicted is the warning of sources that state different shares of cached prompt tokens.
	SharingContradicted trace.Code = "sharing_contradicted"
)
