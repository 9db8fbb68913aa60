package deploy

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// FromLog reads the engine's knobs from what vLLM prints at start: the
// non-default arguments, the engine's configuration line, the scheduler's and
// the KV cache's lines. The log may be gzipped. Lines it does not know are
// skipped, of lines beyond 1 MiB only the beginning is read, and memory does not
// grow with the log. Codes: not_a_vllm_log for a log without any such line, and
// those of package files for one that is no text.
func FromLog(r io.Reader, file string) (*Draft, error) {
	d := NewDraft()
	found := false
	if err := eachLogLine(r, file, func(line string) { found = d.logLine(line) || found }); err != nil {
		return nil, err
	}
	if !found {
		return nil, &trace.SyntaxError{File: file, Code: badCommandLine,
			Msg: "got no configuration line, want the log of a vLLM start (non-default args, Initializing a V1 LLM engine)"}
	}
	d.fromArgs()
	return d, nil
}

// Lengths of the lines of a log that are looked at.
const (
	shortestLogLine = len("# GPU blocks: 1")
	longestLogLine  = 1 << 20
)

// eachLogLine hands every line to do, of overlong ones the beginning.
func eachLogLine(r io.Reader, file string, do func(line string)) error {
	plain, err := files.Unpack(r, file)
	if err != nil {
		return err
	}
	lines := bufio.NewReaderSize(plain, longestLogLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) >= shortestLogLine {
			do(string(line))
		}
		for err == bufio.ErrBufferFull {
			_, err = lines.ReadSlice('\n')
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
}

// logPatterns are the lines that say something, with what they say.
var logPatterns = []struct {
	re   *regexp.Regexp
	take func(d *Draft, m []string)
}{
	{regexp.MustCompile(`vLLM API server version (\S+)`), func(d *Draft, m []string) { d.Set("vllm.version", strings.TrimPrefix(m[1], "v")) }},
	{regexp.MustCompile(`Initializing an? (?:V\d )?LLM engine \(v?([^)]+)\) with config: (.*)`), func(d *Draft, m []string) {
		d.Set("vllm.version", m[1])
		d.engineConfig(m[2])
		d.isCPU = strings.Contains(m[2], "device_config=cpu")
	}},
	{regexp.MustCompile(`non-default args: (\{.*\})`), func(d *Draft, m []string) { d.args(m[1]) }},
	{regexp.MustCompile(`Using max model len (\d+)`), func(d *Draft, m []string) { d.setInt("vllm.max_model_len", m[1]) }},
	{regexp.MustCompile(`Chunked prefill is enabled with max_num_batched_tokens=(\d+)`), func(d *Draft, m []string) {
		d.Set("vllm.enable_chunked_prefill", true)
		d.setInt("vllm.max_num_batched_tokens", m[1])
	}},
	{regexp.MustCompile(`Asynchronous scheduling is (enabled|disabled)`), func(d *Draft, m []string) { d.Set("vllm.async_scheduling", m[1] == "enabled") }},
	{regexp.MustCompile(`(?i)async scheduling .*disabled|disabling asynchronous scheduling`), func(d *Draft, _ []string) {
		d.Set("vllm.async_scheduling", false) // since 0.28 the only word of it
	}}, {regexp.MustCompile(`KV cache size: ([\d,]+) tokens`), func(d *Draft, m []string) {
		d.kvTokens, _ = strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
		d.kvTokens = min(d.kvTokens, vllm.MaxTokens)
	}},
	{regexp.MustCompile(`(?:kv cache|attention) block size to (\d+)`), func(d *Draft, m []string) { d.setInt("vllm.block_size", m[1]) }},
	{regexp.MustCompile(`num_gpu_blocks is: (\d+)`), func(d *Draft, m []string) { d.blocks(m[1]) }},
	{regexp.MustCompile(`device_name=([\w-]+?)(?:,|\.json)`), func(d *Draft, m []string) { d.device(strings.ReplaceAll(m[1], "_", " ")) }},
	{regexp.MustCompile(`GPU 0: ((?:NVIDIA|AMD) [\w .-]+?)(?: \(|,|\s*$)`), func(d *Draft, m []string) { d.device(m[1]) }},
	{regexp.MustCompile(`# (?:GPU|CUDA|cuda) blocks: (\d+)`), func(d *Draft, m []string) { d.blocks(m[1]) }},
	{regexp.MustCompile(`Overriding num_gpu_blocks=\d+ with num_gpu_blocks_override=(\d+)`), func(d *Draft, m []string) { d.blocks(m[1]) }},
}

func (d *Draft) logLine(line string) bool {
	for _, p := range logPatterns {
		if m := p.re.FindStringSubmatch(line); m != nil {
			p.take(d, m)
			return true
		}
	}
	return false
}

func (d *Draft) setInt(path, text string) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		d.Set(path, n)
	}
}

