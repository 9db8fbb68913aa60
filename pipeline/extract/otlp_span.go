package extract

import (
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/trace"
)

// class is what a span means to us.
type class uint8

const (
	classForeign class = iota
	classAPI           // vllm.api/llm_request
	classCore          // vllm.scheduler/llm_core, and llm_request with journey events of the oldest forks
	classStep          // scheduler_steps, scheduler_steps_<N>
	classStock         // vllm.llm_engine/llm_request with gen_ai.latency.*
)

// eventName numbers the events of our schema.
type eventName uint8

const (
	apiArrived eventName = iota
	apiHandoff
	apiFirst
	apiDeparted
	apiAborted
	journeyQueued
	journeyScheduled
	journeyFirst
	journeyPreempted
	journeyFinished
	stepSummary
	stepSnapshot
	numEvents
)

var eventNames = [numEvents]string{
	"api.ARRIVED", "api.HANDOFF_TO_CORE", "api.FIRST_RESPONSE_FROM_CORE", "api.DEPARTED", "api.ABORTED",
	"journey.QUEUED", "journey.SCHEDULED", "journey.FIRST_TOKEN", "journey.PREEMPTED", "journey.FINISHED",
	"step.BATCH_SUMMARY", "step.REQUEST_SNAPSHOT",
}

// Kinds of journey events that say more than that one happened.
const (
	kindQueued     = "QUEUED"
	kindScheduled  = "SCHEDULED"
	kindFirstToken = "FIRST_TOKEN"
	kindFinished   = "FINISHED"
)

var eventByName = func() map[string]eventName {
	m := map[string]eventName{}
	for e, n := range eventNames {
		m[n] = eventName(e)
	}
	return m
}()

// firstSlot is the attribute each event begins with, the first guess of attrs.
var firstSlot = [numEvents]slot{
	apiTs, apiTs, apiTs, apiTs, apiTs,
	journeyType, journeyType, journeyType, journeyType, journeyType,
	stepID, stepID,
}

// apiEvent is one api.* event.
type apiEvent struct {
	Name   eventName
	TsNs   int64
	Reason trace.Opt[string]
}

// tracedSpan is one decoded span. Steps and snapshots are rows already, so that the
// one goroutine that collects spans has little to do.
type tracedSpan struct {
	Class              class
	Scope, Name        string
	TraceID            [16]byte
	SpanID, Parent     [8]byte
	HasParent          bool
	StartNs, EndNs     int64 // wall
	DroppedEvents      int64
	Bad                string // why it cannot be used
	Resource           uint64 // hash of the resource's attributes
	File               int32
	Line               int64
	Hash               uint64 // of the content, to tell a repeated export from a conflict
	RequestID          trace.Opt[string]
	Route, Model       trace.Opt[string]
	Prompt, Completion trace.Opt[int64]
	MaxTokens, N       trace.Opt[int64]
	Stock              [6]trace.Opt[float64] // seconds: ttft, e2e, queue, prefill, decode, inference
	Sequence           trace.Opt[int64]
	FirstStep          int64 // lowest step id of the span, or step_range_start
	LastStep           int64
	API                []apiEvent
	Journey            []trace.JourneyEvent
	Rows               *stepRows        // of a step span; the collector frees them
	Counts             [numEvents]int32 // events by name, kept or not
	Others             []string         // names of events outside our schema
	Faults             []fault          // dropped events
}

// fault is a dropped event of a span.
type fault struct {
	event eventName
	Code  trace.Code
	Msg   string
}

// classify decides what a span is from scope, name and content (spec#wire-versions).
func classify(s *tracedSpan, journey bool) class {
	steps := strings.HasPrefix(s.Name, "scheduler_steps")
	switch {
	case s.Scope == "vllm.api" && s.Name == "llm_request":
		return classAPI
	case s.Scope == "vllm.scheduler" && s.Name == "llm_core":
		return classCore
	case steps && (s.Scope == "vllm.scheduler.step" || s.Scope == "vllm.scheduler"):
		return classStep
	case s.Scope == "vllm.llm_engine" && s.Name == "llm_request":
		if journey {
			return classCore
		}
		return classStock
	case s.Scope == "vllm.tracing.otel" && s.Name == "llm_request": // unmodified vLLM from 0.25 on
		return classStock
	}
	return classForeign
}

// allowed are the events that belong to a class.
func (c class) allowed(e eventName) bool {
	switch c {
	case classAPI:
		return e <= apiAborted
	case classCore:
		return e >= journeyQueued && e <= journeyFinished
	case classStep:
		return e >= stepSummary
	}
	return false
}

// dropForeignEvents drops events that do not belong to the span's class.
func (s *tracedSpan) dropForeignEvents() {
	for e := range numEvents {
		if s.Class == classForeign || s.Class.allowed(e) || s.Counts[e] == 0 {
			continue
		}
		for range s.Counts[e] {
			s.Others = append(s.Others, eventNames[e])
		}
		s.Counts[e] = 0
	}
	if s.Class != classAPI {
		s.API = nil
	}
	s.Faults = slices.DeleteFunc(s.Faults, func(f fault) bool { return !s.Class.allowed(f.event) }) // they count as others
}

// Micros is the i-th time of a stock span, us.
func (s *tracedSpan) Micros(i int) trace.Opt[float64] {
	return trace.Opt[float64]{V: s.Stock[i].V * 1e6, OK: s.Stock[i].OK}
}

// summaryName and snapshotName are the events of steps.
var summaryName, snapshotName = eventNames[stepSummary], eventNames[stepSnapshot]

// Events is how many events the span holds, kept or not.
func (s *tracedSpan) Events() int64 {
	n := int64(len(s.Others))
	for _, c := range s.Counts {
		n += int64(c)
	}
	return n
}

// stepRows are summaries and snapshots: of one span, or of one step.
type stepRows struct {
	Steps []trace.Step
	Snaps []trace.Snapshot
}

// rowPool recycles the rows of spans: workers fill them, the collector writes them.
var rowPool = sync.Pool{New: func() any { return new(stepRows) }}

func (r *stepRows) Free() {
	r.Steps, r.Snaps = r.Steps[:0], r.Snaps[:0]
	rowPool.Put(r)
}
