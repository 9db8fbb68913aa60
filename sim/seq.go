package sim

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

// seq is a request inside the engine. Counts are tokens; blocks include the current step's
// allocation. Each step walks over hundreds of running requests, so the fields that a decode of a
// synchronous engine without drafts needs are in the first two cache lines of 64 bytes.
type seq struct {
	computed int64 // tokens in KV, those of steps in flight included: num_computed_tokens
	outputs  int64 // output tokens that the scheduler has received
	prompt   int64
	inFlight int64 // output tokens scheduled but not yet known, drafts included: num_output_placeholders
	drafts   int64 // proposed behind its last known token, to be verified by its next step: spec_token_ids
	flying   int64 // tokens in steps in flight, where the engine keeps more than one
	target   int64 // output tokens at which it stops
	status   status
	first    bool // FIRST_TOKEN has been seen
	chunk    bool // its last step left known tokens uncomputed: is_prefill_chunk
	deferred bool // passed over while it waited
	prefills bool // admitted, and has not computed all its known tokens since
	drains   bool // some of flying is stale

	held      held
	side      int64 // further blocks, of attention windows and recurrent states
	idx       int
	maxTokens int64

	req       *Request
	res       *RequestResult
	stale     int64 // of flying, those scheduled before its last preemption, with Rules.ResumeAfterDrain
	verified  int64 // verifies so far
	decodeAt  int64 // the first step that may decode it again, with pipeline parallelism
	cached    int64 // prompt tokens cached at first admission, -1 before
	hiwater   int64 // prompt tokens processed, cached included; survives preemption
	preempted int64
	doneStep  int64 // step count when it left, for reuse
	lastToken int64 // us of its last token, with Config.TokenGaps
	gaps      []int32
	// Its last failed admission for want of blocks: the pool's gains then, and the budget.
	blockedAt     int64
	blockedBudget int64
	content       *Content      // nil without caching and before it is first considered
	shared        int64         // leading blocks of content that others may have
	offload       *offloadState // nil without a connector
	remote        remoteState
	nextFree      *seq
}

// mostSpare bounds the records that an engine keeps for further requests, so that a queue that
// was long once does not hold its memory.
const mostSpare = 1024

// freeList hands out the records of sequences that have left, first in, first out.
type freeList struct {
	head, tail *seq
	n          int
}

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

// take is the first record, when it left before the given step.
func (l *freeList) take(before int64) *seq {
	s := l.head
	if s == nil || s.doneStep >= before {
		return nil
	}
	l.n--
	l.head = s.nextFree
	return s
}

// visit is a request on its way through one engine, from the API and back.
type visit struct {
	req  *Request
	s    *seq // in the engine; nil before and after
	res  RequestResult
	grad *gradient // nil without Config.Gradient
}

// tokens is what the scheduler wants in KV: prompt and known outputs (num_tokens).
func (s *seq) tokens() int64 { return s.prompt + s.outputs }

// blockHash is the chained hash of block b of the request.
func (s *seq) blockHash(b, blockSize int64) uint64 {
	h, _ := s.content.Block(b, blockSize)
	return h
}
