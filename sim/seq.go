package sim

// This file is the record that an engine keeps of a request, seq, and the lists of unused records.
// Records are reused, because a long run would otherwise spend its time allocating memory.

// status of a request inside the engine.
type status uint8

const (
	statusOutside status = iota
	statusWaiting
	statusPreempted
	statusParked // its blocks come from another server or the CPU tier
	statusRunning
	statusDone
)

// seq is a request inside the engine. Counts are tokens; blocks include those of the current step.
// The loops of a step visit hundreds of requests, so the fields that a decode of a synchronous
// engine without drafts needs come first, in two cache lines of 64 bytes.
type seq struct {
	computed int64 // tokens in KV, including those of steps in flight: num_computed_tokens
	outputs  int64 // output tokens that the scheduler has received
	prompt   int64
	inFlight int64 // output tokens and drafts scheduled but not yet known: num_output_placeholders
	drafts   int64 // drafts after its last known token, which its next step verifies: spec_token_ids
	flying   int64 // tokens in steps in flight, if there may be more than one
	target   int64 // number of output tokens at which it stops
	status   status
	first    bool // it has its first token
	chunk    bool // its last step did not compute all its known tokens: is_prefill_chunk
	deferred bool // passed over while it waited
	prefills bool // it was admitted and has not yet computed all its known tokens
	drains   bool // some of flying was scheduled before its last preemption

	held      held
	side      int64 // of the blocks in held, those for attention windows and recurrent states (KVUnits.Side)
	idx       int   // index of the request in the workload
	maxTokens int64 // max_tokens

	req       *Request
	res       *RequestResult // the result being written, which is part of its visit
	stale     int64          // of flying, those scheduled before its last preemption, with Rules.ResumeAfterDrain
	verified  int64          // number of times that drafts of it were verified
	decodeAt  int64          // the first step that may decode it again, with pipeline parallelism
	sampledUs int64          // when its newest token is sampled, us, with pipeline parallelism
	cached    int64          // prompt tokens cached at its first admission; -1 before
	hiwater   int64          // largest number of prompt tokens processed, also before preemptions
	preempted int64
	doneStep  int64   // step in which it left, after which its record may be reused (newSeq)
	lastToken int64   // time of its last token, us, with Config.TokenGaps
	gaps      []int32 // us between its tokens, with Config.TokenGaps
	// When it last found too few free blocks: pool.Gains plus 1 (0: never), and the token budget.
	blockedAt     int64
	blockedBudget int64
	content       *Content      // nil without caching and before it is first considered
	shared        int64         // number of leading blocks that other requests may have too
	offload       *offloadState // nil without a connector
	remote        remoteState
	nextFree      *seq // the record after it in a freeList
}

// mostSpare is the number of unused records that an engine keeps, so that one long queue does not
// occupy memory for the rest of the run.
const mostSpare = 1024

// freeList is the records of requests that have left, in the order in which they left. A step in flight may
// still refer to such a record, so newSeq takes only one whose request left long enough ago, and zeroes it, its
// link in this list too.
type freeList struct {
	head, tail *seq
	n          int
}

// push adds a record to the list, unless the list has mostSpare already.
func (l *freeList) push(s *seq) {
	if l.n == mostSpare {
		return
	}
	l.n++
	if l.head == nil {
		l.head = s
	} else {
		l.tail.nextFree = s
	}
	l.tail = s
}

// take removes and returns the first record if its request left before step number before; nil
// otherwise.
func (l *freeList) take(before int64) *seq {
	s := l.head
	if s == nil || s.doneStep >= before {
		return nil
	}
	l.n--
	l.head = s.nextFree
	return s
}

// visit is one request from its arrival at the API until it leaves the API.
type visit struct {
	req  *Request
	s    *seq // its record in the engine; nil before and after
	res  RequestResult
	grad *gradient // nil without Config.Gradient
}

// tokens returns the number of known tokens of s, prompt and outputs, whose KV the scheduler wants
// (Request.num_tokens in vLLM).
func (s *seq) tokens() int64 { return s.prompt + s.outputs }

// blockHash returns the hash of block b of the request, which includes all blocks before it.
func (s *seq) blockHash(b, blockSize int64) uint64 {
	h, _ := s.content.Block(b, blockSize)
	return h
}
