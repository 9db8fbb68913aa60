package table

// This file checks the order of rows.

import (
	"cmp"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/trace"
)

// disorder returns a message that describes why row b cannot follow row a; "" if it can.
func disorder[T any](a, b *T) string {
	switch b := any(b).(type) {
	case *trace.Step:
		if a := any(a).(*trace.Step); a.ID >= b.ID {
			return fmt.Sprintf("column step_id: got %d after %d, want ascending steps", b.ID, a.ID)
		}
	case *trace.Snapshot:
		if a := any(a).(*trace.Snapshot); a.StepID > b.StepID {
			return fmt.Sprintf("column step_id: got %d after %d, want snapshots in the order of their steps",
				b.StepID, a.StepID)
		}
	case *trace.Iteration:
		if a := any(a).(*trace.Iteration); a.Index >= b.Index {
			return fmt.Sprintf("column iteration: got %d after %d, want ascending iterations", b.Index, a.Index)
		}
	case *trace.Request:
		if a := any(a).(*trace.Request); cmp.Or(unknownLast(a.ArrivedNs, b.ArrivedNs),
			unknownLast(a.QueuedNs, b.QueuedNs)) > 0 {
			return fmt.Sprintf("column arrived_ns: got request %q after a later one, want requests by arrival",
				b.CoreID.Or(b.APIID.V))
		}
	case *trace.JourneyEvent:
		if a := any(a).(*trace.JourneyEvent); a.CoreID > b.CoreID {
			return fmt.Sprintf("column core_id: got %q after %q, want events in the order of their requests' ids",
				b.CoreID, a.CoreID)
		}
	}
	return ""
}

// unknownLast compares two stamps (negative: a is earlier); an unknown stamp is later than all
// others.
func unknownLast(a, b trace.Opt[int64]) int {
	return cmp.Compare(a.Or(math.MaxInt64), b.Or(math.MaxInt64))
}
