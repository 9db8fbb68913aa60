package sim

// This file prints what happens in a simulation, for people.

import (
	"bufio"
	"fmt"
	"strconv"
)

// Log is an Observer that writes one line per event and step, for people:
//
//	<us> <EVENT> <request> ...
//	<us> step <id>: <what ran> ...
type Log struct {
	W        *bufio.Writer // keeps its first error until Flush
	Requests []Request     // the workload, for the ids of its requests
}

// name returns the id of request i, or # and its index if it has none.
func (l *Log) name(i int) string {
	if id := l.Requests[i].ID; id != "" {
		return id
	}
	return "#" + strconv.Itoa(i)
}

// Step implements Observer: it writes a line with the requests of the step, each as id
// computed+new.
func (l *Log) Step(v *StepView) {
	fmt.Fprintf(l.W, "%d ", v.StartUs)
	if v.Ranked {
		fmt.Fprintf(l.W, "rank %d ", v.Rank)
	}
	if v.Dummy {
		fmt.Fprintf(l.W, "dummy of %d\n", v.DecodeTokens)
		return
	}
	fmt.Fprintf(l.W, "step %d:", v.StepID)
	for _, m := range v.Members {
		fmt.Fprintf(l.W, " %s %d+%d", l.name(m.Request), m.Computed, m.New)
	}
	if len(v.Members) == 0 {
		fmt.Fprint(l.W, " nothing")
	}
	fmt.Fprintf(l.W, "; waiting %d, free blocks %d of %d", v.Waiting, v.FreeBlocks, v.TotalBlocks)
	if v.EndUs != pendingUs {
		fmt.Fprintf(l.W, ", until %d", v.EndUs)
	}
	fmt.Fprintln(l.W)
}

// Event implements Observer: it writes a line for the event.
func (l *Log) Event(e *Event) {
	fmt.Fprintf(l.W, "%d %s %s", e.AtUs, e.Kind, l.name(e.Request))
	switch e.Kind {
	case Scheduled:
		if e.Resume {
			fmt.Fprint(l.W, " again")
		}
	case Finished:
		fmt.Fprintf(l.W, " %s after %d tokens", e.FinishStatus, e.OutputTokens)
	case Departed:
		fmt.Fprintf(l.W, " %s", e.Outcome)
	}
	fmt.Fprintln(l.W)
}

// Flush writes the buffered lines.
func (l *Log) Flush() error { return l.W.Flush() }