func (d *Draft) blocks(text string) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 1 {
		d.SetNoted("vllm.kv_blocks_total_gpu", n-1, fmt.Sprintf("num_gpu_blocks %d less the null block", n))
	}
}

// device takes the device's name as its driver prints it, where there is a datasheet.
func (d *Draft) device(name string) {
	if sheet, ok := Datasheet(strings.TrimSpace(name)); ok {
		d.SetNoted("hardware.name", sheet.Name, "the log names "+strings.TrimSpace(name))
		return
	}
	d.find(trace.Findingf(unknownHardware, "the log names the device %s, which has no built-in datasheet; give hardware.TFlopsPeak and "+
		"BwPeakTBs", strings.TrimSpace(name)))
}

var engineField = regexp.MustCompile(`(\w+)=('[^']*'|[^,\s(]+)`)

// engineConfig reads "key=value, key=value, ..."; nested objects are skipped key by
// key, none of ours has their names but a drafter's model, which stands behind ours.
func (d *Draft) engineConfig(text string) {
	model := ""
	for _, m := range engineField.FindAllStringSubmatch(text, -1) {
		if m[1] == "model" && model == "" {
			model = strings.Trim(m[2], "'")
		}
		path, ok := runKeys().ofLog[m[1]]
		if !ok || m[2] == "None" {
			continue
		}
		value := strings.Trim(m[2], "'")
		if m[1] == "max_seq_len" {
			d.longest, _ = humanInt(value)
		}
		if d.Get(path) != nil && path != "model.dtype" {
			continue
		}
		switch m[1] {
		case "dtype":
			d.Set(path, strings.TrimPrefix(value, "torch."))
		case "served_model_name", "kv_cache_dtype", "quantization", "speculative_config":
			d.Set(path, value)
		default:
			d.Set(path, flagValue(m[1], cmp.Or(pythonWords[value], value)))
		}
	}
	if d.Get("model.id") == nil && model != "" {
		d.Set("model.id", model)
	}
}

var pythonWords = map[string]string{"True": "true", "False": "false"}

// args reads the printed non-default arguments, a Python dict on one line.
func (d *Draft) args(text string) {
	values, ok := parsePython(text)
	dict, isDict := values.(map[string]any)
	if !ok || !isDict {
		d.find(trace.Findingf(unknownFlag, "the log's non-default args are no Python mapping; what they say is missing here"))
		return
	}
	d.hasArgs = true
	for _, key := range slices.Sorted(maps.Keys(dict)) {
		v := dict[key]
		if v == nil || key == "model_tag" {
			continue
		}
		if !knownFlag(key, "") {
			d.unknownFlag(key, key, "")
			continue
		}
		if key == "model" && d.Get("model.id") != nil {
			continue
		}
		if !vllm.IsSecret(key) {
			d.Set(pathOfFlag(key), v)
		}
		d.offloading(key, v)
	}
	if names, ok := dict["served_model_name"].([]any); ok && len(names) > 0 {
		d.Set("model.id", names[0])
	}
}

// fromArgs decides between several lines about one thing.
func (d *Draft) fromArgs() {
	if id, ok := d.Get("model.id").(string); ok {
		d.Set("model.id", strings.TrimSuffix(id, "/"))
	}
	if d.longest > 0 { // a drafter's "Using max model len" may stand before or behind it
		d.Set("vllm.max_model_len", d.longest)
	}
	if d.isCPU {
		if d.Get("vllm.async_scheduling") == nil {
			d.SetNoted("vllm.async_scheduling", false, "vLLM's CPU back end never schedules asynchronously")
		}
		if d.Get("vllm.block_size") == nil {
			d.SetNoted("vllm.block_size", int64(vllm.CPUBlockSize), "vLLM's default on a CPU")
		}
	}
}

