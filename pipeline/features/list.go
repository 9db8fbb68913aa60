package features

// lists are the slots of one version in order.
type lists struct{ beta, alpha []Feature }

// The slots of each version. Released lists never change: a coefficient file names its version and
// must mean the same in every later build (a test pins them). A new feature is one file that declares
// it and one line at the end of a list of experimental; lengths of all vectors follow from the lists.

var released10 = lists{
	beta: numbered([]Feature{
		linearCompute10,
		prefillAttention10,
		weightLoad10,
		decodeAttention10,
		kvCacheRead10,
		batchUtilization10,
		prefillDecodeMix10,
		moeActivation10,
		tpCommunication10,
		gqaEfficiency10,
		fixedStepOverhead10,
		preemptionOverhead10,
		cpuOffloadTransfer10,
		cpuOffloadKVRead10,
		chunkedPrefillMixed10,
		bias10,
	}),
	alpha: numbered([]Feature{
		batchSaturation10,
		kvPressure10,
		admissionCompute10,
		baseBias10,
		queueDrain10,
		queueMemoryInteraction10,
		prefixCacheBenefit10,
		memoryAdmissionGap10,
		preemptionDisruption10,
		cpuOffloadExpansion10,
		queuedRegimeBias10,
	}),
}

var released11 = lists{
	beta: numbered([]Feature{
		linearCompute11,
		prefillAttention11,
		weightLoad11,
		decodeAttention11,
		kvCacheRead11,
		batchUtilization11,
		prefillDecodeMix11,
		moeActivation11,
		tpCommunication11,
		gqaEfficiency11,
		fixedStepOverhead11,
		preemptionOverhead11,
		cpuOffloadTransfer11,
		cpuOffloadKVRead11,
		chunkedPrefillMixed11,
		bias11,
	}),
	alpha: numbered([]Feature{
		batchSaturation11,
		kvPressure11,
		admissionCompute11,
		baseBias11,
		queueDrain11,
		queueMemoryInteraction11,
		prefixCacheBenefit11,
		memoryAdmissionGap11,
		preemptionDisruption11,
		cpuOffloadExpansion11,
		queuedRegimeBias11,
	}),
}

var released12 = lists{
	beta: numbered([]Feature{
		linearCompute11,
		prefillAttention11,
		weightLoad11,
		decodeAttention11,
		kvCacheRead11,
		batchUtilization11,
		prefillDecodeMix11,
		moeActivation11,
		tpCommunication11,
		gqaEfficiency11,
		fixedStepOverhead11,
		preemptionOverhead11,
		cpuOffloadTransfer11,
		cpuOffloadKVRead11,
		chunkedPrefillMixed11,
		bias11,
		weightLoadHidden12,
		activationTraffic12,
		collectiveTime12,
		expertLoad12,
	}),
	alpha: numbered([]Feature{
		batchSaturation11,
		kvPressure11,
		admissionCompute11,
		baseBias11,
		queueDrain11,
		queueMemoryInteraction11,
		prefixCacheBenefit11,
		memoryAdmissionGap11,
		preemptionDisruption11,
		cpuOffloadExpansion11,
		queuedRegimeBias11,
	}),
}

// experimental starts as 1.2 and grows at the ends of its lists.
var experimental = lists{
	beta: numbered([]Feature{
		linearCompute11,
		prefillAttention11,
		weightLoad11,
		decodeAttention11,
		kvCacheRead11,
		batchUtilization11,
		prefillDecodeMix11,
		moeActivation11,
		tpCommunication11,
		gqaEfficiency11,
		fixedStepOverhead11,
		preemptionOverhead11,
		cpuOffloadTransfer11,
		cpuOffloadKVRead11,
		chunkedPrefillMixed11,
		bias11,
		weightLoadHidden12,
		activationTraffic12,
		collectiveTime12,
		expertLoad12,
	}),
	alpha: numbered([]Feature{
		batchSaturation11,
		kvPressure11,
		admissionCompute11,
		baseBias11,
		queueDrain11,
		queueMemoryInteraction11,
		prefixCacheBenefit11,
		memoryAdmissionGap11,
		preemptionDisruption11,
		cpuOffloadExpansion11,
		queuedRegimeBias11,
	}),
}

// listsOf are the lists of a version without its amendments; nil for an unknown version.
func listsOf(v Version) *lists {
	switch v.Base() {
	case V10:
		return &released10
	case V11:
		return &released11
	case V12:
		return &released12
	case Experimental:
		return &experimental
	}
	return nil
}

// numbered sets slots and single-configuration penalties.
func numbered(fs []Feature) []Feature {
	for i := range fs {
		fs[i].Slot = i + 1
		if fs[i].PenaltyOne == 0 {
			fs[i].PenaltyOne = fs[i].Penalty
		}
	}
	return fs
}
