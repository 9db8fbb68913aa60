package sim

import (
	"errors"

	"github.com/blis-train/blis-train/trace"
)

// kvBlocks is the number of GPU KV blocks without the null block: what cfg
// says, else what the deployment states or its memory has room for.
func kvBlocks(cfg *Config) (int64, error) {
	if cfg.KVBlocks > 0 {
		return cfg.KVBlocks, nil
	}
	n, _, err := cfg.Deployment.KVBlocks()
	var coded *trace.Error
	if errors.As(err, &coded) {
		return 0, trace.Errorf(codeNoKVBlocks, "%s", coded.Msg).WithHint("set vllm.kv_blocks_total_gpu in run.yaml or give --kv-blocks")
	}
	return n, err
}
