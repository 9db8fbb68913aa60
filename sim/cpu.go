package sim

// loadState is a request's part in the CPU tier.
type loadState struct {
	blocks    int64 // being loaded
	ready     bool
	nextStore int64 // first block not yet offered to the CPU tier
}

// cpuTier is the CPU-memory tier of the KV cache.
type cpuTier struct{ e *engine }

func newCPUTier(e *engine, blocks int64) *cpuTier { return &cpuTier{e: e} }

func (c *cpuTier) planStores([]item)                           {}
func (c *cpuTier) loaded(*seq) bool                            { return true }
func (c *cpuTier) match(*seq, int64) (blocks int64, busy bool) { return 0, false }
func (c *cpuTier) startLoad(*seq, int64, int64)                {}
func (c *cpuTier) completeTransfers(int64)                     {}
func (c *cpuTier) forget(*seq)                                 {}
func (c *cpuTier) hold(map[int32]int32)                        {}
func (e *engine) cpuIdle() bool                                { return true }
