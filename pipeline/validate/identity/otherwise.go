package identity

// This file weighs times that are not those of the described server: whether another device explains them, and whether the
// KV cache is that of the description. A reading (identity.go) has what was compared, how much of it contradicts, and a
// sentence.

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/vllm"
)

// Tolerances of other descriptions.
const (
	priorExplained = 1.2 // ratio of measured and predicted times, or its inverse, up to which a device explains them
	priorAlike     = 1.1 // the same, up to which a device without kernel tables is as fast as another
	otherPeaks     = 1.5 // ratio of the bandwidths or arithmetic of two devices, or its inverse, beyond which they are not alike
	priorBesides   = 1.3 // ratio of measured and predicted step times that counts where the KV cache is smaller than described too
)

// weighPrior decides what a departure r from the library's times means. By itself it is only named: hosts, kernels of newer
// releases and other programs on the device all change times. price compares the times with the library's, for facts of
// any description; besides is the ratio of longer times that counts beside a small KV cache.
//
// The described device is wrong where all kinds of times are others than its kernels take, another device explains all of
// them, and its memory explains the KV cache no worse. The reading then fails if times of two kinds are shorter, for which
// there is no other reason, and leaves the verdict open if they are longer, or of one kind.
//
// Longer times leave the verdict open as well, from a smaller departure on, where the KV cache is smaller than the
// description gives. A slow host, or a cache that was set by hand, explains one of the two; weights that are larger than
// described explain both.
func (f *facts) weighPrior(r *reading, price func(*facts) reading, besides float64) {
	if r.why != "" || r.broken && r.effect != result.IdentityNamed {
		return
	}
	if other, like := f.deviceExplaining(r, price); other != nil {
		r.effect = result.IdentityUndecided
		if r.largest < 1 && r.kinds > 1 {
			r.effect = result.IdentityFails
		}
		r.sentence = fmt.Sprintf("%s, and those measured on %s explain all of them within a factor of %.3g: hardware in run.yaml is probably wrong",
			strings.TrimSuffix(r.sentence, ": "+priorDoubts), other.Name, foldChange(like.largest))
		return
	}
	if ratio, isKnown := f.poolRatio(); isKnown && ratio < 1-poolTolerance && r.largest > besides {
		r.broken = true
		r.violated = r.checked
		r.effect = result.IdentityUndecided
		r.sentence = fmt.Sprintf("times are up to %.3g times those of the kernels measured on %s with tp %d (medians of %d), and the KV cache has %.3g times the blocks "+
			"that the described model leaves room for: a size of the model, dtype, tensor_parallel_size or hardware in run.yaml is probably wrong; state a "+
			"cache that was set by hand as vllm.kv_cache_memory_bytes", r.largest, f.dep.Hardware.Name, f.dep.TP, r.checked, ratio)
	}
}

// deviceExplaining returns the built-in device that explains the times of a reading best, with its reading, if all of them
// are within priorExplained of its kernels and its memory explains the KV cache no worse than the described one; nil for
// none. Times of one kind are like those of many devices, and explain none if they are longer.
func (f *facts) deviceExplaining(r *reading, price func(*facts) reading) (best *deploy.Hardware, like reading) {
	isAll := r.broken && r.violated == r.checked
	if r.kinds < 2 && r.largest > 1 || !isAll || foldChange(r.largest) <= priorNamed {
		return nil, reading{}
	}
	stated, isKnown := f.poolRatio()
	mostPool := math.Max(1+poolTolerance, foldChange(stated))
	for _, h := range deploy.Datasheets() {
		if h.Name == f.dep.Hardware.Name {
			continue
		}
		on := f.onDevice(&h)
		if on == nil {
			continue
		}
		got := price(on)
		isExplained := got.kinds == r.kinds && !got.broken && foldChange(got.largest) <= priorExplained
		if pool, _ := on.poolRatio(); isKnown && foldChange(pool) > mostPool {
			continue
		}
		if isExplained && (best == nil || foldChange(got.largest) < foldChange(like.largest)) {
			best = &h
			like = got
		}
	}
	return best, like
}

// onDevice returns the facts with another device in the description, as far as a comparison with the library's times needs
// them; nil for a device without kernel tables of the model.
func (f *facts) onDevice(h *deploy.Hardware) *facts {
	d := *f.dep
	d.Hardware = *h
	on := *f
	on.dep = &d
	on.price = on.pricer()
	if on.price == nil {
		return nil
	}
	on.batches = make([]batchTime, len(f.batches))
	for i := range f.batches {
		on.batches[i] = f.batches[i]
		batch := batchOf(f.batches[i].in)
		on.batches[i].prior = on.price(&batch)
	}
	return &on
}

// poolRatio returns the recorded size of the KV cache over the one that the engine would have chosen in the described
// memory; 1 and false if either is not known. It is infinite where no block would fit.
func (f *facts) poolRatio() (ratio float64, isKnown bool) {
	blocks := f.recordedBlocks()
	bytes, _ := vllm.Number(f.dep.Engine.Extra["kv_cache_memory_bytes"]) // 0 if run.yaml does not set it
	if f.hasOtherBlocks() || !f.isGPU() || blocks <= 0 || f.dep.Model.Sizes != nil || bytes > 0 {
		return 1, false
	}
	want, err := f.dep.EstimateKVBlocks()
	if err != nil {
		return math.Inf(1), true
	}
	return float64(blocks) / float64(want), true
}

// nameLikeDevice returns a reading that names a device without kernel tables whose steps take what they take on a
// built-in device of other figures: run.yaml may give the figures of another device. It is only named, because another
// make may be as fast with other figures. nil stands for no such device.
func (f *facts) nameLikeDevice() *reading {
	if f.isGPU() || len(f.batches) == 0 || !(f.dep.Hardware.BwPeakTBs > 0 && f.dep.Hardware.TFlopsPeak > 0) {
		return nil
	}
	var best *reading
	for _, h := range deploy.Datasheets() {
		bandwidth := f.dep.Hardware.BwPeakTBs / h.BwPeakTBs
		arithmetic := f.dep.Hardware.TFlopsPeak / h.TFlopsPeak
		if foldChange(bandwidth) <= otherPeaks && foldChange(arithmetic) <= otherPeaks {
			continue
		}
		on := f.onDevice(&h)
		if on == nil {
			continue
		}
		decode, prompt := on.priorRatios()
		if len(decode) < fewestPriced || len(prompt) < fewestPriced { // one kind of step is like those of many devices
			continue
		}
		decodes, prompts := stat.Median(decode), stat.Median(prompt)
		worst := math.Max(foldChange(decodes), foldChange(prompts))
		if worst > priorAlike || best != nil && worst >= best.largest {
			continue
		}
		best = &reading{checked: len(decode) + len(prompt), violated: len(decode) + len(prompt), largest: worst, broken: true, effect: result.IdentityNamed}
		best.sentence = fmt.Sprintf("decode steps take %.3g times and steps with prompts %.3g times what the kernels measured on %s take with tp %d (medians of %d "+
			"steps), and run.yaml gives %s %.3g times its bandwidth and %.3g times its arithmetic: hardware in run.yaml may have the figures of another device",
			decodes, prompts, h.Name, f.dep.TP, best.checked, f.dep.Hardware.Name, bandwidth, arithmetic)
	}
	return best
}
