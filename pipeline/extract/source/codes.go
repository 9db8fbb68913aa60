package source

import "github.com/blis-train/blis-train/trace"

// Drops: every record that is read and not kept has one of these reasons; the
// last one also refuses a file.
const (
	CodeUnreadable    trace.Code = "unreadable"
	CodeOverLimit     trace.Code = "over_limit"
	CodeBadRecord     trace.Code = "bad_record"
	CodeNotUsed       trace.Code = "not_used"
	CodeDuplicate     trace.Code = "duplicate"
	CodeConflict      trace.Code = "duplicate_conflict"
	CodeIgnoredSignal trace.Code = "ignored_signal"
	CodeNulPadding    trace.Code = "nul_padding"
	CodeNotOTLP       trace.Code = "not_otlp"
)
