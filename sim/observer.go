package sim

// Observer sees a run while it happens. Arguments are reused: copy what you keep.
type Observer interface {
	// Step is called after every schedule(), before its execution.
	Step(s *StepView)
	// Event is called at every change of a request.
	Event(e *Event)
}

// KVObserver is an Observer that also wants prefix-cache and transfer events.
type KVObserver interface {
	Observer
	KV(e *KVEvent)
}

// EventKind names a change of a request.
type EventKind string

// Event kinds. The five of the journey carry the names of the trace.
const (
	Arrived    EventKind = "ARRIVED"
	Enqueued   EventKind = "ENQUEUED"
	Queued     EventKind = "QUEUED"
	Scheduled  EventKind = "SCHEDULED"
	FirstToken EventKind = "FIRST_TOKEN"
	Preempted  EventKind = "PREEMPTED"
	Finished   EventKind = "FINISHED"
	Departed   EventKind = "DEPARTED"
	Rejected   EventKind = "REJECTED"
)

// Event is one change of one request.
type Event struct {
	Kind         EventKind
	AtUs         int64
	Request      int   // index in the workload
	Step         int64 // scheduler.step as the producer would write it (design 02 2.2)
	Resume       bool  // on SCHEDULED: after a preemption
	PrefillDone  int64 // high-water mark of prompt tokens, cached included
	OutputTokens int64
	Preemptions  int64
	FinishStatus string // on FINISHED
	Outcome      Outcome
}

// Member is one running request in a StepView, state before the step's tokens.
type Member struct {
	Request      int
	Computed     int64 // c
	Prompt       int64 // p
	New          int64 // n; 0 = running but unscheduled
	OutputTokens int64 // known to the scheduler (lags by one under async scheduling)
	Preemptions  int64
	Blocks       int64 // allocated, this step's included
	Registered   int64 // of them registered in the prefix cache
	CachedTokens int64 // prompt tokens cached at first admission
}

// StepView is one step as the scheduler sees it.
type StepView struct {
	Batch
	EndUs       int64 // end of execution
	Finished    int64 // requests finished between the previous step and this one
	FreeBlocks  int64
	TotalBlocks int64
	Members     []Member // all running requests, in the scheduler's order
	Admitted    int64    // from waiting in this step
	// As the producer labels phases: prefill while no output token is known.
	LabelledPrefillReqs, LabelledDecodeReqs     int64
	LabelledPrefillTokens, LabelledDecodeTokens int64
}

// KVKind names a KV event.
type KVKind string

// KV event kinds, named as on the wire.
const (
	BlockStored        KVKind = "BlockStored"
	BlockRemoved       KVKind = "BlockRemoved"
	CacheLoadCommitted KVKind = "CacheLoadCommitted"
	CacheStored        KVKind = "CacheStoreCommitted"
	CacheEviction      KVKind = "CacheEviction"
	TransferInitiated  KVKind = "TransferInitiated"
	TransferCompleted  KVKind = "TransferCompleted"
	Published          KVKind = "" // end of update: what came before is one line
)

// KVEvent is one prefix-cache or transfer event, in the producer's order.
type KVEvent struct {
	Kind      KVKind
	AtUs      int64
	Request   int // -1 when the event names none
	Step      int64
	Hashes    []uint64 // BlockStored, BlockRemoved
	Parent    uint64
	HasParent bool
	ToCPU     bool // store: GPU -> CPU; otherwise CPU -> GPU
	CPU       bool // medium of a BlockStored, BlockRemoved or CacheEviction
	Blocks    int64
	Transfer  int64
}
