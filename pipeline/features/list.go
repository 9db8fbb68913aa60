package features

import "slices"

// The slots of each version in order. A new feature is one file that declares it, one line here and
// its test; lengths follow from the lists.

var beta11 = numbered([]Feature{
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
})

var beta12 = numbered(slices.Concat(beta11, []Feature{
	weightLoadHidden12,
	activationTraffic12,
	collectiveTime12,
	expertLoad12,
}))

var alpha11 = numbered([]Feature{
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
})

var beta10 = numbered([]Feature{
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
})

var alpha10 = numbered([]Feature{
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
})
