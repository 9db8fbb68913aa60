package library

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// kernelTime are the columns of every table.
type kernelTime struct {
	Op     string  `col:"op_name"`
	Kernel string  `col:"kernel_source"`
	Ms     float64 `col:"latency"`
}

func (m *kernelTime) common() *kernelTime { return m }

// The rows of the tables.
type (
	gemmRow struct {
		kernelTime
		DType string `col:"gemm_dtype"`
		M     int64  `col:"m"`
		N     int64  `col:"n"`
		K     int64  `col:"k"`
	}
	attentionRow struct {
		kernelTime
		KVDType string           `col:"kv_cache_dtype"`
		Batch   int64            `col:"batch_size"`
		Prompt  int64            `col:"isl"`
		Heads   int64            `col:"num_heads"`
		KVHeads int64            `col:"num_key_value_heads"`
		HeadDim int64            `col:"head_dim"`
		Step    int64            `col:"step"`
		Window  trace.Opt[int64] `col:"window_size" missing:"unknown"`
		Beams   trace.Opt[int64] `col:"beam_width" missing:"unknown"`
	}
	allReduceRow struct {
		kernelTime
		DType   string `col:"allreduce_dtype"`
		Backend string `col:"backend"`
		GPUs    int64  `col:"num_gpus"`
		Size    int64  `col:"message_size"`
	}
	ncclRow struct {
		kernelTime
		DType string `col:"nccl_dtype"`
		GPUs  int64  `col:"num_gpus"`
		Size  int64  `col:"message_size"`
	}
	moeRow struct {
		kernelTime
		DType        string `col:"moe_dtype"`
		Distribution string `col:"distribution"`
		Tokens       int64  `col:"num_tokens"`
		Hidden       int64  `col:"hidden_size"`
		Inter        int64  `col:"inter_size"`
		TopK         int64  `col:"topk"`
		Experts      int64  `col:"num_experts"`
		TP           int64  `col:"moe_tp_size"`
		EP           int64  `col:"moe_ep_size"`
	}
)

// tableRow is a row by its address.
type tableRow[T any] interface {
	*T
	common() *kernelTime
}

// readTable reads a Parquet file whose rows are of some operations and whose every latency
// is a positive number of ms. The input is called name.
func readTable[T any, P tableRow[T]](path, name string, ops []string) ([]T, coeff.Input, error) {
	data, err := files.ReadAll(path)
	if err != nil {
		return nil, coeff.Input{}, err
	}
	src := folder.InputOf(name, data)
	rows, err := table.ReadFile[T](path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = trace.Errorf(badTable, "%v", err).WithHint("fetch the file again")
	}
	if err == nil && len(rows) == 0 {
		err = trace.Errorf(badTable, "%s: got no rows, want measurements", path)
	}
	for i := range rows {
		m := P(&rows[i]).common()
		if !(m.Ms > 0 && m.Ms < 1e9) {
			return nil, src, trace.Errorf(badTable, "%s: row %d: latency: got %g, want a positive number of ms", path, i+1, m.Ms)
		}
		if !slices.Contains(ops, m.Op) {
			return nil, src, trace.Errorf(badTable, "%s: row %d: op_name: got %q, want %s", path, i+1, m.Op, trace.OneOf(ops)).
				WithHint("put the table of the right operation in this place")
		}
	}
	return rows, src, err
}
