package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Config is the configuration as one string: a label people read and eight hex
// digits that stand for model, hardware, tp and every engine knob. Two deployments
// are one configuration exactly when the strings are equal (spec#configuration).
//
//	llama-3.1-8b H100-SXM-80GB tp1 #0f1e2d3c
func (d *Deployment) Config() string {
	sum := sha256.Sum256([]byte(d.configKey()))
	return d.Label() + " #" + hex.EncodeToString(sum[:4])
}

// Label names model, hardware and tp for people: "llama-3.1-8b H100-SXM-80GB tp1".
func (d *Deployment) Label() string {
	label := fmt.Sprintf("%s %s tp%d", ModelName(d.Model.ID), d.Hardware.Name, d.TP)
	if d.DP > 1 && d.Model.IsMoE() {
		label += fmt.Sprintf(" dp%d", d.DP)
	}
	if d.Engine.ExpertParallel {
		label += " ep"
	}
	return label
}

// configKey writes every field of a configuration in a fixed order.
func (d *Deployment) configKey() string {
	m, h, e := &d.Model, &d.Hardware, &d.Engine
	var b strings.Builder
	for _, v := range []string{ModelName(m.ID), m.ModelType, m.LinearCompute, h.Name} {
		b.WriteString(strconv.Quote(v) + " ")
	}
	for _, v := range []int64{m.NumLayers, m.HiddenSize, m.NumHeads, m.NumKVHeads, m.HeadDim, m.IntermediateSize, m.VocabSize,
		m.NumMLPProj, m.NumExperts, m.TopK, m.MoEIntermediateSize, m.NumMoELayers, m.SharedExpertSize,
		d.TP, e.MaxNumSeqs, e.MaxNumBatchedTokens, e.BlockSize, e.KVBlocksGPU.Or(-1), e.KVBlocksCPU} {
		b.WriteString(strconv.FormatInt(v, 10) + " ")
	}
	for _, v := range []float64{m.BytesPerWeight, m.BytesPerKV, m.BytesPerActivation, m.BytesPerLMHead,
		h.TFlopsPeak, h.TFlopsFP8, h.BwPeakTBs, h.PCIeBandwidthGBs, h.PCIeEfficiency, h.InterconnectBandwidthGBs,
		h.InterconnectLatencyUs, e.GPUMemoryUtilization} {
		b.WriteString(strconv.FormatFloat(v, 'g', -1, 64) + " ")
	}
	for _, v := range []bool{e.ChunkedPrefill, e.PrefixCaching, e.CPUOffloading} {
		b.WriteString(strconv.FormatBool(v) + " ")
	}
	if m.Layered != nil {
		_ = json.NewEncoder(&b).Encode(m.Layered) // plain numbers and texts
	}
	if d.Engine.ExpertParallel || d.DP > 1 && m.IsMoE() {
		fmt.Fprintf(&b, "dp%d ep %t ", d.DP, d.Engine.ExpertParallel)
	}
	return b.String()
}
