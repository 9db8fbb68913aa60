package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
)

// modelFlags are inspect's for a model in place of data.
func modelFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "model", Usage: "print layers and sizes of this `CONFIG.json` and stop; hf_quant_config.json beside it is read"},
		&cli.Int64Flag{Name: "tp", Value: 1, Usage: "`N` GPUs of --tensor-parallel-size, with --model"},
		&cli.Int64Flag{Name: "dp", Value: 1, Usage: "`N` engines of --data-parallel-size, with --model"},
		&cli.BoolFlag{Name: "ep", Usage: "--enable-expert-parallel, with --model"},
	}
}

// inspectModel prints the layers and sizes of a model. Exit 1 when it cannot be read or would not load so.
func inspectModel(c *cli.Context, con *console) error {
	if c.NArg() > 0 {
		return usagef("inspect --model: got %s, want no run directory beside it", c.Args().First())
	}
	p := deploy.Parallel{TP: c.Int64("tp"), PP: 1, DP: c.Int64("dp"), Experts: c.Bool("ep")}
	d, err := deploy.ReadDecoderFile(c.String("model"), deploy.ModelOptions{})
	if err != nil {
		return err
	}
	s, err := d.Sizes(p)
	if err != nil {
		return err
	}
	showModel(con, s, p)
	return con.document(s)
}

func showModel(con *console, s *deploy.Sizes, p deploy.Parallel) {
	con.table("layers", cells{"layers", "mixer", "ffn", "parameters each", "weights"}, stat.Map(s.Layers, func(l deploy.Folded) cells {
		return cells{l.Count, l.Mixer, l.FFN, fmt.Sprintf("%.1f M", l.Params/1e6), strings.Join(l.Weights, ", ")}
	}))
	con.table("sizes", cells{"", ""}, []cells{
		{"parameters", fmt.Sprintf("%.2f B, %.2f B active", s.TotalParams/1e9, s.ActiveParams/1e9)},
		{"weights", fmt.Sprintf("%.2f GB", s.WeightBytes/1e9)},
		{fmt.Sprintf("weights per GPU, tp %d dp %d", p.TP, p.DP), fmt.Sprintf("%.2f GB", s.WeightBytesPerGPU/1e9)},
		{"KV cache per token, 16 bit", fmt.Sprintf("%.0f B", s.KVBytesPerToken)},
		{fmt.Sprintf("KV cache per token and GPU, %g B a value", s.BytesPerKV), fmt.Sprintf("%.0f B", s.KVBytesPerTokenGPU)},
		{"windows per request, 16 bit", fmt.Sprintf("%.1f MB", s.WindowBytes/1e6)},
		{"state per request", fmt.Sprintf("%.1f MB", s.StateBytesPerRequest/1e6)},
	})
	if s.KV != nil {
		con.sayf("KV cache: %d %s, blocks of %d tokens, %.2f MB each on a GPU", len(s.KV.Groups), plural(len(s.KV.Groups), "group", "groups"),
			s.KV.Groups[len(s.KV.Groups)-1].Block, s.KV.BlockBytes/1e6)
	}
	if len(s.Defaulted) > 0 {
		con.sayf("not stated, taken as the family's default: %s", strings.Join(s.Defaulted, ", "))
	}
	for _, w := range s.Warnings {
		con.sayf("warning: %s", w)
	}
}
