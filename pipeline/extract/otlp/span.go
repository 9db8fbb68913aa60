package otlp

import (
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/trace"
)

// class is what a span means to us.
type class uint8

const (
	ClassForeign class = iota
	classAPI           // vllm.api/llm_request
	ClassCore          // vllm.scheduler/llm_core, and llm_request with journey events of the oldest forks
	ClassStep          // scheduler_steps, scheduler_steps_<N>
	ClassStock         // vllm.llm_engine/llm_request with gen_ai.latency.*
)

// eventName numbers the events of our schema.
type eventName uint8

const (
	APIArrived eventName = iota
	APIHandoff
	APIFirst
	APIDeparted
	APIAborted
	journeyQueued
	journeyScheduled
	journeyFirst
	journeyPreempted
	journeyFinished
	stepSummary
	stepSnapshot
	numEvents
)

var EventNames = [numEvents]string{
	"api.ARRIVED", "api.HANDOFF_TO_CORE", "api.FIRST_RESPONSE_FROM_CORE", "api.DEPARTED", "api.ABORTED",
	"journey.QUEUED", "journey.SCHEDULED", "journey.FIRST_TOKEN", "journey.PREEMPTED", "journey.FINISHED",
	"step.BATCH_SUMMARY", "step.REQUEST_SNAPSHOT",
}

var journeyKinds = [numEvents]string{
	journeyQueued: trace.Queued, journeyScheduled: trace.Scheduled, journeyFirst: trace.FirstToken,
	journeyPreempted: trace.Preempted, journeyFinished: trace.Finished,
}

var eventByName = func() map[string]eventName {
	m := map[string]eventName{}
	for e, n := range EventNames {
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

// Span is one decoded span. Steps and snapshots are rows already, so that the
// one goroutine that collects spans has little to do.
type Span struct {
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
	Rows               *StepRows        // of a step span; the collector frees them
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
func classify(s *Span, journey bool) class {
	steps := strings.HasPrefix(s.Name, "scheduler_steps")
	switch {
	case s.Scope == "vllm.api" && s.Name == "llm_request":
		return classAPI
	case s.Scope == "vllm.scheduler" && s.Name == "llm_core":
		return ClassCore
	case steps && (s.Scope == "vllm.scheduler.step" || s.Scope == "vllm.scheduler"):
		return ClassStep
	case s.Scope == "vllm.llm_engine" && s.Name == "llm_request":
		if journey {
			return ClassCore
		}
		return ClassStock
	case s.Scope == "vllm.tracing.otel" && s.Name == "llm_request": // unmodified vLLM from 0.25 on
		return ClassStock
	}
	return ClassForeign
}

// allowed are the events that belong to a class.
func (c class) allowed(e eventName) bool {
	switch c {
	case classAPI:
		return e <= APIAborted
	case ClassCore:
		return e >= journeyQueued && e <= journeyFinished
	case ClassStep:
		return e >= stepSummary
	}
	return false
}

// dropForeignEvents drops events that do not belong to the span's class.
func (s *Span) dropForeignEvents() {
	for e := range numEvents {
		if s.Class == ClassForeign || s.Class.allowed(e) || s.Counts[e] == 0 {
			continue
		}
		for range s.Counts[e] {
			s.Others = append(s.Others, EventNames[e])
		}
		s.Counts[e] = 0
	}
	if s.Class != classAPI {
		s.API = nil
	}
	s.Faults = slices.DeleteFunc(s.Faults, func(f fault) bool { return !s.Class.allowed(f.event) }) // they count as others
}

// Micros is the i-th time of a stock span, us.
func (s *Span) Micros(i int) trace.Opt[float64] {
	return trace.Opt[float64]{V: s.Stock[i].V * 1e6, OK: s.Stock[i].OK}
}

// SummaryName and SnapshotName are the events of steps.
var SummaryName, SnapshotName = EventNames[stepSummary], EventNames[stepSnapshot]

// Events is how many events the span holds, kept or not.
func (s *Span) Events() int64 {
	n := int64(len(s.Others))
	for _, c := range s.Counts {
		n += int64(c)
	}
	return n
}

// StepRows are summaries and snapshots: of one span, or of one step.
type StepRows struct {
	Steps []trace.Step
	Snaps []trace.Snapshot
}

// rowPool recycles the rows of spans: workers fill them, the collector writes them.
var rowPool = sync.Pool{New: func() any { return new(StepRows) }}

func (r *StepRows) Free() {
	r.Steps, r.Snaps = r.Steps[:0], r.Snaps[:0]
	rowPool.Put(r)
}
