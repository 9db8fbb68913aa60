package sim

// This file passes what happens in a simulation to an observer.

// Observer is called while a run happens. The arguments are reused afterwards, so it must copy what
// it keeps.
type Observer interface {
	// Step is called after every schedule(), before its execution.
	Step(s *StepView)
	// Event is called at every change of a request.
	Event(e *Event)
}

// KVObserver is an Observer that gets the events of the prefix cache and of KV transfers too.
type KVObserver interface {
	Observer
	KV(e *KVEvent)
}

// eventKind is a kind of change of a request.
type eventKind string

// Event kinds. Those that core spans of the tracing fork record have the same names there.
const (
	Arrived    eventKind = "ARRIVED"
	enqueued   eventKind = "ENQUEUED"
	Queued     eventKind = "QUEUED"
	Scheduled  eventKind = "SCHEDULED"
	FirstToken eventKind = "FIRST_TOKEN"
	Preempted  eventKind = "PREEMPTED"
	Finished   eventKind = "FINISHED"
	Departed   eventKind = "DEPARTED"
	rejected   eventKind = "REJECTED"
)

// Event is one change of one request.
type Event struct {
	Kind         eventKind
	AtUs         int64
	Request      int   // index in the workload
	Step         int64 // scheduler step, as the tracing fork numbers it
	Resume       bool  // for SCHEDULED: after a preemption
	PrefillDone  int64 // largest number of prompt tokens processed so far, cached ones included
	OutputTokens int64
	Preemptions  int64
	FinishStatus string // for FINISHED
	Outcome      Outcome
}

// Member is one running request in a StepView, in its state before the step. Letters are those of
// Batch.
type Member struct {
	Request      int
	Computed     int64 // c
	Prompt       int64 // p
	New          int64 // n; 0 if the step computes nothing of it
	OutputTokens int64 // as known to the scheduler, one behind with asynchronous scheduling
	Preemptions  int64
	Blocks       int64 // allocated blocks, including those of this step
	Registered   int64 // of these, the ones registered in the prefix cache
	CachedTokens int64 // prompt tokens cached at first admission
}

// StepView is one step with what the scheduler decided in it.
type StepView struct {
	Batch
	EndUs       int64 // end of execution; pendingUs while not all ranks have reached it
	Rank        int   // rank in a data-parallel deployment
	Ranked      bool  // the deployment is data-parallel
	Dummy       bool  // a dummy pass of a rank without work, whose DecodeTokens belong to no request
	Finished    int64 // requests finished between the previous step and this one
	FreeBlocks  int64
	TotalBlocks int64
	Members     []Member // all running requests, in the scheduler's order
	Admitted    int64    // number of requests admitted in this step
	// The step by the labels of the tracing fork, which calls a request prefill as long as no output
	// token is known.
	LabelledPrefillReqs, LabelledDecodeReqs     int64
	LabelledPrefillTokens, LabelledDecodeTokens int64
}

// kvKind names a KV event.
type kvKind string

// KV event kinds, named as on the wire.
const (
	blockStored        kvKind = "BlockStored"
	blockRemoved       kvKind = "BlockRemoved"
	cacheLoadCommitted kvKind = "CacheLoadCommitted"
	cacheStored        kvKind = "CacheStoreCommitted"
	cacheEviction      kvKind = "CacheEviction"
	transferInitiated  kvKind = "TransferInitiated"
	transferCompleted  kvKind = "TransferCompleted"
	published          kvKind = "" // end of an update: all events before it are one line of a dump
)

// KVEvent is one prefix-cache or transfer event, in the producer's order.
type KVEvent struct {
	Kind      kvKind
	AtUs      int64
	Request   int // -1 when the event names none
	Step      int64
	Hashes    []uint64 // BlockStored, BlockRemoved
	Parent    uint64   // BlockStored: hash of the block before the first of Hashes
	HasParent bool     // there is such a block
	ToCPU     bool     // of a transfer: store, GPU -> CPU; otherwise CPU -> GPU
	CPU       bool     // medium of all events but transfers: the CPU tier; otherwise the GPU
	Blocks    int64    // blocks, or chunks of the CPU tier
	Transfer  int64    // number of the transfer; 0 for other events
}

// showStep passes the step just formed, which ends at `end` us, to the observer.
func (e *Engine) showStep(end int64) {
	if e.obs == nil {
		return
	}
	v := &e.view
	v.Batch = e.batch
	v.EndUs = end
	v.Finished = e.finished
	v.FreeBlocks = e.pool.Free
	v.LabelledPrefillReqs = 0
	v.LabelledDecodeReqs = 0
	v.LabelledPrefillTokens = 0
	v.LabelledDecodeTokens = 0
	v.Members = v.Members[:0]
	scheduled := scheduled(e.cur)
	for _, s := range e.running {
		n := scheduled.tokensOf(s)
		v.Members = append(v.Members, Member{
			Request:      s.idx,
			Computed:     s.computed,
			Prompt:       s.prompt,
			New:          n,
			OutputTokens: s.outputs,
			Preemptions:  s.preempted,
			Blocks:       s.held.N,
			Registered:   s.held.Registered,
			CachedTokens: max(0, s.cached),
		})
		switch {
		case n == 0:
		case s.outputs == 0:
			v.LabelledPrefillReqs++
			v.LabelledPrefillTokens += n
		default:
			v.LabelledDecodeReqs++
			v.LabelledDecodeTokens += n
		}
	}
	e.obs.Step(v)
}
