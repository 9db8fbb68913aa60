package features

// cpuOffloadTransfer is step slot 13: the time of GPU-to-CPU block transfers.
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
func cpuOffloadTransfer(s *Space, in *StepInput) float64 {
	return s.pcieS(in.TransferBlocks)
}

// cpuOffloadKVRead is step slot 14: the time of CPU-to-GPU block transfers.
//
//	f14 = offload * blocks * block_bytes / pcie     [s]
//
// Unit:   B / (B/s) = s
// Source: spec#beta-cpu-offload-kv-read, spec#transfers
// Bounds: >= 0; 0 without offloading; linear in blocks
// Omits:  overlap with compute
func cpuOffloadKVRead(s *Space, in *StepInput) float64 {
	return s.pcieS(in.CPUResidentReadBlocks)
}

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
func cpuOffloadExpansion11(s *Space, in *QueueInput) float64 { return s.gate(in) * s.cpuGPURatio }

func cpuOffloadExpansion10(s *Space, in *QueueInput) float64 {
	return s.gate(in) * s.cpuKVBytes / over(s.gpuKVBytes)
}
