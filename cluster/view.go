package cluster

// Request is what a gateway knows of a request.
type Request struct {
	Index        int // of the workload: the key of its random draws
	Class        int // of the ledger
	ClassName    string
	Priority     int // of its class, higher is more important; below 0 it may be shed
	PromptTokens int64
	SLOTTFTUs    int64    // its target, 0: none
	Hashes       []uint64 // chained hashes of the leading prompt blocks that others may share
	Blocks       int64    // full blocks of the prompt
	Prefix       uint64   // its prefix group, 0: no other request is known to begin so
	WaitedUs     int64    // since it first came: a client that tries again has waited
	Try          int      // 0: its first
}

// snapshot is an instance's metrics as of its last scrape.
type snapshot struct {
	AtUs        int64
	QueueDepth  int64 // requests that wait
	BatchSize   int64 // requests that run
	FreeBlocks  int64
	TotalBlocks int64
	StepStartUs int64 // of the step that executes; -1: none, or not exported
}

// KVUsage is the share of KV blocks in use, in [0, 1].
func (s *snapshot) KVUsage() float64 {
	if s.TotalBlocks <= 0 {
		return 0
	}
	return float64(s.TotalBlocks-s.FreeBlocks) / float64(s.TotalBlocks)
}

// View is all that a decision may read. Match and Exact are of the request that is
// decided.
type View struct {
	NowUs     int64
	BlockSize int64
	Snapshots []snapshot
	Ledger    *ledger
	Match     []int64 // leading prompt blocks that the index expects, by instance
	Exact     []int64 // the same by the engines' own events; nil without them
}

// Load is queue, batch and what was sent and has not left: the measure of least-loaded.
func (v *View) Load(i int) int64 {
	s := &v.Snapshots[i]
	return s.QueueDepth + s.BatchSize + v.Ledger.Of[i].InFlight
}

// CachedTokens is the expected cached part of the prompt; one token is always left.
func (v *View) CachedTokens(r *Request, i int) int64 {
	return max(0, min(v.Match[i]*v.BlockSize, r.PromptTokens-1))
}
