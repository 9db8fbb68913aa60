package features

// cpuOffloadTransfer11 is step slot 13: the time of GPU-to-CPU block transfers.
//
//	f13 = offload * blocks * block_bytes / pcie     [s]
//
// pcie the group's achievable host bandwidth: every device moves its shard over its own link
// (spec#group-pcie-bandwidth).
//
// Unit:   B / (B/s) = s
// Source: spec#beta-cpu-offload-transfer, spec#transfers
// Bounds: >= 0; 0 without offloading; linear in blocks; not zero in an empty
//
//	step that moved blocks
//
// Omits:  overlap with compute
var cpuOffloadTransfer11 = Feature{
	Name: "cpu_offload_transfer", Kind: Time, Penalty: 1, Bound: boundS,
	Formula: "cpu_offloading*transfer_blocks*block_size_bytes/max(1, group_pcie_bandwidth)",
	Doc:     "time of KV blocks written to the CPU tier",
	beta:    cpuOffloadTransfer,
}

func cpuOffloadTransfer(s *Space, in *StepInput) float64 {
	return s.pcieS(in.TransferBlocks)
}

var cpuOffloadTransfer10 = cpuOffloadTransfer11.
	frozen("cpu_offloading*transfer_blocks*block_size_bytes/max(1e-6, hw_pcie_bandwidth_eff)").
	withBeta(cpuOffloadTransfer)

// cpuOffloadKVRead11 is step slot 14: the time of CPU-to-GPU block transfers.
//
//	f14 = offload * blocks * block_bytes / pcie     [s]
//
// Unit:   B / (B/s) = s
// Source: spec#beta-cpu-offload-kv-read, spec#transfers
// Bounds: >= 0; 0 without offloading; linear in blocks
// Omits:  overlap with compute
var cpuOffloadKVRead11 = Feature{
	Name: "cpu_offload_kv_read", Kind: Time, Penalty: 1, Bound: boundS,
	Formula: "cpu_offloading*cpu_resident_read_blocks*block_size_bytes/max(1, group_pcie_bandwidth)",
	Doc:     "time of KV blocks read from the CPU tier",
	beta:    cpuOffloadKVRead,
}

func cpuOffloadKVRead(s *Space, in *StepInput) float64 {
	return s.pcieS(in.CPUResidentReadBlocks)
}

var cpuOffloadKVRead10 = cpuOffloadKVRead11.
	frozen("cpu_offloading*cpu_resident_read_blocks*block_size_bytes/max(1e-6, hw_pcie_bandwidth_eff)").
	withBeta(cpuOffloadKVRead)

// pcieS is the time of moving blocks over the host link, 0 without offloading.
func (s *Space) pcieS(blocks float64) float64 {
	if s.offload == 0 {
		return 0
	}
	return blocks * s.blockBytes / over(s.pcie)
}

// cpuOffloadExpansion11 is queue slot 10: CPU blocks per GPU block while busy.
//
//	f10 = g * offload * CPU blocks / GPU blocks
//
// Unit:   blocks / blocks = 1
// Source: spec#alpha-cpu-offload-expansion
// Bounds: >= 0; 0 without offloading and on an idle server
// Omits:  how full the CPU tier is
var cpuOffloadExpansion11 = Feature{
	Name: "cpu_offload_expansion", Kind: Ratio, Penalty: 10, Free: true, Bound: 1e4,
	Formula: "gate(running_depth, kv_usage_ratio)*cpu_gpu_capacity_ratio",
	Doc:     "CPU tier relative to the GPU cache while the server is busy",
	alpha:   func(s *Space, in *QueueInput) float64 { return s.gate(in) * s.cpuGPURatio },
}

var cpuOffloadExpansion10 = cpuOffloadExpansion11.
	frozen("gate(running_depth, kv_usage_ratio)*cpu_kv_capacity_bytes/max(1e-6, gpu_kv_capacity_bytes)").
	withAlpha(func(s *Space, in *QueueInput) float64 {
		return s.gate(in) * s.cpuKVBytes / over(s.gpuKVBytes)
	})
