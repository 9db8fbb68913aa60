package cluster

import (
	"fmt"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
)

// calibrationS is how long each of three loads lasts in a calibration run, s.
const calibrationS = 8.0

// Calibration is the requests of a calibration run of one engine: 0.5, 0.7 and 0.9
// of its capacity, on workload groups, whose prompts differ.
func (p *plant) Calibration() ([]sim.Request, error) {
	load := loads["groups"]
	l := &lab{IsolationOptions: IsolationOptions{Instances: 1}}
	capacity, err := l.probe(p, &gate{Kind: kindSame, Scale: 1}, load.Draw(999, 4000, 0.3))
	if err != nil {
		return nil, err
	}
	var out []sim.Request
	for k, share := range []float64{0.5, 0.7, 0.9} {
		for _, q := range load.Draw(int64(1000+k), share*capacity, calibrationS) {
			q.ID, q.ArrivalUs = fmt.Sprint(len(out)), q.ArrivalUs+int64(float64(k)*calibrationS*1e6)
			out = append(out, q)
		}
	}
	return out, nil
}

// runFiles are the run.yaml, from its form, and the config.json of a recording of a
// deployment.
func runFiles(d *deploy.Deployment, form string) (runYAML, config string) {
	h, e, m := &d.Hardware, &d.Engine, &d.Model
	blocks, _, _ := d.KVBlocks()
	runYAML = fmt.Sprintf(form, h.Name, h.TFlopsPeak, h.TFlopsFP8, h.BwPeakTBs, h.MemoryGB, h.PCIeBandwidthGBs, h.PCIeEfficiency,
		h.InterconnectBandwidthGBs, d.TP, d.PP, d.DP, e.VLLMVersion, d.MaxModelLen().Or(8192), e.MaxNumSeqs, e.MaxNumBatchedTokens,
		e.ChunkedPrefill, e.PrefixCaching, e.BlockSize, blocks, e.IsAsync())
	config = fmt.Sprintf(`{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":%d,"num_hidden_layers":%d,`+
		`"num_attention_heads":%d,"num_key_value_heads":%d,"head_dim":%d,"intermediate_size":%d,"vocab_size":%d,"torch_dtype":"bfloat16",`+
		`"max_position_embeddings":%d}`, m.HiddenSize, m.NumLayers, m.NumHeads, m.NumKVHeads, m.HeadDim, m.IntermediateSize, m.VocabSize,
		d.MaxModelLen().Or(8192))
	return runYAML, config
}
