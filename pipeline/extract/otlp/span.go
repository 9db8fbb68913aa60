package otlp

// This file has the decoded span, the events of vLLM's tracing schema, and the class of a span.

import (
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/trace"
)

// Class is the role of a span in a recording.
type Class uint8

// Classes of spans, each with the scope and name by which it is recognised (spec#wire-versions).
const (
	ClassForeign Class = iota // of another program, or of no use to any table
	ClassAPI                  // vllm.api/llm_request
	ClassCore                 // vllm.scheduler/llm_core, and llm_request with journey events of the oldest forks
	ClassStep                 // scheduler_steps, scheduler_steps_<N>
	ClassStock                // vllm.llm_engine/llm_request with gen_ai.latency.*
)

// EventName is the number of an event of the tracing schema. The events of one class of spans are
// consecutive.
type EventName uint8

const (
	APIArrived EventName = iota
	APIHandoff
	APIFirstResponse
	APIDeparted
	APIAborted
	JourneyQueued
	JourneyScheduled
	JourneyFirstToken
	JourneyPreempted
	JourneyFinished
	StepSummary
	StepSnapshot
	numEvents
)

var eventNames = [numEvents]string{
	APIArrived:        "api.ARRIVED",
	APIHandoff:        "api.HANDOFF_TO_CORE",
	APIFirstResponse:  "api.FIRST_RESPONSE_FROM_CORE",
	APIDeparted:       "api.DEPARTED",
	APIAborted:        "api.ABORTED",
	JourneyQueued:     "journey.QUEUED",
	JourneyScheduled:  "journey.SCHEDULED",
	JourneyFirstToken: "journey.FIRST_TOKEN",
	JourneyPreempted:  "journey.PREEMPTED",
	JourneyFinished:   "journey.FINISHED",
	StepSummary:       "step.BATCH_SUMMARY",
	StepSnapshot:      "step.REQUEST_SNAPSHOT",
}

// String returns the name of the event in a dump.
func (e EventName) String() string { return eventNames[e] }

// eventByName maps the name of an event in a dump to its number.
var eventByName = func() map[string]EventName {
	m := map[string]EventName{}
	for e, name := range eventNames {
		m[name] = EventName(e)
	}
	return m
}()

// firstSlot is, for each event, the slot of the attribute that producers write first, with which
// attrs.find begins.
var firstSlot = func() (first [numEvents]slot) {
	for e := range numEvents {
		switch {
		case e <= APIAborted:
			first[e] = apiTs
		case e <= JourneyFinished:
			first[e] = journeyType
		default:
			first[e] = stepID
		}
	}
	return first
}()

// APIEvent is one api.* event.
type APIEvent struct {
	Name   EventName
	TsNs   int64 // monotonic
	Reason trace.Opt[string]
}

// StockTimes is the durations that an unmodified vLLM writes into its span, us.
type StockTimes struct {
	TTFTUs, E2EUs, QueueUs, PrefillUs, DecodeUs, InferUs trace.Opt[float64]
}

// Span is one decoded span. Step events are converted to rows of tables by the workers already,
// because only one goroutine collects the spans.
type Span struct {
	Class              Class
	Scope, Name        string
	TraceID            [16]byte
	SpanID, Parent     [8]byte
	HasParent          bool
	StartNs, EndNs     int64  // wall clock
	DroppedEvents      int64  // as counted by the producer
	Bad                string // why no record of the span can be used; "" for a good one
	Resource           uint64 // hash of the attributes that identify the producing process
	File               int32  // set by the collector: place of the dump among the inputs
	Line               int64
	Hash               uint64 // hash of the content: equal for a repeated export, not for a conflict
	RequestID          trace.Opt[string]
	Route, Model       trace.Opt[string]
	Prompt, Completion trace.Opt[int64] // tokens
	MaxTokens, N       trace.Opt[int64]
	Stock              StockTimes
	Sequence           trace.Opt[int64] // number of a step span in its engine, from 1
	FirstStep          int64            // lowest step id of the span's events, or step_range_start if that is lower
	LastStep           int64            // highest step id of the span's events
	API                []APIEvent
	Journey            []trace.JourneyEvent
	Rows               *StepRows        // of a step span; the collector frees them
	Counts             [numEvents]int32 // number of events by name, those dropped included
	Others             []NamedCount     // events that are not in the schema, or not of this class
	Faults             []Fault
}

// Fault is consecutive events that were dropped from a span for one reason.
type Fault struct {
	event EventName
	Code  trace.Code
	Msg   string
	N     int64
}

// NamedCount is a number of events of one name.
type NamedCount struct {
	Name string
	N    int64
}

// countName returns the list with n events of a name added. It compares only the last entry: events that
// follow others of their name need no memory, and a name may have several entries.
func countName(list []NamedCount, name string, n int64) []NamedCount {
	if k := len(list); k > 0 && list[k-1].Name == name {
		list[k-1].N += n
		return list
	}
	return append(list, NamedCount{name, n})
}

// classify returns the class of a span by its scope, name and content (spec#wire-versions).
func classify(s *Span, hasJourney bool) Class {
	isSteps := strings.HasPrefix(s.Name, "scheduler_steps")
	switch {
	case s.Scope == "vllm.api" && s.Name == "llm_request":
		return ClassAPI
	case s.Scope == "vllm.scheduler" && s.Name == "llm_core":
		return ClassCore
	case isSteps && (s.Scope == "vllm.scheduler.step" || s.Scope == "vllm.scheduler"):
		return ClassStep
	case s.Scope == "vllm.llm_engine" && s.Name == "llm_request":
		if hasJourney {
			return ClassCore
		}
		return ClassStock
	case s.Scope == "vllm.tracing.otel" && s.Name == "llm_request": // unmodified vLLM from 0.25 on
		return ClassStock
	}
	return ClassForeign
}

// allows reports whether the event occurs in spans of class c.
func (c Class) allows(e EventName) bool {
	switch c {
	case ClassAPI:
		return e <= APIAborted
	case ClassCore:
		return e >= JourneyQueued && e <= JourneyFinished
	case ClassStep:
		return e >= StepSummary
	}
	return false
}

// dropForeignEvents moves events that do not belong to the span's class to Others.
func (s *Span) dropForeignEvents() {
	for e := range numEvents {
		if s.Class == ClassForeign || s.Class.allows(e) || s.Counts[e] == 0 {
			continue
		}
		s.Others = countName(s.Others, e.String(), int64(s.Counts[e]))
		s.Counts[e] = 0
	}
	if s.Class != ClassAPI {
		s.API = nil
	}
	// Such an event is counted in Others, so a fault of it must not be counted again.
	s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return !s.Class.allows(f.event) })
}

// Events returns the number of events of the span, those dropped included.
func (s *Span) Events() int64 {
	n := int64(0)
	for _, other := range s.Others {
		n += other.N
	}
	for _, c := range s.Counts {
		n += int64(c)
	}
	return n
}

// StepRows is the summaries and snapshots of one span or one step.
type StepRows struct {
	Steps []trace.Step
	Snaps []trace.Snapshot
}

// rowPool recycles StepRows: workers fill them, and the collector frees them.
var rowPool = sync.Pool{New: func() any { return new(StepRows) }}

// Free gives the rows back for another span; the caller must not use them afterwards.
func (r *StepRows) Free() {
	r.Steps = r.Steps[:0]
	r.Snaps = r.Snaps[:0]
	rowPool.Put(r)
}
