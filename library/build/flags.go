package build

// This file reads what the servers of measured points really ran, and applies it to their deployments.

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// served is the deployment that a measured point really ran, as the benchmark's own script states
// it. A label of the point may differ from it; the script is what ran.
type served struct {
	TP, DP         int64
	ExpertParallel bool
	MaxNumSeqs     int64
	TokenBudget    int64 // max_num_batched_tokens
	MemoryShare    float64
	More           vllm.Values // further keys of run.yaml's `vllm` section
}

// flagColumns are those that a file of flags must have.
var flagColumns = []string{"id", "tp", "dp", "expert_parallel", "max_num_seqs", "max_num_batched_tokens",
	"gpu_memory_utilization", "further_vllm_keys"}

// readFlags returns what the servers of points ran, by the point's id, from a CSV file. Code: bad_points.
func readFlags(path string) (map[string]*served, result.Input, error) {
	data, err := files.ReadAll(path)
	if err != nil {
		return nil, result.Input{}, err
	}
	in := folder.InputOf(filepath.Base(path), data)
	list, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil || len(list) < 2 {
		return nil, in, badFlags(path, 1, "got no rows (%v)", err)
	}
	for _, want := range flagColumns {
		if !slices.Contains(list[0], want) {
			return nil, in, badFlags(path, 1, "got no column %q, want it", want)
		}
	}
	out := map[string]*served{}
	for i, row := range list[1:] {
		text := map[string]string{}
		for k, name := range list[0] {
			text[name] = row[k]
		}
		s, err := servedRow(path, int64(i+2), text)
		if err != nil {
			return nil, in, err
		}
		if out[text["id"]] != nil {
			return nil, in, badFlags(path, int64(i+2), "got id %q twice, want it once", text["id"])
		}
		out[text["id"]] = s
	}
	return out, in, nil
}

// servedRow returns what a server ran, from one row of flags.
func servedRow(path string, line int64, text map[string]string) (*served, error) {
	s := &served{ExpertParallel: text["expert_parallel"] == "1"}
	for _, n := range []struct {
		column string
		to     *int64
	}{
		{"tp", &s.TP},
		{"dp", &s.DP},
		{"max_num_seqs", &s.MaxNumSeqs},
		{"max_num_batched_tokens", &s.TokenBudget},
	} {
		v, err := strconv.ParseInt(text[n.column], 10, 64)
		if err != nil || v < 1 || v > vllm.MaxTokens {
			return nil, badFlags(path, line, "%s: got %q, want a whole number of at least 1", n.column, text[n.column])
		}
		*n.to = v
	}
	share, err := strconv.ParseFloat(text["gpu_memory_utilization"], 64)
	if err != nil || !(share > 0 && share <= 1) {
		return nil, badFlags(path, line, "gpu_memory_utilization: got %q, want a share in (0, 1]", text["gpu_memory_utilization"])
	}
	s.MemoryShare = share
	if more := text["further_vllm_keys"]; more != "" {
		if err := json.Unmarshal([]byte(more), &s.More); err != nil {
			return nil, badFlags(path, line, "further_vllm_keys: got %q, want a JSON object (%v)", more, err)
		}
	}
	return s, nil
}

// badFlags returns an error about a row of flags.
func badFlags(path string, line int64, format string, args ...any) error {
	return trace.Errorf(requestfit.BadPoints, "%s:%d: flags of measured points: "+format, append([]any{path, line}, args...)...).
		WithHint("the columns are " + strings.Join(flagColumns, ","))
}

// apply sets the deployment, and the dtype of the KV cache in its layers m, to what ran.
func (s *served) apply(d *deploy.Deployment, m *model.Decoder) error {
	d.TP = s.TP
	d.DP = s.DP
	e := &d.Engine
	e.ExpertParallel = s.ExpertParallel
	e.MaxNumSeqs = s.MaxNumSeqs
	e.MaxNumBatchedTokens = s.TokenBudget
	e.GPUMemoryUtilization = s.MemoryShare
	for key, value := range s.More {
		switch key {
		case "kv_cache_dtype":
			name, _ := value.(string)
			m.KVBytes = model.KVTypeBytes(name)
			if !(m.KVBytes > 0) {
				return trace.Errorf(requestfit.BadPoints, "kv_cache_dtype: got %v, want fp8 or another type of vLLM's", value)
			}
		case "block_size":
			size, _ := vllm.Number(value)
			e.BlockSize = int64(size)
		case "compilation_config":
			if text, isText := value.(string); isText {
				var config vllm.Values
				if err := json.Unmarshal([]byte(text), &config); err != nil {
					return trace.Errorf(requestfit.BadPoints, "compilation_config: got %q, want a JSON object", text)
				}
				value = map[string]any(config)
			}
			e.Keep(key, value)
		default:
			e.Keep(key, value)
		}
	}
	return nil
}

// shown returns the flags that change kernels or graphs: three in the form of `vllm serve`, and two words of
// compilation_config.
func (s *served) shown() (flags []string) {
	if s == nil {
		return nil
	}
	for _, key := range []string{"kv_cache_dtype", "max_cudagraph_capture_size", "moe_backend"} {
		if v := s.More[key]; v != nil {
			text, isText := v.(string)
			if n, isNumber := vllm.Number(v); isNumber {
				text = strconv.FormatFloat(n, 'f', -1, 64)
			} else if !isText {
				continue
			}
			flags = append(flags, "--"+strings.ReplaceAll(key, "_", "-")+" "+text)
		}
	}
	config, _ := s.More["compilation_config"].(string)
	for _, name := range []string{"fuse_allreduce_rms", "FULL_DECODE_ONLY"} {
		if strings.Contains(config, name) {
			flags = append(flags, name)
		}
	}
	return flags
}