// Against says what a log tells of the engine that run.yaml tells otherwise, key by key.
func (d *Draft) Against(dep *Deployment) (unlike []string) {
	e, m := &dep.Engine, &dep.Model
	if d.Get("vllm.block_size") == nil {
		d.Set("vllm.block_size", e.BlockSize)
	}
	d.CountKVBlocks(m)
	if d.hasArgs && d.Get("vllm.scheduling_policy") == nil { // what they leave out is vLLM's default
		d.Set("vllm.scheduling_policy", vllm.DefaultSchedulingPolicy)
	}
	if d.hasArgs && !d.isCPU && d.Get("vllm.gpu_memory_utilization") == nil {
		d.Set("vllm.gpu_memory_utilization", vllm.DefaultMemoryShare(e.VLLMVersion))
	}
	run := map[string]any{"tensor_parallel_size": dep.TP, "pipeline_parallel_size": dep.PP, "data_parallel_size": dep.DP,
		"vllm.version": e.VLLMVersion, "vllm.max_num_seqs": e.MaxNumSeqs, "vllm.max_num_batched_tokens": e.MaxNumBatchedTokens,
		"vllm.max_model_len": e.MaxModelLen, "vllm.block_size": e.BlockSize, "vllm.kv_blocks_total_gpu": e.KVBlocksGPU,
		"vllm.enable_prefix_caching": e.PrefixCaching, "vllm.enable_chunked_prefill": e.ChunkedPrefill, "vllm.async_scheduling": e.IsAsync(),
		"vllm.scheduling_policy": e.SchedulingPolicy, "vllm.gpu_memory_utilization": e.GPUMemoryUtilization,
		"vllm.enforce_eager": e.Extra["enforce_eager"], "model.id": m.ID, "model.dtype": m.BytesPerActivation,
		"model.kv_cache_dtype": m.BytesPerKV,
		"hardware.name":        dep.Hardware.Name}
	if _, isGPU := Datasheet(dep.Hardware.Name); d.isCPU && isGPU {
		d.Set("hardware.name", "vLLM's CPU back end")
	}
	for _, key := range slices.Sorted(maps.Keys(run)) {
		logged, stated := d.Get(key), run[key]
		if opt, ok := stated.(trace.Opt[int64]); ok {
			if stated = opt.V; !opt.OK {
				continue
			}
		}
		if logged != nil && stated != nil && !d.agree(key, logged, stated, m) {
			unlike = append(unlike, fmt.Sprintf("%s: the log says %v, run.yaml %v", key, logged, stated))
		}
	}
	return unlike
}

// agree reports whether a log and run.yaml say the same, or one of them nothing.
func (d *Draft) agree(key string, logged, stated any, m *model.Model) bool {
	text := fmt.Sprint(logged)
	switch key {
	case "vllm.version":
		v, known := vllm.ParseRelease(text)
		run, stable := vllm.ParseRelease(stated.(string))
		return v == run || !known || !stable
	case "vllm.kv_blocks_total_gpu": // printed in rounded tokens, with or without the null block
		n, _ := logged.(int64)
		return isNearBlocks(stated.(int64), n)
	case "model.id": // served names and paths may be anything
		id, isHub := stated.(string), func(id string) bool { return strings.Count(id, "/") == 1 && id[0] != '/' && id[0] != '.' }
		return !isHub(text) || !isHub(id) || model.Name(text) == model.Name(id)
	case "model.dtype", "model.kv_cache_dtype":
		b := model.DTypeBytes(text)
		if text == "auto" && m.BytesPerWeight == m.BytesPerActivation { // no checkpoint that says otherwise
			b = m.BytesPerActivation
		}
		return b == 0 || b == stated
	}
	return text == fmt.Sprint(stated)
}

// CountKVBlocks sets the blocks of a cache that the log states in tokens alone. m is the model where its config.json is known: then
// they are those that the groups of its layers draw (spec#kv-groups); nil: layers of one kind.
func (d *Draft) CountKVBlocks(m *model.Model) {
	if d.kvTokens == 0 || d.Get("vllm.kv_blocks_total_gpu") != nil {
		return
	}
	whole := func(path string, def int64) int64 {
		if n, ok := d.Get(path).(int64); ok && n > 0 {
			return n
		}
		return def
	}
	size := whole("vllm.block_size", vllm.DefaultBlockSize)
	pool := model.KVPool{Groups: []model.KVGroup{{Kind: model.TokenState, Block: size}}}
	note := fmt.Sprintf("%d tokens in blocks of %d", d.kvTokens, size)
	version, _ := d.Get("vllm.version").(string)
	release, _ := vllm.ParseRelease(version)
	if m != nil {
		if first := m.Layers().Layers[0].Mixer; first != nil && first.Kind == model.Compressed && version != "" && release.Before(model.WidestPagesSince) {
			return // vLLM counted other pages than it allotted
		}
		laidOut, ok := m.Layers().KVPool(model.Parallel{TP: whole("tensor_parallel_size", 1), PP: 1, DP: 1, Release: release}, size)
		if ok && len(laidOut.Groups) > 1 {
			pool = laidOut
			note = fmt.Sprintf("%d tokens of requests that draw blocks for %d groups of layers", d.kvTokens, len(laidOut.Groups))
		}
	}
	inFlight := whole("vllm.max_num_batched_tokens", 0)
	if d.Get("vllm.async_scheduling") != false {
		inFlight *= 2
	}
	if blocks := pool.BlocksOf(d.kvTokens, whole("vllm.max_model_len", 0), inFlight, version); blocks > 1 {
		d.SetNoted("vllm.kv_blocks_total_gpu", blocks-1, note+", less the null block")
	}
}
